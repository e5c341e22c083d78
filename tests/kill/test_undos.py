"""The kill matrix over undos of completed sagas: whoever dies at whatever place, each effect is undone once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.forks import WAYS, happened, item, together
from tests.kill.forks import Stage as ForkStage
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace, Way, clean
from tests.support.servers import DebianRedis, EmbeddedFolder
from tests.support.topologies import Cluster, SentinelTrio

DONE = {"steps": [item(1, "a"), item(2, "b", depends_on=[1]), item(3, "c", depends_on=[1])]}
REACHED = ["reserve:1:after", "guard_claim:3:after", "acquire:1:after", "append:1:before", "append:1:after"]
SHORT: list[Way] = [("acquire", "after"), ("append", "before"), ("append", "after")]
CASES = [
    pytest.param("plan", "keyed", SHORT, id="short"),
    *(
        pytest.param(kind, variant, WAYS, marks=pytest.mark.slow, id=f"{kind}-{variant}")
        for kind in ("plan", "session")
        for variant in ("keyed", "bare", "probed")
    ),
]


class Stage(ForkStage):
    """A completed saga, or session, and one variant of the tools."""

    def place(self) -> Place:
        """Where a saga has completed."""
        place = self._new_place(self._url)
        if self.plan == "session":
            ended = self.run("agent", place, session_id=place.saga_id, items=["a", "b", "c"], on_failure="undo")
        else:
            ended = self.run("submit", place, plan=DONE)
        assert ended.told["final"]["status"] == "COMPLETED"
        return place

    def run(self, part: str, place: Place, **more: Any) -> Any:
        about = {"fork_id": f"{place.saga_id}-undo", "forks": [f"{place.saga_id}-undo"]}
        how = {"player": "fork", "variant": self.variant, **self._mutant, **about}
        return self._processes.run("undo" if part == "fork" else part, **{**how, **place.told, **more})

    def breaches(self, place: Place, told: dict[str, Any]) -> Iterator[str]:
        """The laws, read from the ledger and from what both sagas say."""
        old, new = told["sagas"][place.saga_id], told["sagas"][f"{place.saga_id}-undo"]
        if (old["status"], new["status"]) != ("COMPLETED", "COMPENSATED"):
            yield f"they ended {old['status']} and {new['status']}"
        if old.get("undone_by") != new["saga_id"] or new.get("undo_of") != old["saga_id"]:
            yield f"undone by {old.get('undone_by')}, undoes {new.get('undo_of')}"
        if {step.get("handed_to") for step in old["steps"]} != {new["saga_id"]}:
            yield f"the effects belong to {[step.get('handed_to') for step in old['steps']]}"
        if sorted(new["report"]["compensated"]) != [1, 2, 3] or not new["report"]["clean"]:
            yield f"it reports {new['report']}"
        booked, cancelled, by = happened(place)
        if set(booked.values()) != {1} or cancelled != booked:
            yield f"booked {booked}, cancelled {cancelled}"
        if set(by.values()) != {new["saga_id"]}:
            yield f"cancelled by {by}"
        transfers = [each for each in told["history"][old["saga_id"]] if each["k"] == "EffectTransferred"]
        if len(transfers) != 1:
            yield f"transferred {len(transfers)} times"


@pytest.mark.seeds
@pytest.mark.parametrize(("kind", "variant", "ways"), CASES)
def test_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, kind: str, variant: str, ways: list[Way]
) -> None:
    """Wherever `undo` dies, the same command goes on: nothing is undone twice or forgotten, and both sagas agree."""
    stage = Stage(processes, new_place, embedded.url, kind, variant)
    found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.kills(way)}, ways)
    points = {point for point, _ in ways}
    clean(found, [fault for fault in REACHED if fault.partition(":")[0] in points])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [DebianRedis, Cluster, SentinelTrio])
def test_killed_anywhere_elsewhere(processes: Processes, new_place: NewPlace, kind: Any) -> None:
    """The same laws on other servers; in a cluster the saga and its undo may be on two of them."""
    with kind() as topology:
        stage = Stage(processes, new_place, topology.url, "plan", "keyed")
        found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.kills(way)}, SHORT)
    clean(found, ["acquire:1:after", "append:1:before", "append:1:after"])


@pytest.mark.parametrize(
    ("mutant", "fault"), [("undo again what was transferred", "append:3:after"), ("begin without a transfer", "")]
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """An undo that has another id when it is repeated, or that never becomes the owner, does not get through."""
    stage = Stage(processes, new_place, embedded.url, "plan", "keyed", mutant)
    place = stage.place()
    assert stage.run("fork", place, fault=fault).killed == bool(fault)
    assert stage.judged(place), f"nothing noticed the mutant '{mutant}'"
