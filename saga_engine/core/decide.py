"""``decide(state, now_ms, means) -> records``: what follows from the state of a saga now.

The function is pure: a journal, a time and the means of a process give the same decision in the driver, in Temporal,
in the simulation and in the replay of a trace. This is what its guards protect. *Row N* is a row of the table in
docs/guarantees.md, *scenario x* is ``tests/scenarios/x.txt``, which shows the guard at work, and
``tests/core/engine_mutants.py`` removes the guards one by one and shows that the simulation notices.

**The loop** is that of ``machine.py``: it asks ``decide``, applies the records with ``evolve``, and asks again until it
gets none. Its driver appends all these records in one write, and only then gets what they order. So an effect always
has its record first (row 1), and whatever has no record has not been decided: a process that dies loses at most a
decision, and the next one decides the same (scenarios ``crash-before-anything``, ``crash-after-intent``,
``crash-before-result``). For the same reason nothing here depends on what the process remembers: everything is in the
state, in ``now_ms`` or in ``means``.

**The cost.** A round looks only at the sets of places that can move (``core/state.py``), never at all steps, and
``_is_quiet`` ends most rounds after a few look-ups. ``tests/runtime/test_hot_path.py`` counts that.

**The order of the questions** in ``decide``. Each one comes before what it must be able to stop:

1. A saga that has ended never changes (row 14), and calls in flight alone give nothing to decide.
2. ``to_escalate``: nothing else settles these places, so they become questions, or one request to a model, before
   anything else moves.
3. ``denied``: an operator's *it did not happen* counts like the tool's own response (row 39, scenario
   ``doubt-person-not-happened``).
4. Approvals that expired: no call may still pass on them (row 22, scenario ``approval-expired``).
5. Notifications that are due: a saga rests only when operators know of its questions (scenario ``people-not-told``).
6. The saga's phase: forward, replanning, turning or backward.
7. If none of them moved: rest, or end.

**One way, and one turn.** A saga runs forward until there is a reason to turn: a failed or blocked step, a cancel, the
deadline, the call limit. From then on no forward call starts, but those in flight are awaited, because only a known
effect can be undone in order (scenarios ``failure-parallel-compensation``, ``cancel-during``). Then the pivot decides.
If it happened, there is no way back, and the failure becomes a question (``pivot-happened``, ``pivot-failure-after``,
``cancel-and-pivot``). If it is in doubt, it is settled first. Else the saga turns around, once and for good.

**Doubt.** A call whose outcome is unknown is neither done nor failed (row 4). No step falls back, no dependent starts
and no earlier step is undone before evidence settles it (rows 7 and 30, scenarios ``fallback-never-in-doubt``,
``doubt-time-out``). ``settling.settle`` tries the sources of evidence from the safest to the last, an operator: the
order of 'A call in doubt' in docs/guarantees.md. A write with neither key nor probe is never repeated (row 5, scenario
``crash-bare-write``).

**The way back.** ``evolve`` knows which undos precede which; a step enters ``undo_ready`` when its turn has come. An
undo that waits for a retry or is in doubt may meanwhile get a predecessor, so both places that continue one look at
``undo_waits`` again (row 8, scenario ``failure-reverse-of-what-happened``). While an operator is asked about an undo
of a session, ``next_ahead`` finds an earlier one that need not wait for that (scenario ``session-undo-ahead``).

**The end.** COMPLETED: every step happened and no session is open. COMPENSATED: nothing is left to undo, in flight, in
doubt or asked about, and nothing remains; WAIVED if an operator accepted a remainder, or an irreversible step
happened. So the report never claims an undo that did not happen (row 9). ESCALATED is no end: it is the rest of a saga
that only an operator can move.

**The bounds** keep a saga from doing one thing for ever. Each ends in a question to an operator, or in the saga's
turn: attempts of a call (``RetryPolicy``), ``MAX_PROBES``, ``max_crashes``, ``MAX_REPLANS``, the plan's deadline and
its call limit (scenarios ``doubt-probe-cannot-tell``, ``deadline``, ``retry-call-limit``). A model that could not be
reached is asked again ``len(asking_later.DELAYS_MS)`` times (scenarios ``semantic-model-away``, ``replan-model-away``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from saga_engine.core import finishing, settling
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    Ask,
    Direction,
    ErrorInfo,
)
from saga_engine.core.questions import escalate
from saga_engine.core.state import State
from saga_engine.core.state_values import Backward, Proposal, Replanning, Turning
from saga_engine.core.steps import ask, waiting
from saga_engine.core.steps.conditional import checked
from saga_engine.core.undo_ahead import next_ahead
from saga_engine.core.undo_by_call import is_held
from saga_engine.core.verified.looking import free
from saga_engine.language.errors import said
from saga_engine.plan.tool_spec import Semantic

#: How often the planner may find another way for one saga.
MAX_REPLANS: Final = 3
#: How long, in seconds, an operator has to answer about steps that a model proposed.
PROPOSAL_EXPIRES_S: Final = 86_400.0
_STUCK: Final = frozenset({"undo-failed", "undo-missing"})
_NOBODY_ASKED: Final = ErrorInfo("planner_unavailable", said("planner_unavailable"))

Records = Sequence[r.AnyRecord]
_NONE: Records = ()


class Capabilities(NamedTuple):
    """What this process can do beside calling tools: notify operators, and ask a model.

    ``semantic`` is the role in semantic compensation of tools that do not declare it.
    """

    alerting: bool = True
    planner: bool = False
    semantic: Semantic = "approve"


def decide(state: State, now_ms: int, capabilities: Capabilities = Capabilities()) -> Records:  # noqa: B008 - it is immutable
    """One round of records that follow from the state at ``now_ms`` (Unix ms on the store's clock)."""
    if state.status in t.SAGA_FINAL or _is_quiet(state):
        return _NONE
    if state.plan.tools.seen < len(state.plan.steps):
        state.plan.tools.look(state.plan.steps)
    if (ending := state.ending) is not None:
        due = _alerts(state, now_ms) if capabilities.alerting and state.alerts and now_ms < ending.until else _NONE
        return due or finishing.decide(state, ending, now_ms, _calls, alerting=capabilities.alerting)
    if state.to_escalate:
        return [
            _stuck(state, index, direction, kind, now_ms, capabilities)
            for (index, direction), kind in state.to_escalate.items()
        ]
    if state.denied:
        return [settling.denied(state, index, now_ms) for index in state.denied]
    # Before any call: an approval that has expired must not let one pass.
    if state.questions and (expired := _expired(state, now_ms)):
        return expired
    if capabilities.alerting and (state.alerts or state.reminders) and (due := _alerts(state, now_ms)):
        return due
    phase = state.phase
    if phase == FORWARD or isinstance(phase, Replanning):
        found = _forward(state, now_ms, capabilities)
    elif isinstance(phase, Turning):
        found = _turn_around(state, phase.reason, now_ms)
    else:
        found = _backward(state, now_ms, capabilities)
    # A saga rests only when operators have been notified of its questions: until then a crash must find it among those
    # that continue.
    return found or _rest(state, now_ms, untold=capabilities.alerting and bool(state.alerts))


def _is_quiet(state: State) -> bool:
    """Whether calls are in flight and nothing else can be settled before they end: most rounds of most sagas."""
    return bool(state.in_flight) and not (
        state.ready
        or state.undo_ready
        or state.waiting
        or state.pending
        or state.doubts
        or (state.phase != FORWARD and not isinstance(state.phase, Backward))
        or state.to_escalate
        or state.denied
        or state.questions
        or state.alerts
        or state.to_check
    )


def _no_progress(state: State, doing: str) -> ErrorInfo:
    most = state.plan.max_crashes
    why = said(f"takeovers_without_progress.{doing}", most=most)
    return ErrorInfo("takeovers_without_progress", why, said("takeovers_without_progress.hint"))


def _alerts(state: State, now: int) -> Records:
    """The alerts that are due: first notifications, repeats after a failure, and reminders."""
    out: list[r.AnyRecord] = [
        r.AlertIntended(at=now, question=question, attempt=alert.attempt + 1, round=alert.round)
        if alert.crashes < state.plan.max_crashes
        else r.AlertFailed(at=now, question=question, error=_no_progress(state, "alert"), delay_ms=-1)
        for question, alert in state.alerts.items()
        if not alert.in_flight and alert.due <= now
    ]
    out += [
        r.AlertIntended(at=now, question=question, round=reminder.round)
        for question, reminder in state.reminders.items()
        if reminder.due <= now
    ]
    return out


def _stuck(  # noqa: PLR0917
    state: State, index: int, direction: Direction, kind: str, now: int, capabilities: Capabilities
) -> r.AnyRecord:
    """What no call can settle: a model is asked once for a semantic compensation, if permitted.

    Else an operator is asked.
    """
    step = state.plan.steps[index]
    asks = kind in _STUCK and state.steps[index].semantic is None and not state.steps[index].undo_calls
    asks = (
        asks
        and state.ask_crashes.get(index, 0) < state.plan.max_crashes
        and step.compensates is None
        and step.item is None
    )
    # A session's agent adds its own calls; steps of a model would interleave with them.
    if asks and not state.session and _may_ask(state, index, capabilities):
        return r.PlannerAsked(at=now, step=step.key, purpose="compensate")
    proposal = state.steps[index].semantic
    if kind == "compensation" and isinstance(proposal, Proposal):
        why = ErrorInfo("approval_required", proposal.why or "a model proposes steps that compensate for it")
        ask = Ask(why, proposal.digest, PROPOSAL_EXPIRES_S)
        return escalate(state, index, direction, kind, now, state.steps[index].call(direction).error, ask)
    return escalate(state, index, direction, kind, now)


def _may_ask(state: State, index: int, capabilities: Capabilities) -> bool:
    """Whether this process may ask a model how to compensate for a step."""
    spec = state.acting(index).spec
    return capabilities.planner and ((spec.semantic if spec else None) or capabilities.semantic) != "never"


def _ask_again(state: State, now: int, capabilities: Capabilities) -> Records:
    """The models that could not be reached are asked again; if no process came that may, an operator is asked."""
    out: list[r.AnyRecord] = []
    for index, later in state.pending.items():
        key = state.plan.steps[index].key
        if later.until and (later.due or 0) <= now and _may_ask(state, index, capabilities):
            out.append(r.PlannerAsked(at=now, step=key, purpose="compensate"))
        elif 0 < later.until <= now:
            out.append(r.PlannerGaveUp(at=now, step=key, purpose="compensate", error=_NOBODY_ASKED))
    return out


def _expired(state: State, now: int) -> Records:
    return [
        ask.expired(state, asked, now)
        if asked.kind == ask.KIND
        else r.ApprovalExpired(at=now, question=name, step=state.plan.steps[asked.step].key, direction=asked.direction)
        for name, asked in state.questions.items()
        if asked.expires is not None and asked.expires <= now
    ]


# --- forward -----------------------------------------------------------------------------------------------------


def _forward(state: State, now: int, capabilities: Capabilities) -> Records:
    plan = state.plan
    if state.to_check:  # before anything that depends on them, and before the end
        return [checked(state, index, now) for index in state.to_check]
    if (plan.deadline_s is not None or plan.max_tool_calls is not None) and (bound := _bound(state, now)):
        return bound
    if state.phase != FORWARD and isinstance(
        state.phase, Replanning
    ):  # no step starts that the other way may not need (scenario replan)
        return _replan(state, state.phase.step, now, capabilities)
    if state.pending and (ended := waiting.due_waits(state, now)):
        return ended
    # One limit for all calls: retries that are due, calls that settle a doubt, undos, and new steps.
    room = left = state.plan.max_parallel - len(state.in_flight)
    if plan.max_tool_calls is not None and not state.past_pivot:
        left = min(room, plan.max_tool_calls - state.calls)
    out = settling.due_calls(state, now, left) if state.waiting else []
    if state.doubts:
        settling.settle_all(state, now, out, left)
    if state.undo_ready:  # an agent rolls back a part of its session
        ready = islice(free(state) if state.looks else state.undo_ready, max(room - len(out), 0))
        undos = [settling.intend(state, index, COMPENSATE, now) for index in ready]
        out += undos
        left = min(left + len(undos), room)  # an undo is no forward call: the limit on calls does not count it
    elif state.undo_open and state.questions and room > len(out):
        out += _ahead(state, now)
    meet = plan.tools.meet  # else no call is the undo of another one
    for index in islice(state.ready, max(left - len(out), 0)):
        if not (meet and is_held(state, index)):
            made = settling.intend(state, index, FORWARD, now)
            if not (meet and _is_twice(made, out)):
                out.append(made)
    if left <= 0 and state.ready:  # a built-in step is no call: no limit on calls counts it
        out += [settling.intend(state, index, FORWARD, now) for index in state.ready if plan.steps[index].builtin]
    if out:
        return out
    # A session that is open may still add calls; a partial rollback is finished before the saga may complete.
    if state.is_done():
        # Alerts still in flight belong to questions that have been answered since.
        return finishing.end(state, r.SagaCompleted(at=now), now)
    return _NONE


def _is_twice(made: r.AnyRecord, out: Sequence[r.AnyRecord]) -> bool:
    """Whether a call is the same undo as another one of this round: it waits until that is settled."""
    if type(made) is not r.StepIntended or not made.undoes:
        return False
    return any(type(other) is r.StepIntended and other.undoes == made.undoes for other in out)


def _bound(state: State, now: int) -> Records:
    """The deadline or the call limit, if it is reached and work remains.

    The deadline also binds a saga that only waits for an operator, and a session whose agent does nothing.
    """
    moving = state.ready or state.waiting or state.pending or state.doubts or isinstance(state.phase, Replanning)
    idle = not state.in_flight and (state.questions or state.open)
    # A saga in which nothing can move any more may complete although its deadline passed; calls in flight are awaited.
    deadline = state.binding_deadline
    if deadline is not None and now >= deadline and (moving or idle):
        return [r.DeadlinePassed(at=now)]
    limit = state.plan.max_tool_calls
    if limit is not None and moving and state.calls >= limit and not state.past_pivot and _wants_to_call(state, now):
        return [r.CallLimitReached(at=now)]
    return _NONE


def _replan(state: State, failed: int, now: int, capabilities: Capabilities) -> Records:
    """Another way is wanted. What is in flight is settled first, so that the planner knows the remaining effects."""
    later = state.pending.get(failed)
    if state.calls_forward() or (later is not None and later.here):
        return _NONE
    room = state.plan.max_parallel - len(state.in_flight)
    out: list[r.AnyRecord] = []
    settling.settle_all(state, now, out, room)
    for place, due in state.waiting.items():
        if len(out) < room and due <= now and state.steps[place[0]].forward.doubt:
            out += settling.due_calls(state, now, room - len(out), only=place)
    if out:
        return out
    if state.questions or any(state.steps[index].forward.doubt for index, _ in state.waiting):
        return _NONE
    if later is not None and now < ((later.due or 0) if capabilities.planner else later.until):
        return _NONE
    step = state.plan.steps[failed].key
    if state.ask_crashes.get(failed, 0) >= state.plan.max_crashes:
        return [r.PlannerGaveUp(at=now, step=step, purpose="replan", error=_no_progress(state, "model"))]
    # Steps that can be undone cannot follow the pivot, so no other way is left (scenario pivot-happened).
    if state.past_pivot or not capabilities.planner or state.replans >= MAX_REPLANS:
        why = "pivot" if state.past_pivot else "tried" if capabilities.planner else "planner"
        error = ErrorInfo("no_other_way", said(f"no_other_way.{why}", n=MAX_REPLANS))
        return [r.PlannerGaveUp(at=now, step=step, purpose="replan", error=error)]
    return [r.PlannerAsked(at=now, step=step, purpose="replan")]


def _wants_to_call(state: State, now: int) -> bool:
    calls = any(not state.plan.steps[index].builtin for index in state.ready)
    return calls or bool(state.doubts) or any(due <= now for due in state.waiting.values())


def _turn_around(state: State, reason: str, now: int) -> Records:
    """Start no new forward call; await those in flight; then start to compensate, unless the pivot happened."""
    if state.calls_forward():
        return _NONE
    # The pivot's own outcome decides whether there is a way back at all (docs/plan-format.md, scenario pivot-happened).
    pivot = state.plan.pivot
    if pivot is not None and not state.undo_of:
        status = state.steps[pivot].status
        if status == t.SUCCEEDED:
            return [r.CompensationRefused(at=now, reason=reason)]
        if status == t.IN_DOUBT or (status == t.ESCALATED and state.steps[pivot].forward.doubt):
            # Whether the saga can turn around at all depends on the pivot: settle it first.
            out = settling.due_calls(state, now, 1, only=(pivot, FORWARD))
            if (pivot, FORWARD) in state.doubts:
                settling.settle(state, pivot, FORWARD, now, out)
            return out
    step = state.plan.steps[state.failed[0]].key if state.failed and reason in ("step-failed", "blocked") else ""
    return [r.CompensationStarted(at=now, reason=reason, step=step)]


# --- backward ----------------------------------------------------------------------------------------------------


def _backward(state: State, now: int, capabilities: Capabilities) -> Records:
    if state.pending and (again := _ask_again(state, now, capabilities)):
        return again
    if out := _calls(state, now):
        return out
    # A step of a semantic compensation may still be in flight, in doubt, or asked about.
    if state.is_undone():
        return finishing.end(state, r.SagaWaived(at=now) if state.left_any else r.SagaCompensated(at=now), now)
    return _NONE


def _calls(state: State, now: int) -> Records:
    """The calls that can start or be settled: on the way back, and at the end those of ``finally``."""
    room = state.plan.max_parallel - len(state.in_flight)
    out = settling.due_calls(state, now, room) if state.waiting else []
    if state.doubts:
        settling.settle_all(state, now, out, room)
    if state.undo_ready:
        ready = islice(free(state) if state.looks else state.undo_ready, max(room - len(out), 0))
        out += [settling.intend(state, index, COMPENSATE, now) for index in ready]
    if state.ready:  # during compensation the only forward calls are those of semantic compensations
        out += [settling.intend(state, index, FORWARD, now) for index in islice(state.ready, max(room - len(out), 0))]
    if state.session and state.questions and room > len(out):
        out += _ahead(state, now)
    return out


def _ahead(state: State, now: int) -> Records:
    """The undo of an earlier call that need not wait for an operator, who is asked about a later one."""
    index = next_ahead(state)
    return _NONE if index is None else [settling.intend(state, index, COMPENSATE, now)]


def _rest(state: State, now: int, *, untold: bool) -> Records:
    """Nothing can be started. Wait for what is in flight; else for an operator; else the saga is over."""
    # What is due by now and still waits is an undo whose turn has not come: it waits for others, not for time.
    if state.in_flight or state.pending:
        return _NONE
    if any(due > now for due in state.waiting.values()) or any(due >= 0 for due in state.looks.values()):
        return _NONE
    if untold or any(alert.in_flight for alert in state.alerts.values()):
        return _NONE
    if state.questions:
        return _NONE if state.status == t.ESCALATED else [r.SagaEscalated(at=now)]
    if not state.backward and state.left_any and not state.open:
        # After the pivot an operator dropped a step: its dependents cannot run.
        return finishing.end(state, r.SagaWaived(at=now), now)
    return _NONE
