"""``evolve(state, record) -> state``: what a record changes.

No clock, no randomness, no I/O: the same records always give the same state. The state is changed in place and
returned; the code that folds a journal (``core.fold``) owns its state (a copy for each record would make a saga of N
steps cost N²). Each kind of record has one handler; a pair of state and trigger that the tables do not have raises
``JournalUnreadable``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, ErrorInfo
from saga_engine.core.evolve import amendments, calls, children, compensation, each, escalation, events, final
from saga_engine.core.evolve.transition import move, stop, turn_saga, wake
from saga_engine.core.state import State
from saga_engine.core.state_values import Doubt
from saga_engine.core.verified import evolving as verified
from saga_engine.errors import JournalUnreadable
from saga_engine.language.errors import said


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


_ANSWER_LOST = said("answer_lost.process")


def _resumed(state: State, record: r.SagaResumed) -> None:
    state.epoch = record.epoch
    if record.agent:
        escalation.agent_returned(state)
    for (index, direction), flight in list(state.in_flight.items()):
        call = state.steps[index].call(direction)
        if flight in ("intended", "queued"):
            call.owner_ended()
            calls.never_made(state, index, direction, record.at)
            continue
        if flight == "probe":
            calls.probe_lost(call)
        else:
            call.owner_ended(call=True)
            call.doubt = (call.doubt or Doubt())._replace(sent=True, lost=True)
            call.called_at = 0  # the time of its end is unknown
        calls.doubt(state, index, direction, ErrorInfo("answer_lost", record.reason or _ANSWER_LOST), None)
    for question, alert in list(state.alerts.items()):
        crashes = alert.crashes + alert.in_flight
        state.alerts[question] = alert._replace(due=record.at, in_flight=False, crashes=crashes)
    for index, asked in [(index, held) for index, held in state.pending.items() if held.here]:
        del state.pending[index]  # whatever was answered is lost: ask again
        state.ask_crashes[index] = state.ask_crashes.get(index, 0) + 1
        if asked.about != "replan":
            state.to_escalate[index, COMPENSATE] = asked.about


def _stopping(reason: str) -> Callable[[State, Any], None]:
    def handler(state: State, record: Any) -> None:
        by, note = getattr(record, "by", ""), getattr(record, "note", "")
        stop(state, reason, ": ".join(each for each in (by, note) if each))
        wake(state)

    return handler


def _session_closed(state: State, record: r.SessionClosed) -> None:
    state.open = False
    if record.reason:
        stop(state, record.reason, record.note)
    wake(state)


def _turning(trigger: str) -> Callable[[State, Any], None]:
    def handler(state: State, record: Any) -> None:
        turn_saga(state, trigger)
        if state.status in t.SAGA_FINAL:
            state.ended_at = record.at
            state.ready.clear()
            for open_things in (state.questions, state.alerts, state.notices, state.reminders):
                open_things.clear()
            # A step that never ran has been skipped; the walk over all steps happens once, at the end.
            for step in state.steps:
                if step.status == t.PENDING:
                    move(step, "skip")

    return handler


def _nothing(_state: State, _record: Any) -> None:
    """The record is for readers; it changes nothing."""


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    r.StepIntended: calls.intended,
    r.StepQueued: calls.queued,
    r.StepBegun: calls.begun,
    r.StepWaiting: children.step_waits,
    r.ChildEnded: children.ended,
    r.EventArrived: events.event_arrived,
    r.StepSucceeded: calls.succeeded,
    r.StepSkipped: calls.skipped,
    r.OutputChecked: calls.output_checked,
    r.StepRetryScheduled: calls.retry_scheduled,
    r.StepFailed: calls.failed,
    r.StepBlocked: calls.blocked,
    r.FallbackChosen: calls.fallback_chosen,
    r.StepDeferred: calls.deferred,
    r.StepInDoubt: calls.in_doubt,
    r.ProbeIntended: calls.probe_intended,
    r.ProbeFailed: calls.probe_failed,
    r.UndoLooked: verified.looked,
    r.CompensationRequested: calls.compensation_requested,
    r.CompensationStarted: compensation.compensation_started,
    r.CompensationRefused: compensation.compensation_refused,
    r.StepEscalated: escalation.escalated,
    r.QuestionResolved: escalation.decided,
    r.ApprovalExpired: escalation.approval_expired,
    r.StepsAdded: amendments.steps_added,
    r.CallAdded: amendments.call_added,
    r.EachExpanded: each.expanded,
    r.PartialCompensationRequested: compensation.partial_requested,
    r.SessionClosed: _session_closed,
    r.SessionKept: escalation.session_kept,
    r.EffectReused: calls.reused,
    r.EffectTransferred: escalation.transferred,
    r.UndoRequested: _stopping("undo-requested"),
    r.PlannerAsked: amendments.planner_asked,
    r.PlannerGaveUp: amendments.planner_gave_up,
    r.CompensationProposed: amendments.compensation_proposed,
    r.CancelRequested: _stopping("cancelled"),
    r.MessageRefused: _nothing,
    r.DeadlinePassed: _stopping("deadline"),
    r.CallLimitReached: _stopping("call-limit"),
    r.SagaResumed: _resumed,
    r.AlertIntended: escalation.alert_intended,
    r.AlertSent: escalation.alert_sent,
    r.AlertFailed: escalation.alert_failed,
    r.FinallyStarted: final.finally_started,
    r.StepUnsettled: final.unsettled,
    r.SagaCompleted: _turning("complete"),
    r.SagaCompensated: _turning("compensated"),
    r.SagaEscalated: _turning("escalate"),
    r.SagaWaived: _turning("waive"),
}
