"""A write that expects what its saga last read (``expect``): it is made only if that is still there.

What the saga knows of a value is what the same read showed it last: as the output of a step of its own, or after (an
undo: before) a write of its own. That becomes the before-image of the call, and is durable with the intent. So no read
is needed before the intent; it is made right before the call, under the call's locks, and if it shows another value
nothing is called. Where the other side can compare (a version, an ETag), it is told what was read, and no read is made.

A call in doubt is looked at as well before it is repeated: the value that it would leave settles it, the one that was
read lets it be repeated, and any other one leaves it in doubt.
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import states as t
from saga_engine.core.codec import Stored
from saga_engine.core.effects import FORWARD, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.images import Image, has_after, is_known, same, settled, would_leave
from saga_engine.core.masking import mask_of, tools_of_step
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import StepState
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledRead, Serving
from saga_engine.plan.expect import CHANGED
from saga_engine.plan.jsonpath import Mismatch, find
from saga_engine.plan.values import canonical, cut

_MOST_SHOWN: Final = 300


def expects(state: State, index: int) -> bool:
    """Whether the step's call is made only if the value is what the saga knows."""
    read = state.acting(index).before
    return read is not None and read.expect is not None


def told(state: State, index: int) -> bool:
    """Whether the other side compares: it is told what the saga knows."""
    read = state.acting(index).before
    return read is not None and read.expect is not None and bool(read.expect.params)


def known(state: State, index: int) -> Image | NotDone:
    """What the saga knows of the value that the step's call changes; or why nothing is called."""
    acting = state.acting(index)
    read = acting.before
    assert read is not None
    assert read.expect is not None
    try:
        image = _last(state, index, read, canonical(read.params.resolve(StateScope(state))))
    except (BindingUnresolved, JournalUnreadable) as error:
        return _unread(read, error.message)
    if image is None:
        return _unread(read, "the saga has not read it")
    try:
        filled(read, image)
    except Mismatch as error:
        return _unread(read, f"what was read lacks what the call needs: {error}")
    return image


def filled(read: CompiledRead, image: Any) -> dict[str, Any] | None:
    """The params that tell the other side what was read; None: it is told nothing. Raises ``Mismatch``."""
    if read.expect is None or not read.expect.params:
        return None
    value = image.get("value")
    if "value" not in image:
        return dict.fromkeys((name for name, _ in read.expect.params), None)
    return {name: value if tail is None else find(value, tail) for name, tail in read.expect.params}


def judged(state: State, index: int, found: Image | NotDone) -> Outcome | None:
    """What is to be said instead of the call; None: it may be made. ``found``: the value right before it."""
    if isinstance(found, NotDone) or same(found, state.steps[index].before):
        return found if isinstance(found, NotDone) else None
    return _instead(state, index, found)


def refused(state: State, index: int, outcome: NotDone, found: Image | NotDone) -> Outcome:
    """What it means that the other side refused the call, because it has another value: ``found``."""
    if isinstance(found, NotDone):
        return Unknown(outcome.error) if state.steps[index].forward.doubt else outcome._replace(retryable=False)
    return _instead(state, index, found)


def _instead(state: State, index: int, found: Image) -> Outcome:
    """What another value means: of a call in doubt, that it happened, or that nobody knows."""
    if not state.steps[index].forward.doubt:
        return changed(state, index, found)
    if would_leave(state, index, found):
        return settled(state, index, FORWARD, found)
    return Unknown(changed(state, index, found).error)


def is_refusal(outcome: Outcome) -> bool:
    """Whether the other side says that it has another value."""
    return type(outcome) is NotDone and outcome.error.error_code == CHANGED


def changed(state: State, index: int, found: Image) -> NotDone:
    """The outcome of a call that was not made, with both values as views may show them."""
    read = state.acting(index).before
    assert read is not None
    was, now = (_shown(state, index, image) for image in (state.steps[index].before, found))
    why = said("changed_meanwhile", tool=cut(read.tool, 80), was=was, now=now)
    hint = said("changed_meanwhile.hint", tool=cut(read.tool, 80))
    return NotDone(ErrorInfo("changed_meanwhile", why, hint, retryable=False), retryable=False)


# --- what the saga knows ---------------------------------------------------------------------------------------------


def _last(state: State, index: int, read: CompiledRead, params: bytes) -> Image | None:
    """The image that the same read gave last, or would have given after the saga's own last write."""
    newest: tuple[int, bool, int] = (-1, False, -1)
    found: Image | None = None
    for place, step in enumerate(state.steps):
        if place == index or step.status == t.PENDING or state.plan.steps[place].each is not None:
            continue
        acting = state.acting(place)
        reads = acting.tool == read.tool
        if not reads and (acting.before is None or acting.before.tool != read.tool):
            continue
        if not (image := _read_by(step, read) if reads else _left_by(step)):
            continue
        when = _when(step)
        if when > newest and _concerns(state, acting, params, reads=reads):
            newest, found = when, image
    return found


def _when(step: StepState) -> tuple[int, bool, int]:
    """When a step showed or left a value; within the same ms, what an undo brought back is newer."""
    undone = step.undo if step.status in (t.COMPENSATED, t.RESOLVED) else None
    return (step.forward if undone is None else undone).ended_at, undone is not None, step.happened_nth


def _concerns(state: State, acting: Serving, params: bytes, *, reads: bool) -> bool:
    """Whether a call reads or changes the value that these params of the read name."""
    of = acting.params if reads or acting.before is None else acting.before.params
    try:
        return canonical(of.resolve(StateScope(state))) == params
    except (BindingUnresolved, JournalUnreadable):
        return False


def _read_by(step: StepState, read: CompiledRead) -> Image | None:
    """What a step that only reads showed to the saga."""
    if step.effect is not None and step.status == t.SUCCEEDED:
        if isinstance(step.output, Stored):
            raise JournalUnreadable("what was read is not at hand")
        absent = read.absent is not None and read.absent.is_answer(step.output)
        return {"absent": True} if absent else {"value": step.output}
    error = step.forward.error
    if step.status != t.FAILED or error is None or read.absent is None:
        return None
    return {"absent": True} if read.absent.is_error(error.error_code) else None


def _left_by(step: StepState) -> Image | None:
    """What a write of the saga left, or what its undo brought back."""
    undone = step.status == t.COMPENSATED or (step.status == t.RESOLVED and not step.accepted)
    image: Any = step.before if undone else step.after if step.effect is not None and has_after(step) else None
    return image if is_known(image) and "unread" not in image else None


def _unread(read: CompiledRead, why: str) -> NotDone:
    message = said("expect_unread", tool=cut(read.tool, 80), why=why)
    hint = said("expect_unread.hint", tool=cut(read.tool, 80))
    return NotDone(ErrorInfo("expect_unread", message, hint, retryable=False), retryable=False)


def _shown(state: State, index: int, image: Any) -> str:
    mask = mask_of(state)
    seen = image if mask is None else mask.image(image, *tools_of_step(state.plan.steps[index]))
    if isinstance(seen, dict):
        seen = "absent" if seen == {"absent": True} else seen.get("value", seen)
    return seen if seen == "absent" else cut(seen, _MOST_SHOWN)
