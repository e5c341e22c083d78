"""The kill matrix on a cluster of three primaries and behind Sentinels: another topology, the same laws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.processes import Processes
from tests.kill.world import PLANS
from tests.topologies import Cluster, SentinelTrio

#: The short form: a plan with branches and one that is undone, with keys and without.
SHORT = {("cluster", "fails", "keyed"), ("cluster", "graph", "bare"), ("sentinel", "fails", "bare")}
CASES = [
    pytest.param(kind, plan, variant, marks=() if (kind, plan, variant) in SHORT else pytest.mark.slow)
    for kind in ("cluster", "sentinel")
    for plan in PLANS
    for variant in ("keyed", "probed", "bare")
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trio() -> Iterator[SentinelTrio]:
    with SentinelTrio() as trio:
        yield trio


@pytest.mark.parametrize(("kind", "plan", "variant"), CASES)
def test_killed_anywhere_and_resumed(
    request: pytest.FixtureRequest, processes: Processes, new_place: NewPlace, kind: str, plan: str, variant: str
) -> None:
    """Whatever moment a process dies at, the saga ends as its plan says, the world agrees, and nothing happens twice."""
    topology = request.getfixturevalue("cluster" if kind == "cluster" else "trio")
    matrix = Matrix(processes, new_place, topology.url, plan, variant)
    steps = len(PLANS[plan]["steps"])
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=2 * (steps + 1) + 2 * steps)
