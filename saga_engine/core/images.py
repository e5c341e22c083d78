"""Before-images: the value that a call is about to change, as it was, and what it has become since.

The read is made before the intent, and its answer is a part of it (``StepIntended.before``), so a call whose value
cannot be read is never made. The same read after the call gives the after-image (``StepSucceeded.after``). Before the
undo it is made once more, and ``judge`` compares: only a value that is as the call left it is undone without a
question. What somebody else changed since is *drift*, and is never overwritten silently.

An image is one of ``{"value": V}``, ``{"absent": true}`` (there was nothing) and ``{"unread": WHY}``.
"""

from __future__ import annotations

from typing import Any, Literal

from saga_engine.core import records as r
from saga_engine.core.bound_outputs import output_is_bound
from saga_engine.core.codec import Stored
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import StepState
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledRead
from saga_engine.plan.values import canonical

Image = dict[str, Any]
Judgement = Literal["undo", "restored", "drift"]


def image_of(read: CompiledRead, outcome: Outcome) -> Image | NotDone:
    """The image that a read gives; or why there is none."""
    if type(outcome) is Done:
        absent = read.absent is not None and read.absent.is_answer(outcome.output)
        return {"absent": True} if absent else {"value": outcome.output}
    assert not isinstance(outcome, Done)
    error = outcome.error
    if type(outcome) is NotDone and read.absent is not None and read.absent.is_error(error.error_code):
        return {"absent": True}
    why = ErrorInfo(
        "image_unread",
        said("image_unread", tool=read.tool, code=error.error_code, message=error.message),
        error.suggestion,
        error.retryable,
    )
    if type(outcome) is NotDone:
        return NotDone(why, outcome.retryable, retry_after_s=outcome.retry_after_s, counted=outcome.counted)
    return NotDone(why, retryable=type(outcome) is Unknown)


def unread(why: NotDone) -> Image:
    """The image in place of one that could not be read."""
    return {"unread": why.error.message}


# --- before the call -------------------------------------------------------------------------------------------------


def wants_image(state: State, record: r.AnyRecord) -> bool:
    """Whether a decided intent needs the value as it is now.

    A repeat of a call in doubt does not: the value may already be the call's own, and the first image holds.
    """
    if type(record) is not r.StepIntended or record.direction != FORWARD or record.before is not None:
        return False
    index = state.plan.by_key[record.step]
    return needs_image(state, index)


def needs_image(state: State, index: int) -> bool:
    """Whether the step's next attempt needs the value as it is now."""
    acting = state.acting(index)
    cached = getattr(acting, "way", "") == "cached"
    return acting.before is not None and not cached and not state.steps[index].forward.doubt


def note_of(
    at: int, step: str, direction: Direction, before: Image | None, *, waits: bool
) -> r.StepQueued | r.StepBegun:
    """The record of a call that waits, or that waits no more."""
    if waits:
        return r.StepQueued(at=at, step=step, direction=direction)
    return r.StepBegun(at=at, step=step, direction=direction, before=before)


# --- before the undo -------------------------------------------------------------------------------------------------


def guards_undo(state: State, index: int) -> bool:
    """Whether the undo of a step must look first."""
    step = state.steps[index]
    return step.before is not None and not step.undo_calls  # the value is between the two once the undo has begun


def judge(step: StepState, found: Image, *, sole_writer: bool, own: bool = False) -> Judgement:
    """What the value that the undo finds means.

    ``restored``: it is as it was before the call, so nothing is left to undo. ``undo``: it is as the call left it; or
    an operator has seen this very value and wants it overwritten; or the after-image is unknown, and nobody else writes
    or the value is what the call would have left (``own``).
    """
    if step.cleared is not None and same(found, step.cleared):
        return "undo"
    if same(found, step.before):
        return "restored"
    if has_after(step):
        return "undo" if same(found, step.after) else "drift"
    return "undo" if sole_writer or own else "drift"


def has_after(step: StepState) -> bool:
    """Whether it is known how the call left the value: not, if an operator or a probe said that it happened."""
    return step.after is not None and "unread" not in step.after


def would_leave(state: State, index: int, found: Image) -> bool:
    """Whether the value is what the call would have left, by its params: without an after-image, nothing tells more.

    The params that the read does not take are what the call changes. They stand in the place of the fields of the
    value before that have their names, or one of them is the whole value.
    """
    acting, before = state.acting(index), state.steps[index].before
    read = acting.before
    if read is None or "value" not in found or not is_known(before):
        return False
    try:
        params, taken = (each.params.resolve(StateScope(state)) for each in (acting, read))
    except BindingUnresolved:
        return False
    changed = {name: value for name, value in params.items() if name not in taken or taken[name] != value}
    value = found["value"]
    if not isinstance(value, dict):
        return any(canonical(each) == canonical(value) for each in changed.values())
    old = before.get("value")
    base = old if isinstance(old, dict) else {name: params[name] for name in value if name in params}
    named = {name: each for name, each in changed.items() if name in base}
    return bool(named) and canonical({**base, **named}) == canonical(value)


def same(one: Any, other: Any) -> bool:
    """Whether two images show the same; one that could not be read, or is not at hand, shows nothing."""
    for image in (one, other):
        if image is None or isinstance(image, Stored) or "unread" in image:
            return False
    return canonical(one) == canonical(other)


def drift(read: CompiledRead, step: StepState) -> ErrorInfo:
    """The error of a question about drift; it names nobody else where it is not known how the step left the value."""
    if not has_after(step):
        why = "drift.unread" if step.after else "drift.settled"
        return ErrorInfo(
            "drift",
            said(why, tool=read.tool),
            said("drift.hint-again"),
        )
    return ErrorInfo(
        "drift",
        said("drift", tool=read.tool),
        said("drift.hint"),
    )


# --- in doubt --------------------------------------------------------------------------------------------------------


def reads_settle(state: State, index: int, direction: Direction) -> bool:
    """Whether the read can tell if a call in doubt happened."""
    step, read = state.steps[index], state.acting(index).before
    if step.before is None or read is None:
        return False
    return not step.undo_calls if direction == COMPENSATE else read.sole_writer


def settled(state: State, index: int, direction: Direction, found: Image) -> Outcome:
    """What the value says about a call in doubt."""
    step, read = state.steps[index], state.acting(index).before
    assert read is not None
    if direction == COMPENSATE:
        if same(found, step.before):
            return Done(None, via="probe")
        # Of several calls, one may well have left the value as it is.
        single = step.undo_call is None or step.undo_call.of == 1
        if single and read.sole_writer and same(found, step.after):
            return _did_not_happen(read, "left")
        return Unknown(ErrorInfo("image_undecided", said("image_undecided", tool=read.tool)))
    if same(found, step.before):
        return _did_not_happen(read, "unchanged")
    if read.expect is not None and not would_leave(state, index, found):
        # Nobody looked right before the call, so what is there may have been there.
        return Unknown(ErrorInfo("image_undecided", said("image_undecided.own", tool=read.tool)))
    if read.after == "output" and "value" in found:
        return Done(found["value"], via="probe", after=found)
    if state.session or output_is_bound(state, index):
        why = said("output_unknown", tool=read.tool)
        return Unknown(ErrorInfo("output_unknown", why, said("output_unknown.hint")))
    return Done(None, via="probe", after=found)


def _did_not_happen(read: CompiledRead, why: str) -> NotDone:
    return NotDone(
        ErrorInfo("did_not_happen", said(f"did_not_happen.{why}", tool=read.tool)), retryable=True, definite=True
    )


def is_known(image: Any) -> bool:
    """Whether there is an image, and it is at hand."""
    return image is not None and not isinstance(image, Stored)
