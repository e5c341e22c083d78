"""Questions to operators, their answers, and the notifications."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, FORWARD, ErrorInfo
from saga_engine.core.evolve import amendments, calls, compensation
from saga_engine.core.evolve.transition import index_of, move, stop, turn_saga, wake
from saga_engine.core.questions import OPTIONS
from saga_engine.core.state import State
from saga_engine.core.state_values import Alerting, Approval, Made, OpenQuestion, Reminder, Reused
from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.steps import ask
from saga_engine.core.verified import evolving as verified
from saga_engine.language.errors import said


def escalated(state: State, record: r.StepEscalated) -> None:
    """An operator is asked about a step."""
    index = index_of(state, record)
    step = state.steps[index]
    place = (index, record.direction)
    for queue in (state.to_escalate, state.doubts, state.waiting, state.in_flight):
        queue.pop(place, None)
    state.ready.pop(index, None)
    state.undo_ready.pop(index, None)
    if record.direction == COMPENSATE:
        compensation.goes_ahead(state, index)
    looked = record.direction == COMPENSATE and verified.is_pending(state, index)
    move(step, "reopen" if looked else "escalate")
    if looked:
        verified.asks(state, index)
    call = step.call(record.direction)
    call.asked += 1
    if record.kind == "ask":
        call.first_at = call.first_at or record.at
    asks_first = record.kind == "approval" or (record.found is not None and not looked)
    if asks_first:  # nothing was called
        call.tries -= 1
        call.called_nothing()
        if record.direction == FORWARD:
            state.calls -= 1
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
        text=record.text,
        schema=record.schema,
        found=record.found,
        to=record.to,
    )
    state.alerts[record.question] = Alerting(attempt=0, due=record.at, in_flight=False)


def session_kept(state: State, record: r.SessionKept) -> None:
    """A session's agent failed: it may run again, or an operator answers first. No step changes for that."""
    state.questions[record.question] = OpenQuestion(
        id=record.question,
        step=index_of(state, record),
        direction=FORWARD,
        kind=record.kind,
        options=tuple(record.options),
        error=record.error,
        at=record.at,
        expires=record.expires_ms,
    )
    if record.kind == "session-failed":  # a session that is kept waits for its agent: nobody has to be notified
        state.alerts[record.question] = Alerting(attempt=0, due=record.at, in_flight=False)


def agent_returned(state: State) -> None:
    """The agent runs again: its session is not kept for it any more."""
    for question in [question for question in state.questions.values() if question.kind == "session-kept"]:
        _close_question(state, question.id)


def _session_decided(state: State, question: OpenQuestion, record: r.QuestionResolved) -> None:
    """An operator answered about a session whose agent failed."""
    if record.decision == "keep":
        bound = None if question.expires is None else record.at + question.expires - question.at
        kept = replace(
            question,
            id=f"{question.id}:kept",
            kind="session-kept",
            options=OPTIONS["session-kept"],
            at=record.at,
            expires=bound,
        )
        state.questions[kept.id] = kept
        return
    state.open = False
    if record.decision == "undo":
        stop(state, "session-failed")


def decided(state: State, record: r.QuestionResolved) -> None:
    """An operator answered."""
    question = _close_question(state, record.question)
    if question.of_session:
        _session_decided(state, question, record)
        return
    step = state.steps[question.step]
    call = step.call(question.direction)
    if question.kind == "ask":  # whatever the answer says: it is only a value
        _answered(state, question, ask.output_of(question, record), "decision")
        return
    if question.kind == "compensation":
        if record.decision in ("approve", "deny"):
            amendments.compensation_reviewed(state, question.step, approved=record.decision == "approve")
            return
        step.semantic = "none"
    if record.decision == "approve":
        call.approval = Approval(question.call, question.expires or 0)
        if call.doubt and call.doubt.repeat:
            call.doubt = call.doubt._replace(repeat="wanted")
        elif call.doubt:  # whether its key is still valid, so that it may be repeated at all, is checked anew
            move(step, "doubt" if question.direction == FORWARD else "undo")
        state.waiting[question.step, question.direction] = record.at
        return
    if record.decision == "deny":
        key = "approval_denied.note" if record.note else "approval_denied"
        why = said(key, by=record.by or "an operator", note=record.note)
        calls.refused(state, question.step, question.direction, ErrorInfo("approval_denied", why))
        return
    if record.decision == "undo":  # the undo may overwrite this value; 'retry' only looks again
        step.cleared = question.found
    if question.direction == COMPENSATE and record.decision in ("retry", "undo"):
        verified.again(state, question.step)
        call = step.call(COMPENSATE)
    if record.decision in ("retry", "undo") or (record.decision == "not-happened" and question.direction == COMPENSATE):
        call.tries = call.probes = call.held_at = 0
        call.answered()
        call.approval = None
        call.doubt = call.doubt and call.doubt._replace(repeat="wanted")
        state.waiting[question.step, question.direction] = record.at
        if question.step in state.failed:
            state.failed.remove(question.step)
        return
    if record.decision == "ask-again":  # as if nobody had been asked yet
        move(step, "undo_failed")
        step.semantic = None
        state.ask_crashes.pop(question.step, None)
        state.to_escalate[question.step, COMPENSATE] = question.kind
        return
    _settled(state, question, record)


def _settled(state: State, question: OpenQuestion, record: r.QuestionResolved) -> None:
    """An operator said what became of a call."""
    step = state.steps[question.step]
    call = step.call(question.direction)
    call.doubt = None
    call.answered()
    call.ended_at = record.at
    if question.direction == COMPENSATE and record.decision == "happened" and _undo_goes_on(state, question, record):
        return
    if record.decision == "accept":
        move(step, "resolve")
        step.accepted = state.left_any = True
        compensation.stands_still(state, question.step)
    stuck = state.plan.steps[question.step].compensates
    if stuck is not None and record.decision == "accept":
        amendments.compensation_failed(state, stuck)
        return
    if question.direction == COMPENSATE:
        if record.decision != "accept":
            move(step, "resolve")
        if record.look:
            verified.begins(state, question.step, record.look, seen=question.found)
        verified.ends(state, question.step)
        compensation.end_undo(state, question.step)
    elif record.decision == "happened":
        move(step, "succeed")
        calls.happened(state, question.step, step, record.output, Made("decision"))
    elif record.decision == "not-happened" and _has_another_way(state, question):
        move(step, "intend")
        state.denied[question.step] = None
    elif record.decision == "not-happened":
        call.error = _denied(state, call.error)
        move(step, "fail")
        calls.not_done(state, question.step, ask=False)
    elif state.backward:
        compensation.undo_turn(state, question.step)
    elif not state.past_pivot:
        stop(state, "accepted")


def _denied(state: State, error: ErrorInfo | None) -> ErrorInfo:
    """Why a call is not done that may have happened, until an operator said that it did not."""
    why = said("did_not_happen.denied" if error is None else "did_not_happen.before", before=error and error.message)
    again = said("any.undo-again") if state.session else None
    return ErrorInfo("did_not_happen" if error is None else error.error_code, why, again, False)


def _undo_goes_on(state: State, question: OpenQuestion, record: r.QuestionResolved) -> bool:
    """Whether the call that happened is one of several of the undo, and not the last."""
    if not compensation.goes_on(state, question.step, record.output, "decision"):
        return False
    move(state.steps[question.step], "undo")
    return True


def _answered(state: State, question: OpenQuestion, output: Any, via: str) -> None:
    """The question that a step asked has its answer, which is the step's output."""
    step = state.steps[question.step]
    step.forward.ended_at = state.at
    move(step, "succeed")
    calls.happened(state, question.step, step, output, Made(via))


def _has_another_way(state: State, question: OpenQuestion) -> bool:
    """Whether a call in doubt that did not happen leaves the step a fallback."""
    if question.kind != "in-doubt" or state.turns:
        return False
    return bool(state.next_way(question.step, unavailable=True))


def _close_question(state: State, name: str) -> OpenQuestion:
    """A question is answered or obsolete: the saga resumes its direction."""
    question = state.questions.pop(name)
    for about in (state.alerts, state.reminders):
        about.pop(name, None)
    turn_saga(state, "answer_backward" if state.backward else "answer_forward")
    return question


def approval_expired(state: State, record: r.ApprovalExpired) -> None:
    """No answer in time, which denies the call or the steps."""
    question = _close_question(state, record.question)
    if question.of_session:
        state.open = False
        stop(state, "idle")
        return
    if question.kind == "compensation":
        amendments.compensation_reviewed(state, question.step, approved=False)
        return
    if question.kind == "ask":
        if record.then == "value":
            _answered(state, question, record.output, "expired")
        else:
            calls.not_answered(state, question.step, ask.EXPIRED)
        return
    error = ErrorInfo("approval_expired", said("approval_expired"))
    calls.refused(state, question.step, question.direction, error)


def transferred(state: State, record: r.EffectTransferred) -> None:
    """Another saga owns the effects of these steps now; the rest of a saga that is forked is not wanted any more."""
    for key in record.steps:
        step = state.steps[state.plan.by_key[key]]
        if isinstance(step.effect, Made | Reused):  # else the saga has nothing to transfer
            step.effect = step.effect._replace(to=record.to)
    if state.status in SAGA_FINAL:
        return  # it is undone by the other saga, and has itself ended
    stop(state, "transferred")
    wake(state)


def alert_intended(state: State, record: r.AlertIntended) -> None:
    """Operators are about to be notified."""
    alert = state.alerts.get(record.question)
    known = alert or state.reminders.pop(record.question, None)
    if known is not None:
        crashes = 0 if alert is None else alert.crashes
        state.alerts[record.question] = Alerting(record.attempt, 0, in_flight=True, round=record.round, crashes=crashes)


def alert_sent(state: State, record: r.AlertSent) -> None:
    """Operators were notified; without an answer a reminder follows."""
    alert = state.alerts.pop(record.question, None)
    state.notices.pop(record.question, None)
    if alert is not None:
        _remind(state, record.question, record.at, record.again_ms, alert)


def alert_failed(state: State, record: r.AlertFailed) -> None:
    """A notification failed; it is repeated, or abandoned until the next reminder."""
    alert = state.alerts.pop(record.question, None)
    if alert is not None and record.delay_ms >= 0:
        due = record.at + record.delay_ms
        state.alerts[record.question] = Alerting(alert.attempt, due, in_flight=False, round=alert.round)
        return
    state.notices.pop(record.question, None)
    if alert is not None:
        _remind(state, record.question, record.at, record.again_ms, alert)


def _remind(state: State, question: str, at: int, again_ms: int, alert: Alerting) -> None:
    if again_ms and question in state.questions:
        state.reminders[question] = Reminder(at + again_ms, alert.round + 1)
