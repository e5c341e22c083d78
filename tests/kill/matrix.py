"""Kills at every point of a run: the ways, the runs, the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.kill import points
from tests.kill.conftest import Place
from tests.kill.laws import breaches, in_doubt
from tests.kill.processes import Ended, Processes
from tests.kill.world import ALL, ENDS

NewPlace = Callable[[str], Place]


#: The four ways to die, each counted by itself.
WAYS = [(point, when) for point in ("append", "call") for when in ("before", "after")]


#: While resuming, the take-over is a point too, and so is the answer that somebody gives.
LATER_WAYS = [*WAYS, *((verb, when) for verb in ("acquire", "post") for when in ("before", "after"))]


#: The plans with steps side by side.
PARALLEL = {"graph", "lanes"}


MORE_THAN_ANY_RUN = 200


def faults_of(way: tuple[str, str]) -> Iterator[str]:
    """The first, the second, … point of one way; whoever asks stops when a run is not reached by it any more."""
    point, when = way
    return (f"{point}:{number}:{when}" for number in range(1, MORE_THAN_ANY_RUN) if points.is_taken(number))


class Matrix:
    """One plan with one variant of the tools on one server."""

    def __init__(
        self,
        processes: Processes,
        new_place: NewPlace,
        url: str,
        plan: str,
        variant: str,
        mutant: str = "",
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.variant = variant
        self._processes = processes
        self._new_place = new_place
        self._url = url
        self._more = {"mutant": mutant, "keys": dict(keys or {})}
        #: The place of the latest case.
        self.last: Place | None = None

    def submit(self, place: Place, fault: str = "") -> Ended:
        return self._run("submit", place, fault, plan=ALL[self.plan])

    def resume(self, place: Place, fault: str = "") -> Ended:
        return self._run("resume-all", place, fault)

    def _run(self, part: str, place: Place, fault: str, **more: Any) -> Ended:
        how = {"variant": self.variant, "fault": fault, **self._more}
        return self._processes.run(part, **how, **more, **place.told)

    def place(self) -> Place:
        self.last = self._new_place(self._url)
        return self.last

    def first_kills(self, way: tuple[str, str]) -> Iterator[tuple[str, Place]]:
        """Every way that a first run can die, each in a place of its own."""
        for fault in faults_of(way):
            place = self.place()
            ended = self.submit(place, fault)
            if not ended.killed:
                assert ended.told["final"]["status"] == ENDS[self.plan]
                return
            yield fault, place

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
        if way[0] == "call" and not in_doubt(told["before"] or []):
            found[fault].append("it died in a call, and the journal has none in flight")
        if told["before"] is None:
            again = matrix.submit(place).told  # nothing was promised yet, so the same id is still free
            if again["final"]["status"] != ENDS[matrix.plan] or place.ledger.compare(again["final"], ALL[matrix.plan]):
                found[fault].append("submitted once more, it does not run as it should")
    return found


def judged(found: dict[str, list[str]], at_least: int) -> None:
    assert len(found) >= (at_least // points.ONE_OF if points.SOME else at_least), f"only {sorted(found)} were reached"
    assert not {fault: what for fault, what in found.items() if what}


def all_ways(
    work: Callable[[tuple[str, str]], dict[str, list[str]]], ways: list[tuple[str, str]] = WAYS
) -> dict[str, list[str]]:
    """The four ways, two at a time: half of a case is waiting for a disk."""
    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(work, ways) for fault, what in found.items()}
