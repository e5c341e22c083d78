"""Builds the inputs of activities from records and the state at that moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec

from saga_engine.core.effects import COMPENSATE, FORWARD, Alert, CallTool, LookAfterUndo, Probe
from saga_engine.core.keys import read_key
from saga_engine.core.state import State, StateScope
from saga_engine.execution.calls import call_of
from saga_engine.execution.questions import question_of
from saga_engine.plan.compiled import CompiledFallback
from saga_engine.temporal import payloads
from saga_engine.temporal.secrets import Marked, marked


class CallOrder(NamedTuple):
    """An order for a call, the call's time limit, and the time within which a worker must begin it (None: any time)."""

    body: dict[str, Any]
    timeout_s: float
    begin_within_s: float | None
    summary: str
    probing: bool


class Orders:
    """The orders that follow from one state at one moment; ``bits(n)`` gives n random bits of the workflow."""

    __slots__ = ("_bits", "_now_ms", "_state")

    def __init__(self, state: State, now_ms: int, bits: Callable[[int], int]) -> None:
        self._state = state
        self._now_ms = now_ms
        self._bits = bits

    def call(self, effect: CallTool | Probe) -> CallOrder:
        """The order for a call or a probe. Raises ``BindingUnresolved``."""
        state = self._state
        serving = state.serving(effect.step, effect.direction)
        probing = type(effect) is Probe
        cached = isinstance(serving, CompiledFallback) and serving.way == "cached" and not probing
        call = call_of(state, effect, "probe" if probing else effect.direction, serving.timeout_s, None)
        found = (
            Marked(serving.params.resolve(StateScope(state))) if cached else marked(state, serving.params, self._bits)
        )
        if found.masked is not None:
            call = call._replace(masked=found.masked)
        order = payloads.Order(
            way="probe" if probing else "cached" if cached else "call",
            tool=serving.tool,
            params=found.params,
            call=payloads.call_fields(call),
            digest=serving.spec.digest if serving.spec is not None else "",
            max_age_s=serving.max_age_s if isinstance(serving, CompiledFallback) else 0.0,
            nonce=found.nonce,
            secrets=list(found.names),
            step_id=state.plan.steps[effect.step].step_id,
            private=bool(state.sensitive),
        )
        within = None
        if call.deadline_ms is not None and effect.direction == FORWARD and not probing:
            within = max((call.deadline_ms - self._now_ms) / 1000, 1.0)
        key = state.plan.steps[effect.step].key
        said = "undo of " if effect.direction != FORWARD else ""
        summary = f"{'probe of ' if probing else ''}{said}step {key}: {serving.tool}, attempt {effect.attempt}"
        return CallOrder(msgspec.to_builtins(order), call.timeout_s, within, summary[:200], probing)

    def look(self, effect: LookAfterUndo) -> CallOrder:
        """The order for the look after an undo: the read of its check, or its probe. Raises ``BindingUnresolved``."""
        state = self._state
        probe = Probe(effect.step, COMPENSATE, 1)
        read = state.acting(effect.step).check
        if effect.by != "check" or read is None:
            return self.call(probe)
        step = state.plan.steps[effect.step]
        found = marked(state, read.params, self._bits)
        key = read_key(state.saga_id, step.key, state.seed)
        call = call_of(state, probe, FORWARD, read.timeout_s, None)._replace(idempotency_key=key, masked=found.masked)
        order = payloads.Order(
            way="read",
            tool=read.tool,
            params=found.params,
            call=payloads.call_fields(call),
            nonce=found.nonce,
            secrets=list(found.names),
            step_id=step.step_id,
            private=bool(state.sensitive),
        )
        summary = f"look after the undo of step {step.key}: {read.tool}"
        return CallOrder(msgspec.to_builtins(order), read.timeout_s, None, summary[:200], probing=True)

    def question(self, effect: Alert) -> dict[str, Any] | None:
        """The question for operators; None if it has been answered."""
        question = question_of(self._state, effect)
        return None if question is None else asdict(question)
