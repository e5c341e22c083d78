"""Computations of plans beside the event loop: a little at once, the rest in a thread.

A computation is bounded (``plan.compute``), and may still visit so many items that nothing else has its turn meanwhile.
So one piece of work may spend ``ROUNDS`` rounds in the loop, each an operation over a list or an item of one. One that
needs more is begun anew in a thread. It is pure: it gives the same there. Rounds are counted, not timed, so that a
run is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from saga_engine.execution.aside import aside
from saga_engine.plan.effort import spending

_T = TypeVar("_T")
#: What one piece of work may spend in the loop.
ROUNDS: Final = 500


class TooMuch(BaseException):
    """The work needs more rounds than it has. No handler of errors on its way takes it for one of its own."""


def briefly(work: Callable[[], _T], rounds: int = ROUNDS) -> _T:
    """What the work returns. Raises ``TooMuch`` if it spends more rounds."""
    left = rounds

    def spent() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooMuch

    with spending(spent):
        return work()


async def computed(work: Callable[[], _T]) -> _T:
    """What pure work returns, which reads a state that nothing changes meanwhile."""
    try:
        return briefly(work)
    except TooMuch:
        return await aside(work)
