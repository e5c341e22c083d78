"""``interpret(state, effect, outcome) -> record``: what an outcome settles.

An outcome has three values (``effects``). *Unknown* is never taken for *not done*; a *not done* of a later attempt says
nothing about an earlier one that is in doubt, unless the tool itself says so for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core import asking_later, images, other_ways
from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    Ask,
    AskPlanner,
    Blocked,
    CallTool,
    Direction,
    Done,
    Drifted,
    ErrorInfo,
    NotDone,
    Outcome,
    Probe,
    Purpose,
    Unknown,
)
from saga_engine.core.evolve.amendments import overtaken
from saga_engine.core.plan_growth import Accepted
from saga_engine.core.proposed_steps import calls_of, needs_approval
from saga_engine.core.questions import escalate
from saga_engine.core.settling import facts, give_up, moot
from saga_engine.core.state import State
from saga_engine.core.state_values import Replanning
from saga_engine.errors import PlanInvalid, Problem
from saga_engine.language.errors import said
from saga_engine.plan.amendments import Addition, Bounds
from saga_engine.plan.tool_spec import RetryPolicy, ToolCatalog

#: The waits between two alerts about one question.
ALERT_RETRY: Final = RetryPolicy(max_attempts=5, base_s=1.0, max_s=60.0)
#: How many steps a model may propose for a semantic compensation, and for the rest of a goal.
MAX_COMPENSATING_STEPS: Final = 5
MAX_NEW_STEPS: Final = 20
#: No step is dropped.
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def interpret(state: State, effect: CallTool | Probe, outcome: Outcome, now_ms: int, dice: float) -> r.AnyRecord:
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
            after=outcome.after,
        )
    if type(outcome) is Drifted:
        # An undo that may have happened is asked about as such: 'undone' by an earlier attempt is still possible.
        kind = "undo-in-doubt" if state.steps[effect.step].call(direction).doubt else "drift"
        return escalate(state, effect.step, direction, kind, now_ms, outcome.error, found=outcome.found)
    if type(outcome) is Blocked:
        return r.StepBlocked(at=now_ms, step=key, direction=direction, error=outcome.error, rule=outcome.rule)
    if type(outcome) is Ask:
        return _ask(state, effect.step, direction, outcome, now_ms)
    spec, policy = facts(state, effect.step, direction)
    call = state.steps[effect.step].call(direction)
    budget = call.tries < policy.max_attempts
    delay = policy.delay_ms(call.tries, dice)
    if type(outcome) is Unknown:
        # A read has no effect, so its unknown outcome is no outcome. One that died with its process is repeated even if
        # its budget is one attempt, as after a takeover.
        if spec.effect != "read" or outcome.lost:
            return r.StepInDoubt(
                at=now_ms,
                step=key,
                direction=direction,
                error=outcome.error,
                delay_ms=delay,
                sent=outcome.sent,
                at_work=outcome.at_work,
                lost=outcome.lost,
                raised=outcome.raised,
            )
        again, error = True, outcome.error
    else:
        assert isinstance(outcome, NotDone)
        error = outcome.error
        if outcome.held and direction == FORWARD and (record := _held(state, effect.step, outcome, now_ms)):
            return record
        if not outcome.counted and not (moot(state, effect.step, direction) and not call.doubt):
            # It never got its turn, because its process closed: the next owner makes the same attempt.
            if call.doubt:
                return r.StepInDoubt(at=now_ms, step=key, direction=direction, error=error, counted=False)
            return r.StepRetryScheduled(
                at=now_ms, step=key, direction=direction, error=error, delay_ms=0, counted=False
            )
        if call.doubt and not (outcome.definite and not outcome.retryable):
            delay = _at_least(delay, outcome)
            return r.StepInDoubt(at=now_ms, step=key, direction=direction, error=error, delay_ms=delay)
        # An undo is retried unless the tool says that it is useless; a forward call only if the tool says it is useful.
        again = outcome.retryable is True or (direction == COMPENSATE and outcome.retryable is None)
        again = again and not outcome.once
        delay = _at_least(delay, outcome)
    if again and budget and not moot(state, effect.step, direction):
        return r.StepRetryScheduled(at=now_ms, step=key, direction=direction, error=error, delay_ms=delay)
    return give_up(state, effect.step, direction, now_ms, error, unavailable=again)


def _held(state: State, index: int, outcome: NotDone, now: int) -> r.AnyRecord | None:
    """A guard refused a call: its step's next way, at once; else the same call later. None: it counts as an attempt.

    A step waits at most ``guard_wait_s`` for its guards, and then it was not done. With an earlier attempt in doubt it
    goes on as after any other call that settled nothing.
    """
    key, call, error = state.plan.steps[index].key, state.steps[index].forward, outcome.error
    left_ms = (call.held_at or now) + round(state.plan.guard_wait_s * 1000) - now
    again = outcome.retry_after_s is not None and left_ms > 0
    delay = min(max(round((outcome.retry_after_s or 0) * 1000), 1), left_ms)
    if call.doubt:
        if not again:
            return None
        return r.StepInDoubt(at=now, step=key, error=error, delay_ms=delay, counted=False)
    if not again or moot(state, index, FORWARD) or state.next_way(index, unavailable=True):
        return give_up(state, index, FORWARD, now, error, unavailable=True)
    return r.StepRetryScheduled(at=now, step=key, error=error, delay_ms=delay, counted=False)


def interpret_read(
    state: State, record: r.StepIntended, image: images.Image | NotDone, now_ms: int, dice: float
) -> r.AnyRecord:
    """A decided intent with its before-image; or, if that could not be read, what follows: nothing is called."""
    if not isinstance(image, NotDone):
        return msgspec.structs.replace(record, at=now_ms, before=image)
    index = state.plan.by_key[record.step]
    _, policy = facts(state, index, FORWARD)
    tries = state.steps[index].forward.tries + 1
    again = image.retryable is True or not image.counted
    if again and tries < policy.max_attempts:
        delay = _at_least(policy.delay_ms(tries, dice), image)
        return r.StepRetryScheduled(at=now_ms, step=record.step, error=image.error, delay_ms=delay)
    return give_up(state, index, FORWARD, now_ms, image.error, unavailable=again)


def _ask(state: State, index: int, direction: Direction, ask: Ask, now: int) -> r.AnyRecord:
    if moot(state, index, direction) and not state.steps[index].call(direction).doubt:
        # The saga turns around: a call that is not wanted any more needs no question.
        key = state.plan.steps[index].key
        return r.StepBlocked(at=now, step=key, direction=direction, error=ask.error, rule=ask.rule)
    return escalate(state, index, direction, "approval", now, ask.error, ask)


def _probed(state: State, effect: Probe, outcome: Outcome, now: int, dice: float) -> r.AnyRecord:
    key = state.plan.steps[effect.step].key
    direction = effect.direction
    _, policy = facts(state, effect.step, direction)
    call = state.steps[effect.step].call(direction)
    if type(outcome) is Done:
        return r.StepSucceeded(
            at=now, step=key, direction=direction, output=outcome.output, via="probe", after=outcome.after
        )
    if type(outcome) is not NotDone:
        assert type(outcome) is Unknown, "a probe passes no policy"
        delay = policy.delay_ms(call.probes, dice)
        return r.ProbeFailed(
            at=now, step=key, direction=direction, error=outcome.error, delay_ms=delay, lost=outcome.lost
        )
    error = call.error or ErrorInfo(error_code="did_not_happen", message=said("did_not_happen.no-more"))
    # The tool's error before the probe counts: a refusal that the probe confirms is not retried.
    again = error.retryable is not False
    if again and call.tries < policy.max_attempts and not moot(state, effect.step, direction):
        return r.StepRetryScheduled(at=now, step=key, direction=direction, error=error, delay_ms=0)
    return give_up(state, effect.step, direction, now, error, unavailable=again)


def _at_least(delay_ms: int, outcome: NotDone) -> int:
    wait_s = outcome.retry_after_s
    if wait_s is None:
        return delay_ms
    return max(delay_ms, round(wait_s * 1000))


def interpret_alert(  # noqa: PLR0917
    state: State, question: str, error: ErrorInfo | None, now_ms: int, dice: float, remind_ms: int = 0
) -> r.AnyRecord:
    """The record of an alert's delivery; it is tried again a bounded number of times.

    ``remind_ms``: operators who do not answer are reminded after this time; 0: they are not.
    """
    again_ms = remind_ms if question in state.questions else 0
    if error is None:
        return r.AlertSent(at=now_ms, question=question, again_ms=again_ms)
    alert = state.alerts.get(question)
    attempt = alert.attempt if alert else ALERT_RETRY.max_attempts
    if attempt < ALERT_RETRY.max_attempts:
        delay = ALERT_RETRY.delay_ms(attempt, dice)
        return r.AlertFailed(at=now_ms, question=question, error=error, delay_ms=delay)
    # No notification was delivered. If reminders are configured, they are sent, however long the outage was.
    return r.AlertFailed(at=now_ms, question=question, error=error, delay_ms=-1, again_ms=again_ms)


class Advice(NamedTuple):
    """Steps that a model wrote on request, unchecked; or the ``error`` of the request.

    ``dropped``: for another way, why steps are dropped that nothing replaces, by key.
    """

    steps: Sequence[Mapping[str, Any]]
    written: r.Written | None
    error: ErrorInfo | None = None
    dropped: Mapping[str, str] = NOTHING


def bounds_of(state: State, purpose: Purpose, catalog: ToolCatalog, capabilities: Capabilities) -> Bounds:
    """The permissions of a model's steps: for a compensation only tools that allow it.

    Never a secret that the plan lacks.
    """
    names: set[str] = set()
    for name in catalog.names():
        spec = catalog.spec(name)
        if spec is None:
            continue
        if purpose == "replan" or (spec.compensates and (spec.semantic or capabilities.semantic) != "never"):
            names.add(name)
    secrets = frozenset().union(*(call.params.secrets for call in state.plan.calls()))
    return Bounds(frozenset(names), secrets, MAX_COMPENSATING_STEPS if purpose == "compensate" else MAX_NEW_STEPS)


def addition_of(
    state: State, effect: AskPlanner, steps: Sequence[Mapping[str, Any]], dropped: Mapping[str, str] = NOTHING
) -> Addition:
    """What the steps that a model wrote would add to the saga as it stands now, and what it drops."""
    if effect.purpose == "replan":
        return other_ways.other_way(state, effect.step, steps, dropped)
    return Addition(list(steps), (), state.plan.steps[effect.step].key)


def check_advice(  # noqa: PLR0917
    state: State,
    effect: AskPlanner,
    steps: Sequence[Mapping[str, Any]],
    dropped: Mapping[str, str],
    catalog: ToolCatalog,
    capabilities: Capabilities,
) -> Accepted:
    """What is journalled with the steps that a model wrote.

    Raises ``PlanInvalid`` with every problem, against the saga as it stands and the permissions of the steps' author.
    """
    assert state.growth is not None, "a saga is driven only with its plan at hand"
    found: list[Problem] = []
    if effect.purpose == "replan":
        found = other_ways.problems(state, steps, dropped, catalog)
    addition = addition_of(state, effect, steps, dropped)
    try:
        accepted = state.growth.check(state.added, addition, bounds_of(state, effect.purpose, catalog, capabilities))
    except PlanInvalid as error:
        raise PlanInvalid([*found, *error.problems]) from None
    if found:
        raise PlanInvalid(found)
    return accepted


def interpret_advice(  # noqa: PLR0917
    state: State,
    effect: AskPlanner,
    advice: Advice | ErrorInfo,
    catalog: ToolCatalog,
    capabilities: Capabilities,
    now_ms: int,
) -> r.AnyRecord:
    """The record of a model's answer. Its steps are checked against the saga as it stands; they are not trusted."""
    key = state.plan.steps[effect.step].key
    missing, written = (advice, None) if isinstance(advice, ErrorInfo) else (advice.error, advice.written)
    if missing is not None:
        wanted = effect.purpose == "compensate" or state.phase == Replanning(effect.step)
        times = state.ask_later_times.get(effect.step, 0)
        delay_ms = asking_later.delay_ms(missing.error_code, times) if wanted else 0
        return r.PlannerGaveUp(
            at=now_ms, step=key, purpose=effect.purpose, error=missing, written=written, delay_ms=delay_ms
        )
    assert isinstance(advice, Advice)

    def gave_up(code: str, why: str) -> r.AnyRecord:
        error = ErrorInfo(code, why[:1000])
        return r.PlannerGaveUp(at=now_ms, step=key, purpose=effect.purpose, error=error, written=written)

    if effect.purpose == "replan" and state.phase != Replanning(effect.step):
        return gave_up("moot", said("moot"))
    if effect.purpose == "replan" and overtaken(state):
        return gave_up("overtaken", said("overtaken"))
    if state.growth is None or not (advice.steps or (advice.dropped and effect.purpose == "replan")):
        return gave_up("no_steps", said("no_steps"))
    try:
        undos, reads, tools, sensitive = check_advice(
            state, effect, advice.steps, advice.dropped, catalog, capabilities
        )
    except PlanInvalid as error:
        return gave_up("steps_invalid", error.message)
    addition = addition_of(state, effect, advice.steps, advice.dropped)
    listed = [dict(step) for step in addition.steps]
    if effect.purpose == "replan":
        return r.StepsAdded(
            at=now_ms,
            steps=listed,
            dropped=list(addition.dropped),
            place=addition.place,
            reasons=dict(addition.reasons),
            undos=undos,
            reads=reads,
            tools=tools,
            sensitive=sensitive,
            by="planner",
            written=written,
        )
    specs = [catalog.spec(tool) for step in listed for tool, _ in calls_of(step)]
    auto = all(spec is not None and (spec.semantic or capabilities.semantic) == "auto" for spec in specs)
    why = needs_approval(state, effect.step, listed, catalog) if auto else ""
    return r.CompensationProposed(
        at=now_ms,
        step=key,
        steps=listed,
        auto=auto and not why,
        why=why,
        undos=undos,
        reads=reads,
        tools=tools,
        sensitive=sensitive,
        written=written,
    )
