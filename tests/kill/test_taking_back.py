"""The kill matrix over a plan that takes a call back itself: whoever dies wherever, that call is undone once."""

from __future__ import annotations

import pytest

from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.processes import Processes
from tests.kill.world import TAKING


@pytest.mark.seeds
@pytest.mark.parametrize(
    "variant", ["keyed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("probed", "bare"))]
)
def test_killed_anywhere_around_a_step_that_takes_one_back(
    processes: Processes, new_place: NewPlace, server_url: str, variant: str
) -> None:
    """The step is the undo, with its key; the way back undoes the call before, and nothing twice."""
    matrix = Matrix(processes, new_place, server_url, "takes back", variant)
    steps = len(TAKING["takes back"]["steps"])
    found = all_ways(lambda way: killed_once(matrix, way))
    judged(found, at_least=2 * (steps + 1) + 2 * steps)
