"""Which looks at undos are due, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, Done, ErrorInfo, LookAfterUndo, NotDone, Outcome, Unknown
from saga_engine.core.images import Image, has_after, is_known, same, would_leave
from saga_engine.core.questions import escalate
from saga_engine.core.state import State, StateScope
from saga_engine.core.undo_ahead import locks_of
from saga_engine.core.verified import evolving
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.language.errors import said
from saga_engine.plan.tool_spec import RetryPolicy
from saga_engine.plan.undo_looks import look_of, within_ms
from saga_engine.plan.values import canonical, cut

#: The waits between two looks at a value that may still be the old one.
_AGAIN: Final = RetryPolicy(base_s=0.2, max_s=30.0)
#: How an undo is known that needs no look: the value, or the probe, has told.
_TOLD: Final = frozenset({"unchanged", "probe"})
Judgement = Literal["verified", "left", "part", "drift"]


def marked(state: State, record: r.AnyRecord) -> r.AnyRecord:
    """The record of an undo that ends one, with whether it is looked at."""
    if type(record) is r.StepSucceeded and record.direction == COMPENSATE:
        index = state.plan.by_key[record.step]
        made = state.steps[index].undo_call
        if made is not None and made.number + 1 < made.of and record.via != "unchanged":
            return record  # others follow
        by = _by(state, index)
        if by and not (record.via in _TOLD and by != "check"):
            return msgspec.structs.replace(record, look=by)
    elif type(record) is r.QuestionResolved and record.direction == COMPENSATE and _ends_undo(state, record):
        return msgspec.structs.replace(record, look=_by(state, state.plan.by_key[record.step], by_hand=True))
    return record


def _ends_undo(state: State, record: r.QuestionResolved) -> bool:
    """Whether an operator says that an undo was made; not, if that is said of a value that was looked at after it."""
    question = state.questions.get(record.question)
    if question is None or evolving.is_asked(state, question.step):
        return False  # the operator has seen what was found after the undo
    index = question.step
    made = state.steps[index].undo_call
    more = made is not None and made.number + 1 < made.of
    return record.decision == "undone" or (record.decision == "happened" and not more)


def _by(state: State, index: int, *, by_hand: bool = False) -> str:
    step, compiled = state.steps[index], state.plan.steps[index]
    if compiled.child is not None or not state.owns(index):
        return ""
    by = look_of(state.acting(index), state.whole_rollback(index), image=is_known(step.before))
    return "" if by == "probe" and by_hand else by  # it would say that its own call was not made


# --- which are due ---------------------------------------------------------------------------------------------------


def due(state: State, now: int) -> list[LookAfterUndo]:
    """The looks that are to be made now."""
    return [
        LookAfterUndo(index, look.by)
        for index, at in state.looks.items()
        if 0 <= at <= now and (look := state.steps[index].look) is not None and look.how == "pending"
    ]


def free(state: State) -> Iterator[int]:
    """The undos that need not wait for a look: they touch nothing of what is looked at."""
    touched = frozenset[str]().union(*(_touched(state, index) for index in state.looks))
    return (index for index in state.undo_ready if not touched & _touched(state, index))


def _touched(state: State, index: int) -> frozenset[str]:
    """What names the value that a step changes: its read, and the keys that its tools lock."""
    acting, scope = state.acting(index), StateScope(state)
    found: set[str] = set()
    try:
        params = acting.params.resolve(scope)
        if acting.before is not None:
            found.add(f"{acting.before.tool} {canonical(acting.before.params.resolve(scope))!r}")
        if acting.spec is not None and acting.spec.resource:
            found.update(locks_of(acting.spec, params) or ())
    except (BindingUnresolved, JournalUnreadable):
        return frozenset(found)
    return frozenset(found)


# --- what they mean --------------------------------------------------------------------------------------------------


def interpret_look(state: State, effect: LookAfterUndo, seen: Image | Outcome, now: int, dice: float) -> r.AnyRecord:
    """The record of what a look has shown."""
    index = effect.step
    if isinstance(seen, NotDone) and not (effect.by == "probe" and seen.definite):
        return _said(state, index, now, seen.error)
    if isinstance(seen, Unknown):
        return _said(state, index, now, seen.error)
    if effect.by == "before":
        assert isinstance(seen, dict)
        return _of_value(state, index, seen, now, dice)
    if effect.by == "check":
        assert isinstance(seen, dict)
        if "absent" in seen:
            return _verified(state, index, now)
        return _later(state, index, now, dice) or _asks(state, index, now, _not_shown(state, index), seen)
    if isinstance(seen, NotDone):
        tool = cut(state.rollback(index).tool, 80)
        error = ErrorInfo("undo_unverified", said("undo_unverified.probe", tool=tool))
        return _later(state, index, now, dice) or _asks(state, index, now, error, None)
    assert isinstance(seen, Done), "a probe passes no policy"
    return _verified(state, index, now)


def _of_value(state: State, index: int, found: Image, now: int, dice: float) -> r.AnyRecord:
    read = state.acting(index).before
    tool = "the read" if read is None else cut(read.tool, 80)
    judged = judge(state, index, found)
    if judged == "verified":
        return _verified(state, index, now)
    if later := _later(state, index, now, dice):
        return later
    if judged == "part":
        why = said("undo_unverified.part", tool=tool)
        return _said(state, index, now, ErrorInfo("undo_unverified", why))
    if judged == "left":
        why = said("undo_unverified.left", tool=tool)
        hint = said("undo_unverified.hint")
        return _asks(state, index, now, ErrorInfo("undo_unverified", why, hint), found)
    look = state.steps[index].look
    if look is not None and same(found, look.seen):
        why = said("undo_unverified.seen", tool=tool)
        return _said(state, index, now, ErrorInfo("undo_unverified", why))
    why = said("drift.undone", tool=tool)
    hint = said("drift.hint-undone")
    return _asks(state, index, now, ErrorInfo("drift", why, hint), found, "drift")


def _not_shown(state: State, index: int) -> ErrorInfo:
    check = state.acting(index).check
    assert check is not None
    assert check.absent is not None
    wanted = canonical(check.absent.to_dict()).decode()
    why = said("undo_unverified.shown", tool=cut(check.tool, 80), wanted=cut(wanted, 300))
    hint = said("undo_unverified.hint-effect")
    return ErrorInfo("undo_unverified", why, hint)


def _verified(state: State, index: int, now: int) -> r.UndoLooked:
    return r.UndoLooked(at=now, step=state.plan.steps[index].key)


def _said(state: State, index: int, now: int, error: ErrorInfo) -> r.UndoLooked:
    return r.UndoLooked(at=now, step=state.plan.steps[index].key, how="said", error=error)


def _later(state: State, index: int, now: int, dice: float) -> r.UndoLooked | None:
    """Another look, if this one may have been made while the old value could still be seen; None: it was not."""
    look = state.steps[index].look
    assert look is not None, "it is looked at"
    until = look.since + within_ms(state.acting(index))
    if state.looks[index] >= until:
        return None
    delay = max(min(_AGAIN.delay_ms(look.times + 1, dice), until - now), 1)
    return r.UndoLooked(at=now, step=state.plan.steps[index].key, how="later", delay_ms=delay)


def _asks(  # noqa: PLR0917
    state: State, index: int, now: int, error: ErrorInfo, found: Image | None, kind: str = "undo-unverified"
) -> r.AnyRecord:
    asked = escalate(state, index, COMPENSATE, kind, now, error, found=found)
    if state.undoing(index) is not None or not isinstance(asked, r.StepEscalated):
        return asked
    options = [option for option in asked.options if option not in ("undo", "retry")]  # it has no undo of its own
    return msgspec.structs.replace(asked, options=options)


def judge(state: State, index: int, found: Image) -> Judgement:
    """What the value after an undo means, against the one before the call and the one after it.

    Of an object the fields count that the call changed. A field that is neither as before nor as the call left it, and
    that the undo did not write, moves by itself (a version, a time): such a field alone is no drift.
    """
    step = state.steps[index]
    if same(found, step.before):
        return "verified"
    if (has_after(step) and same(found, step.after)) or would_leave(state, index, found):
        return "left"
    before, after, now = (_fields(image) for image in (step.before, step.after, found))
    if before is None or after is None or now is None:
        return "drift"
    changed = {name for name in (*before, *after) if _differs(before, after, name)}
    if any(not _differs(now, after, name) for name in changed):
        return "left"
    restored = {name for name in changed if not _differs(now, before, name)}
    if restored == changed:
        return "verified"
    written = changed & _written(state, index)
    if not restored or written - restored:
        return "drift"
    return "verified" if written else "part"


def _fields(image: Any) -> Mapping[str, Any] | None:
    value = image.get("value") if is_known(image) else None
    return value if isinstance(value, Mapping) else None


def _differs(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return (name in one, canonical(one.get(name))) != (name in other, canonical(other.get(name)))


def _written(state: State, index: int) -> frozenset[str]:
    """The fields that an undo writes: it has params of their names."""
    rollback = state.rollback_of(index)
    try:
        return frozenset() if rollback is None else frozenset(rollback.params.resolve(StateScope(state)))
    except (BindingUnresolved, JournalUnreadable):
        return frozenset()
