"""``judge(state, effect, outcome) -> record``: what an outcome settles.

An outcome has three values (``effects``). *Unknown* is never taken for *not done*; a *not done* of a later attempt says
nothing about an earlier one that is in doubt, unless the tool itself says so for good.
"""

from __future__ import annotations

from typing import Final

from saga_engine.core import records as r
from saga_engine.core.decide import escalate, facts, give_up, moot
from saga_engine.core.effects import (
    COMPENSATE,
    Ask,
    Blocked,
    CallTool,
    Direction,
    Done,
    ErrorInfo,
    NotDone,
    Outcome,
    Probe,
    Unknown,
)
from saga_engine.core.state import State
from saga_engine.plan.tooling import RetryPolicy

#: The waits between two alerts about one question.
ALERT_RETRY: Final = RetryPolicy(max_attempts=5, base_s=1.0, max_s=60.0)


def judge(state: State, effect: CallTool | Probe, outcome: Outcome, now_ms: int, dice: float) -> r.AnyRecord:
    """The record that settles what came of an effect; ``dice`` in [0, 1) spreads the waits."""
    if type(effect) is Probe:
        return _probed(state, effect, outcome, now_ms, dice)
    key = state.plan.steps[effect.step].key
    direction = effect.direction
    if type(outcome) is Done:
        return r.StepSucceeded(
            at=now_ms,
            step=key,
            direction=direction,
            output=outcome.output,
            via=outcome.via,
            source=outcome.source,
            age_ms=outcome.age_ms,
        )
    if type(outcome) is Blocked:
        return r.StepBlocked(at=now_ms, step=key, direction=direction, error=outcome.error, rule=outcome.rule)
    if type(outcome) is Ask:
        return _ask(state, effect.step, direction, outcome, now_ms)
    spec, policy = facts(state, effect.step, direction)
    call = state.steps[effect.step].call(direction)
    budget = call.tries < policy.max_attempts
    delay = policy.delay_ms(call.tries, dice)
    if type(outcome) is Unknown:
        if spec.effect != "read":
            return r.StepInDoubt(at=now_ms, step=key, direction=direction, error=outcome.error, delay_ms=delay)
        again, error = True, outcome.error  # a read changes nothing: not to know is not to have
    else:
        assert isinstance(outcome, NotDone)
        error = outcome.error
        if call.doubtful and not (outcome.definite and not outcome.retryable):
            delay = _at_least(delay, outcome)
            return r.StepInDoubt(at=now_ms, step=key, direction=direction, error=error, delay_ms=delay)
        # An undo is tried again unless the tool says that it is no use; a forward call only if the tool says it is.
        again = outcome.retryable is True or (direction == COMPENSATE and outcome.retryable is None)
        delay = _at_least(delay, outcome)
    if again and budget and not moot(state, direction):
        return r.StepRetryScheduled(at=now_ms, step=key, direction=direction, error=error, delay_ms=delay)
    return give_up(state, effect.step, direction, now_ms, error, unavailable=again)


def _ask(state: State, index: int, direction: Direction, ask: Ask, now: int) -> r.AnyRecord:
    if moot(state, direction) and not state.steps[index].call(direction).doubtful:
        # The saga turns around: nobody needs to be asked about a call that is not wanted any more.
        key = state.plan.steps[index].key
        return r.StepBlocked(at=now, step=key, direction=direction, error=ask.error, rule=ask.rule)
    return escalate(state, index, direction, "approval", now, ask.error, ask)


def _probed(state: State, effect: Probe, outcome: Outcome, now: int, dice: float) -> r.AnyRecord:
    key = state.plan.steps[effect.step].key
    direction = effect.direction
    _, policy = facts(state, effect.step, direction)
    call = state.steps[effect.step].call(direction)
    if type(outcome) is Done:
        return r.StepSucceeded(at=now, step=key, direction=direction, output=outcome.output, via="probe")
    if type(outcome) is not NotDone:
        assert type(outcome) is Unknown, "a probe passes no policy"
        delay = policy.delay_ms(call.probes, dice)
        return r.ProbeFailed(at=now, step=key, direction=direction, error=outcome.error, delay_ms=delay)
    error = call.error or ErrorInfo(error_code="did_not_happen", message="the probe says that it did not happen")
    if call.tries < policy.max_attempts and not moot(state, direction):
        return r.StepRetryScheduled(at=now, step=key, direction=direction, error=error, delay_ms=0)
    return give_up(state, effect.step, direction, now, error, unavailable=True)


def _at_least(delay_ms: int, outcome: NotDone) -> int:
    wait_s = outcome.retry_after_s
    if wait_s is None:
        return delay_ms
    return max(delay_ms, round(wait_s * 1000))


def judge_alert(state: State, question: str, error: ErrorInfo | None, now_ms: int, dice: float) -> r.AnyRecord:
    """The record of an alert's delivery; it is tried again a bounded number of times."""
    if error is None:
        return r.AlertSent(at=now_ms, question=question)
    alert = state.alerts.get(question)
    attempt = alert.attempt if alert else ALERT_RETRY.max_attempts
    delay = ALERT_RETRY.delay_ms(attempt, dice) if attempt < ALERT_RETRY.max_attempts else -1
    return r.AlertFailed(at=now_ms, question=question, error=error, delay_ms=delay)
