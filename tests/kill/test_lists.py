"""The kill matrix for lists: a process dies around each record of a list and around each call of its items."""

from __future__ import annotations

import pytest

from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.processes import Processes
from tests.kill.world import LISTS


def test_killed_around_the_records_of_a_list(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """The list is journalled once; the saga goes on with that list, and undoes each item once, in reverse (a part)."""
    matrix = Matrix(processes, new_place, server_url, "list", "keyed")
    judged(killed_once(matrix, ("append", "after")), at_least=8)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["keyed", "probed", "bare"])
@pytest.mark.parametrize("plan", list(LISTS))
def test_killed_anywhere_in_a_list(
    processes: Processes, new_place: NewPlace, server_url: str, plan: str, variant: str
) -> None:
    """Before and after each append and each call, forward and backward, one item after the other and in lanes."""
    matrix = Matrix(processes, new_place, server_url, plan, variant)
    # The items of lanes share appends.
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=16 if plan == "lanes" else 24)
