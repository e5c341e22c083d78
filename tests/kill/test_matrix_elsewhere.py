"""The kill matrix on a cluster of three primaries and behind Sentinels: another topology, the same laws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.processes import Processes
from tests.kill.world import LISTS, PLANS
from tests.support.topologies import Cluster, SentinelTrio

#: The short form: a plan with branches and one that is undone, with keys and without.
SHORT = {("cluster", "graph", "bare"), ("sentinel", "fails", "bare")}
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


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_killed_once_a_record_of_a_list_is_durable(
    request: pytest.FixtureRequest, processes: Processes, new_place: NewPlace, kind: str
) -> None:
    """The next owner reads the list as it was journalled, from another server or another connection (a part)."""
    topology = request.getfixturevalue("cluster" if kind == "cluster" else "trio")
    matrix = Matrix(processes, new_place, topology.url, "list", "keyed")
    judged(killed_once(matrix, ("append", "after")), at_least=8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
@pytest.mark.parametrize("variant", ["keyed", "probed", "bare"])
@pytest.mark.parametrize("plan", list(LISTS))
def test_killed_anywhere_in_a_list(
    request: pytest.FixtureRequest, processes: Processes, new_place: NewPlace, kind: str, plan: str, variant: str
) -> None:
    """Before and after each append and each call, forward and backward, one item after the other and in lanes."""
    topology = request.getfixturevalue("cluster" if kind == "cluster" else "trio")
    matrix = Matrix(processes, new_place, topology.url, plan, variant)
    # The items of lanes share appends.
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=16 if plan == "lanes" else 24)
