"""Guards in the simulation: a call waits for its turn, or is refused for now, or for good."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD, CallTool, ErrorInfo, NotDone
from saga_engine.core.state import State
from tests.core.world import Violation, place_of


class Guarded:
    """The part of ``Simulation`` that stands between an intent and its call."""

    if TYPE_CHECKING:
        begun: set[tuple[Any, ...]]
        dice: random.Random
        held: dict[tuple[str, int], int]

        def _begun(self, state: State, effect: CallTool, now: int) -> r.AnyRecord: ...

        def _maybe_crash(self) -> None: ...

        def _noted(self, record: r.AnyRecord) -> r.AnyRecord: ...

        def _learned(self, effect: CallTool, result: Any, now: int, dice: float) -> r.AnyRecord: ...

        def _tick(self, state: State) -> int: ...

    def _waits(self, state: State, effect: CallTool) -> r.AnyRecord | None:
        """A guard has the call wait; or the wait is over: the call is made, or was turned away. None: it is made now."""
        key = state.plan.steps[effect.step].key
        flight = state.in_flight.get((effect.step, effect.direction))
        waits = flight == "queued"
        again = effect.direction == FORWARD and (key, state.steps[effect.step].using) in self.held_since  # and again
        if place_of(effect) in self.begun or (not waits and self.dice.random() > (0.6 if again else 0.15)):
            if flight != "intended":
                return None
            self._maybe_crash()
            return self._noted(self._begun(state, effect, self._tick(state)))
        self._maybe_crash()
        now = self._tick(state)
        if waits and (luck := self.dice.random() / (10 if again else 1)) < 0.3:
            if luck < 0.2 and effect.direction == FORWARD:
                return self._held(state, effect, now, luck)
            error = ErrorInfo("interrupted", "the engine was closed; nothing was called", retryable=True)
            turned_away = NotDone(error, retryable=True, counted=False)
            return self._learned(effect, turned_away, now, 0.5)
        if waits:
            self.begun.add(place_of(effect))
            return self._noted(self._begun(state, effect, now))
        return self._noted(r.StepQueued(at=now, step=key, direction=effect.direction))

    def _held(self, state: State, effect: CallTool, now: int, luck: float) -> r.AnyRecord:
        """A breaker, a rate or a bulkhead refuses the call: for now, or it has waited as long as it may."""
        key, tries = state.plan.steps[effect.step].key, state.steps[effect.step].forward.tries
        doubt = state.steps[effect.step].forward.doubt is not None
        wait_s = None if luck < 0.02 else 600.0
        error = ErrorInfo("breaker_open", "it rests", retryable=True)
        refused = NotDone(error, retryable=True, retry_after_s=wait_s, held=True)
        turns = state.turns
        record = self._learned(effect, refused, now, 0.5)
        at_once = isinstance(record, r.FallbackChosen | r.StepDeferred)
        if at_once or wait_s is None:
            return record
        since = self.held_since.get((key, state.steps[effect.step].using), now)  # (what a crash took has not begun)
        if now - since >= state.plan.guard_wait_s * 1000 or turns:
            return record
        waits = isinstance(record, r.StepInDoubt if doubt else r.StepRetryScheduled) and not record.counted
        if not waits or now + record.delay_ms > since + state.plan.guard_wait_s * 1000:
            raise Violation(
                f"{key}, tried {tries} times: refused by a guard, and it does not wait for its turn: {record}"
            )
        return record
