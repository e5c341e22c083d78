"""The views of a saga: steps, the four lists of the report, a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core import views as v
from saga_engine.core.codec import Stored, stored_form
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction
from saga_engine.core.late_events import may_be_late
from saga_engine.core.masking import mask_of, masked_view
from saga_engine.core.question_view import AtHand, asked_params, brief_params, images, questions, resolved, shown_error
from saga_engine.core.state import State
from saga_engine.core.state_values import (
    Backward,
    CallState,
    Deduplicated,
    Effect,
    Made,
    OpenQuestion,
    Reused,
    StepState,
    Turning,
    Underway,
)
from saga_engine.core.verified import telling
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.plan.compiled import CompiledRollback, CompiledStep
from saga_engine.plan.undo_calls import undo_call, undo_places

#: The decision that a view shows of a question that nobody answered in time.
EXPIRED: Final = "expired"

_Called = TypeVar("_Called", bound=v.CallResult | v.UndoCallResult)

#: By step id and direction: the steps whose outputs are bound to in the params that are shown.
Sources = Mapping[tuple[int | str, Direction], AbstractSet[str]]


def view(state: State) -> v.SagaView:
    """The saga as ``show --json --full`` prints it. Times are Unix ms of the store's clock.

    Sensitive values are masked (``masking``).
    Outputs that the state does not hold (``codec.Stored``) are in the form of ``abridged``.
    """
    parent = state.parent
    shown = v.SagaView(
        saga_id=state.saga_id,
        status=state.status,
        ending=state.ending.status if state.ending is not None and not state.ended_at else "",
        goal=state.plan.goal,
        session=("open" if state.open else "closed") if state.session else None,
        parent=None if parent is None else v.Parent(saga_id=parent.saga, step_id=parent.step),
        undo_of=state.undo_of,
        undone_by=_undone_by(state),
        started_ms=state.started_at,
        ended_ms=state.ended_at or None,
        steps=[_step(state, compiled) for compiled in state.plan.steps],
        counts=counts(state),
        report=report(state),
        error=failure(state),
        questions=questions(state),
    )
    shown = masked_view(state, shown)
    return msgspec.structs.replace(shown, steps=_items_behind_lists(state, shown.steps)) if state.lists else shown


def _items_behind_lists(state: State, shown: list[v.StepResult]) -> list[v.StepResult]:
    """The steps as they are shown: the items of a list stand behind its step."""
    pairs = zip(state.plan.steps, shown, strict=True)
    places = [((of.index, -1) if of.item is None else (of.item.parent, of.item.number), body) for of, body in pairs]
    return [body for _, body in sorted(places, key=lambda each: each[0])]


def _undone_by(state: State) -> str:
    """The saga that undoes this completed one."""
    if state.undo_of or state.status != t.COMPLETED:
        return ""
    return next(
        (step.effect.to for step in state.steps if isinstance(step.effect, Made | Reused) and step.effect.to), ""
    )


def sources(state: State) -> Sources:
    """The sources of the params that ``view`` shows; ``abridged`` needs them."""
    found: dict[tuple[int | str, Direction], AbstractSet[str]] = {}
    for compiled in state.plan.steps:
        for direction in (FORWARD, COMPENSATE):
            undo = state.steps[compiled.index].undo if direction == COMPENSATE else None
            known = None if undo is None else undo.params
            if known is not None and stored_form(known) is None:
                continue  # the intent holds them
            scope = AtHand(state)
            resolved(state, compiled.index, direction, scope)
            if scope.seen:
                found[compiled.step_id, direction] = scope.seen
    return found


def abridged(shown: v.SagaView, found: Sources) -> v.SagaView:
    """The saga as ``show --json`` prints it: a large output is in its cut form, with ``output_ref`` beside it.

    Params that come from a large output are not shown, because it is not fetched for that.
    """
    steps = [_abridged(step) for step in shown.steps]
    large = {str(step.step_id) for step in steps if step.cut}
    if large:
        steps = [_without_large(step, large, found) for step in steps]
    return msgspec.structs.replace(shown, steps=steps)


def _abridged(step: v.StepResult) -> v.StepResult:
    step, undo = _cut(step), step.compensation
    if undo is None:
        return step
    calls = undo.calls and [_cut(call) for call in undo.calls]
    return msgspec.structs.replace(step, compensation=msgspec.structs.replace(_cut(undo), calls=calls))


def _cut(call: _Called) -> _Called:
    if call.output_ref is not None or (stored := stored_form(call.shown)) is None:
        return call
    return msgspec.structs.replace(call, **_output(stored))


def _without_large(step: v.StepResult, large: AbstractSet[str], found: Sources) -> v.StepResult:
    if large & found.get((step.step_id, FORWARD), frozenset()):
        step = msgspec.structs.replace(step, params=None)
    if step.compensation is not None and large & found.get((step.step_id, COMPENSATE), frozenset()):
        return msgspec.structs.replace(step, compensation=msgspec.structs.replace(step.compensation, params=None))
    return step


def _output(value: Any) -> dict[str, Any]:
    if not isinstance(value, Stored):
        return {"shown": value}
    return {"shown": value.cut, "output_ref": v.OutputRef(digest=value.ref.digest, bytes=value.ref.bytes)}


def _given_up(call: CallState) -> bool:
    """Whether a call is in doubt because processes ended while they made it."""
    return call.doubt is not None and call.error is not None and call.error.error_code == "takeovers_without_progress"


def report(state: State, status: str = "") -> v.ReportView:
    """What was undone, and what remains. ``status``: as if the saga had this one; empty: it has its own."""
    status = status or state.status
    lists: dict[str, list[int | str]] = {"compensated": [], "failed": [], "unresolved": [], "left_in_place": []}
    asked = _asked(state)
    for compiled, step in zip(state.plan.steps, state.steps, strict=True):
        name = None if compiled.kind == "finally" else _bucket(state, compiled, step, status, asked.get(compiled.index))
        if name is not None:
            lists[name].append(compiled.step_id)
    steps = zip(state.plan.steps, state.steps, strict=True)
    semantic = [compiled.step_id for compiled, step in steps if step.semantic == "happened"]
    reasons = [
        v.Dropped(step_id=state.plan.steps[state.plan.by_key[key]].step_id, reason=reason)
        for each in state.added
        for key, reason in each.addition.reasons.items()
    ]
    passed: dict[str, list[int | str]] = {"skipped": [], "continued": []}
    for compiled, step in zip(state.plan.steps, state.steps, strict=True) if state.passed else ():
        if step.settled and step.status in (t.SKIPPED, t.FAILED, t.BLOCKED):
            passed["skipped" if step.status == t.SKIPPED else "continued"].append(compiled.step_id)
    last = () if state.ending is None else state.plan.steps[state.ending.first :]
    remains = lists["failed"] or lists["unresolved"] or lists["left_in_place"] or semantic
    unasked = any(_given_up(state.steps[step.index].forward) for step in last)
    clean = status in t.SAGA_FINAL and not (remains or unasked)
    return v.ReportView(
        **lists,
        verified=telling.verified(state),
        semantic=semantic,
        dropped=reasons,
        **passed,
        last=None
        if state.ending is None
        else [v.LastStep(step_id=step.step_id, status=state.steps[step.index].status) for step in last],
        clean=clean,
    )


#: Steps in these states, if nothing is asked about them, have no effect.
_OVER: Final = frozenset({t.COMPENSATED, t.FAILED, t.BLOCKED, t.SKIPPED})


def counts(state: State) -> v.Counts:
    """The one count of a saga's steps, for every view. Reads, undos and ``finally`` leave no effect.

    The effect of a step whose undo failed or is not made stands; that of another saga is counted there.
    """
    steps = in_effect = in_doubt = 0
    asked = _asked(state) if state.questions else {}
    for compiled, step in zip(state.plan.steps, state.steps, strict=True):
        if compiled.kind in ("finally", "read") or step.undoes >= 0:
            continue
        steps += 1
        if step.status == t.PENDING:
            continue
        if step.status in _OVER and not (step.left or compiled.index in asked):
            continue
        if step.status == t.SUCCEEDED and not (step.left or compiled.index in asked):
            effect = step.effect  # mostly it is as simple as this, and each saga that ends is counted
            own = type(effect) is Made and effect.via != "timer" and not effect.to
            in_effect += own or state.owns(compiled.index)
            continue
        bucket = _bucket(state, compiled, step, state.status, asked.get(compiled.index))
        if bucket in ("failed", "left_in_place") or (step.status == t.SUCCEEDED and state.owns(compiled.index)):
            in_effect += 1
        elif bucket == "unresolved":
            in_doubt += 1
    return v.Counts(steps=steps, in_effect=in_effect, in_doubt=in_doubt)


def _asked(state: State) -> dict[int, OpenQuestion]:
    """The question about each step that has one; of several the first."""
    return {question.step: question for question in reversed(state.questions.values())}


def _bucket(
    state: State, compiled: CompiledStep, step: StepState, status: str, asked: OpenQuestion | None
) -> str | None:
    if step.left and (step.status in (t.FAILED, t.COMPENSATED, t.RESOLVED) or (step.effect and not state.backward)):
        return "left_in_place"  # a child of it ended, and left something
    if step.status == t.RESOLVED:
        return "left_in_place" if step.accepted else "compensated"
    if step.status == t.COMPENSATED:
        return "compensated"
    if step.status == t.COMPENSATION_FAILED or (
        asked and asked.direction == COMPENSATE and asked.kind not in ("undo-in-doubt", "approval", "drift")
    ):
        return "failed"
    if compiled.kind == "read" or step.status in (t.PENDING, t.WAITING, t.SKIPPED, t.FAILED, t.BLOCKED):
        return None
    if step.status == t.SUCCEEDED and not state.owns(compiled.index):
        return None  # the effect is another saga's, and so is its undo
    if compiled.compensates is not None and not step.forward.doubt:
        wanted = state.steps[compiled.compensates].semantic
        if wanted == "happened" or isinstance(wanted, Underway) or step.status != t.SUCCEEDED:
            return None  # it compensates for another step, under whose name it is listed
        return "left_in_place"  # the other steps of its compensation failed, and its effect remains
    if step.status == t.SUCCEEDED:
        if not state.backward:
            return "left_in_place" if status == t.WAIVED else None
        return "left_in_place" if state.undoing(compiled.index) is None else "unresolved"
    if step.status == t.RUNNING and not step.forward.doubt:
        return None
    if step.status == t.ESCALATED and not (step.forward.doubt or state.backward or step.undo_waits is not None):
        return None  # it was not done; the question is how to continue
    return "unresolved"


def failure(state: State) -> v.Failure | None:
    """Why the saga did not simply complete; None if nothing went wrong."""
    if state.reason is None:
        return None
    said = (state.phase.said or None) if isinstance(state.phase, Turning | Backward) else None
    if not (state.failed and state.reason in ("step-failed", "blocked")):
        return v.Failure(state.reason, message=said)
    step_id, error = state.plan.steps[state.failed[0]].step_id, state.steps[state.failed[0]].forward.error
    if error is None:
        return v.Failure(state.reason, step_id, message=said)
    return v.Failure(state.reason, step_id, error.error_code, error.message, error.suggestion or None)


def _step(state: State, compiled: CompiledStep) -> v.StepResult:
    step, undo = state.steps[compiled.index], _undo(state, compiled)
    pending = state.pending.get(compiled.index)
    waits = pending is not None and pending.of_step
    late = compiled.late is not None and (not step.event or may_be_late(state, compiled.index))
    effect = _effect(step.effect)
    if state.undo_of and effect.get("via") == "fork":
        effect["via"] = "undo"
    return v.StepResult(
        step_id=compiled.step_id,
        name=compiled.name,
        tool=compiled.tool if compiled.each is None else compiled.each.item.tool,
        kind=compiled.kind,
        builtin=compiled.builtin,
        status=step.status,
        **_call(state, compiled.index, FORWARD, step.forward),
        **_output(step.output),
        compensation=undo,
        **images(step),
        **effect,
        fallback=v.Fallback(number=step.using, tool=state.acting(compiled.index).tool) if step.using else None,
        deferred=step.deferred,
        waits=v.Waits(on=pending.on, due_ms=pending.due, about=pending.about) if pending and waits else None,
        came=[v.Came(event=each.event, key=each.key) for _, each in sorted(step.came.items())],
        on_late=compiled.late.tool if compiled.late is not None and late else "",
        model_asked_ms=pending.due if pending is not None and pending.on == "planner" else None,
        child=v.Child(saga_id=step.child, left=list(step.left)) if step.child else None,
        dropped=any(compiled.key in each.addition.dropped for each in state.added),
        compensates=None if compiled.compensates is None else state.plan.steps[compiled.compensates].step_id,
        compensated_by_others=step.semantic == "happened",
        undoes=state.plan.steps[step.undoes].step_id if step.undoes >= 0 else None,
        undone_by=state.plan.steps[step.undone_by].step_id
        if step.undone_by >= 0 and step.status == t.COMPENSATED
        else None,
        **(telling.of_undo(state, compiled.index) if undo is None and step.look is not None else {}),  # by hand
    )


def _undo(state: State, compiled: CompiledStep) -> v.UndoResult | None:
    step, rollback = state.steps[compiled.index], state.undoing(compiled.index)
    if rollback is None or step.undo is None:
        return None
    return v.UndoResult(
        step_id=compiled.step_id,
        name=f"undo {compiled.name}",
        tool=rollback.tool,
        status=_undo_status(step),
        **_call(state, compiled.index, COMPENSATE, step.undo),
        **_output(step.undo_output),
        **telling.of_undo(state, compiled.index),
        via="unchanged" if step.unchanged else "",
        calls=None if step.undo_call is None else _undo_calls(state, compiled.index, step.undo_call.of),
    )


def _undo_calls(state: State, index: int, count: int) -> list[v.UndoCallResult]:
    """Every call of an undo of several calls, in order: those that happened, the present one, and those that are left.

    Its status is that of an undo: COMPENSATED if it happened, PENDING if it has not begun, SKIPPED if nothing was left
    to undo, RESOLVED if an operator ended the whole undo before it happened.
    """
    step, undo = state.steps[index], state.steps[index].undo
    assert undo is not None
    done, templates = step.undo_calls, _undo_templates(state, index)
    calls: list[v.UndoCallResult] = []
    for number in range(count):
        rollback = templates[number] if number < len(templates) else None
        made = done[number] if number < len(done) else None
        never = (made or undo).unkeyed == "never"
        status = t.COMPENSATED if made is not None else _call_status(step, undo, present=number == len(done))
        body: dict[str, Any] = {
            "tool": made.tool if made is not None else "" if rollback is None else rollback.tool,
            "status": status,
            "attempts": 0,
            "ended_ms": None,
            "params": None if made is None else made.params,
            "idempotency_key": None if never or status == t.PENDING else state.undo_key(index, number),
            "error": None,
            "shown": None,
        }
        if made is not None:
            body |= {"attempts": made.attempts, "ended_ms": made.ended_at}
            body |= _output(made.output)
            if made.via != "call":
                body["via"] = made.via
        elif number == len(done) and status != t.PENDING:
            body |= {"attempts": undo.attempt - undo.not_made, "error": shown_error(undo.error)}
            body |= {"ended_ms": undo.ended_at or None, "params": undo.params}
        if body["params"] is None and rollback is not None:
            body["params"] = _made(rollback, state)
        if body["params"] is not None:
            body["params"] = brief_params(body["params"])
        calls.append(v.UndoCallResult(**body))
    return calls


def _call_status(step: StepState, undo: CallState, *, present: bool) -> str:
    """The status of a call of an undo that has not happened; ``present``: it is the one whose turn it is."""
    if step.status == t.RESOLVED:
        return t.RESOLVED
    if step.status == t.COMPENSATED:
        return t.SKIPPED
    if not present or (not undo.attempt and step.status == t.COMPENSATING):
        return t.PENDING
    return t.IN_DOUBT if undo.doubt else step.status


def _undo_templates(state: State, index: int) -> list[CompiledRollback]:
    """The calls of an undo; none if its lists cannot be read now."""
    whole, key = state.whole_rollback(index), state.plan.steps[index].key
    if whole is None:
        return []
    try:
        places = undo_places(whole, AtHand(state))
    except (BindingUnresolved, JournalUnreadable):
        return []
    return [undo_call(whole, place, key, index) for place in places]


def _effect(effect: Effect | None) -> dict[str, Any]:
    """How a step is known to have happened, unless by its call's own response, and whose its effect is."""
    match effect:
        case Made(via, age_ms, to):
            facts = {"via": None if via == "call" else via, "age_ms": age_ms, "handed_to": to or None}
        case Deduplicated(source, age_ms):
            facts = {"via": "deduplicated", "source": source, "age_ms": age_ms}
        case Reused(source, _, to):
            facts = {"via": "fork", "source": source, "handed_to": to or None}
        case None:
            return {}
    return {name: value for name, value in facts.items() if value is not None}


def _undo_status(step: StepState) -> str:
    if step.status == t.COMPENSATING and step.undo is not None and step.undo.doubt:
        return t.IN_DOUBT
    return step.status


def _call(state: State, index: int, direction: Direction, call: CallState) -> dict[str, Any]:
    """One direction of a step. ``traceback`` and ``next_try_ms`` are present only if they apply.

    ``attempts`` are those that called something; ``took_ms`` is the calls' own time, without waits for operators or the
    next attempt, null as long as no call is over.
    """
    attempts = call.attempt - call.not_made
    error = None if _over(state, index, direction) else call.error  # that of an earlier attempt: see the history
    body: dict[str, Any] = {
        "attempts": attempts,
        "error": shown_error(error),
        "started_ms": call.first_at or None,
        "ended_ms": call.ended_at or None,
        "took_ms": call.spent_ms if attempts and (call.spent_ms or not call.called_at) else None,
        "params": asked_params(state, index, direction),
        "idempotency_key": None if call.unkeyed == "never" or not call.attempt else state.key(index, direction),
    }
    due_ms = state.waiting.get((index, direction))
    if due_ms is not None:
        body["next_try_ms"] = due_ms
    if error is not None and error.traceback is not None:
        body["traceback"] = error.traceback
    return body


def _over(state: State, index: int, direction: Direction) -> bool:
    """Whether a call happened, so that no error is left of it: but for that of an output which means failure."""
    step = state.steps[index]
    if direction != FORWARD:
        return step.status == t.COMPENSATED
    failed = state.plan.steps[index].failed_when is not None and index in state.failed
    return step.effect is not None and not failed


def _made(call: CompiledRollback, state: State) -> Mapping[str, Any] | None:
    """The params of one call of an undo; None if they are unknown."""
    try:
        params = call.params.resolve(AtHand(state))
    except (BindingUnresolved, JournalUnreadable):
        return None
    return None if call.spec is None and not params else params


def summary(state: State) -> dict[str, Any]:
    """The line that ``saga list`` shows, stored in the saga's head so that a listing reads no journal."""
    counted = counts(state)
    body: dict[str, Any] = {"steps": counted.steps, "done": counted.in_effect}
    if state.session:
        body["session"] = True
    if state.plan.goal:
        body["goal"] = state.plan.goal[:120]
    if state.plan.name:
        body["name"] = state.plan.name
    if state.tags:
        body["tags"] = list(state.tags)
    if state.template:
        body["template"] = state.template
    reason = failure(state)
    if reason is not None:
        body["error"] = _brief(reason)
    due = state.next_overdue()
    if due is not None:
        body["due_ms"] = due
    if state.parent is not None:
        body["parent"] = state.parent.saga
    if state.pending and (children := state.children()):
        body["children"] = len(children)
    if state.pending and state.only_waits() and (waits := state.steps_waiting()):
        body["waits"] = len(waits)
        body["wakes_ms"] = state.next_due(state.at)
    if state.questions:
        body["questions"] = [
            {
                "step_id": state.plan.steps[q.step].step_id,
                "kind": q.kind,
                "options": [] if q.kind == "ask" else list(q.options),  # a plan's own may be long, or sensitive
                **({"to": q.to} if q.to else {}),
            }
            for q in list(state.questions.values())[:20]
        ]
    if state.status in t.SAGA_FINAL and state.backward:
        told = report(state)
        body["clean"] = told.clean
        if told.compensated and told.compensated == told.verified:
            body["verified"] = True
    mask = mask_of(state)
    if mask is not None:
        for each in body.get("questions", ()):
            if "to" in each:
                each["to"] = mask.value(each["to"])
        body |= {name: mask.value(body[name]) for name in ("name", "tags") if name in body}
        # Cut after redaction, so that no part of a sensitive value is left.
        if "goal" in body:
            body["goal"] = str(mask.value(state.plan.goal))[:120]
        if reason is not None:
            body["error"] = _brief(mask.failure(reason))
    return body


def _brief(reason: v.Failure) -> dict[str, Any]:
    return {name: value[:200] if isinstance(value, str) else value for name, value in reason.plain().items()}


def answers(state: State, records: Sequence[r.AnyRecord]) -> list[v.Answer]:
    """The answers in a journal, in their order; ``state`` is what the records make.

    ``decision``: ``expired`` if nobody answered in time. What is sensitive is masked.
    """
    found: list[v.Answer] = []
    kinds: dict[str, str] = {}
    mask = None
    for record in records:
        if isinstance(record, r.StepEscalated | r.SessionKept):
            kinds[record.question] = record.kind
        if not isinstance(record, r.QuestionResolved | r.ApprovalExpired):
            continue
        index = state.plan.by_key.get(record.step)
        said = {"decision": EXPIRED, "by": "", "note": ""}
        if isinstance(record, r.QuestionResolved):
            said = {"decision": record.decision, "by": record.by, "note": record.note}
        mask = mask or (mask_of(state) if state.sensitive else None)
        found.append(
            v.Answer(
                question_id=record.question,
                step_id=record.step if index is None else state.plan.steps[index].step_id,
                kind=kinds.get(record.question, ""),
                at_ms=record.at,
                **(said if mask is None else mask.value(said)),
            )
        )
    return found
