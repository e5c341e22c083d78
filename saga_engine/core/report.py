"""What a person or a program is told about a saga: steps, the four lists, one word."""

from __future__ import annotations

from typing import Any

from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, ErrorInfo
from saga_engine.core.state import CallState, OpenQuestion, State, StateScope, StepState
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.compiled import CompiledStep


def view(state: State) -> dict[str, Any]:
    """The saga as one JSON object, as ``show --json`` prints it. Times are Unix milliseconds of the store's clock."""
    body: dict[str, Any] = {
        "saga_id": state.saga_id,
        "status": state.status,
        "goal": state.plan.goal,
        "started_ms": state.started_at,
        "ended_ms": state.ended_at or None,
        "steps": [_step(state, compiled) for compiled in state.plan.steps],
        "report": report(state),
        "error": failure(state),
        "questions": [_question(state, question) for question in state.questions.values()],
    }
    return body


def report(state: State) -> dict[str, Any]:
    """Four lists of step ids and one word.

    ``compensated``: undone, by the engine or by hand. ``failed``: the undo failed and nobody has decided yet.
    ``unresolved``: it is not known whether it stands, or its undo has not ended. ``left_in_place``: it stands and
    will. ``clean`` is True when nothing stands that was not meant to: the last three are empty. A saga that is still
    going forward, or completed, has no remainder: what stands is meant to.
    """
    lists: dict[str, list[int | str]] = {"compensated": [], "failed": [], "unresolved": [], "left_in_place": []}
    for compiled, step in zip(state.plan.steps, state.steps, strict=True):
        name = _bucket(state, compiled, step)
        if name is not None:
            lists[name].append(compiled.step_id)
    clean = not (lists["failed"] or lists["unresolved"] or lists["left_in_place"])
    return {**lists, "clean": clean}


def _bucket(state: State, compiled: CompiledStep, step: StepState) -> str | None:
    if step.status == t.COMPENSATED or step.by_hand:
        return "compensated"
    if step.left:
        return "left_in_place"
    asked = next((q for q in state.questions.values() if state.plan.steps[q.step] is compiled), None)
    if step.status == t.COMPENSATION_FAILED or (
        asked and asked.direction == COMPENSATE and asked.kind not in ("undo-in-doubt", "approval")
    ):
        return "failed"
    if compiled.kind == "read" or step.status in (t.PENDING, t.SKIPPED, t.FAILED, t.BLOCKED):
        return None
    if step.status == t.SUCCEEDED and step.via == "shared":
        return None  # the effect is another saga's, and so is its undo
    if step.status == t.SUCCEEDED:
        if not state.backward:
            return "left_in_place" if state.status == t.ABANDONED else None
        return "left_in_place" if state.undoing(compiled.index) is None else "unresolved"
    if step.status == t.RUNNING and not step.forward.doubtful:
        return None
    if step.status == t.ESCALATED and not step.forward.doubtful and not state.backward:
        return None  # it was not done; the question is how to go on
    return "unresolved"


def failure(state: State) -> dict[str, Any] | None:
    """Why the saga did not simply complete; None if nothing went wrong."""
    if state.failing is None:
        return None
    body: dict[str, Any] = {"code": state.failing}
    if state.failed and state.failing in ("step-failed", "blocked"):
        compiled = state.plan.steps[state.failed[0]]
        body["step_id"] = compiled.step_id
        error = state.steps[state.failed[0]].forward.error
        if error is not None:
            body |= {"error_code": error.error_code, "message": error.message}
            if error.suggestion:
                body["suggestion"] = error.suggestion
    return body


def _step(state: State, compiled: CompiledStep) -> dict[str, Any]:
    step = state.steps[compiled.index]
    body: dict[str, Any] = {
        "step_id": compiled.step_id,
        "name": compiled.name,
        "tool": compiled.tool,
        "kind": compiled.kind,
        "status": step.status,
        **_call(step.forward),
        "output": step.output,
        "compensation": None,
    }
    if step.via and step.via != "call":
        body["via"] = step.via
    if step.source:
        body["source"] = step.source
    if step.age_ms is not None:
        body["age_ms"] = step.age_ms
    if step.using:
        body["fallback"] = {"number": step.using, "tool": state.acting(compiled.index).tool}
    if step.parked:
        body["parked"] = step.parked
    rollback = state.undoing(compiled.index)
    if rollback is not None and step.undo is not None:
        body["compensation"] = {
            "step_id": compiled.step_id,
            "name": f"undo {compiled.name}",
            "tool": rollback.tool,
            "status": _undo_status(step),
            **_call(step.undo),
            "output": step.undo_output,
        }
    return body


def _undo_status(step: StepState) -> str:
    if step.by_hand or step.left:
        return t.RESOLVED
    if step.status == t.COMPENSATING and step.undo is not None and step.undo.doubtful:
        return t.IN_DOUBT
    return step.status


def _call(call: CallState) -> dict[str, Any]:
    return {
        "attempts": call.attempt,
        "error": error_dict(call.error),
        "started_ms": call.first_at or None,
        "ended_ms": call.ended_at or None,
    }


def error_dict(error: ErrorInfo | None) -> dict[str, Any] | None:
    """An error as plain JSON, without empty fields."""
    if error is None:
        return None
    fields = {
        "error_code": error.error_code,
        "message": error.message,
        "suggestion": error.suggestion,
        "retryable": error.retryable,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _question(state: State, question: OpenQuestion) -> dict[str, Any]:
    compiled = state.plan.steps[question.step]
    body: dict[str, Any] = {
        "question_id": question.id,
        "step_id": compiled.step_id,
        "tool": asked_tool(state, question.step, question.direction),
        "direction": question.direction,
        "kind": question.kind,
        "options": list(question.options),
        "error": error_dict(question.error),
        "idempotency_key": state.key(question.step, question.direction),
        "asked_ms": question.at,
    }
    if question.kind == "approval":
        body |= {
            "params": asked_params(state, question.step, question.direction),
            "call": question.call,
            "rule": question.rule,
            "expires_ms": question.expires,
        }
    return body


def asked_tool(state: State, index: int, direction: Direction) -> str:
    """The tool that a question about a step is about."""
    rollback = state.undoing(index) if direction == COMPENSATE else None
    return state.acting(index).tool if rollback is None else rollback.tool


def asked_params(state: State, index: int, direction: Direction) -> dict[str, Any] | None:
    """The params of the call that a person is asked to approve, in the cut form, secrets as markers."""
    serving = state.acting(index) if direction == FORWARD else state.undoing(index)
    try:
        return None if serving is None else serving.params.resolve(StateScope(state))
    except BindingUnresolved:
        return None


def summary(state: State) -> dict[str, Any]:
    """The line that ``saga list`` shows, kept in the saga's head so that a list reads no journal."""
    done = len(state.plan.steps) - state.remaining
    body: dict[str, Any] = {"steps": len(state.plan.steps), "done": done}
    if state.plan.goal:
        body["goal"] = state.plan.goal[:120]
    reason = failure(state)
    if reason is not None:
        body["error"] = {name: str(value)[:200] for name, value in reason.items()}
    if state.expiring:
        body["due_ms"] = min(state.expiring.values())
    if state.questions:
        body["questions"] = [
            {"step_id": state.plan.steps[q.step].step_id, "kind": q.kind, "options": list(q.options)}
            for q in list(state.questions.values())[:20]
        ]
    if state.status in t.SAGA_FINAL and state.backward:
        body["clean"] = report(state)["clean"]
    return body
