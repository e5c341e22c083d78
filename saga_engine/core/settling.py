"""One call of a saga: its intent, the ways to settle whether it happened, and what follows if it was not done.

``decide`` says which calls have their turn; these functions say which record each of them gets. *Row N* is a row of the
table in docs/guarantees.md; the scenarios that are named here are in ``tests/scenarios``.
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, ErrorInfo
from saga_engine.core.images import guards_undo, reads_settle
from saga_engine.core.questions import escalate
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import CallState, Doubt
from saga_engine.core.states import PENDING
from saga_engine.core.steps import begin
from saga_engine.core.steps.child import begin_undo
from saga_engine.core.undo_by_call import Undone, perhaps_undone, undone_by
from saga_engine.core.undo_call import UndoCall
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledRollback
from saga_engine.plan.known_faults import known_faults
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from saga_engine.plan.undo_calls import undo_call, undo_places
from saga_engine.plan.values import cut

#: How often a probe that cannot tell is repeated before the next way to settle a doubt is used.
MAX_PROBES: Final = 3
#: How often a call may end with an exception that is no statement before the next way is used: it is repeated once.
MAX_RAISED: Final = 2

#: Owners that ended before they began the call tell more of the processes than of the call: after so many times the
#: number of those that began it an operator is asked as well.
_TAKEOVERS: Final = 3

_AT_HAND: Final = "a saga is driven only with its tools at hand"


def settle_all(state: State, now: int, out: list[r.AnyRecord], room: int) -> None:
    """What settles the calls in doubt, as long as there is room for its calls."""
    for place in state.doubts:
        if len(out) >= room:
            return
        settle(state, place[0], place[1], now, out)


def due_calls(state: State, now: int, room: int, only: tuple[int, Direction] | None = None) -> list[r.AnyRecord]:
    """The calls, and the ways to settle a doubt, whose time has come; ``only`` those of one place."""
    out: list[r.AnyRecord] = []
    for place, due in state.waiting.items():
        if len(out) >= room:
            break
        if due > now or (only is not None and place != only):
            continue
        index, direction = place
        if direction == COMPENSATE and state.steps[index].undo_waits:
            continue  # a later call happened meanwhile: its undo comes first (row 8)
        call = state.steps[index].call(direction)
        # What an operator wants called is called; a call in doubt is not just repeated because its wait is over.
        if not call.doubt or call.doubt.repeat == "wanted":
            out.append(intend(state, index, direction, now))
        else:
            settle(state, index, direction, now, out)
    return out


def facts(state: State, index: int, direction: Direction) -> tuple[ToolSpec, RetryPolicy]:
    """The declaration and the retry policy of the tool that serves a step in one direction."""
    serving = state.serving(index, direction)
    spec, retry = serving.spec, serving.retry
    assert spec is not None, _AT_HAND
    return spec, retry


def intend(state: State, index: int, direction: Direction, now: int) -> r.AnyRecord:
    """The intent of the next attempt of a call; or why it cannot be made."""
    step, at = state.plan.steps[index], state.steps[index]
    if (step.builtin or step.when is not None) and direction == FORWARD and (made := begin(state, index, now)):
        return made
    if step.child is not None:
        return begin_undo(state, index, now)
    if direction == COMPENSATE and not (at.undo and (at.undo.attempt or at.undo.asked)):
        why = perhaps_undone(state, index) if at.undone_by >= 0 or state.plan.tools.meet else None
        if why is not None:
            return escalate(state, index, direction, "undo-blocked", now, why)
    serving, number = state.serving(index, direction), None
    if direction == COMPENSATE and (at.undo_call is not None or serving.then or serving.each is not None):  # type: ignore[union-attr]
        try:
            following = next_undo_call(state, index)
        except BindingUnresolved as error:
            return _cannot_call(state, index, direction, now, "binding_unresolved", error.message, changed=False)
        if following is None:
            return r.StepSucceeded(at=now, step=step.key, direction=direction, via="nothing")
        number, serving = following
    template, spec = serving.params, serving.spec
    assert spec is not None, _AT_HAND
    bound = template.bound
    undoes = ""
    # Params are checked again if the call binds values, which nobody could check at submission, or if the tool's
    # declaration is another one than at submission (scenarios forward-missing-output, tool-changed).
    changed = state.tools.get(spec.name, spec.digest) != spec.digest  # as ``State.changed``, without a call of its own
    params: Any = None
    if bound or changed:
        try:
            params = template.resolve(StateScope(state))
        except BindingUnresolved as error:
            return _cannot_call(state, index, direction, now, "binding_unresolved", error.message, changed=False)
        # A secret is unknown here; what depends on its value is checked at the time of the call.
        problems = known_faults(spec, params, template.secret_params)
        if problems:
            path, message = problems[0]
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
            return _cannot_call(state, index, direction, now, "params_invalid", f"${where}: {message}", changed=changed)
    meet = state.plan.tools.meet and direction == FORWARD and spec.effect != "read"
    taken = _takes_back(state, index, params) if meet else None
    if taken is not None and taken.how == "gone" and at.status == PENDING:
        other = state.steps[taken.step]
        source = state.plan.steps[other.undone_by if other.undone_by >= 0 else taken.step].key
        return r.StepSucceeded(
            at=now, step=step.key, output=other.undo_output, via="deduplicated", source=f"{state.saga_id}/{source}"
        )
    if taken is not None and taken.how == "stands":
        undoes = state.plan.steps[taken.step].key
    return r.StepIntended(
        at=now,
        step=step.key,
        direction=direction,
        attempt=(at.forward if direction == FORWARD else at.undo or at.call(direction)).attempt + 1,
        params=params if bound else None,
        fallback=at.using if direction == FORWARD else 0,
        call=number,
        undoes=undoes,
        unkeyed="" if spec.keyed else "told" if spec.told_key else "never",
    )


def _takes_back(state: State, index: int, params: Any) -> Undone | None:
    """The step whose undo the call of a step is. All attempts are the same call."""
    step, compiled = state.steps[index], state.plan.steps[index]
    serving = state.acting(index)
    if compiled.compensates is not None or serving.before is not None:
        return None
    if step.forward.first_at:
        kept = step.undoes >= 0 and state.steps[step.undoes].undone_by == index
        return Undone(step.undoes, "stands") if kept else None
    if not state.plan.tools.undone_by(state.plan.steps, serving.tool):
        return None
    if params is None:
        params = serving.params.resolve(StateScope(state))
    return undone_by(state, serving.tool, params, index)


def next_undo_call(state: State, index: int) -> tuple[UndoCall, CompiledRollback] | None:
    """The call with which an undo of several calls begins, or goes on; None: its lists are empty.

    Raises ``BindingUnresolved``. An undo that has begun has as many calls as it had then.
    """
    at, key = state.steps[index], state.plan.steps[index].key
    whole, done = state.whole_rollback(index), len(at.undo_calls)
    assert whole is not None
    places = undo_places(whole, StateScope(state))
    if not places and not done:
        return None
    if done >= len(places) or (at.undo_call is not None and at.undo_call.of != len(places)):
        raise BindingUnresolved(f"the undo has {len(places)} calls, and had another number when it began", step=key)
    place = places[done]
    return UndoCall(done, len(places), place.entry, place.item), undo_call(whole, place, key, index)


def _cannot_call(  # noqa: PLR0917
    state: State, index: int, direction: Direction, now: int, code: str, message: str, *, changed: bool
) -> r.AnyRecord:
    """The params do not fit. That fails the step, unless the tool changed, or an earlier attempt is in doubt."""
    error = ErrorInfo(error_code=code, message=message, retryable=False)
    call = state.steps[index].call(direction)
    # Neither is a failure of the step: an operator can restore the tool, and a doubt outlives params that do not fit
    # (scenarios tool-changed, tool-changed-in-doubt).
    if changed or call.doubt:
        kind = "tool-changed" if changed else "in-doubt" if direction == FORWARD else "undo-in-doubt"
        return escalate(state, index, direction, kind, now, error)
    return give_up(state, index, direction, now, error, unavailable=False)


def give_up(
    state: State, index: int, direction: Direction, now: int, error: ErrorInfo, *, unavailable: bool
) -> r.AnyRecord:
    """The call was not done and is not retried as it is: the step's next fallback, or its failure.

    ``unavailable``: its tool was unreachable, and did not refuse. Only then can an old result of a read, or waiting,
    replace the step's own tool; another tool may always be tried.
    """
    step, at = state.plan.steps[index], state.steps[index]
    if direction == FORWARD and step.fallbacks and not moot(state, index, direction):
        number = state.next_way(index, unavailable=unavailable)
        if number and step.fallbacks[number - 1].way == "queue":
            return _defer(state, index, now, error)
        if number:
            away = at.unavailable if at.using else unavailable
            return r.FallbackChosen(at=now, step=step.key, fallback=number, error=error, unavailable=away)
    return r.StepFailed(at=now, step=step.key, direction=direction, error=error)


def _defer(state: State, index: int, now: int, error: ErrorInfo, *, in_doubt: bool = False) -> r.AnyRecord:
    """Defer the step, as the last of its fallbacks says."""
    step = state.plan.steps[index]
    notice = "" if state.steps[index].deferred else f"{step.key}:deferred"
    delay_ms = round(step.fallbacks[-1].every_s * 1000)
    return r.StepDeferred(at=now, step=step.key, error=error, delay_ms=delay_ms, notice=notice, in_doubt=in_doubt)


def denied(state: State, index: int, now: int) -> r.AnyRecord:
    """An operator said that a call in doubt did not happen: the step continues as after a probe's answer."""
    error = state.steps[index].forward.error or ErrorInfo("did_not_happen", said("did_not_happen.operator"))
    return give_up(state, index, FORWARD, now, error, unavailable=True)


def moot(state: State, index: int, direction: str) -> bool:
    """Whether another forward attempt would be one too many: the saga is about to turn, or has turned, around."""
    if direction != FORWARD or not state.turns or state.ending is not None:
        return False
    return not state.compensates_still(index)


def _no_answer(call: CallState, tool: str) -> str:
    """How many owners ended before there was an answer, and how many of them had really begun the call."""
    began, probes, ended = call.crashes - call.lost_probes, call.lost_probes, max(call.takeovers, call.crashes)
    key = "takeovers_without_progress.probe" if probes else "takeovers_without_progress.call"
    return said(key, most=ended, n=began, tool=cut(tool, 80), probes=probes)


def settle(state: State, index: int, direction: Direction, now: int, out: list[r.AnyRecord]) -> None:
    """The next way to find out whether a call happened, in the order of 'A call in doubt' in docs/guarantees.md.

    Each branch is safer than the next one: it can say more, or do less harm if it is wrong. The scenarios named here
    are in tests/scenarios.
    """
    if direction == COMPENSATE and state.steps[index].undo_waits:
        return  # a later call happened meanwhile: its undo comes first (row 8)
    spec, retry = facts(state, index, direction)
    call = state.steps[index].call(direction)
    as_undo: Direction = COMPENSATE if state.steps[index].undoes >= 0 else direction
    doubt = call.doubt
    assert doubt is not None, "nothing else is settled"
    key = state.plan.steps[index].key
    spent = direction == FORWARD and doubt.raised >= MAX_RAISED and not doubt.lost
    again = call.tries < _budget(doubt, retry) and state.still_wanted(index, direction) and not spent
    # This call may be what ends the processes: not even its probe is asked again.
    if call.crashes >= state.plan.max_crashes or call.takeovers >= _TAKEOVERS * state.plan.max_crashes:
        why = _no_answer(call, spec.name)
        kind = "in-doubt" if direction == FORWARD else "undo-in-doubt"
        error = ErrorInfo("takeovers_without_progress", why, said("takeovers_without_progress.hint-call"))
        out.append(escalate(state, index, direction, kind, now, error))
    # A probe changes nothing and can tell both ways (doubt-probe-happened, doubt-probe-not-happened).
    elif call.probes < _probes(state, index, spec, direction):
        out.append(r.ProbeIntended(at=now, step=key, direction=direction, attempt=call.probes + 1))
    # A repeat that takes effect at most once (doubt-key, doubt-key-expired, undo-lost-answer-tolerated).
    elif again and _repeatable(spec, call, as_undo, now, state.serving(index, direction).timeout_s):
        out.append(intend(state, index, direction, now))
    # A read has no effect; and an error that proves that a request never left counts if no probe knows better
    # (doubt-never-sent).
    elif spec.effect == "read" or not (doubt.sent or doubt.repeat):
        error = call.error or ErrorInfo(error_code="no_answer", message=said("no_answer.read"))
        if spec.effect != "read" and call.tries < retry.max_attempts and not moot(state, index, direction):
            out.append(intend(state, index, direction, now))
        else:
            out.append(give_up(state, index, direction, now, error, unavailable=True))
    # Out of attempts, but the remote side still remembers the key when the deferred step is called again.
    elif direction == FORWARD and not spent and _waits_for_key(state, index, spec, call, now):
        error = call.error or ErrorInfo(error_code="no_answer", message=said("no_answer"))
        out.append(_defer(state, index, now, error, in_doubt=True))
    # The step is to be undone anyway, and its undo makes certain that no effect of its own remains, whether there was
    # one or not (doubt-undo-by-key).
    elif direction == FORWARD and state.backward and certain_undo(state, index):
        if not state.steps[index].undo_waits:
            out.append(intend(state, index, COMPENSATE, now))
    # The tool prefers turning around to a question (doubt-undo-settles); or the exception would have turned the saga
    # around if it had been a refusal, which it probably is (doubt-raised-undone).
    elif direction == FORWARD and _undo_settles(state, index, spec, doubt):
        out.append(r.CompensationRequested(at=now, step=key))
    # Nothing can tell: an operator can (crash-bare-write, doubt-person-happened, undo-lost-answer).
    else:
        kind = "in-doubt" if direction == FORWARD else "undo-in-doubt"
        out.append(escalate(state, index, direction, kind, now))


def _budget(doubt: Doubt, retry: RetryPolicy) -> int:
    """How often a call in doubt may be made; one more call can settle an attempt that died with its process."""
    return max(retry.max_attempts, 2) if doubt.lost else retry.max_attempts


def _waits_for_key(state: State, index: int, spec: ToolSpec, call: CallState, now: int) -> bool:
    """Whether the step may wait and its call be repeated under its key, which is remembered until then."""
    fallbacks = state.plan.steps[index].fallbacks
    if not fallbacks or fallbacks[-1].way != "queue" or not spec.keyed or moot(state, index, FORWARD):
        return False
    due = now + round(fallbacks[-1].every_s * 1000)
    return _repeatable(spec, call, FORWARD, due, state.acting(index).timeout_s)


def _undo_settles(state: State, index: int, spec: ToolSpec, doubt: Doubt) -> bool:
    """Whether turning around settles a doubt, because the undo makes certain that no effect remains."""
    may_turn = not (state.turns or state.session or state.past_pivot)
    wanted = spec.on_doubt == "undo" or (doubt.raised > 0 and _failure_turns(state, index))
    return wanted and may_turn and certain_undo(state, index)


def _failure_turns(state: State, index: int) -> bool:
    """Whether the saga would turn around if the step had failed: nothing else is to be tried or asked first."""
    step, error = state.plan.steps[index], state.steps[index].forward.error
    if state.plan.on_failure != "compensate" or state.next_way(index, unavailable=True):
        return False
    return not step.goes_on("" if error is None else error.error_code)


def _probes(state: State, index: int, spec: ToolSpec, direction: Direction) -> int:
    """How often to ask before the next way is used. De-duplication is looked up once.

    So is the value that an undo restores; that of a sole writer is read more often.
    """
    if spec.probe is not None:
        return MAX_PROBES
    if reads_settle(state, index, direction):
        return MAX_PROBES if direction == FORWARD else 1
    return 1 if spec.remembers and direction == FORWARD else 0


def _repeatable(spec: ToolSpec, call: CallState, direction: Direction, now: int, timeout_s: float) -> bool:
    if spec.effect == "read" or (direction == COMPENSATE and spec.tolerates_absence):
        return True
    if not spec.keyed:
        return False
    # The repeat must arrive while the key is still remembered, however slow the connection is.
    return spec.key_ttl_s is None or now - call.first_at + timeout_s * 1000 < spec.key_ttl_s * 1000


def certain_undo(state: State, index: int) -> bool:
    """Whether the undo of a step in doubt makes certain that no effect of its own remains, and touches nothing else.

    It names the call by its forward key, which nothing else ever had; or the value from before the call is known, and
    the undo looks first (``core.images``). An undo by the caller's own params is not certain: if the call was refused
    because such an object exists already, it would delete somebody else's (doubt-undo-by-own-params).
    """
    if not state.owns(index) or (rollback := state.whole_rollback(index)) is None or rollback.needs_output:
        return False
    calls = (rollback, *rollback.then)
    if not (guards_undo(state, index) or all(call.by_key for call in calls)):
        return False
    return all(call.spec is not None and call.spec.tolerates_absence for call in calls)
