"""What the records of calls change: intended, done, not done, refused, in doubt, or served by another call."""

from __future__ import annotations

from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, ErrorInfo
from saga_engine.core.evolve import amendments, compensation, events, final
from saga_engine.core.evolve.transition import index_of, move, settle, stop, turn_saga
from saga_engine.core.state import State
from saga_engine.core.state_values import (
    Alerting,
    Backward,
    CallState,
    Deduplicated,
    Doubt,
    Effect,
    Flight,
    Made,
    Notice,
    Replanning,
    Reused,
    StepState,
)
from saga_engine.core.verified import evolving as verified
from saga_engine.plan.compiled import CompiledStep


def intended(state: State, record: r.StepIntended) -> None:
    """A call is about to be made."""
    index = state.plan.by_key[record.step]
    direction = record.direction
    step = state.steps[index]
    place = (index, direction)
    if direction == FORWARD:
        call = step.forward
        if record.before is not None:
            step.before, step.after = record.before, None
        move(step, "intend")
        state.ready.pop(index, None)
        state.calls += 1
        if record.undoes or step.undoes >= 0:
            compensation.is_undo_of(state, index, record.undoes)
        if state.status == t.PENDING:
            turn_saga(state, "go")
    else:
        call = step.call(COMPENSATE)
        call.params, step.undo_call = record.params, record.call
        if step.undo_waits:
            compensation.goes_ahead(state, index)
        move(step, "undo")
        state.undo_ready.pop(index, None)
        if state.doubts or state.waiting:
            # An undo of a step in doubt settles the doubt by making its absence certain.
            state.doubts.pop((index, FORWARD), None)
            state.waiting.pop((index, FORWARD), None)
    call.attempt = record.attempt
    call.unkeyed = record.unkeyed
    call.tries += 1
    if call.doubt:
        call.doubt = Doubt(call.doubt.sent, repeat="made" if call.doubt.repeat else "", raised=call.doubt.raised)
    call.called_at = record.at
    if not call.first_at:
        call.first_at = record.at
    if state.doubts or state.waiting:
        state.waiting.pop(place, None)
        state.doubts.pop(place, None)
    # Whether a suspect was begun must be certain, because its next end may be the last: ``StepBegun`` says so.
    state.in_flight[place] = "intended" if call.crashes else "call"


def queued(state: State, record: r.StepQueued) -> None:
    """A call that was intended waits, and has not been made."""
    _proceed(state, record, ("call", "intended"), "queued")


def begun(state: State, record: r.StepBegun) -> None:
    """A call that waited, or that may end its process, is about to be made."""
    if record.before is not None:
        state.steps[index_of(state, record)].before = record.before
    _proceed(state, record, ("intended", "queued"), "call")


def _proceed(state: State, record: r.StepQueued | r.StepBegun, before: tuple[Flight, ...], after: Flight) -> None:
    place = index_of(state, record), record.direction
    if state.in_flight.get(place) not in before:
        raise KeyError(f"step {record.step} has no {' or '.join(before)} in flight")
    state.in_flight[place] = after


def never_made(state: State, index: int, direction: Direction, at: int) -> None:
    """The process ended while the call waited: the call was not made, and its attempt does not count."""
    call = state.steps[index].call(direction)
    _was_none(state, call, direction)
    if call.doubt:  # an earlier attempt may have happened all the same
        call.doubt = call.doubt._replace(lost=True)
        doubt(state, index, direction, None, None)
        return
    state.in_flight.pop((index, direction))
    state.waiting[index, direction] = at


def succeeded(state: State, record: r.StepSucceeded) -> None:
    """A call happened."""
    index = state.plan.by_key[record.step]
    step = state.steps[index]
    wait = state.pending.pop(index, None) if state.pending else None
    settle(state, step, index, record.direction, record.at)
    if record.direction == FORWARD:
        if record.via in ("computed", "each") or step.status == t.PENDING:  # nothing was called
            state.ready.pop(index, None)
            if state.status == t.PENDING:
                turn_saga(state, "go")
            move(step, "compute")
        else:
            move(step, "succeed")
            if record.via == "event":
                step.event = record.source
                if record.entry is not None:
                    events.event_taken(step, wait, record)
        made = record.via != "deduplicated"
        effect = Made(record.via, record.age_ms) if made else Deduplicated(record.source, record.age_ms)
        step.after = record.after
        happened(state, index, step, record.output, effect)
    elif step.undo_call is not None and compensation.goes_on(state, index, record.output, record.via):
        return
    else:
        if record.via == "nothing":  # its lists are empty
            compensation.goes_ahead(state, index)
            state.undo_ready.pop(index, None)
            move(step, "undo")
        move(step, "undone")
        step.undo_output = record.output
        if record.via == "unchanged":
            step.unchanged = True
            step.call(COMPENSATE).called_nothing()
        if record.look or record.via != "call" or step.look is not None:
            verified.begins(state, index, record.look, record.via)
        compensation.end_undo(state, index)


def happened(state: State, index: int, step: StepState, output: Any, effect: Effect) -> None:
    """A forward call happened: what waited for it can go on."""
    step.output = output
    step.effect = effect
    if step.undoes >= 0:
        compensation.taken_back(state, index)
    state.happened += 1
    step.happened_nth = state.happened
    compiled = state.plan.steps[index]
    if state.ending is not None:
        final.ended(state, index)
        return
    if compiled.compensates is not None:
        _release_dependents(state, compiled)
        amendments.compensation_happened(state, compiled.compensates)
        return
    state.remaining -= 1
    if state.phase != FORWARD and isinstance(state.phase, Backward):
        compensation.undo_turn(state, index)
    elif compiled.failed_when is not None:
        state.to_check[index] = None
    else:
        _release_dependents(state, compiled)


def output_checked(state: State, record: r.OutputChecked) -> None:
    """What depends on the step goes on; or its output means failure, and its effect is undone like any other."""
    index = index_of(state, record)
    del state.to_check[index]
    if record.error is None:
        _release_dependents(state, state.plan.steps[index])
        return
    step = state.steps[index]
    step.forward.error = record.error
    if state.plan.steps[index].kind != "read":  # it happened: only an undo makes it go away
        state.failed.append(index)
        stop(state, "step-failed")
        return
    step.effect, step.output = None, None
    state.remaining += 1
    move(step, "reject")
    not_done(state, index, ask=state.plan.on_failure == "pause")


def skipped(state: State, record: r.StepSkipped) -> None:
    """The conditions of a step do not hold."""
    index = index_of(state, record)
    state.ready.pop(index, None)
    state.waiting.pop((index, FORWARD), None)
    if state.status == t.PENDING:
        turn_saga(state, "go")
    move(state.steps[index], "skip")
    _pass_over(state, index)


def _pass_over(state: State, index: int) -> None:
    """The step is settled without an effect: what waited for it can go on."""
    state.remaining -= 1
    state.passed += 1
    _release_dependents(state, state.plan.steps[index])


def _release_dependents(state: State, compiled: CompiledStep) -> None:
    """What waited for the step can go on; not yet, if a fork reused the step and runs one anew that it comes after."""
    steps = state.steps
    if steps[compiled.index].waits:
        return
    left = [compiled]
    for each in left:  # the loop appends to it: a chain of reused steps may be long
        steps[each.index].settled = True
        for dependent in each.dependents:
            waiter = steps[dependent]
            waiter.waits -= 1
            if waiter.waits:
                continue
            if waiter.status == t.PENDING:
                state.ready[dependent] = None
            elif waiter.effect is not None and not waiter.settled and dependent not in state.to_check:
                left.append(state.plan.steps[dependent])


def reused(state: State, record: r.EffectReused) -> None:
    """The step happened in another saga, which has transferred its effect."""
    index = index_of(state, record)
    step = state.steps[index]
    state.ready.pop(index, None)
    move(step, "reuse")
    step.using = record.fallback
    step.before, step.after = record.before, record.after
    step.child = record.child
    step.forward.ended_at = record.at
    happened(state, index, step, record.output, Reused(record.source, record.key, record.owner))


def retry_scheduled(state: State, record: r.StepRetryScheduled) -> None:
    """A call was not done and is retried later."""
    index = index_of(state, record)
    step = state.steps[index]
    call = step.call(record.direction)
    if not record.counted:
        call.called_at = 0
    if state.in_flight.get((index, record.direction)) == "probe":
        call.probes = 0  # it could tell: only those that cannot are counted
    unread = (index, record.direction) not in state.in_flight  # its before-image: nothing was intended
    if unread:
        state.ready.pop(index, None)
        call.attempt += 1
        call.tries += 1
        call.not_made += 1
    settle(state, step, index, record.direction, record.at)
    if step.status == t.IN_DOUBT and record.direction == FORWARD:
        move(step, "intend")  # a probe said that it did not happen: no doubt is left
    call.error = record.error
    if not record.counted:
        _take_back(state, call, record)
    state.waiting[index, record.direction] = record.at + record.delay_ms


def _take_back(state: State, call: CallState, record: r.StepRetryScheduled | r.StepInDoubt) -> None:
    """The intent was no attempt: it uses up nothing. If there is a wait before the next one, a guard refused it."""
    if record.delay_ms:
        call.held_at = call.held_at or record.at
    _was_none(state, call, record.direction)


def _was_none(state: State, call: CallState, direction: Direction) -> None:
    call.tries -= 1
    call.called_nothing()
    if direction == FORWARD:
        state.calls -= 1


def failed(state: State, record: r.StepFailed) -> None:
    """A call failed permanently."""
    index = index_of(state, record)
    step = state.steps[index]
    for queue in (state.ready, state.undo_ready, state.denied, state.pending):
        queue.pop(index, None)
    if record.direction == COMPENSATE:
        compensation.goes_ahead(state, index)
    settle(state, step, index, record.direction, record.at)
    step.call(record.direction).error = record.error
    if record.direction == COMPENSATE:
        move(step, "undo_failed")
        state.to_escalate[index, COMPENSATE] = "undo-failed"
        return
    move(step, "fail")
    not_done(state, index, ask=state.plan.on_failure == "pause")


def not_answered(state: State, index: int, error: ErrorInfo) -> None:
    """The question that a step asks has no answer, and gets none: the step failed."""
    step = state.steps[index]
    step.forward.error = error
    step.forward.ended_at = state.at
    move(step, "fail")
    not_done(state, index, ask=state.plan.on_failure == "pause")


def blocked(state: State, record: r.StepBlocked) -> None:
    """A call was refused."""
    index = index_of(state, record)
    if record.direction == FORWARD:
        state.calls -= 1  # nothing was called
    state.steps[index].call(record.direction).called_nothing()
    refused(state, index, record.direction, record.error)


def refused(state: State, index: int, direction: Direction, error: ErrorInfo) -> None:
    """A call was refused. An earlier attempt that is in doubt stays in doubt: only an operator can settle it."""
    step = state.steps[index]
    call = step.call(direction)
    if call.doubt:
        if direction == COMPENSATE and step.status == t.ESCALATED:
            move(step, "undo")
        _ask_about(state, index, direction, error)
        return
    settle(state, step, index, direction, state.at)
    call.error = error
    if direction == COMPENSATE:
        move(step, "undo_failed")
        state.to_escalate[index, COMPENSATE] = "undo-blocked"
        return
    move(step, "block")
    not_done(state, index, ask=state.plan.on_failure == "pause", reason="blocked")


def fallback_chosen(state: State, record: r.FallbackChosen) -> None:
    """The step is served by another call from here on."""
    index = index_of(state, record)
    step = state.steps[index]
    if not step.using:
        step.unavailable = record.unavailable
    _begin_anew(state, index, step, record.error, record.at)
    step.using = record.fallback


def deferred(state: State, record: r.StepDeferred) -> None:
    """The step is deferred; operators are notified the first time."""
    index = index_of(state, record)
    step = state.steps[index]
    if record.in_doubt:  # the same call is repeated under its key, so it stays what it was
        step.forward.tries = step.forward.probes = step.forward.held_at = 0
        doubt(state, index, FORWARD, record.error, record.at + record.delay_ms)
        state.doubts.pop((index, FORWARD), None)
    else:
        _begin_anew(state, index, step, record.error, record.at + record.delay_ms)
        step.using = 0
    step.deferred += 1
    if record.notice:
        state.notices[record.notice] = Notice(index, "deferred", record.error)
        state.alerts[record.notice] = Alerting(attempt=0, due=record.at, in_flight=False)


def _begin_anew(state: State, index: int, step: StepState, error: ErrorInfo, due: int) -> None:
    """The step is served by another call from here on: only the error of the last one still counts."""
    compensation.stands_still(state, index)
    state.ready.pop(index, None)
    state.denied.pop(index, None)
    settle(state, step, index, FORWARD, state.at)
    if step.status == t.IN_DOUBT:
        move(step, "intend")
    call = step.forward
    call.tries = call.probes = call.first_at = call.held_at = 0
    call.approval = None
    call.error = error
    step.before = None
    state.waiting[index, FORWARD] = due


def not_done(state: State, index: int, *, ask: bool, reason: str = "step-failed") -> None:
    """A forward step did not happen and is not retried: turn around, or ask."""
    compensation.stands_still(state, index)
    if state.ending is not None:
        final.ended(state, index, state.steps[index].forward.error)
        return
    stuck = state.plan.steps[index].compensates
    if stuck is not None:
        amendments.compensation_failed(state, stuck)
        return
    phase = state.phase
    if state.session and phase == FORWARD:
        state.remaining -= 1  # the agent learns of it, and chooses what it means
        return
    error = state.steps[index].forward.error
    if state.plan.steps[index].goes_on(error.error_code if error else "") and not isinstance(phase, Backward):
        _pass_over(state, index)
        return
    state.failed.append(index)
    if isinstance(phase, Backward):
        compensation.undo_turn(state, index)
    elif state.plan.on_failure == "replan" and not (state.turns or state.past_pivot or reason == "blocked"):
        if phase == FORWARD:  # else a model is to be asked about an earlier failure
            state.phase = Replanning(index)
    elif state.past_pivot or (ask and phase == FORWARD):
        state.to_escalate[index, FORWARD] = "step-failed"
    else:
        stop(state, reason)


def in_doubt(state: State, record: r.StepInDoubt) -> None:
    """The outcome of a call is unknown."""
    index = index_of(state, record)
    call = state.steps[index].call(record.direction)
    if record.lost:
        call.owner_ended(call=True)
    elif record.counted:  # else the call was not made, and nothing answered
        call.answered()
    was = call.doubt or Doubt()
    # An attempt that was not made leaves the right to make it, even if only the death of an earlier one gave it.
    lost = record.lost or not record.counted
    call.doubt = Doubt(was.sent or record.sent, lost, was.repeat, was.raised + record.raised)
    if not record.counted:
        _take_back(state, call, record)
    if record.at_work:
        _ask_about(state, index, record.direction, record.error)
        return
    doubt(state, index, record.direction, record.error, record.at + record.delay_ms if record.delay_ms else None)


def _ask_about(state: State, index: int, direction: Direction, error: ErrorInfo) -> None:
    """Only an operator can settle this doubt."""
    doubt(state, index, direction, error, None)
    del state.doubts[index, direction]
    state.to_escalate[index, direction] = "in-doubt" if direction == FORWARD else "undo-in-doubt"


def compensation_requested(state: State, _: r.CompensationRequested) -> None:
    """A call in doubt is to be settled by its undo: the saga turns around."""
    stop(state, "in-doubt")


def doubt(state: State, index: int, direction: Direction, error: ErrorInfo | None, due: int | None) -> None:
    """Continue with a call in doubt; the next way to settle it is due at ``due`` (Unix ms), or now."""
    step = state.steps[index]
    place = (index, direction)
    state.in_flight.pop(place, None)
    call = step.call(direction)
    if call.doubt is None:
        raise KeyError(f"nothing about step {state.plan.steps[index].key} is in doubt")
    call.over(state.at)
    call.error = error or call.error
    if direction == FORWARD:
        move(step, "doubt")
    if due is None:
        state.doubts[place] = None
    else:
        state.waiting[place] = due


def probe_intended(state: State, record: r.ProbeIntended) -> None:
    """A probe is about to ask whether a call happened."""
    place = (index_of(state, record), record.direction)
    state.steps[place[0]].call(record.direction).probes += 1
    if record.direction == FORWARD:
        state.calls += 1
    state.doubts.pop(place, None)
    state.waiting.pop(place, None)
    state.in_flight[place] = "probe"


def probe_lost(call: CallState) -> None:
    """The process that asked ended first: perhaps the probe ended it, and it is not one that could not tell."""
    call.owner_ended(probe=True)
    call.probes -= 1


def probe_failed(state: State, record: r.ProbeFailed) -> None:
    """The probe could not tell."""
    index = index_of(state, record)
    call = state.steps[index].call(record.direction)
    if record.lost:
        probe_lost(call)
    else:
        call.answered()
    doubt(state, index, record.direction, record.error, record.at + record.delay_ms if record.delay_ms else None)
