"""``wait``: a step that waits for events from outside; the payload of the only one is its output.

Event, time-out and the turn of the saga compete for one record of the saga's owner: ``StepSucceeded`` (``via`` event),
what the step says about its time-out, or the turn, which skips the step. What comes after it is refused, and its sender
told (``MessageRefused``). The store holds an event for one wait until then (``ports.events``), so that no crash loses
it, and none makes it count twice.

A wait for ``all`` of several has ``EventArrived`` for each but the last one, which ends it. The store holds these until
the wait is over: if it was in vain, they are given to other waits, or are late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Backward, Turning
from saga_engine.core.states import SKIPPED
from saga_engine.core.waits import Came, EventName, Pending
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.values import digest
from saga_engine.plan.wait import awaited, key_of, misfit, several, timeout_ms

#: The word of these steps.
KIND: Final = "wait"
#: Why the saga refused an event: it does not fit the step's schema; or it comes too late, or again.
INVALID: Final = "event-invalid"
LATE: Final = "event-late"
#: The step waits for others of its events, and has this one.
REPEATED: Final = "event-repeated"
REFUSALS: Final = frozenset({INVALID, LATE, REPEATED})
#: So many of the events that did not come are named.
_NAMED: Final = 3


class Event(NamedTuple):
    """An event that the store holds for a step. ``nth``: for which of its waits, from 1; 0: for any."""

    id: str
    name: str
    key: str
    payload: Any
    nth: int = 0


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that begins the wait, or the failure of a step that cannot wait."""
    step = state.plan.steps[index]
    try:
        body = step.params.resolve(StateScope(state))[KIND]
        about = _about(state, body)
        due = None if body.get("timeout_s") is None else now + timeout_ms(body["timeout_s"])
    except BindingUnresolved as error:
        reason = ErrorInfo("binding_unresolved", error.message, retryable=False)
    except ValueError as error:
        reason = ErrorInfo("wait_invalid", str(error)[:1000], retryable=False)
    else:
        return r.StepWaiting(at=now, step=step.key, on="event", due_ms=due, about=about)
    return r.StepFailed(at=now, step=step.key, error=reason)


def _about(state: State, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the step waits for. Raises ``ValueError``."""
    found = [
        {"event": each["event"], "key": key_of(state.saga_id if each.get("key") is None else each["key"])}
        for each in awaited(body)
    ]
    word = several(body)
    if not word:
        return found[0]
    for number, each in enumerate(found):
        if each in found[:number]:
            raise ValueError(f"'{word}' has the event {each['event']} with the key {each['key']} twice")
    return {word: found}


def never_begun(state: State, among: Iterable[int] | None = None) -> Iterator[tuple[int, EventName]]:
    """The events of the waits that a saga which turned around will not begin, as far as their keys are known.

    ``among``: only those of these steps.

    What comes for them comes too late, as it does for a wait that has begun. A fork that has the saga's effects
    waits for them in its place.
    """
    if not isinstance(state.phase, Backward) or state.phase.reason == "transferred" or state.undo_of:
        return
    steps = state.plan.steps
    for step in steps if among is None else (steps[index] for index in among):
        at = state.steps[step.index]
        if step.builtin != KIND or at.begun or at.settled or at.status != SKIPPED:
            continue
        try:
            about = _about(state, step.params.resolve(StateScope(state))[KIND])
        except (BindingUnresolved, ValueError):
            continue  # its key is not known yet, or never will be
        yield from ((step.index, event) for event in Pending("event", None, about).events())


def due(state: State, index: int, wait: Pending, now: int) -> r.AnyRecord:
    """No event came in time: the step fails, or has the value that its plan gives."""
    step = state.plan.steps[index]
    then = step.params.raw[KIND].get("on_timeout", "fail")
    if isinstance(then, Mapping):
        return r.StepSucceeded(at=now, step=step.key, output=then["value"], via="timer")
    came = state.steps[index].came
    missing = [each for entry, each in enumerate(wait.events()) if entry not in came]
    names = " or ".join(f"{each.event} with the key {each.key}" for each in missing[:_NAMED])
    message = said("wait_timed_out", names=f"{names}{' or another' if len(missing) > _NAMED else ''}")
    return r.StepFailed(at=now, step=step.key, error=ErrorInfo("wait_timed_out", message, retryable=False))


def arrived(state: State, step: str, event: Event, now: int) -> r.AnyRecord:
    """The record of an event that the store holds for a step."""
    index = state.plan.by_key.get(step, -1)
    wait = state.pending.get(index)
    entry = -1 if wait is None else entry_of(wait, event.name, event.key)
    # An operator may have had the step begin anew: what was held for the wait before is late, and is handled as such.
    if wait is None or entry < 0 or event.nth not in (0, state.steps[index].begun):
        why = f"step {step} does not wait for the event {event.name} (any more)"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if isinstance(state.phase, Turning):  # a cancel was read with it, and nothing is decided yet
        why = f"step {step} waits no more: the saga turns around ({state.phase.reason})"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if wait.due is not None and wait.due <= now:
        why = f"step {step} waited until its time-out, which has passed"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if entry in state.steps[index].came:
        why = f"step {step} has the event {event.name} already, and waits for others"
        return r.MessageRefused(at=now, message=event.id, code=REPEATED, reason=why)
    if wrong := misfit(schema_of(state, index, entry), event.payload):
        why = f"the event does not fit the schema of step {step}: {wrong}"[:1000]
        return r.MessageRefused(at=now, message=event.id, code=INVALID, reason=why)
    return came(state, index, entry, event, now)


def came(state: State, index: int, entry: int, event: Event, now: int) -> r.AnyRecord:
    """The record of an event that fits a wait, ``entry`` of its events."""
    step, wait = state.plan.steps[index].key, state.pending[index]
    if not wait.word:
        return r.StepSucceeded(at=now, step=step, output=event.payload, via="event", source=event.id)
    found = {**state.steps[index].came, entry: Came(event.name, event.key, event.id, event.payload)}
    if wait.word == "all" and len(found) < len(wait.events()):
        return r.EventArrived(at=now, step=step, entry=entry, output=event.payload, source=event.id)
    outputs = [found[number].output() for number in sorted(found)]
    output = outputs if wait.word == "all" else found[entry].output()
    return r.StepSucceeded(at=now, step=step, output=output, via="event", source=event.id, entry=entry)


def answer_id(state: State, index: int, entry: int | None) -> str:
    """The id of the one answer that a wait may be sent: of each of its events, and each time that the step waits.

    It follows from the seed of the saga, so no sender of other events can choose it.
    """
    made = ["saga-answer/1", state.seed, state.saga_id, state.plan.steps[index].key, state.steps[index].begun, entry]
    return f"answer-{digest(made)[:32]}"


def entry_of(wait: Pending, name: str, key: str) -> int:
    """Which of its events this is, from 0; -1: none."""
    return next((entry for entry, each in enumerate(wait.events()) if each == (name, key)), -1)


def schema_of(state: State, index: int, entry: int) -> Mapping[str, Any] | None:
    """The schema of the payload of one of the events for which a step waits."""
    found: Mapping[str, Any] | None = awaited(state.plan.steps[index].params.raw[KIND])[entry].get("schema")
    return found
