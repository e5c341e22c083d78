"""``evolve(state, record) -> state``: what a fact changes.

No clock, no dice, no I/O: the same records always give the same state. The state is changed in place and returned;
whoever folds a journal owns its state (a copy for each record would make a saga of N steps cost N²). Each kind of
record has one handler; a pair of state and trigger that the tables do not have raises ``JournalUnreadable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, ErrorInfo
from saga_engine.core.growth import Added, Growth
from saga_engine.core.state import Alerting, Notice, OpenQuestion, Proposal, Reminder, State, StepState
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.compiled import CompiledPlan, CompiledStep
from saga_engine.plan.growing import Addition
from saga_engine.plan.values import digest


def begin(started: r.SagaStarted, plan: CompiledPlan, growth: Growth | None = None) -> State:
    """The state after the first record; without ``growth`` nothing can be added to the plan."""
    return State(started, plan, growth)


def fold(records: Iterable[r.AnyRecord], plan: CompiledPlan, growth: Growth | None = None) -> State:
    """The state after all records; the first must be ``SagaStarted``."""
    iterator = iter(records)
    started = next(iterator, None)
    if not isinstance(started, r.SagaStarted):
        raise JournalUnreadable("a journal must begin with SagaStarted", hint="the store was changed by hand")
    state = begin(started, plan, growth)
    for record in iterator:
        evolve(state, record)
    return state


def evolve(state: State, record: r.AnyRecord) -> State:
    """The state after ``record``. Raises ``JournalUnreadable`` if the record cannot follow."""
    state.at = record.at
    try:
        _HANDLERS[type(record)](state, record)
    except KeyError as error:
        raise JournalUnreadable(
            f"{type(record).__name__} cannot follow in saga {state.saga_id} ({state.status}): {error}",
            hint="the journal was written by another engine or changed by hand",
        ) from error
    return state


def _move(step: StepState, trigger: str) -> None:
    step.status = t.STEP_MOVES[step.status, trigger]


def _turn_saga(state: State, trigger: str) -> None:
    state.status = t.SAGA_MOVES[state.status, trigger]


def _index(state: State, record: Any) -> int:
    return state.plan.by_key[record.step]


# --- calls -------------------------------------------------------------------------------------------------------


def _intended(state: State, record: r.StepIntended) -> None:
    index = state.plan.by_key[record.step]
    direction = record.direction
    step = state.steps[index]
    place = (index, direction)
    if direction == FORWARD:
        call = step.forward
        _move(step, "intend")
        state.ready.pop(index, None)
        state.calls += 1
        if state.status == t.PENDING:
            _turn_saga(state, "go")
    else:
        call = step.call(COMPENSATE)
        _move(step, "undo")
        state.undo_ready.pop(index, None)
        # An undo of a step in doubt settles the doubt by making its absence certain.
        state.doubts.pop((index, FORWARD), None)
        state.waiting.pop((index, FORWARD), None)
    call.attempt = record.attempt
    call.tries += 1
    call.approved = False
    call.phase = "in_flight"
    if not call.first_at:
        call.first_at = record.at
    state.waiting.pop(place, None)
    state.doubts.pop(place, None)
    state.in_flight[place] = None


def _succeeded(state: State, record: r.StepSucceeded) -> None:
    index = state.plan.by_key[record.step]
    step = state.steps[index]
    _settle(state, step, index, record.direction, record.at)
    if record.direction == FORWARD:
        _move(step, "succeed")
        step.source = record.source
        step.age_ms = record.age_ms
        _happened(state, index, step, record.output, record.via)
    else:
        _move(step, "undone")
        step.undo_output = record.output
        _end_undo(state, index)


def _happened(state: State, index: int, step: StepState, output: Any, via: str) -> None:
    step.output = output
    step.via = via
    compiled = state.plan.steps[index]
    if compiled.remedies is not None:
        _release_dependents(state, compiled)
        _remedy_happened(state, compiled.remedies)
        return
    state.remaining -= 1
    if state.backward:
        _undo_turn(state, index)
        return
    _release_dependents(state, compiled)


def _release_dependents(state: State, compiled: CompiledStep) -> None:
    steps = state.steps
    for dependent in compiled.dependents:
        waiter = steps[dependent]
        waiter.waits -= 1
        if not waiter.waits and waiter.status == t.PENDING:
            state.ready[dependent] = None


def _settle(state: State, step: StepState, index: int, direction: Direction, at: int) -> None:
    """A call is over and nothing about it is in doubt."""
    place = (index, direction)
    state.in_flight.pop(place, None)
    state.waiting.pop(place, None)
    state.doubts.pop(place, None)
    call = step.call(direction)
    call.phase = "idle"
    call.doubtful = False
    call.ended_at = at


def _retry_scheduled(state: State, record: r.StepRetryScheduled) -> None:
    index = _index(state, record)
    step = state.steps[index]
    _settle(state, step, index, record.direction, record.at)
    if step.status == t.IN_DOUBT and record.direction == FORWARD:
        _move(step, "intend")  # a probe said that it did not happen: no doubt is left
    call = step.call(record.direction)
    call.error = record.error
    call.phase = "waiting"
    state.waiting[index, record.direction] = record.at + record.delay_ms


def _failed(state: State, record: r.StepFailed) -> None:
    index = _index(state, record)
    step = state.steps[index]
    state.ready.pop(index, None)
    state.undo_ready.pop(index, None)
    _settle(state, step, index, record.direction, record.at)
    step.call(record.direction).error = record.error
    if record.direction == COMPENSATE:
        _move(step, "undo_failed")
        state.to_escalate[index, COMPENSATE] = "undo-failed"
        return
    _move(step, "fail")
    _not_done(state, index, ask=state.plan.on_failure == "pause")


def _blocked(state: State, record: r.StepBlocked) -> None:
    index = _index(state, record)
    if record.direction == FORWARD:
        state.calls -= 1  # nothing was called
    _refused(state, index, record.direction, record.error)


def _refused(state: State, index: int, direction: Direction, error: ErrorInfo) -> None:
    """A call was not let through. An earlier attempt that is in doubt stays in doubt: only a person can go on."""
    step = state.steps[index]
    call = step.call(direction)
    if call.doubtful:
        if direction == COMPENSATE and step.status == t.ESCALATED:
            _move(step, "undo")
        _doubt(state, index, direction, error, None)
        state.to_escalate[index, direction] = "in-doubt" if direction == FORWARD else "undo-in-doubt"
        return
    _settle(state, step, index, direction, state.at)
    call.error = error
    if direction == COMPENSATE:
        _move(step, "undo_failed")
        state.to_escalate[index, COMPENSATE] = "undo-blocked"
        return
    _move(step, "block")
    _not_done(state, index, ask=state.plan.on_failure == "pause", reason="blocked")


def _fallback_chosen(state: State, record: r.FallbackChosen) -> None:
    index = _index(state, record)
    step = state.steps[index]
    if not step.using:
        step.unavailable = record.unavailable
    _begin_anew(state, index, step, record.error, record.at)
    step.using = record.fallback


def _parked(state: State, record: r.StepParked) -> None:
    index = _index(state, record)
    step = state.steps[index]
    _begin_anew(state, index, step, record.error, record.at + record.delay_ms)
    step.using = 0
    step.parked += 1
    if record.notice:
        state.notices[record.notice] = Notice(index, "parked", record.error)
        state.alerts[record.notice] = Alerting(attempt=0, due=record.at, in_flight=False)


def _begin_anew(state: State, index: int, step: StepState, error: ErrorInfo, due: int) -> None:
    """The step is served by another call from here on: nothing of the last one counts any more but its error."""
    state.ready.pop(index, None)
    _settle(state, step, index, FORWARD, state.at)
    if step.status == t.IN_DOUBT:
        _move(step, "intend")
    call = step.forward
    call.tries = call.probes = call.first_at = 0
    call.approval = ""
    call.error = error
    call.phase = "waiting"
    state.waiting[index, FORWARD] = due


def _not_done(state: State, index: int, *, ask: bool, reason: str = "step-failed") -> None:
    """A forward step is known not to have happened, for good: turn around, or ask."""
    stuck = state.plan.steps[index].remedies
    if stuck is not None:
        _remedy_failed(state, stuck)
        return
    state.failed.append(index)
    if state.backward:
        _undo_turn(state, index)
    elif state.plan.on_failure == "replan" and state.failing is None and not state.past_pivot and reason != "blocked":
        state.to_replan = index
    elif state.past_pivot or (ask and state.failing is None):
        state.to_escalate[index, FORWARD] = "step-failed"
    elif state.failing is None:
        state.failing = reason


def _in_doubt(state: State, record: r.StepInDoubt) -> None:
    index = _index(state, record)
    _doubt(state, index, record.direction, record.error, record.at + record.delay_ms if record.delay_ms else None)


def _doubt(state: State, index: int, direction: Direction, error: ErrorInfo | None, due: int | None) -> None:
    step = state.steps[index]
    place = (index, direction)
    state.in_flight.pop(place, None)
    call = step.call(direction)
    call.doubtful = True
    call.error = error or call.error
    if direction == FORWARD:
        _move(step, "doubt")
    if due is None:
        call.phase = "doubt"
        state.doubts[place] = None
    else:
        call.phase = "waiting"
        state.waiting[place] = due


def _probe_intended(state: State, record: r.ProbeIntended) -> None:
    place = (_index(state, record), record.direction)
    call = state.steps[place[0]].call(record.direction)
    call.phase = "probing"
    call.probes += 1
    if record.direction == FORWARD:
        state.calls += 1
    state.doubts.pop(place, None)
    state.waiting.pop(place, None)
    state.in_flight[place] = None


def _probe_failed(state: State, record: r.ProbeFailed) -> None:
    index = _index(state, record)
    _doubt(state, index, record.direction, record.error, record.at + record.delay_ms if record.delay_ms else None)


# --- the way back ------------------------------------------------------------------------------------------------


def _compensation_started(state: State, record: r.CompensationStarted) -> None:
    _turn_saga(state, "compensate")
    state.backward = True
    state.failing = record.reason
    state.ready.clear()
    _close_forward(state)
    started: list[int] = []
    for index, step in enumerate(state.steps):
        if step.status == t.PENDING:
            _move(step, "skip")
        elif step.status != t.SKIPPED:  # one that was dropped has been skipped before
            started.append(index)
    for index in started:
        dependents = state.plan.steps[index].dependents
        state.steps[index].undo_waits = sum(1 for other in dependents if state.steps[other].status != t.SKIPPED)
    state.undo_open = len(started)
    # Those that nothing depends on come first; the rest follow as their dependents end.
    for index in [index for index in reversed(started) if not state.steps[index].undo_waits]:
        _undo_turn(state, index)


def _close_forward(state: State) -> None:
    """What was to be tried again is not; what was asked about steps that did not happen is moot."""
    for place in [place for place in state.waiting if not state.steps[place[0]].forward.doubtful]:
        del state.waiting[place]
        step = state.steps[place[0]]
        step.forward.phase = "idle"
        _move(step, "fail")
        state.failed.append(place[0])
    for question in [q for q in state.questions.values() if not state.steps[q.step].forward.doubtful]:
        for about in (state.questions, state.alerts, state.expiring, state.reminders):
            about.pop(question.id, None)
        _move(state.steps[question.step], "fail")


def _undo_turn(state: State, index: int) -> None:
    """The undos of all that depended on the step have ended, or the step has just been settled: go on with it."""
    step = state.steps[index]
    if step.undo_waits:
        return
    if step.status == t.SUCCEEDED and _has_undo(state, index):
        _begin_undo(state, index)
    elif step.status in _NOTHING_TO_UNDO:
        _end_undo(state, index)
    # IN_DOUBT, RUNNING and ESCALATED are never skipped over: what settles them comes back here.


def _has_undo(state: State, index: int) -> bool:
    return state.undoing(index) is not None or (state.plan.steps[index].semantic and state.steps[index].via != "shared")


def _begin_undo(state: State, index: int) -> None:
    """It is the step's turn to be undone; one whose tool leaves that to a model has nothing to call."""
    if state.undoing(index) is not None:
        state.undo_ready[index] = None
        return
    step = state.steps[index]
    step.call(COMPENSATE).error = ErrorInfo("no_undo", "its tool has no undo")
    _move(step, "undo_failed")
    state.to_escalate[index, COMPENSATE] = "undo-missing"


_NOTHING_TO_UNDO = frozenset({t.SUCCEEDED, t.FAILED, t.BLOCKED, t.RESOLVED})


def _end_undo(state: State, index: int) -> None:
    """Nothing is left to do for the step on the way back. Iterative: a chain may have thousands of steps."""
    stack = [index]
    while stack:
        at = stack.pop()
        state.undo_open -= 1
        for other in _let_go(state, at, only_data=state.steps[at].released):
            step = state.steps[other]
            if step.status == t.SUCCEEDED and _has_undo(state, other):
                _begin_undo(state, other)
            elif step.status in _NOTHING_TO_UNDO:
                stack.append(other)


def _let_go(state: State, index: int, *, only_data: bool) -> list[int]:
    """Count the step's undo as ended for those it depends on; returns those that now have nothing to wait for."""
    compiled = state.plan.steps[index]
    free: list[int] = []
    for other in compiled.deps:
        if only_data and other not in compiled.data_deps:
            continue
        step = state.steps[other]
        step.undo_waits -= 1
        if not step.undo_waits:
            free.append(other)
    return free


def _release_order(state: State, index: int) -> None:
    """A failed undo holds back the steps it names; those it merely follows in the list go on."""
    step = state.steps[index]
    if step.released:
        return
    step.released = True
    compiled = state.plan.steps[index]
    for other in compiled.deps:
        if other not in compiled.data_deps:
            earlier = state.steps[other]
            earlier.undo_waits -= 1
            _undo_turn(state, other)


def _compensation_refused(state: State, _: r.CompensationRefused) -> None:
    state.failing = None
    for index in state.failed:
        if state.steps[index].status in (t.FAILED, t.BLOCKED):
            state.to_escalate[index, FORWARD] = "step-failed"


# --- people ------------------------------------------------------------------------------------------------------


def _escalated(state: State, record: r.StepEscalated) -> None:
    index = _index(state, record)
    step = state.steps[index]
    place = (index, record.direction)
    for queue in (state.to_escalate, state.doubts, state.waiting, state.in_flight):
        queue.pop(place, None)
    state.ready.pop(index, None)
    state.undo_ready.pop(index, None)
    _move(step, "escalate")
    call = step.call(record.direction)
    call.phase = "idle"
    call.asked += 1
    asks_first = record.kind == "approval"
    if asks_first:  # nothing was called
        call.tries -= 1
        if record.direction == FORWARD:
            state.calls -= 1
    if record.expires_ms is not None:
        state.expiring[record.question] = record.expires_ms
    state.questions[record.question] = OpenQuestion(
        id=record.question,
        step=index,
        direction=record.direction,
        kind=record.kind,
        options=tuple(record.options),
        error=record.error,
        at=record.at,
        call=record.call,
        expires=record.expires_ms,
        rule=record.rule,
    )
    state.alerts[record.question] = Alerting(attempt=0, due=record.at, in_flight=False)
    if record.direction == COMPENSATE and not asks_first:
        _release_order(state, index)


def _decided(state: State, record: r.DecisionMade) -> None:
    question = _close_question(state, record.question)
    step = state.steps[question.step]
    call = step.call(question.direction)
    if question.kind == "remedy" and record.decision in ("approve", "deny"):
        _remedy_judged(state, question.step, approved=record.decision == "approve")
        return
    if record.decision == "approve":
        call.approval = question.call
        call.approval_until = question.expires or 0
        call.approved = True
        call.phase = "waiting"
        state.waiting[question.step, question.direction] = record.at
        return
    if record.decision == "deny":
        said = f"{record.by or 'a person'} denied the call{f': {record.note}' if record.note else ''}"
        _refused(state, question.step, question.direction, ErrorInfo("approval_denied", said[:1000]))
        return
    if record.decision == "retry" or (record.decision == "not-happened" and question.direction == COMPENSATE):
        call.tries = call.probes = 0
        call.approval = ""
        call.approved = True
        call.phase = "waiting"
        state.waiting[question.step, question.direction] = record.at
        if question.step in state.failed:
            state.failed.remove(question.step)
        return
    call.doubtful = False
    call.ended_at = record.at
    if record.decision == "leave":
        _move(step, "resolve")
        step.left = state.left_any = True
    stuck = state.plan.steps[question.step].remedies
    if stuck is not None and record.decision == "leave":
        _remedy_failed(state, stuck)
        return
    if question.direction == COMPENSATE:
        if record.decision != "leave":
            _move(step, "resolve")
            step.by_hand = True
        _end_undo(state, question.step)
    elif record.decision == "happened":
        _move(step, "succeed")
        _happened(state, question.step, step, record.output, "decision")
    elif record.decision == "not-happened":
        _move(step, "fail")
        _not_done(state, question.step, ask=False)
    elif state.backward:
        _undo_turn(state, question.step)
    elif not state.past_pivot and state.failing is None:
        state.failing = "left"


def _close_question(state: State, name: str) -> OpenQuestion:
    """A question is answered, one way or the other: the saga goes back on its way."""
    question = state.questions.pop(name)
    for about in (state.alerts, state.expiring, state.reminders):
        about.pop(name, None)
    _turn_saga(state, "answer_backward" if state.backward else "answer_forward")
    return question


def _approval_expired(state: State, record: r.ApprovalExpired) -> None:
    question = _close_question(state, record.question)
    if question.kind == "remedy":
        _remedy_judged(state, question.step, approved=False)
        return
    error = ErrorInfo("approval_expired", "nobody approved the call in time")
    _refused(state, question.step, question.direction, error)


def _cancel_requested(state: State, _: r.CancelRequested) -> None:
    state.to_replan = None
    if state.failing is None:
        state.failing = "cancelled"
    if state.status == t.ESCALATED:
        _turn_saga(state, "answer_forward")


# --- plans that grow ---------------------------------------------------------------------------------------------


def _steps_added(state: State, record: r.StepsAdded) -> None:
    addition = Addition(record.steps, tuple(record.dropped))
    if state.to_replan is not None and record.written is not None:
        state.asking.pop(state.to_replan, None)
        state.to_replan = None
        state.replans += 1
    _grow(state, Added(addition, record.undos, frozenset(record.reads)), record.tools)


def _grow(state: State, added: Added, tools: Mapping[str, str]) -> int:
    """Add steps to the plan; returns how many."""
    if state.growth is None:
        raise JournalUnreadable("steps were added to this saga, and nobody said how its plan grows")
    state.added.append(added)
    state.plan = state.growth.compile(state.added)
    state.tools = {**state.tools, **tools}
    for key in added.addition.dropped:
        _drop(state, state.plan.by_key[key])
    first = len(state.steps)
    new = state.plan.steps[first:]
    state.steps.extend(StepState(0) for _ in new)
    for compiled in new:
        step = state.steps[compiled.index]
        step.waits = sum(1 for other in compiled.deps if state.steps[other].status != t.SUCCEEDED)
        if compiled.remedies is None:
            state.remaining += 1
        if not step.waits:
            state.ready[compiled.index] = None
    return len(new)


def _drop(state: State, index: int) -> None:
    """The step is not wanted any more; one that has begun cannot be dropped, so its record would not have been made."""
    step = state.steps[index]
    state.remaining -= 1
    if step.status == t.PENDING:
        _move(step, "skip")
        state.ready.pop(index, None)
        state.waiting.pop((index, FORWARD), None)
    elif index in state.failed:
        state.failed.remove(index)


def _planner_asked(state: State, record: r.PlannerAsked) -> None:
    index = _index(state, record)
    if record.purpose == "replan":
        state.asking[index] = "replan"
        return
    state.asking[index] = state.to_escalate.pop((index, COMPENSATE))


def _planner_gave_up(state: State, record: r.PlannerGaveUp) -> None:
    index = _index(state, record)
    kind = state.asking.pop(index, "")
    if record.purpose == "compensate":
        state.steps[index].settled_ask = True
        state.to_escalate[index, COMPENSATE] = kind
        return
    if state.to_replan is not None:
        state.to_replan = None
        if state.failing is None:
            state.failing = "step-failed"


# --- steps that make up for one that stands ------------------------------------------------------------------------


def _remedy_proposed(state: State, record: r.RemedyProposed) -> None:
    index = _index(state, record)
    kind = state.asking.pop(index, "")
    step = state.steps[index]
    step.settled_ask = True
    addition = Addition(record.steps, (), record.step)
    added = Added(addition, record.undos, frozenset(record.reads))
    state.proposals[index] = Proposal(added, record.tools, digest([state.saga_id, record.step, record.steps]), kind)
    if record.auto:
        _take_up(state, index)
    else:
        state.to_escalate[index, COMPENSATE] = "remedy"


def _take_up(state: State, index: int) -> None:
    proposal = state.proposals.pop(index)
    state.steps[index].open_remedies = _grow(state, proposal.added, proposal.tools)


def _remedy_judged(state: State, index: int, *, approved: bool) -> None:
    _move(state.steps[index], "undo_failed")
    if approved:
        _take_up(state, index)
    else:
        state.to_escalate[index, COMPENSATE] = state.proposals.pop(index).kind


def _remedy_happened(state: State, stuck: int) -> None:
    step = state.steps[stuck]
    if not step.open_remedies:
        return  # another of its remedies has failed, and people have been asked
    step.open_remedies -= 1
    if not step.open_remedies:
        _move(step, "remedied")
        step.remedied = True
        _end_undo(state, stuck)


def _remedy_failed(state: State, stuck: int) -> None:
    """What was to make up for a step came to nothing. No model is asked again: a person is."""
    step = state.steps[stuck]
    if not step.open_remedies:
        return
    step.open_remedies = 0
    for compiled in state.plan.steps:
        if compiled.remedies == stuck and state.steps[compiled.index].status == t.PENDING:
            _move(state.steps[compiled.index], "skip")
            state.ready.pop(compiled.index, None)
    state.to_escalate[stuck, COMPENSATE] = "undo-failed" if state.undoing(stuck) is not None else "undo-missing"


# --- the saga ----------------------------------------------------------------------------------------------------


def _resumed(state: State, record: r.SagaResumed) -> None:
    state.epoch = record.epoch
    for index, direction in list(state.in_flight):
        _doubt(state, index, direction, None, None)
    for question, alert in list(state.alerts.items()):
        state.alerts[question] = alert._replace(due=record.at, in_flight=False)
    for index, kind in list(state.asking.items()):  # whatever was answered is lost: ask again
        del state.asking[index]
        if kind != "replan":
            state.to_escalate[index, COMPENSATE] = kind


def _stopping(reason: str) -> Callable[[State, Any], None]:
    def handler(state: State, _: Any) -> None:
        state.failing = reason
        state.to_replan = None

    return handler


def _turning(trigger: str) -> Callable[[State, Any], None]:
    def handler(state: State, record: Any) -> None:
        _turn_saga(state, trigger)
        if state.status in t.SAGA_FINAL:
            state.ended_at = record.at
            state.ready.clear()
            for open_things in (state.questions, state.alerts, state.notices, state.expiring, state.reminders):
                open_things.clear()
            # A step that never ran has been skipped; the walk over all steps happens once, at the end.
            for step in state.steps:
                if step.status == t.PENDING:
                    _move(step, "skip")

    return handler


def _alert_intended(state: State, record: r.AlertIntended) -> None:
    known = state.alerts.get(record.question) or state.reminders.pop(record.question, None)
    if known is not None:
        state.alerts[record.question] = Alerting(record.attempt, 0, in_flight=True, round=record.round)


def _alert_sent(state: State, record: r.AlertSent) -> None:
    alert = state.alerts.pop(record.question, None)
    state.notices.pop(record.question, None)
    if record.again_ms and alert is not None and record.question in state.questions:
        state.reminders[record.question] = Reminder(record.at + record.again_ms, alert.round + 1)


def _alert_failed(state: State, record: r.AlertFailed) -> None:
    alert = state.alerts.pop(record.question, None)
    if alert is not None and record.delay_ms >= 0:
        due = record.at + record.delay_ms
        state.alerts[record.question] = Alerting(alert.attempt, due, in_flight=False, round=alert.round)
    else:
        state.notices.pop(record.question, None)


def _nothing(_state: State, _record: Any) -> None:
    """The record is for readers; it changes nothing."""


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    r.StepIntended: _intended,
    r.StepSucceeded: _succeeded,
    r.StepRetryScheduled: _retry_scheduled,
    r.StepFailed: _failed,
    r.StepBlocked: _blocked,
    r.FallbackChosen: _fallback_chosen,
    r.StepParked: _parked,
    r.StepInDoubt: _in_doubt,
    r.ProbeIntended: _probe_intended,
    r.ProbeFailed: _probe_failed,
    r.CompensationStarted: _compensation_started,
    r.CompensationRefused: _compensation_refused,
    r.StepEscalated: _escalated,
    r.DecisionMade: _decided,
    r.ApprovalExpired: _approval_expired,
    r.StepsAdded: _steps_added,
    r.PlannerAsked: _planner_asked,
    r.PlannerGaveUp: _planner_gave_up,
    r.RemedyProposed: _remedy_proposed,
    r.CancelRequested: _cancel_requested,
    r.MessageRefused: _nothing,
    r.DeadlinePassed: _stopping("deadline"),
    r.CallLimitReached: _stopping("call-limit"),
    r.SagaResumed: _resumed,
    r.AlertIntended: _alert_intended,
    r.AlertSent: _alert_sent,
    r.AlertFailed: _alert_failed,
    r.SagaCompleted: _turning("complete"),
    r.SagaCompensated: _turning("compensated"),
    r.SagaEscalated: _turning("escalate"),
    r.SagaAbandoned: _turning("abandon"),
}
