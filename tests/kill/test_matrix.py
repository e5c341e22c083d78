"""The kill matrix: the process dies by SIGKILL before and after every journal append and every tool call, forward and
backward; a fresh process resumes; the outside world is compared with the engine's report and with the plan's laws.

How many points there are is found out by going on until a run reaches its end alive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.laws import breaches, in_flight
from tests.kill.processes import Ended, Processes
from tests.kill.world import ENDS, PLANS

NewPlace = Callable[[str], Place]

#: The four ways to die, each counted by itself.
WAYS = [(point, when) for point in ("append", "call") for when in ("before", "after")]
#: While resuming, the take-over itself is a point too.
LATER_WAYS = [*WAYS, ("acquire", "before"), ("acquire", "after")]
MORE_THAN_ANY_RUN = 200


class Matrix:
    """One plan with one variant of the tools on one server."""

    def __init__(self, processes: Processes, new_place: NewPlace, url: str, plan: str, variant: str) -> None:
        self.plan = plan
        self.variant = variant
        self._processes = processes
        self._new_place = new_place
        self._url = url

    def submit(self, place: Place, fault: str = "") -> Ended:
        return self._processes.run(
            "submit", plan=PLANS[self.plan], variant=self.variant, fault=fault, **place.told
        )

    def resume(self, place: Place, fault: str = "", **more: Any) -> Ended:
        return self._processes.run("resume-all", variant=self.variant, fault=fault, **more, **place.told)

    def place(self) -> Place:
        return self._new_place(self._url)

    def points(self, way: tuple[str, str], run: Callable[[str], Ended | None]) -> Iterator[tuple[str, Any]]:
        """Kill ``run`` at the first, second, … point, until it is not reached any more."""
        for number in itertools.count(1):
            assert number < MORE_THAN_ANY_RUN
            fault = f"{way[0]}:{number}:{way[1]}"
            ended = run(fault)
            if ended is None or not ended.killed:
                return
            yield fault, ended

    def first_kills(self, way: tuple[str, str]) -> Iterator[tuple[str, Place]]:
        """Every way that a first run can die, each in a place of its own."""
        places: list[Place] = []

        def run(fault: str) -> Ended:
            places.append(self.place())
            ended = self.submit(places[-1], fault)
            if not ended.killed:
                assert ended.told["final"]["status"] == ENDS[self.plan]
            return ended

        for fault, _ in self.points(way, run):
            yield fault, places[-1]

    def judge(self, place: Place, told: dict[str, Any], kills: int = 1) -> list[str]:
        return breaches(
            plan=self.plan, variant=self.variant, told=told, ledger=place.ledger, saga_id=place.saga_id, kills=kills
        )


def killed_once(matrix: Matrix, way: tuple[str, str]) -> dict[str, list[str]]:
    """Kill at each point of one way, resume, and judge: the breaches, by fault."""
    found: dict[str, list[str]] = {}
    for fault, place in matrix.first_kills(way):
        told = matrix.resume(place).told
        found[fault] = matrix.judge(place, told)
        if way[0] == "call" and not in_flight(told["before"]):
            found[fault].append("it died in a call, and the journal has none in flight")
        if told["before"] is None:
            again = matrix.submit(place).told  # nothing was promised yet, so the same id is still free
            if again["final"]["status"] != ENDS[matrix.plan] or place.ledger.compare(again["final"], PLANS[matrix.plan]):
                found[fault].append("submitted once more, it does not run as it should")
    return found


def judged(found: dict[str, list[str]], at_least: int) -> None:
    assert len(found) >= at_least, f"only {sorted(found)} were reached"
    assert not {fault: what for fault, what in found.items() if what}


def all_ways(work: Callable[[tuple[str, str]], dict[str, list[str]]]) -> dict[str, list[str]]:
    """The four ways, two at a time: half of a case is waiting for a disk."""
    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(work, WAYS) for fault, what in found.items()}


@pytest.mark.parametrize("variant", ["keyed", "probed", "bare"])
@pytest.mark.parametrize("plan", list(PLANS))
def test_killed_anywhere_and_resumed(
    processes: Processes, new_place: NewPlace, server_url: str, plan: str, variant: str
) -> None:
    """Whatever moment a process dies at, the saga ends as its plan says, the world agrees, and nothing happens twice."""
    matrix = Matrix(processes, new_place, server_url, plan, variant)
    steps = len(PLANS[plan]["steps"])
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=2 * (steps + 1) + 2 * steps)
