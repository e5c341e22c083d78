"""``wait``: a step that waits for an event from outside; the event's payload is its output.

Event, time-out and the turn of the saga compete for one record of the saga's owner: ``StepSucceeded`` (``via`` event),
what the step says about its time-out, or the turn, which skips the step. What comes after it is refused, and its sender
told (``MessageRefused``). The store holds an event for one wait until then (``ports.events``), so that no crash loses
it, and none makes it count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Turning
from saga_engine.core.waits import Wait
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.wait import key_of, misfit, timeout_ms

#: The word of these steps.
KIND: Final = "wait"
#: Why the saga refused an event: it does not fit the step's schema; or it comes too late, or again.
INVALID: Final = "event-invalid"
LATE: Final = "event-late"
REFUSALS: Final = frozenset({INVALID, LATE})


class Event(NamedTuple):
    """An event that the store holds for a step."""

    id: str
    name: str
    key: str
    payload: Any


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that begins the wait, or the failure of a step that cannot wait."""
    step = state.plan.steps[index]
    try:
        body = step.params.resolve(StateScope(state))[KIND]
        key = key_of(state.saga_id if body.get("key") is None else body["key"])
        due = None if body.get("timeout_s") is None else now + timeout_ms(body["timeout_s"])
    except BindingUnresolved as error:
        reason = ErrorInfo("binding_unresolved", error.message, retryable=False)
    except ValueError as error:
        reason = ErrorInfo("wait_invalid", str(error)[:1000], retryable=False)
    else:
        about = {"event": body["event"], "key": key}
        return r.StepWaiting(at=now, step=step.key, on="event", due_ms=due, about=about)
    return r.StepFailed(at=now, step=step.key, error=reason)


def due(state: State, index: int, wait: Wait, now: int) -> r.AnyRecord:
    """No event came in time: the step fails, or has the value that its plan gives."""
    step = state.plan.steps[index]
    then = step.params.raw[KIND].get("on_timeout", "fail")
    if isinstance(then, Mapping):
        return r.StepSucceeded(at=now, step=step.key, output=then["value"], via="timer")
    message = f"no event {wait.about['event']} with the key {wait.about['key']} came in time"
    return r.StepFailed(at=now, step=step.key, error=ErrorInfo("wait_timed_out", message, retryable=False))


def arrived(state: State, step: str, event: Event, now: int) -> r.AnyRecord:
    """The record of an event that the store holds for a step."""
    index = state.plan.by_key.get(step, -1)
    wait = state.waits.get(index)
    if wait is None or wait.about != {"event": event.name, "key": event.key}:
        why = f"step {step} does not wait for the event {event.name} (any more)"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if isinstance(state.phase, Turning):  # a cancel was read with it, and nothing is decided yet
        why = f"step {step} waits no more: the saga turns around ({state.phase.reason})"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if wait.due is not None and wait.due <= now:
        why = f"step {step} waited until its time-out, which has passed"
        return r.MessageRefused(at=now, message=event.id, code=LATE, reason=why)
    if wrong := misfit(schema_of(state, index), event.payload):
        why = f"the event does not fit the schema of step {step}: {wrong}"[:1000]
        return r.MessageRefused(at=now, message=event.id, code=INVALID, reason=why)
    return r.StepSucceeded(at=now, step=step, output=event.payload, via="event", source=event.id)


def schema_of(state: State, index: int) -> Mapping[str, Any] | None:
    """The schema of the payload that a step waits for."""
    found: Mapping[str, Any] | None = state.plan.steps[index].params.raw[KIND].get("schema")
    return found
