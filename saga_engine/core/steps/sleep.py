"""``sleep``: a step that only lets time pass. A timer of the saga ends it; its output is null."""

from __future__ import annotations

from typing import Final

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.waits import Wait
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.decimals import NotComputable
from saga_engine.plan.sleep import due_ms

#: The word of these steps.
KIND: Final = "sleep"


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that begins the wait, or the failure of a step whose time no one can compute."""
    step = state.plan.steps[index]
    try:
        body = step.params.resolve(StateScope(state))[KIND]
        return r.StepWaiting(at=now, step=step.key, on="timer", due_ms=due_ms(body, now))
    except BindingUnresolved as error:
        reason = ErrorInfo("binding_unresolved", error.message, retryable=False)
    except NotComputable as error:
        reason = ErrorInfo("sleep_invalid", str(error)[:1000], retryable=False)
    return r.StepFailed(at=now, step=step.key, error=reason)


def due(state: State, index: int, wait: Wait, now: int) -> r.AnyRecord:  # noqa: ARG001 - as for every kind of wait
    """Its time has come."""
    return r.StepSucceeded(at=now, step=state.plan.steps[index].key, via="timer")
