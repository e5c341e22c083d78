"""The kill matrix over events that come too late: whoever dies wherever, the payment is refunded, and only once.

A process dies at each append, call and word to the store between the end of the wait and that of the refund. What
happened stands in the outside ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.matrix import faults_of
from tests.kill.processes import Ended, Processes
from tests.kill.scenarios import NewPlace, Told, Way, clean
from tests.support.servers import EmbeddedFolder
from tests.support.topologies import Cluster, SentinelTrio

#: What is done about a payment that comes too late.
REFUND = {"tool": "refund", "params": {"sum": "$output.step_2.sum", "of": "$output.step_1.ref"}}


def plan(timeout_s: float) -> dict[str, Any]:
    """Something is booked, and it is undone if nobody pays."""
    wait = {"event": "paid", "timeout_s": timeout_s, "on_late": REFUND}
    return {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}, {"step_id": 2, "wait": wait}]}


POINTS = ("acquire", "append", "post", "call", "event_send", "event_register", "event_over", "event_handled")
ANSWERING = (*POINTS[:4], "event_address", "event_register", "event_over", "event_look", "event_handled")
WAYS: list[Way] = [(point, when) for point in POINTS for when in ("before", "after")]


class Stage:
    """One saga, whose event comes too late or ``in_time``, and one part that dies.

    ``answers``: the event is an answer to the wait. The part ``answer`` is one in the moment of the time-out.
    """

    def __init__(
        self,
        processes: Processes,
        new_place: NewPlace,
        url: str,
        part: str,
        *,
        in_time: bool = False,
        answers: bool = False,
        mutant: str = "",
    ) -> None:
        self.part = part
        self.in_time = in_time
        self._more = {"answers": answers or part == "answer", "moment": part == "answer"}
        if mutant:
            self._more["mutant"] = mutant  # type: ignore[assignment]
        self._processes = processes
        self._new_place = new_place
        self._url = url

    def run(self, part: str, place: Place, **more: Any) -> Ended:
        body = plan(1000 if self.in_time or self.part == "answer" else 0.02)
        how = {"player": "late", "plan": body, "in_time": self.in_time, **self._more}
        return self._processes.run(part, **{**how, **place.told, **more})

    def killed(self, fault: str) -> tuple[Place, Ended]:
        """A place where the part was played, and died if it came so far."""
        place = self._new_place(self._url)
        if self.part == "pay":
            status = self.run("submit", place).told["final"]["status"]
            assert status == ("COMPLETED" if self.in_time else "COMPENSATED")
        if self.part == "answer":  # it waits, and the store may know of it
            before = fault.startswith("event_register")
            assert self.run("submit", place, fault=f"event_register:1:{'before' if before else 'after'}").killed
        return place, self.run(self.part, place, fault=fault)

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
        sagas: Mapping[str, Any] = told["sagas"]
        others = [saga for name, saga in sagas.items() if name != place.saga_id]
        end = "COMPLETED" if self.in_time else "COMPENSATED"
        if sagas[place.saga_id]["status"] != end:
            yield f"the saga ended {sagas[place.saga_id]['status']}"
        if [saga["status"] for saga in others] != ([] if self.in_time else ["COMPLETED"]):
            yield f"the sagas of the event: {[(saga['saga_id'], saga['status']) for saga in others]}"
        if told["events"] != ["taken" if self.in_time else "handled"]:
            yield f"the event is {told['events']}"
        if told["unrepeated"] not in (None, told["events"]):
            yield f"before it was sent again the event was {told['unrepeated']}"
        applied = [line for line in place.ledger.lines() if line.what == "applied"]
        refunds = [(line.saga_id, line.value) for line in applied if line.tool == "refund"]
        if [value for _, value in refunds] != ([] if self.in_time else [{"sum": 7, "of": "a"}]):
            yield f"refunded: {refunds}"
        booked = [line.tool for line in applied if line.tool != "refund"]
        if booked != (["book"] if self.in_time else ["book", "cancel"]):
            yield f"the saga made {booked}"


def killed_anywhere(stage: Stage, ways: Sequence[Way]) -> dict[str, list[str]]:
    def one(way: Way) -> dict[str, list[str]]:
        return {fault: stage.judged(place) for fault, place in stage.kills(way)}

    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(one, ways) for fault, what in found.items()}


#: The event is durable, its saga is, the refund has happened, and nobody told the store.
SOME = ["event_send:1:after", "append:1:after", "call:1:after", "event_handled:1:before"]


def test_a_late_payment_is_refunded_once_whoever_dies(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """The short form: between the late event, the start of its saga, the refund, and the word to the store."""
    stage = Stage(processes, new_place, embedded.url, "pay")
    found = {}
    for fault in SOME:
        place, ended = stage.killed(fault)
        assert ended.killed, fault
        found[fault] = stage.judged(place)
    clean(found, SOME)


#: The answer is durable, and nobody told the saga; the store knows that it is late, and its saga is not there.
SOME_LATE = ["event_address:1:before", "event_address:1:after", "event_over:1:after", "append:1:after"]
#: The answer is held; its saga has it as a message; its journal says that it came too late; the store knows that.
SOME_IN_THE_MOMENT = ["event_address:1:after", "post:1:after", "append:2:after", "event_over:1:after"]


@pytest.mark.parametrize(("part", "some"), [pytest.param("pay", SOME_LATE, id="late"), ("answer", SOME_IN_THE_MOMENT)])
def test_a_late_answer_is_refunded_once_whoever_dies(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, part: str, some: Sequence[str]
) -> None:
    """By its callback URL the payment comes after the wait, or in the very moment of its time-out."""
    stage = Stage(processes, new_place, embedded.url, part, answers=True)
    found = {}
    for fault in some:
        place, ended = stage.killed(fault)
        assert ended.killed, fault
        found[fault] = stage.judged(place)
    clean(found, some)


REACHED = [*SOME, "append:1:before", "append:2:before", "call:1:before", "event_handled:1:after"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["server", Cluster, SentinelTrio])
def test_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, kind: Any) -> None:
    """Each point between the late event and the end of the refund, also where saga and event are on two servers."""
    if kind == "server":
        clean(killed_anywhere(Stage(processes, new_place, embedded.url, "pay"), WAYS), REACHED)
        return
    with kind() as topology:
        clean(killed_anywhere(Stage(processes, new_place, topology.url, "pay"), WAYS), REACHED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("in_time", [False, True])
def test_the_saga_itself_is_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, *, in_time: bool
) -> None:
    """It dies around the end of its wait: an event after that is refunded, and one that was in time never is."""
    stage = Stage(processes, new_place, embedded.url, "submit", in_time=in_time)
    ways = [way for way in WAYS if way[0] not in ("event_handled", "event_send")]
    clean(killed_anywhere(stage, ways), ["event_register:1:after", "event_over:1:before"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["server", Cluster])
@pytest.mark.parametrize(("part", "some"), [("pay", SOME_LATE), ("answer", SOME_IN_THE_MOMENT)])
def test_whoever_answers_is_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, part: str, some: Sequence[str], kind: Any
) -> None:
    """Each point between the answer and the end of the refund, also where saga and event are on two servers."""
    ways = [(point, when) for point in ANSWERING for when in ("before", "after")]
    if kind == "server":
        clean(killed_anywhere(Stage(processes, new_place, embedded.url, part, answers=True), ways), some)
        return
    with kind() as topology:
        clean(killed_anywhere(Stage(processes, new_place, topology.url, part, answers=True), ways), some)


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [("past the store", "append:2:after"), ("another answer for each delivery", "event_handled:1:after")],
)
def test_the_matrix_of_answers_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """An engine that loses an answer in the moment of the time-out, or refunds a repeated one twice, is noticed."""
    stage = Stage(processes, new_place, embedded.url, "answer", mutant=mutant)
    place, _ = stage.killed(fault)
    assert stage.judged(place), f"nothing noticed the mutant '{mutant}'"


@pytest.mark.parametrize(
    ("mutant", "fault", "in_time"),
    [
        ("another saga for each delivery", "event_handled:1:before", False),
        ("handled before it is begun", "append:1:before", False),
        ("in time is late", "append:9:before", True),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str, *, in_time: bool
) -> None:
    """An engine that refunds twice, forgets the refund, or refunds what was in time does not get through."""
    stage = Stage(processes, new_place, embedded.url, "pay", in_time=in_time, mutant=mutant)
    place, ended = stage.killed(fault)
    assert ended.killed is not in_time
    assert stage.judged(place), f"nothing noticed the mutant '{mutant}'"
