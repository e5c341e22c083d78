"""What the records of steps that wait change: they begin to wait, and the saga that they wait for has ended."""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD
from saga_engine.core.evolve import calls, compensation
from saga_engine.core.evolve.transition import index_of, move, settle, turn_saga
from saga_engine.core.state import State
from saga_engine.core.state_values import Made
from saga_engine.core.waits import Pending


def step_waits(state: State, record: r.StepWaiting) -> None:
    """A step without a tool waits; backward, for the undo of its child."""
    index = index_of(state, record)
    step = state.steps[index]
    call = step.call(record.direction)
    if record.direction == FORWARD:
        move(step, "wait")
        state.ready.pop(index, None)
    else:
        move(step, "undo")
        state.undo_ready.pop(index, None)
    state.waiting.pop((index, record.direction), None)
    state.pending[index] = Pending(
        record.on, record.due_ms, record.about, record.direction, holds_turn=record.on == "child"
    )
    call.first_at = record.at
    step.begun += 1
    step.came = {}
    if record.on == "child":
        call.attempt += 1
        if record.direction == FORWARD:
            step.child = record.about["saga"]
    if state.status == t.PENDING:
        turn_saga(state, "go")


def ended(state: State, record: r.ChildEnded) -> None:
    """The saga that a step waits for has ended: the step happened or failed, its undo did, or something remains."""
    index = index_of(state, record)
    step = state.steps[index]
    wait = state.pending.pop(index)
    if wait.on != "child" or wait.direction != record.direction or wait.about["saga"] != record.saga:
        raise KeyError(f"step {record.step} does not wait for saga {record.saga}")
    settle(state, step, index, record.direction, record.at)
    step.left = [*step.left, *(key if "/" in key else f"{record.saga}/{key}" for key in record.left)]
    step.call(record.direction).error = record.error
    if record.direction == COMPENSATE:
        _undone(state, index, record)
    elif record.status == t.COMPLETED:
        move(step, "succeed")
        step.hidden = record.hidden
        calls.happened(state, index, step, record.output, Made("child"))
    else:
        move(step, "fail")
        pivot = state.plan.steps[index].kind == "pivot" and bool(record.left)
        calls.not_done(state, index, ask=state.plan.on_failure == "pause" or pivot)


def _undone(state: State, index: int, record: r.ChildEnded) -> None:
    """Of an undo that leaves something, an operator has accepted that, or the child's plan declares it irreversible."""
    step = state.steps[index]
    if record.status == t.COMPENSATED:
        move(step, "undone")
    elif record.status == t.WAIVED:
        move(step, "leave")
        step.accepted = True
        state.left_any = True
    else:
        move(step, "undo_failed")
        state.to_escalate[index, COMPENSATE] = "undo-failed"
        return
    compensation.end_undo(state, index)
