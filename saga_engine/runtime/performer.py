"""Carries out effects. It does only what a journalled record orders, and only while the lease has time left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from saga_engine.core.decide import Means
from saga_engine.core.effects import (
    FORWARD,
    Alert,
    AskPlanner,
    CallTool,
    Done,
    ErrorInfo,
    NotDone,
    Outcome,
    Probe,
    Unknown,
)
from saga_engine.core.judge import Advice, judge_advice
from saga_engine.core.records import AnyRecord
from saga_engine.core.report import asked_params, asked_tool, error_dict, proposed_steps
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, SecretMissing
from saga_engine.plan.compiled import CompiledFallback, Params
from saga_engine.plan.tooling import Semantic
from saga_engine.plan.values import canonical
from saga_engine.ports import Advisor, Call, Escalation, Question, Tools
from saga_engine.runtime.advising import advise
from saga_engine.runtime.lease import Lease


class SecretScope(StateScope):
    """The scope of a call that is about to be made: secrets have their values, read from the environment now."""

    __slots__ = ("seen",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.seen: dict[str, str] = {}

    def secret(self, name: str) -> str:
        """The value; raises ``SecretMissing``."""
        value = secret_value(name)
        self.seen[name] = value
        return value


def secret_value(name: str) -> str:
    """The secret's value from the environment; raises ``SecretMissing``."""
    value = os.environ.get(name)
    if value is None:
        raise SecretMissing(f"the environment has no {name}", hint=f"set {name} and resume the saga", secret=name)
    return value


class Performer:
    """Makes calls, probes and alerts for all sagas of a process."""

    __slots__ = ("_advisor", "_escalation", "_permit", "_tools", "begun", "lease", "means", "remind_ms")

    def __init__(
        self, tools: Tools, lease: Lease, escalation: Escalation, advisor: Advisor | None, semantic: Semantic
    ) -> None:
        self._tools = tools
        self._escalation = escalation
        self._advisor = advisor
        self.lease = lease
        self._permit = lease.check
        #: What this process can do beside calling tools.
        self.means = means_of(escalation, advisor, semantic)
        self.remind_ms = round(escalation.remind_s * 1000)
        #: How many effects were begun: calls, undos, probes, alerts and questions to a model.
        self.begun = 0

    def call(self, state: State, effect: CallTool) -> Coroutine[Any, Any, Outcome]:
        """One attempt. Raises ``LeaseLost`` before anything is started if the lease has no time left."""
        serving = state.acting(effect.step) if effect.direction == FORWARD else state.rollback(effect.step)
        template = serving.params
        call = _call(state, effect, effect.direction, serving.timeout_s, self._permit)
        if type(serving) is CompiledFallback and serving.way == "cached":
            return self._tools.last_good(serving.tool, template.resolve(StateScope(state)), serving.max_age_s, call)
        if template.secrets:
            return self._call_with_secrets(state, serving.tool, template, call)
        params = template.resolve(StateScope(state))
        self._permit()
        return self._tools.call(serving.tool, params, call)

    async def _call_with_secrets(self, state: State, tool: str, template: Params, call: Call) -> Outcome:
        scope = SecretScope(state)
        try:
            params = template.resolve(scope)
        except SecretMissing as error:
            # Checked before the saga was taken on, so the variable was removed since; nothing has been called.
            return NotDone(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        call = call._replace(masked=template.resolve(StateScope(state)))
        self.lease.check()
        return _scrub(await self._tools.call(tool, params, call), scope.seen)

    async def probe(self, state: State, effect: Probe) -> Outcome:
        """Ask whether the call happened."""
        serving = state.acting(effect.step) if effect.direction == FORWARD else state.rollback(effect.step)
        scope = SecretScope(state)
        try:
            params = serving.params.resolve(scope)
        except SecretMissing as error:
            return Unknown(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        call = _call(state, effect, "probe", serving.timeout_s, self._permit)
        if serving.params.secrets:
            call = call._replace(masked=serving.params.resolve(StateScope(state)))
        self.lease.check()
        return _scrub(await self._tools.probe(serving.tool, params, call), scope.seen)

    async def alert(self, state: State, effect: Alert) -> ErrorInfo | None:
        """Tell everybody about a question, all at once; None if all were told."""
        question = _question(state, effect)
        if question is None:
            return None  # answered in the meantime
        self.lease.check()
        hooks = [*self._escalation.hooks]
        further_ms = self._escalation.further_after_s * 1000
        if further_ms and question.asked_ms is not None and state.at - question.asked_ms >= further_ms:
            hooks += self._escalation.further
        results = await asyncio.gather(*(hook(question) for hook in hooks), return_exceptions=True)
        # A hook is somebody else's code: its failure is recorded, and people are told again.
        errors = [error for error in results if isinstance(error, BaseException)]
        for error in errors:
            if not isinstance(error, Exception):
                raise error
        if not errors:
            return None
        return ErrorInfo("alert_failed", "; ".join(f"{type(error).__name__}: {error}"[:500] for error in errors)[:1000])

    async def advise(self, state: State, effect: AskPlanner) -> Advice | ErrorInfo:
        """Ask a model for steps."""
        if self._advisor is None:
            return ErrorInfo("planner_unavailable", "no planner is set up here")
        self.lease.check()
        return await advise(state, effect, self._advisor, self._tools, self.means)

    def judge_advice(self, state: State, effect: AskPlanner, advice: Advice | ErrorInfo, now_ms: int) -> AnyRecord:
        """The record of what a model answered."""
        return judge_advice(state, effect, advice, self._tools, self.means, now_ms)


def means_of(escalation: Escalation, advisor: Advisor | None, semantic: Semantic) -> Means:
    """What a process with these can do beside calling tools."""
    return Means(bool(escalation.hooks or escalation.further), advisor is not None, semantic)


def _question(state: State, effect: Alert) -> Question | None:
    """What people are told: an open question, or a notice that asks nothing."""
    name = effect.question
    asked = state.questions.get(name)
    told = asked or state.notices.get(name)
    if told is None:
        return None
    compiled = state.plan.steps[told.step]
    direction = asked.direction if asked else FORWARD
    return Question(
        saga_id=state.saga_id,
        question_id=name,
        step_id=compiled.key,
        step_name=compiled.name,
        tool=asked_tool(state, told.step, direction),
        direction=direction,
        kind=told.kind,
        options=asked.options if asked else (),
        error=error_dict(told.error),
        goal=state.plan.goal,
        params=asked_params(state, told.step, direction) if told.kind == "approval" else None,
        expires_ms=asked.expires if asked else None,
        round=effect.round,
        asked_ms=asked.at if asked else None,
        steps=proposed_steps(state, told.step) if told.kind == "remedy" else None,
    )


def _call(
    state: State,
    effect: CallTool | Probe,
    direction: Any,
    timeout_s: float,
    permit: Callable[[], None],
) -> Call:
    index, way = effect.step, effect.direction
    plan = state.plan
    step, made = plan.steps[index], state.steps[index].call(way)
    backward = way != FORWARD
    return Call(
        state.saga_id,
        step.key,
        direction,
        effect.attempt,
        state.key(index, way),
        state.epoch,
        None if plan.deadline_s is None or state.backward or state.past_pivot else state.deadline_ms,
        timeout_s,
        None,
        state.approval(index, way) if made.approval else "",
        () if step.resource is None else _resources(state, step.resource),
        (state.acting(index).tool, state.key(index, FORWARD)) if backward else None,
        permit,
        backward or step.remedies is not None,
        _key_until(state, effect, timeout_s) if made.doubtful else None,
    )


def _key_until(state: State, effect: CallTool | Probe, timeout_s: float) -> int | None:
    """Until when a repeat of a call in doubt still arrives while the other side remembers its key."""
    call = state.steps[effect.step].call(effect.direction)
    if not call.doubtful or call.insisted:
        return None
    serving = state.acting(effect.step) if effect.direction == FORWARD else state.rollback(effect.step)
    spec = serving.spec
    if spec is None or not spec.keyed or spec.key_ttl_s is None:
        return None
    return call.first_at + round((spec.key_ttl_s - timeout_s) * 1000)


def _resources(state: State, template: Params) -> tuple[str, ...]:
    """The key that the plan names. Where its bindings have no value (an undo of a step in doubt) there is none."""
    try:
        value = template.resolve(StateScope(state))["resource"]
    except BindingUnresolved:
        return ()
    return (value if isinstance(value, str) else canonical(value).decode(),)


# --- secrets never reach the journal, not even as an echo ------------------------------------------------------------


def _scrub(outcome: Outcome, secrets: Mapping[str, str]) -> Outcome:
    known = {value: f"$secret.{name}" for name, value in secrets.items() if value}
    if not known:
        return outcome
    if isinstance(outcome, Done):
        return outcome._replace(output=_scrub_value(outcome.output, known))
    error = ErrorInfo(
        error_code=_scrub_text(outcome.error.error_code, known),
        message=_scrub_text(outcome.error.message, known),
        suggestion=None if outcome.error.suggestion is None else _scrub_text(outcome.error.suggestion, known),
        retryable=outcome.error.retryable,
    )
    return outcome._replace(error=error)


def _scrub_text(text: str, known: Mapping[str, str]) -> str:
    for value, marker in known.items():
        text = text.replace(value, marker)
    return text


def _scrub_value(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _scrub_text(value, known)
    if isinstance(value, dict):
        return {_scrub_text(key, known): _scrub_value(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub_value(item, known) for item in value]
    return value
