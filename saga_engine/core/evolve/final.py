"""What the records of a plan's ``finally`` change."""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.evolve.transition import index_of
from saga_engine.core.state import State
from saga_engine.core.state_values import Alerting, Ending, Notice, StepState


def finally_started(state: State, record: r.FinallyStarted) -> None:
    """The saga's end is certain: the steps of ``finally`` are steps of the saga from here on."""
    if not state.plan.final or state.ending is not None:
        raise KeyError("the plan has no 'finally', or it has started")
    first = len(state.steps)
    state.ending = Ending(record.end, record.until_ms, first, {"status": record.end, **record.facts})
    state.plan = state.plan.with_final()
    state.grown = True
    for compiled in state.plan.steps[first:]:
        state.steps.append(StepState(len(compiled.deps)))
        if not compiled.deps:
            state.ready[compiled.index] = None


def ended(state: State, index: int, error: ErrorInfo | None = None) -> None:
    """A step of ``finally`` has ended, whatever came of it: those that wait for it may start.

    ``error``: it was not done, or is in doubt; operators are notified.
    """
    compiled = state.plan.steps[index]
    for dependent in compiled.dependents:
        waiter = state.steps[dependent]
        waiter.waits -= 1
        if not waiter.waits and waiter.status == t.PENDING:
            state.ready[dependent] = None
    if error is not None:
        name = f"{compiled.key}:finally"
        state.notices[name] = Notice(index, "finally", error)
        state.alerts[name] = Alerting(attempt=0, due=state.at, in_flight=False)


def unsettled(state: State, record: r.StepUnsettled) -> None:
    """The step stays in doubt."""
    index = index_of(state, record)
    for places in (state.doubts, state.waiting, state.to_escalate, state.in_flight):
        places.pop((index, FORWARD), None)
    call = state.steps[index].forward
    if call.doubt is None or not is_final(state, index):
        raise KeyError(f"step {record.step} is not in doubt, or not of 'finally'")
    call.error = record.error
    ended(state, index, record.error)


def is_final(state: State, index: int) -> bool:
    """Whether a step is one of ``finally``."""
    return state.ending is not None and index >= state.ending.first
