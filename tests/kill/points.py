"""At which points of a run a kill test kills: at all of them, or at some."""

from __future__ import annotations

#: Whether a test kills at some points only: at the desk, those that are marked ``seeds`` (``conftest.some_points``).
SOME: list[bool] = []
#: Of the points behind the first ones, one of so many is taken then.
ONE_OF = 5
#: So many are the first ones.
FIRST = 3


def is_taken(number: int) -> bool:
    """Whether a run is killed at the so-manieth point of a way."""
    return not SOME or number <= FIRST or number % ONE_OF == 0
