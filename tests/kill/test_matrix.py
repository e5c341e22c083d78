"""The kill matrix: a process dies by SIGKILL before and after every journal append and every tool call.

Forward and backward. A fresh process resumes; the outside world is compared with the engine's report and with the
plan's laws. How many points there are is found out by going on until a run reaches its end alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kill.conftest import Place
from tests.kill.matrix import (
    LATER_WAYS,
    PARALLEL,
    WAYS,
    Matrix,
    NewPlace,
    all_ways,
    faults_of,
    judged,
    killed_once,
)
from tests.kill.mutants import CAUGHT_WITH
from tests.kill.processes import Processes
from tests.kill.world import PLANS
from tests.support.servers import EmbeddedFolder

#: In the short form only the plans that go back or side by side meet each way to settle a doubt.
CASES = [
    pytest.param(plan, variant, marks=() if variant == "keyed" or plan == "fails" else pytest.mark.slow)
    for plan in PLANS
    for variant in ("keyed", "probed", "bare")
]


@pytest.mark.seeds
@pytest.mark.parametrize(("plan", "variant"), CASES)
def test_killed_anywhere_and_resumed(
    processes: Processes, new_place: NewPlace, server_url: str, plan: str, variant: str
) -> None:
    """Whatever moment a process dies at, the saga ends as its plan says, the world agrees, and nothing happens twice."""
    matrix = Matrix(processes, new_place, server_url, plan, variant)
    steps = len(PLANS[plan]["steps"])
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=2 * (steps + 1) + 2 * steps)


# --- killed again while resuming -----------------------------------------------------------------------------------


def killed_twice(
    matrix: Matrix, way: tuple[str, str], seconds: Callable[[int], Iterator[Iterator[str]]]
) -> dict[str, list[str]]:
    """After each first kill, kill the resuming process too, then resume again and judge.

    ``seconds`` gives, for the n-th first kill, series of second faults; a series ends when one is not reached.
    """
    found: dict[str, list[str]] = {}
    for index, (first, place) in enumerate(matrix.first_kills(way)):
        fresh: Place | None = place
        for series in seconds(index):
            for second in series:
                at = fresh or matrix.place()
                if fresh is None and not matrix.submit(at, first).killed:
                    # The system ran the threads in another order, and this run has fewer points.
                    assert matrix.variant == "threads"
                    continue
                fresh = None
                ended = matrix.resume(at, second)
                told = matrix.resume(at).told if ended.killed else ended.told
                found[f"{first} then {second}{'' if ended.killed else ' (not reached)'}"] = matrix.judge(at, told, 2)
                if not ended.killed:
                    break
    return found


def some(index: int) -> Iterator[Iterator[str]]:
    """Two second faults for each first one: over all first ones, each way and the first few points come up."""
    for shift in (0, 5):
        point, when = LATER_WAYS[(index + shift) % len(LATER_WAYS)]
        number = 1 if point in ("acquire", "post") else 1 + (index + shift) // 3 % 3
        yield iter([f"{point}:{number}:{when}"])


def every(plan: str) -> tuple[list[tuple[str, str]], Callable[[int], Iterator[Iterator[str]]]]:
    """Every pair of points that leaves another journal or another world: the ways of the first kill, and the second ones.

    In a plan whose steps follow each other, a process that dies before a call leaves what one leaves that dies after the
    append of its intent, and one that dies after a call what dies before the append of its result. The single kills
    take both; a pair starts from what is left, so one of the two is enough.
    """
    calls = plan in PARALLEL
    ways = [way for way in LATER_WAYS if calls or way[0] != "call"]
    return [way for way in WAYS if way in ways], lambda _: (faults_of(way) for way in ways)


def reached(found: dict[str, list[str]]) -> int:
    return sum(1 for fault in found if "not reached" not in fault)


@pytest.mark.parametrize(
    "variant", ["probed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("keyed", "bare"))]
)
def test_killed_again_while_resuming(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, variant: str
) -> None:
    """A resume that is killed can be resumed; the laws are the same (a sample of the pairs)."""
    matrix = Matrix(processes, new_place, embedded.url, "graph" if variant == "keyed" else "fails", variant)
    found = all_ways(lambda way: killed_twice(matrix, way, some))
    assert reached(found) >= 15, found
    judged(found, at_least=30)


#: Threads change the order in which steps side by side are called, and nothing else.
PAIRS = [(plan, variant) for plan in PLANS for variant in ("keyed", "probed", "bare")] + [("graph", "threads")]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("plan", "variant"), PAIRS)
def test_killed_again_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str, variant: str
) -> None:
    """Every pair of a kill and a second kill. Which server it is matters to single kills, and they have both."""
    matrix = Matrix(processes, new_place, embedded.url, plan, variant)
    ways, seconds = every(plan)
    judged(all_ways(lambda way: killed_twice(matrix, way, seconds), ways), at_least=50)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(PLANS))
def test_killed_anywhere_with_threads(processes: Processes, new_place: NewPlace, server_url: str, plan: str) -> None:
    """The same laws for synchronous tools, whose order is the system's: each run may meet other points."""
    matrix = Matrix(processes, new_place, server_url, plan, "threads")
    for _ in range(5):
        judged(all_ways(lambda way: killed_once(matrix, way)), at_least=12)


# --- the matrix can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mutant", "variant"), CAUGHT_WITH)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, variant: str
) -> None:
    """An engine that is broken in the way that the mutant says does not get through."""
    matrix = Matrix(processes, new_place, embedded.url, "fails", variant, mutant)
    found = (what for way in WAYS for what in killed_once(matrix, way).values())
    assert any(found), f"nothing noticed the mutant '{mutant}'"
