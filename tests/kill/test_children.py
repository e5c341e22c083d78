"""The kill matrix over parents and their children: whoever dies at whatever place, both agree on what happened once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.forks import POINTS, happened, item, together
from tests.kill.forks import Stage as ForkStage
from tests.kill.matrix import faults_of
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace, Way, clean
from tests.support.servers import DebianRedis, EmbeddedFolder
from tests.support.topologies import Cluster, SentinelTrio

CHILD = {"step_id": 2, "saga": {"plan": {"steps": [item(1, "b"), item(2, "c")]}}}
PLANS = {
    "completes": {"steps": [item(1, "a"), CHILD, item(3, "d")]},
    "fails": {"steps": [item(1, "a"), CHILD, item(3, "no", "fail")]},
}
ENDS = {"completes": "COMPLETED", "fails": "COMPENSATED"}
#: The way, and which of its places: the message of a child's end, and some of the appends of all three sagas.
SHORT: list[tuple[Way, int]] = [(("post", "before"), 1), (("append", "after"), 5)]
LONG: list[tuple[Way, int]] = [((point, when), 1) for point in POINTS for when in ("before", "after")]
CASES = [
    pytest.param("fails", "keyed", SHORT, id="short"),
    *(
        pytest.param(plan, variant, LONG, marks=pytest.mark.slow, id=f"{plan}-{variant}")
        for plan in PLANS
        for variant in ("keyed", "probed")
    ),
]


class Stage(ForkStage):
    """A parent with a child, and one variant of the tools."""

    def place(self) -> Place:
        """Where nothing has begun."""
        return self._new_place(self._url)

    def run(self, part: str, place: Place, **more: Any) -> Any:
        child = f"{place.saga_id}.2"
        about = {"plan": PLANS[self.plan], "forks": [child, f"{child}-undo"]}
        return self._processes.run(part, **{"player": "fork", "variant": self.variant, **about, **place.told, **more})

    def deaths(self, way: Way, nth: int) -> Iterator[tuple[str, Place]]:
        """Some ways in which the command can die, each in a place of its own."""
        for fault in islice(faults_of(way), 0, None, nth):
            place = self.place()
            ended = self.run("submit", place, fault=fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told
                return
            yield fault, place

    def judged(self, place: Place) -> list[str]:
        """The same command once more; what is wrong at the end."""
        again = self.run("submit", place).told
        if "error" in again:
            return [f"the same command again: {again['error']}"]
        return list(self.breaches(place, self.run("settle", place).told))

    def breaches(self, place: Place, told: dict[str, Any]) -> Iterator[str]:
        """The laws, read from the ledger and from what the sagas say."""
        parent, child = told["sagas"][place.saga_id], told["sagas"][f"{place.saga_id}.2"]
        if (parent["status"], child["status"]) != (ENDS[self.plan], "COMPLETED"):
            yield f"they ended {parent['status']} and {child['status']}"
        if not parent["report"]["clean"]:
            yield f"it reports {parent['report']}"
        ends = [record["saga"] for record in told["history"][place.saga_id] if record["k"] == "ChildEnded"]
        if len(ends) != len(set(ends)):
            yield f"an end counts twice: {ends}"
        booked, cancelled, by = happened(place)
        if set(booked.values()) != {1} or set(booked) != (
            {"a", "b", "c"} | ({"d"} if self.plan == "completes" else set())
        ):
            yield f"booked {booked}"
        if cancelled != (booked if self.plan == "fails" else {}):
            yield f"booked {booked}, cancelled {cancelled}"
        undo = f"{place.saga_id}.2-undo"
        if self.plan == "fails" and by != {"a": place.saga_id, "b": undo, "c": undo}:
            yield f"cancelled by {by}"


@pytest.mark.parametrize(("plan", "variant", "ways"), CASES)
def test_killed_anywhere(
    processes: Processes,
    new_place: NewPlace,
    embedded: EmbeddedFolder,
    plan: str,
    variant: str,
    ways: list[tuple[Way, int]],
) -> None:
    """Wherever the process of parent and child dies, the same command goes on: each effect once, and each undo."""
    stage = Stage(processes, new_place, embedded.url, plan, variant)
    steps = dict(ways)

    def judged(way: Way) -> dict[str, list[str]]:
        return {fault: stage.judged(place) for fault, place in stage.deaths(way, steps[way])}

    clean(together(judged, list(steps)), ["append:1:after"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [DebianRedis, Cluster, SentinelTrio])
def test_killed_anywhere_elsewhere(processes: Processes, new_place: NewPlace, kind: Any) -> None:
    """The same laws on other servers; in a cluster parent and child may be on two of them."""
    with kind() as topology:
        stage = Stage(processes, new_place, topology.url, "fails", "keyed")
        ways: list[Way] = [("append", "before"), ("append", "after")]
        found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.deaths(way, 1)}, ways)
    clean(found, ["append:1:after"])
