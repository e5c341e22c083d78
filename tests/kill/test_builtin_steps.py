"""The kill matrix over steps without a tool, conditions, irreversible steps and ``finally``.

One plan has all of them, and ends in four ways. A process dies at each append, call, message and word to the store about
an event, another resumes, and laws are read from the journal and from the outside ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from saga_engine.core import transitions as t
from tests.kill import laws
from tests.kill.conftest import Place
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace, Scenario, Stage, Told, clean, killed_at, killed_once, killed_twice
from tests.support.servers import EmbeddedFolder
from tests.support.topologies import Cluster, SentinelTrio

EVENTS = ("event_send", "event_register", "event_over")


def binding(step: int, field: str = "ref") -> str:
    return f"$output.step_{step}.{field}"


def plan(last: Mapping[str, Any], third: Mapping[str, Any]) -> dict[str, Any]:
    """Every new kind of record, in a list: each step follows the one before."""
    paid = {"event": "paid", "schema": {"type": "object", "required": ["sum"]}}
    return {
        "steps": [
            {"step_id": 1, "tool": "book", "params": {"item": "a"}},
            {"step_id": 2, "compute": {"add": ["0.1", "0.2"]}},
            {"step_id": 3, **third},
            {"step_id": 4, "tool": "book", "params": {"item": "vip"}, "when": [about("$output.step_2", ">", 1)]},
            {"step_id": 5, "tool": "full", "params": {"item": "b"}, "on_error": "continue"},
            {"step_id": 6, "sleep": 0.01},
            {"step_id": 7, "wait": paid},
            {"step_id": 8, "ask": {"question": "Book it?", "options": ["yes", "no"]}},
            {
                "step_id": 9,
                "tool": "book",
                "params": {"item": {"$first": [binding(5), binding(7, "sum")]}},
                "when": [about(binding(8, "answer"), "==", "yes")],
                **last,
            },
        ],
        "finally": [
            {"step_id": "sign", "tool": "book", "params": {"item": "$end.status"}},
            {"step_id": "tell", "tool": "tell", "params": {"end": "$end.status"}},
        ],
    }


def about(value: str, op: str, to: Any) -> dict[str, Any]:
    return {"value": value, "op": op, "to": to}


#: The third step: it can be undone, or it cannot.
UNDONE = {"tool": "book", "params": {"item": "$output.step_2"}}
STANDS = {"tool": "post", "params": {"text": "$output.step_2"}, "kind": "irreversible"}


@dataclass(frozen=True)
class Way:
    """How the plan ends, and what exists then: the effects that stand, and those that were undone, in that order."""

    end: str
    plan: Mapping[str, Any]
    standing: frozenset[str]
    undone: tuple[str, ...] = ()
    early: bool = True

    @property
    def scenario(self) -> Scenario:
        points = ("append", "call", "post", *EVENTS)
        more = {"player": "built-in", "early": self.early}
        return Scenario(self.plan, points=points, later=("acquire", *points), end=self.end, more=more)


REFUSED = {"failed_when": [about(binding(9), "==", 7)]}
WAYS = {
    "completed, early event": Way(t.COMPLETED, plan({}, UNDONE), frozenset("139")),
    "completed, awaited event": Way(t.COMPLETED, plan({}, UNDONE), frozenset("139"), early=False),
    "compensated": Way(t.COMPENSATED, plan(REFUSED, UNDONE), frozenset(), ("9", "3", "1"), early=False),
    "an effect remains": Way(t.WAIVED, plan(REFUSED, STANDS), frozenset("3"), ("9", "1")),
}


class Judge:
    """The laws of one way to end."""

    def __init__(self, way: Way) -> None:
        self.way = way

    def __call__(self, place: Place, told: Told, kills: int) -> list[str]:
        if "error" in told:
            return [f"resuming was refused: {told['error']}"]
        if told["others"]:
            return [f"other sagas were resumed: {told['others']}"]
        lines = place.ledger.lines(place.saga_id)
        if told["before"] is None:
            return [f"no saga is journalled, and the world was asked: {line}" for line in lines]
        return [
            *self._end(told),
            *self._effects(place, told, kills),
            *_settled_once(told),
            *place.ledger.compare(told["final"], dict(self.way.plan)),
            *laws._journal(told),
        ]

    def _end(self, told: Told) -> Iterator[str]:
        final, report = told["final"], told["final"]["report"]
        if final["status"] != self.way.end:
            yield f"it ended {final['status']}, not {self.way.end}"
        left = [3] if self.way.end == t.WAIVED else []
        if report["left_in_place"] != left or report["clean"] is bool(left):
            yield f"the report says {report}"
        if (report["skipped"], report["continued"]) != ([4], [5]):
            yield f"skipped and continued are {report['skipped']}, {report['continued']}"

    def _effects(self, place: Place, told: Told, kills: int) -> Iterator[str]:
        """No effect twice, the undos in reverse, ``finally`` last and once, and what it was told is true."""
        lines = place.ledger.lines(place.saga_id)
        applied = [line for line in lines if line.what == "applied"]
        for (step, direction), count in Counter((line.step_id, line.direction) for line in applied).items():
            if count > 1:
                yield f"step {step} ({direction}) happened {count} times"
        for (step, direction), count in Counter((x.step_id, x.direction) for x in lines if x.what == "sent").items():
            allowed = 1 if step == "tell" else 1 + kills
            if count > allowed:
                yield f"step {step} ({direction}) was sent {count} times, {allowed} are allowed"
        standing = {line.step_id for line in place.ledger.standing(place.saga_id)}
        if standing - {"sign", "tell"} != self.way.standing or "sign" not in standing:
            yield f"{sorted(standing)} stand"
        undone = tuple(line.step_id for line in applied if line.direction == "compensate")
        if undone != self.way.undone:
            yield f"undone were {undone}, not {self.way.undone}"
        said = [(line.step_id, line.value) for line in lines if line.step_id in ("sign", "tell")]
        if any(self.way.end not in value.values() for _, value in said):
            yield f"finally was told of another end: {said}"
        last = [line.step_id for line in applied if line.step_id in ("sign", "tell")]
        if last not in (["sign"], ["sign", "tell"]) or [line.step_id for line in applied][-len(last) :] != last:
            yield f"finally was not last: {[line.step_id for line in applied]}"
        tell = next(step for step in told["final"]["steps"] if step["step_id"] == "tell")
        if tell["status"] not in (t.SUCCEEDED, t.IN_DOUBT):
            yield f"the last step of finally is {tell['status']}"


#: What settles each step that calls nothing, and the output that it has.
_ONCE = {
    "2": ("computed", "0.3"),
    "6": ("timer", None),
    "7": ("event", {"sum": 7}),
    "8": ("decision", {"answer": "yes", "by": "ada", "note": ""}),
}


def _settled_once(told: Told) -> Iterator[str]:
    """Each wait, question, computation and condition has one disposition, and the event's sender is told the same."""
    history = told["history"]
    for step, expected in _ONCE.items():
        found = [
            (record.get("via"), record.get("output"))
            for record in history
            if record["k"] == "StepSucceeded" and record["step"] == step
        ]
        decided = [r for r in history if r["k"] == "QuestionResolved" and r["step"] == step]
        body = next(each for each in told["final"]["steps"] if str(each["step_id"]) == step)
        if (body.get("via"), body["output"]) != expected or len(found) + len(decided) != 1:
            yield f"step {step} was settled by {found} {decided}; it is {body.get('via')}: {body['output']}"
    counts = Counter((record["k"], record.get("step")) for record in history)
    kinds = [
        ("StepSkipped", "4"),
        ("StepFailed", "5"),
        ("StepWaiting", "6"),
        ("StepWaiting", "7"),
        ("FinallyStarted", None),
    ]
    for each in [*kinds, ("StepEscalated", "8")]:
        if counts[each] != 1:
            yield f"there are {counts[each]} records {each}"
    if told["events"] != ["taken"]:
        yield f"the event is {told['events']}"


def stage(processes: Processes, new_place: NewPlace, url: str, name: str) -> Stage:
    return Stage(processes, new_place, url, WAYS[name].scenario)


#: Points that each way has.
REACHED = [f"{point}:1:{when}" for point in ("append", "call", "post", *EVENTS) for when in ("before", "after")]


#: In ``compensated``: words about the event, an undo, and the calls of ``finally``; the last of them stays in doubt.
SOME = ["append:5:after", "event_send:1:after", "event_over:1:before", "call:6:after", "call:8:after", "call:9:before"]


def test_killed_at_some_points(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """The short form: the way back, ``finally``, and each word to the store about the event."""
    way = WAYS["compensated"]
    clean(killed_at(stage(processes, new_place, embedded.url, "compensated"), SOME, Judge(way)), SOME)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(WAYS))
def test_killed_anywhere(processes: Processes, new_place: NewPlace, server_url: str, name: str) -> None:
    """Wherever a process dies, each effect happens once, each wait ends once, and the end is true."""
    found = killed_once(stage(processes, new_place, server_url, name), Judge(WAYS[name]))
    clean(found, REACHED)
    assert len(found) >= 40, sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(WAYS))
def test_killed_again_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str) -> None:
    """Every pair of a kill and a second kill."""
    found = killed_twice(stage(processes, new_place, embedded.url, name), every=True, judge=Judge(WAYS[name]))
    clean(found, [])
    assert sum("not reached" not in fault for fault in found) >= 100, len(found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(WAYS))
@pytest.mark.parametrize("kind", [Cluster, SentinelTrio])
def test_killed_anywhere_elsewhere(processes: Processes, new_place: NewPlace, kind: Any, name: str) -> None:
    """The same laws on a cluster and behind Sentinels: the event's partition may be on another server than the saga's."""
    with kind() as topology:
        found = killed_once(stage(processes, new_place, topology.url, name), Judge(WAYS[name]))
    clean(found, REACHED)


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        ("repeat whatever is in doubt", "call:9:after"),
        ("keep from the store that a wait is over", "append:5:after"),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """An engine that is broken in the way that the mutant says does not get through."""
    way = WAYS["compensated"]
    scenario = replace(way.scenario, more={**way.scenario.more, "mutant": mutant})
    broken = Stage(processes, new_place, embedded.url, scenario)
    assert killed_at(broken, [fault], Judge(way))[fault], f"nothing noticed the mutant '{mutant}'"
