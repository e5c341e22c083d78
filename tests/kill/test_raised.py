"""The kill matrix for a call that raises after its effect: a process dies around each append and each call."""

from __future__ import annotations

import pytest

from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.processes import Processes
from tests.support.servers import EmbeddedFolder


def test_killed_around_a_call_that_raises(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """What was raised is no refusal for the process that takes over either: nobody is asked, and nothing stands."""
    matrix = Matrix(processes, new_place, embedded.url, "raises", "keyed")
    judged(killed_once(matrix, ("call", "after")), at_least=5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["keyed", "probed"])
def test_killed_anywhere_around_a_call_that_raises(
    processes: Processes, new_place: NewPlace, server_url: str, variant: str
) -> None:
    """Before and after each append and each call, settled by the key or by a probe."""
    matrix = Matrix(processes, new_place, server_url, "raises", variant)
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=20)
