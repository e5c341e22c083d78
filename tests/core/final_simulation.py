"""The simulation of sagas whose plan has a ``finally``."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import finishing
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, CallTool, Probe
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

_ENDS = {"SagaCompleted": t.COMPLETED, "SagaCompensated": t.COMPENSATED, "SagaWaived": t.WAIVED}


class FinalSimulation(Simulation):
    """A saga with one to three steps of ``finally``; some have less time than their retries take."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        self.short = dice.random() < 0.3
        self.asked_first |= {(step.key, FORWARD) for step in self.plan.final if dice.random() < 0.1}

    def run(self) -> State:
        bound = finishing.FINALLY_S
        finishing.FINALLY_S = 2.0 if self.short else bound
        try:
            return super().run()
        finally:
            finishing.FINALLY_S = bound

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
        policy = RetryPolicy(max_attempts=3, base_s=1.0, max_s=4.0)
        last: list[dict[str, Any]] = []
        for index in range(self.dice.randint(1, 3)):
            key = f"f{index}"
            params: dict[str, Any] = {"end": "$end.status", "left": "$end.left"}
            if last and self.dice.random() < 0.3:
                params["before"] = f"$output.step_f{index - 1}.ref"
            step: dict[str, Any] = {"step_id": key, "tool": f"do_{key}", "params": params}
            if self.dice.random() < 0.3:
                step["depends_on"] = []
                params.pop("before", None)
            if self.dice.random() < 0.2:
                step["fallback"] = {"tool": f"alt_{key}"}
            last.append(step)
            probe = f"probe_{key}" if self.dice.random() < 0.3 else None
            specs += [
                ToolSpec(name=f"do_{key}", keyed=self.dice.random() < 0.5, timeout_s=6.0, probe=probe, retry=policy),
                ToolSpec(name=f"alt_{key}", keyed=self.dice.random() < 0.5, timeout_s=6.0, retry=policy),
                ToolSpec(name=f"probe_{key}", effect="read"),
            ]
        return {**body, "finally": last}, Catalog(specs)

    def _perform(self, state: State, effect: Any) -> None:
        # (A model may still be asked for another way: its answer is moot.)
        if state.ending is not None and isinstance(effect, CallTool | Probe) and effect.step < state.ending.first:
            raise Violation(f"{state.plan.steps[effect.step].key} is called after the end was certain")
        super()._perform(state, effect)

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        journal = self.journalled()
        started = [record for record in journal if isinstance(record, r.FinallyStarted)]
        if len(started) != 1 or started[0].end != state.status or _ENDS[type(journal[-1]).__name__] != state.status:
            raise Violation(f"{state.status}, and 'finally' began {len(started)} times")
        ending = state.ending
        assert ending is not None
        late = [record for record in journal if isinstance(record, r.StepIntended) and record.at >= ending.until]
        if late:
            raise Violation(f"a call of 'finally' started after its time: {late}")
        last = {step.key for step in state.plan.steps[ending.first :]}
        if any(isinstance(record, r.StepEscalated) and record.step in last for record in journal):
            raise Violation("an operator was asked about a step of 'finally'")
        for key in sorted(last):
            self._check_last(state, key, over=journal[-1].at >= ending.until)
            failed = [record for record in journal if isinstance(record, r.StepFailed) and record.step == key]
            tries = sum(isinstance(record, r.StepIntended) and record.step == key for record in journal)
            if failed and failed[0].error.error_code == "busy" and tries < 3 and failed[0].at < ending.until:
                raise Violation(f"{key} of 'finally' was given up after {tries} attempts")
        report = view(state).plain()["report"]
        named = {step for name in ("compensated", "failed", "unresolved", "left_in_place") for step in report[name]}
        if named & last:
            raise Violation(f"a step of 'finally' is listed as a remainder: {report}")

    def _check_last(self, state: State, key: str, *, over: bool) -> None:
        """A step of ``finally`` was called, unless its time was over, and its status says what is known."""
        status = state.steps[state.plan.by_key[key]].status
        rests = {t.SUCCEEDED, t.FAILED, t.BLOCKED, t.IN_DOUBT} | ({t.SKIPPED} if over else set())
        if status not in rests:
            raise Violation(f"{key} of 'finally' ends {status}")
        stands = bool(self.world.standing.get(key)) or key in self.world.elsewhere
        if stands is not (status == t.SUCCEEDED) and status != t.IN_DOUBT:
            raise Violation(f"{key} of 'finally' ends {status}, and its effect {'stands' if stands else 'does not'}")
