"""The kill matrix over a wait for all of several events: whoever dies wherever, each event counts once, and none is lost.

One event comes, then the other; or the saga is cancelled between them. A process dies at each append, call, message and
word to the store about an event. What happened stands in the journal, the outside ledger and the store of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kill import laws
from tests.kill.conftest import Place
from tests.kill.matrix import faults_of
from tests.kill.processes import Ended, Processes
from tests.kill.scenarios import NewPlace, Told, Way, clean
from tests.support.servers import EmbeddedFolder

REFUND = {"tool": "refund", "params": {"sum": "$output.step_2.payload.seats", "of": "$output.step_1.ref"}}
GUESTS = [{"event": "confirmed", "key": name} for name in ("ada", "bob")]
PLAN = {
    "steps": [
        {"step_id": 1, "tool": "book", "params": {"item": "table"}},
        {"step_id": 2, "wait": {"all": GUESTS, "timeout_s": 100_000, "on_late": REFUND}},
        {"step_id": 3, "tool": "book", "params": {"item": "$output.step_2"}},
    ]
}
CAME = [{"event": "confirmed", "key": name, "payload": {"seats": seats}} for name, seats in (("ada", 1), ("bob", 2))]
EVENTS = ("event_send", "event_register", "event_arrived", "event_over")
POINTS = ("acquire", "append", "post", "call", *EVENTS, "event_handled")
WAYS: list[Way] = [(point, when) for point in POINTS for when in ("before", "after")]


class Stage:
    """One saga that gets both events, or that is cancelled when it has one (``in_vain``)."""

    def __init__(
        self, processes: Processes, new_place: NewPlace, url: str, *, in_vain: bool = False, mutant: str = ""
    ) -> None:
        self.in_vain = in_vain
        self._mutant = {"mutant": mutant} if mutant else {}
        self._processes = processes
        self._new_place = new_place
        self._url = url

    def run(self, part: str, place: Place, **more: Any) -> Ended:
        how = {"player": "several", "plan": PLAN, "in_vain": self.in_vain, **self._mutant}
        return self._processes.run(part, **{**how, **place.told, **more})

    def killed(self, fault: str) -> tuple[Place, Ended]:
        """A place where the part was played, and its process died if it came so far."""
        place = self._new_place(self._url)
        if not self.in_vain:
            return place, self.run("submit", place, fault=fault)
        assert self.run("submit", place, fault="event_arrived:1:after").killed
        return place, self.run("cancel", place, fault=fault)

    def kills(self, way: Way) -> Iterator[tuple[str, Place]]:
        for fault in faults_of(way):
            place, ended = self.killed(fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told
                return
            yield fault, place

    def judged(self, place: Place) -> list[str]:
        """What is wrong once all are alive again."""
        return list(self._breaches(place, self.run("settle", place).told))

    def _breaches(self, place: Place, told: Told) -> Iterator[str]:
        if "error" in told:
            yield f"it cannot be settled: {told['error']}"
            return
        yield from laws._journal(told)
        yield from self._journalled(told)
        sagas: Mapping[str, Any] = told["sagas"]
        end = "COMPENSATED" if self.in_vain else "COMPLETED"
        if sagas[place.saga_id]["status"] != end:
            yield f"the saga ended {sagas[place.saga_id]['status']}"
        others = [saga["status"] for name, saga in sagas.items() if name != place.saga_id]
        if others != (["COMPLETED"] if self.in_vain else []):
            yield f"the sagas of late events ended {others}"
        if told["events"] != ({"e-bob": "handled"} if self.in_vain else {"e-ada": "taken", "e-bob": "taken"}):
            yield f"the events are {told['events']}"
        yield from self._applied(place)

    def _journalled(self, told: Told) -> Iterator[str]:
        """One of the two arrived, and the other ended the wait; no event is journalled twice."""
        arrived = [record["source"] for record in told["history"] if record["k"] == "EventArrived"]
        over = [record for record in told["history"] if record["k"] == "StepSucceeded" and record["step"] == "2"]
        if self.in_vain:
            if (arrived, over) != (["e-bob"], []):
                yield f"in vain arrived {arrived}, and the wait ended with {over}"
        elif len(arrived) != 1 or sorted([*arrived, *(record["source"] for record in over)]) != ["e-ada", "e-bob"]:
            yield f"arrived {arrived}, and the wait ended with {over}"
        elif over[0]["output"] != CAME:
            yield f"the output is {over[0]['output']}"

    def _applied(self, place: Place) -> Iterator[str]:
        applied = [line for line in place.ledger.lines() if line.what == "applied"]
        refunds = [line.value for line in applied if line.tool == "refund"]
        if refunds != ([{"sum": 2, "of": "table"}] if self.in_vain else []):
            yield f"refunded: {refunds}"
        did = [(line.tool, line.value) for line in applied if line.tool != "refund"]
        last = ("cancel", {"cancelled": "table"}) if self.in_vain else ("book", {"ref": CAME})
        if did != [("book", {"ref": "table"}), last]:
            yield f"the saga made {did}"


#: Around the record of the first event, before that of the last, and around what the store is told of them.
SOME = [
    *("append:3:before", "append:3:after", "append:4:before"),
    *("event_arrived:1:before", "event_arrived:1:after", "event_over:1:before"),
]
#: In vain: the word that the wait is over, the start of the saga that handles the event, and the refund.
IN_VAIN = ["event_over:1:before", "event_over:1:after", "call:1:after"]


@pytest.mark.parametrize("in_vain", [False, True])
def test_no_event_is_lost_or_counts_twice_whoever_dies(
    processes: Processes, new_place: NewPlace, server_url: str, *, in_vain: bool
) -> None:
    """The short form, on both servers: after the first event, and around the end of the wait."""
    stage, some, found = Stage(processes, new_place, server_url, in_vain=in_vain), IN_VAIN if in_vain else SOME, {}
    for fault in some:
        place, ended = stage.killed(fault)
        assert ended.killed, fault
        found[fault] = stage.judged(place)
    clean(found, some)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("in_vain", [False, True])
def test_killed_anywhere(processes: Processes, new_place: NewPlace, server_url: str, *, in_vain: bool) -> None:
    """Each point between the submit, or the cancel, and the end."""
    stage = Stage(processes, new_place, server_url, in_vain=in_vain)

    def one(way: Way) -> dict[str, list[str]]:
        return {fault: stage.judged(place) for fault, place in stage.kills(way)}

    with ThreadPoolExecutor(2) as pool:
        found = {fault: what for each in pool.map(one, WAYS) for fault, what in each.items()}
    clean(found, IN_VAIN if in_vain else SOME)


@pytest.mark.parametrize(
    ("mutant", "fault", "in_vain"),
    [
        ("forget at a takeover what came", "event_arrived:1:after", False),
        ("take each event at once", "event_over:1:before", True),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str, *, in_vain: bool
) -> None:
    """An engine that counts an event twice, or loses one that came in vain, does not get through."""
    stage = Stage(processes, new_place, embedded.url, in_vain=in_vain, mutant=mutant)
    place, ended = stage.killed(fault)
    assert ended.killed
    assert stage.judged(place), f"nothing noticed the mutant '{mutant}'"
