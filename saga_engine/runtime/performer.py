"""Carries out effects. It does only what a journalled record orders, and only while the lease has time left."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from saga_engine.core.effects import (
    FORWARD,
    Alert,
    CallTool,
    Direction,
    Done,
    ErrorInfo,
    NotDone,
    Outcome,
    Probe,
    Unknown,
)
from saga_engine.core.report import error_dict
from saga_engine.core.state import State, StateScope
from saga_engine.errors import SecretMissing
from saga_engine.plan.compiled import Params
from saga_engine.ports import Call, EscalationHook, Question, Tools
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

    __slots__ = ("_hooks", "_tools", "lease")

    def __init__(self, tools: Tools, lease: Lease, hooks: Sequence[EscalationHook]) -> None:
        self._tools = tools
        self._hooks = tuple(hooks)
        self.lease = lease

    @property
    def alerting(self) -> bool:
        """Whether there is anybody to tell about open questions."""
        return bool(self._hooks)

    async def call(self, state: State, effect: CallTool) -> Outcome:
        """One attempt. Raises ``LeaseLost`` before anything is started if the lease has no time left."""
        compiled = state.plan.steps[effect.step]
        if effect.direction == FORWARD:
            tool, template, timeout_s = compiled.tool, compiled.params, compiled.timeout_s
        else:
            rollback = state.rollback(effect.step)
            tool, template, timeout_s = rollback.tool, rollback.params, rollback.timeout_s
        if template.secrets:
            return await self._call_with_secrets(state, effect, tool, template, timeout_s)
        params = template.resolve(StateScope(state))
        self.lease.check()
        return await self._tools.call(tool, params, _call(state, effect, effect.direction, timeout_s))

    async def _call_with_secrets(
        self, state: State, effect: CallTool, tool: str, template: Params, timeout_s: float
    ) -> Outcome:
        scope = SecretScope(state)
        try:
            params = template.resolve(scope)
        except SecretMissing as error:
            # Checked before the saga was taken on, so the variable was removed since; nothing has been called.
            return NotDone(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        self.lease.check()
        outcome = await self._tools.call(tool, params, _call(state, effect, effect.direction, timeout_s))
        return _scrub(outcome, scope.seen)

    async def probe(self, state: State, effect: Probe) -> Outcome:
        """Ask whether the call happened."""
        compiled = state.plan.steps[effect.step]
        rollback = compiled.rollback
        if effect.direction == FORWARD or rollback is None:
            tool, template = compiled.tool, compiled.params
        else:
            tool, template = rollback.tool, rollback.params
        scope = SecretScope(state)
        try:
            params = template.resolve(scope)
        except SecretMissing as error:
            return Unknown(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        self.lease.check()
        call = _call(state, effect, "probe", compiled.timeout_s, key_of=effect.direction)
        return _scrub(await self._tools.probe(tool, params, call), scope.seen)

    async def alert(self, state: State, effect: Alert) -> ErrorInfo | None:
        """Tell everybody about a question; None if all were told."""
        asked = state.questions.get(effect.question)
        if asked is None:
            return None  # answered in the meantime
        compiled = state.plan.steps[asked.step]
        backward = asked.direction != FORWARD and compiled.rollback is not None
        question = Question(
            saga_id=state.saga_id,
            question_id=asked.id,
            step_id=compiled.key,
            step_name=compiled.name,
            tool=compiled.rollback.tool if backward and compiled.rollback else compiled.tool,
            direction=asked.direction,
            kind=asked.kind,
            options=asked.options,
            error=error_dict(asked.error),
            goal=state.plan.goal,
        )
        self.lease.check()
        failed: ErrorInfo | None = None
        for hook in self._hooks:
            try:
                await hook(question)
            except Exception as error:  # noqa: BLE001 - a hook is somebody else's code: its failure is recorded and tried again
                failed = ErrorInfo(error_code="alert_failed", message=f"{type(error).__name__}: {error}"[:500])
        return failed


def _call(
    state: State,
    effect: CallTool | Probe,
    direction: Any,
    timeout_s: float,
    key_of: Direction | None = None,
) -> Call:
    return Call(
        saga_id=state.saga_id,
        step_id=state.plan.steps[effect.step].key,
        direction=direction,
        attempt=effect.attempt,
        idempotency_key=state.key(effect.step, key_of or effect.direction),
        epoch=state.epoch,
        deadline_ms=state.deadline_ms,
        timeout_s=timeout_s,
    )


# --- secrets never reach the journal, not even as an echo ------------------------------------------------------------


def _scrub(outcome: Outcome, secrets: Mapping[str, str]) -> Outcome:
    known = {value: f"$secret.{name}" for name, value in secrets.items() if value}
    if not known:
        return outcome
    if isinstance(outcome, Done):
        return Done(_scrub_value(outcome.output, known))
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
