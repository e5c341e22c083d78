"""The laws of events: each is known once and ends one wait at most; one that arrived is durable and counts once.

They compare the journal with the plan, with what the customer sent, and with what the store says of the events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dev.chaos import plans
from dev.chaos.told import Told
from saga_engine.core import transitions as t
from saga_engine.ports import Channel, ListedEvent

#: A wait whose step has this status was in vain.
_IN_VAIN: Final = frozenset({t.FAILED, t.SKIPPED})


class Place(NamedTuple):
    """An event: its name and key, and its id, which repeats among events of other names and keys."""

    channel: Channel
    id: str


def breaches(
    plan: Mapping[str, Any], sent: Sequence[plans.Sending], told: Told, events: Sequence[ListedEvent]
) -> Iterator[str]:
    """Every law that a saga breaks, as sentences. ``events``: all of its channels, as the store lists them."""
    saga_id = told.body["saga_id"]
    known = Counter(Place(event.channel, event.id) for event in events)
    wanted = {
        Place(Channel(sending.channel[0], f"{saga_id}{sending.channel[1]}"), event)
        for sending in sent
        for event in sending.ids
    }
    for place in sorted(wanted | known.keys()):
        if known[place] != 1:
            yield f"the event {place.id} ({place.channel.name}) is known {known[place]} times"
    waits = Waits(plan, saga_id)
    for record in told.history:
        yield from waits.read(record)
    taken = {Place(event.channel, event.id) for event in events if event.disposition == "taken"}
    if len(set(waits.used)) < len(waits.used) or set(waits.used) != taken:
        yield f"its waits were ended by the events {_said(waits.used)}, the store says by {_said(taken)}"
    for event in events:
        if event.disposition == "held":
            yield f"the event {event.id} is held for a step of a saga that has ended"
    yield from _late(plan, told, events)
    yield from _kept(plan, told, events)


def figures(plan: Mapping[str, Any], told: Told) -> Counter[str]:
    """What of all this happened."""
    waits = Waits(plan, told.body["saga_id"])
    for record in told.history:
        for _ in waits.read(record):
            pass
    return waits.figures


class Waits:
    """The waits of a saga for events, as its journal tells of them.

    ``used``: the events of waits that ended with an event. Others that came are nobody's: their waits were in vain.
    """

    def __init__(self, plan: Mapping[str, Any], saga_id: str) -> None:
        waits = {str(step["step_id"]): step["wait"] for step in plan["steps"] if "wait" in step}
        self._words = {key: plans.word_of(wait) for key, wait in waits.items()}
        self._channels = {key: plans.awaited(wait, saga_id) for key, wait in waits.items()}
        self._open: dict[str, tuple[int | None, dict[int, Place]]] = {}
        self.used: list[Place] = []
        self.figures: Counter[str] = Counter()

    def read(self, record: Mapping[str, Any]) -> Iterator[str]:
        """What one more record of the journal breaks."""
        kind, step = record["k"], str(record.get("step", ""))
        if kind == "CompensationStarted":
            self.figures["events that came in vain"] += sum(len(came) for _, came in self._open.values())
            self._open.clear()
        elif step in self._words and record.get("direction", "forward") == "forward":
            if kind == "StepWaiting":
                self._open[step] = (record.get("due_ms"), {})
            elif kind == "EventArrived":
                self.figures["events that arrived"] += 1
                yield from self._came(step, record, record.get("entry"))
                if self._words[step] != "all":
                    yield f"step {step} does not wait for all, and goes on waiting after {record['source']}"
            elif kind == "StepSucceeded" and record.get("via") == "event":
                yield from self._ended(step, record)
            elif kind in ("StepSucceeded", "StepFailed"):
                _, came = self._open.pop(step, (None, {}))
                self.figures["events that came in vain"] += len(came)

    def _came(self, step: str, record: Mapping[str, Any], entry: int | None) -> Iterator[str]:
        source, channels = record.get("source", ""), self._channels[step]
        if step not in self._open:
            yield f"the event {source} came for step {step}, which does not wait"
            return
        due, came = self._open[step]
        if due is not None and due <= record["at"]:
            yield f"the event {source} came for step {step} at {record['at']}, whose wait was over at {due}"
        if entry is None or not 0 <= entry < len(channels):
            yield f"the event {source} is number {entry} of the events of step {step}"
            return
        if entry in came:
            yield f"step {step} has its event {entry} twice: {came[entry].id}, then {source}"
        came[entry] = Place(channels[entry], source)

    def _ended(self, step: str, record: Mapping[str, Any]) -> Iterator[str]:
        word = self._words[step]
        yield from self._came(step, record, record.get("entry") if word else 0)
        _, came = self._open.pop(step, (None, {}))
        wanted = len(self._channels[step]) if word == "all" else 1
        if len(came) != wanted:
            yield f"step {step} ended with {len(came)} of the {wanted} events for which it waits"
        self.used += came.values()
        self.figures[f"ended by {word or 'one event'}"] += 1
        outputs = [_output(place, several=bool(word)) for _, place in sorted(came.items())]
        output = outputs if word == "all" else outputs[0] if outputs else None
        if record.get("output") != output and not record.get("refs"):
            yield f"step {step} has the event {record.get('source')} with {record.get('output')}, and {output} came"


def _output(place: Place, *, several: bool) -> dict[str, Any]:
    brought = plans.payload(*place)
    return {"event": place.channel.name, "key": place.channel.key, "payload": brought} if several else brought


def _late(plan: Mapping[str, Any], told: Told, events: Sequence[ListedEvent]) -> Iterator[str]:
    """What came for a wait for several that was in vain is handled, as the plan says: the customer sent it again."""
    waits = {str(step["step_id"]): step["wait"] for step in plan["steps"] if "wait" in step}
    steps = {str(step["step_id"]): step for step in told.body["steps"]}
    for event in events:
        key = "" if event.waiter is None else event.waiter.step
        if event.disposition != "late" or "on_late" not in waits.get(key, {}) or not plans.word_of(waits[key]):
            continue
        if steps[key]["status"] in _IN_VAIN or steps[key].get("via") == "timer":
            yield f"the event {event.id} came in vain for step {key}, and its on_late was not called"


def _kept(plan: Mapping[str, Any], told: Told, events: Sequence[ListedEvent]) -> Iterator[str]:
    """What came for a wait with an ``on_late``, before which its saga turned around, is handled and not just kept."""
    if not any(record["k"] == "CompensationStarted" for record in told.history):
        return
    begun = {str(record["step"]) for record in told.history if record["k"] in ("StepWaiting", "StepSkipped")}
    skipped = {str(step["step_id"]) for step in told.body["steps"] if step["status"] == t.SKIPPED} - begun
    for step in plan["steps"]:
        wait = step.get("wait", {})
        key = str(step["step_id"])
        if key not in skipped or "on_late" not in wait or "$output" in str(wait.get("key")):
            continue
        for event in events:
            if event.disposition == "kept" and event.channel.name == wait.get("event"):
                yield f"the event {event.id} came for step {key}, which never began to wait, and nobody is told"


def _said(places: Sequence[Place] | set[Place]) -> list[str]:
    return sorted(f"{place.id} ({place.channel.name} {place.channel.key})" for place in places)
