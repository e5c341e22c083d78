"""The simulation of undos: a saga with conditions and ``finally`` completes, and is undone by a saga of its own."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from saga_engine.analysis import undo as undoing
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, CallTool
from saga_engine.core.plan_growth import plan_of
from saga_engine.core.report import view
from saga_engine.core.state import State
from tests.core.cases import Catalog
from tests.core.conditional_simulation import ConditionalSimulation
from tests.core.final_simulation import FinalSimulation
from tests.core.simulation import Simulation
from tests.core.world import Violation


class _First(FinalSimulation, ConditionalSimulation):
    """The saga that is undone later."""


class UndoSimulation(Simulation):
    """The undo of a saga that completed. The outside world is the one that it left behind."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        self.first = _First(dice, 0.1)
        self.old = self.first.run()
        while self.old.status != t.COMPLETED:
            self.first = _First(dice, 0.1)
            self.old = self.first.run()
        super().__init__(dice, trouble)
        world, last = self.first.world, {step["step_id"] for step in self.first.plan_body["finally"]}
        #: What the steps of ``finally`` left. It is no concern of the undo.
        self.kept = {key: count for key, count in world.standing.items() if key in last}
        self.world.standing = {key: count for key, count in world.standing.items() if key not in last}
        self.world.made_by, self.world.elsewhere = dict(world.made_by), set(world.elsewhere)
        self.chosen = undoing.choose_undo(self.old, self.first.journalled(), "undo", {})
        self.stood = {key for key, count in self.world.standing.items() if count}

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        return plan_of(undoing.first_record(self.first.started)), self.first.catalog

    def _first(self) -> r.SagaStarted:
        first = undoing.first_record(self.first.started)
        return msgspec.structs.replace(first, at=self.now, saga_id="undo", seed="new", undo_of="sim")

    def _opening(self) -> list[r.AnyRecord]:
        asked = r.UndoRequested(at=self.now, accepted=self.chosen.remains)
        copied = [msgspec.structs.replace(record, at=self.now) for record in self.chosen.opening]
        return [self.started, *copied, asked]

    def run(self) -> State:
        """The opening is one append; then the undo runs like any saga, through crashes."""
        records = self._opening()
        state = self._fold(records)
        self._append(state, self.journal.epoch, 0, records)
        return super().run()

    def _begin(self) -> State:
        return self._folded() if self.journal.data else super()._begin()

    def _own(self, state: State, pending: list[r.AnyRecord]) -> State:
        return super()._own(state, [record for record in pending if record is not self.started])

    def _perform(self, state: State, effect: Any) -> None:
        if isinstance(effect, CallTool) and effect.direction == FORWARD:
            compiled = state.plan.steps[effect.step]
            if compiled.compensates is None:
                raise Violation(f"{compiled.key} is called again by the undo")
        super()._perform(state, effect)

    def _check_replans(self) -> None:
        """What a planner dropped, it dropped in the saga that completed."""

    def _check_end(self, state: State) -> None:
        if state.status == t.COMPLETED:
            raise Violation("an undo completed")
        super()._check_end(state)
        shown = view(state).plain()
        said = {str(step) for name in ("compensated", "left_in_place") for step in shown["report"][name]}
        said |= {str(step) for step in shown["report"].get("semantic", ())}
        if self.stood - said:
            raise Violation(f"nothing is said of {self.stood - said}, which stood: {shown['report']}")
        if any(isinstance(record, r.FinallyStarted) for record in self.journalled()) or "finally" in shown["report"]:
            raise Violation("finally ran again")
        undone = [
            record.step
            for record in self.journalled()
            if isinstance(record, r.StepIntended) and record.direction != FORWARD
        ]
        never = {step.key for step in state.plan.steps} - self.stood
        if set(undone) & never:
            raise Violation(f"{set(undone) & never} are undone, and never stood")
