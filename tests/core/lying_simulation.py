"""The simulation of undos that only say that they were done, and of the looks after them (``core.verified``).

Beside the laws of ``simulation``: a lie that a look could see is never the end of the matter, an undo that did what it
says is never doubted, and no step counts as verified that stands.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, Done, ErrorInfo, LookAfterUndo, NotDone
from saga_engine.core.state import State
from saga_engine.plan.absence import Absence
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.plan.undo_check import UndoCheck
from saga_engine.plan.undo_looks import look_of
from tests.core.cases import Catalog
from tests.core.generator import FEATURES, kind_of
from tests.core.image_simulation import ImageSimulation
from tests.core.simulation import Simulation
from tests.core.world import Violation, World


class Liars(World):
    """Some undos say that they were done, and do nothing."""

    def start_lies(self, dice: random.Random, often: float) -> None:
        self.lies_of, self.often = dice, often
        self.lied: set[str] = set()

    def apply(self, step: str, direction: str, spec: ToolSpec, key: str, now: int) -> Any:
        if direction == COMPENSATE and not self.remembers(key, spec, now):
            self.lied.discard(step)
            if self.standing.get(step) and self.lies_of.random() < self.often:
                self.lied.add(step)
                return {"ok": True}
        return super().apply(step, direction, spec, key, now)


class LyingSimulation(Simulation):
    """As ``Simulation``, with undos that lie, and tools with an ``undo_check``."""

    world: Liars

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        self.world.start_lies(dice, dice.choice([0.0, 0.3, 0.6]))

    def _world(self) -> type[World]:
        return type("Liars", (Liars, super()._world()), {})

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = {name: catalog.specs[name] for name in catalog.names()}
        for step in body["steps"]:
            key = step["step_id"]
            if "rollback" not in step or f"do_{key}" not in specs:
                continue
            luck, name = self.dice.random(), f"do_{key}"
            if luck < 0.2:
                specs[name] = replace(specs[name], verify=False)
            elif luck < 0.7:
                check = UndoCheck(f"check_{key}", {}, Absence(null=True))
                specs[f"check_{key}"] = ToolSpec(name=f"check_{key}", effect="read")
                specs[name] = replace(specs[name], undo_check=check, verify_within_s=self.dice.choice([0.0, 0.0, 3.0]))
        return body, Catalog(list(specs.values()))

    def _after_undo(self, state: State, effect: LookAfterUndo) -> Any:
        if effect.by != "check":
            return super()._after_undo(state, effect)
        step, at = state.plan.steps[effect.step].key, state.steps[effect.step].look
        spec = state.acting(effect.step).spec
        assert at is not None
        assert spec is not None
        if self.dice.random() < 0.1 * self.trouble:
            return NotDone(ErrorInfo("image_unread", "away"), retryable=True)
        old = max(self.now, state.at) - at.since < spec.verify_within_s * 1000 and self.dice.random() < 0.5
        return {"value": {"ref": step}} if old or self.world.standing.get(step) else {"absent": True}

    def _learned(self, effect: Any, result: Any, now: int, dice: float) -> r.AnyRecord:
        record = super()._learned(effect, result, now, dice)
        checked = isinstance(effect, LookAfterUndo) and effect.by == "check"
        if checked and isinstance(record, r.StepEscalated) and not self.world.standing.get(record.step):
            raise Violation(f"{record.step} was undone, and its undo is doubted")
        if isinstance(record, r.UndoLooked) and record.how == "verified" and self.world.standing.get(record.step):
            told = effect.by == "check" or isinstance(result, Done)
            if told and record.step in self.world.lied:
                raise Violation(f"{record.step} stands, and its undo counts as verified")
        return record

    def _person(self, state: State) -> None:
        count = len(self.inbox)
        super()._person(state)
        for message in self.inbox[count:]:
            if message.decision in ("undone", "happened"):
                self.world.lied.discard(message.step)

    def _check_turn(self, state: State, effect: Any) -> None:
        """Other undos do not wait for a look, nor for what is asked because of one."""
        kept = self.world.standing
        self.world.standing = {step: count for step, count in kept.items() if step not in self.world.lied}
        super()._check_turn(state, effect)
        self.world.standing = kept

    def _check_end(self, state: State) -> None:
        """What a lie left is told, or nobody could have seen it."""
        for step in state.plan.steps:
            if step.key not in self.world.lied or not self.world.standing.get(step.key):
                continue
            if state.steps[step.index].accepted or state.steps[step.index].semantic == "happened":
                continue  # an operator was asked, for whatever reason, and leaves it; or others made up for it
            look, undo = state.steps[step.index].look, state.whole_rollback(step.index)
            if look is None and look_of(
                state.acting(step.index), undo, image=state.steps[step.index].before is not None
            ):
                raise Violation(f"{step.key} stands, and nobody looked at its undo")
            seen = look is not None and (look.how == "verified" or look.error is None)
            if seen:
                raise Violation(f"{step.key} stands, its undo was looked at, and nobody was asked: {look}")
            self.world.standing[step.key] = 0  # nobody looks, or the look failed
        super()._check_end(state)


class LyingImages(LyingSimulation, ImageSimulation):
    """Undos of values that lie."""


def lying(seed: int) -> LyingSimulation:
    """The saga of a seed, with other features of plans."""
    dice = random.Random(seed)
    others = [name for name in FEATURES if name != "undo calls"]
    features = tuple(sorted(dice.sample(others, dice.choice([0, 1, 1, 2]))))
    kind = type("Lying", (LyingSimulation, *((kind_of(features),) if features else ())), {})
    made: LyingSimulation = kind(dice, dice.choice([0.0, 0.3, 0.6, 1.0]))
    return made
