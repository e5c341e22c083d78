"""``saga``: a step that runs another saga, its child, and waits for its end. The child's outputs are its output.

The child is a saga of its own: its own id, which follows from those of its parent and of the step, its own journal,
owner, questions and undo. ``StepWaiting`` orders its start, so a parent that is taken over starts the same one again.
One record ends the wait, ``ChildEnded``, and nothing else does: a parent that turns around cancels the child and waits
for what comes of that, because an effect of the child would else stand unnoticed.

A child that completed is undone by the undo of completed sagas, a saga of its own, for which the step waits in the same
way. The parent repeats what each of them says is left: it does not judge the effects of others.
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.waiting_records import ChildEnd, Parent
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.child import KIND
from saga_engine.plan.limits import MAX_CHILD_DEPTH
from saga_engine.plan.values import digest

#: The longest id of a saga; a longer one of a child is cut, with a digest of the whole in place of the rest.
_ID_CHARS: Final = 110


def child_id(parent: str, step: str, attempt: int) -> str:
    """The id of the child that a step starts, the first time or again."""
    whole = f"{parent}.{step}" if attempt == 1 else f"{parent}.{step}.{attempt}"
    return _fitting(whole)


def undo_id(saga_id: str) -> str:
    """The id of the saga that undoes a completed one: always the same, so a request that is repeated continues it."""
    short = saga_id
    if len(saga_id) > _ID_CHARS:
        short = f"{saga_id[:_ID_CHARS]}-{digest(['saga-undo/1', saga_id])[:8]}"
    return f"{short}-undo"


def _fitting(whole: str) -> str:
    return whole if len(whole) <= _ID_CHARS else f"{whole[:_ID_CHARS]}-{digest(whole)[:8]}"


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that orders the start of the child, or the failure of a step whose input is incomplete."""
    step, at = state.plan.steps[index], state.steps[index]
    try:
        step.params.resolve(StateScope(state))
    except BindingUnresolved as error:
        reason = ErrorInfo("binding_unresolved", error.message, retryable=False)
        return r.StepFailed(at=now, step=step.key, error=reason)
    if state.depth >= MAX_CHILD_DEPTH:
        why = said("saga_depth", most=MAX_CHILD_DEPTH)
        return r.StepFailed(at=now, step=step.key, error=ErrorInfo("saga_depth", why, retryable=False))
    about = {"saga": child_id(state.saga_id, step.key, at.forward.attempt + 1)}
    return r.StepWaiting(at=now, step=step.key, on="child", about=about)


def begin_undo(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that orders the undo of a child that has completed."""
    about = {"saga": undo_id(state.steps[index].child), "undoes": state.steps[index].child}
    key = state.plan.steps[index].key
    return r.StepWaiting(at=now, step=key, on="child", about=about, direction=COMPENSATE)


def input_of(state: State, index: int) -> dict[str, Any]:
    """The input of the child. Raises ``BindingUnresolved``."""
    found: dict[str, Any] = state.plan.steps[index].params.resolve(StateScope(state))[KIND]["input"]
    return found


def parent_of(state: State, index: int) -> Parent:
    """What the child, or its undo, knows of the saga that waits for it."""
    return Parent(state.saga_id, state.plan.steps[index].key, state.depth + 1)


def ended(state: State, step: str, end: ChildEnd, now: int, message: str = "") -> r.AnyRecord:
    """The record of the end of a saga that a step waits for, or waited for: it may be told more than once."""
    index = state.plan.by_key.get(step, -1)
    wait = state.pending.get(index)
    if wait is None or wait.on != "child" or wait.about["saga"] != end.saga:
        why = f"step {step} does not wait for saga {end.saga} (any more)"
        return r.MessageRefused(at=now, message=message or f"child:{end.saga}", code="child-late", reason=why)
    return r.ChildEnded(
        at=now,
        step=step,
        saga=end.saga,
        status=end.status,
        direction=wait.direction,
        output=end.output,
        error=end.error,
        left=end.left,
        hidden=end.hidden,
        message=message,
    )
