"""The simulation of calls that change values, which strangers change as well.

Beside the laws of ``simulation``: a before-image shows what the call overwrote, an undo puts that back, and it never
overwrites what a stranger wrote unless an operator saw that very value and said so.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec

from saga_engine.core import images
from saga_engine.core import records as r
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    CallTool,
    Done,
    Drifted,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    ReadBefore,
    Unknown,
)
from saga_engine.core.state import State
from saga_engine.plan.absence import Absence
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation, World


class Values(World):
    """A value for each step's tool; null: there is nothing yet."""

    def start_values(self, dice: random.Random, steps: list[str]) -> None:
        self.count = 0
        self.values: dict[str, Any] = {step: dice.choice([None, f"first-{step}"]) for step in steps}
        self.overwrote: dict[str, Any] = {}
        self.before: dict[str, Any] = {}  # the images that the engine has for the calls that are being made
        self.to: dict[str, Any] = {}  # what the undos that are being made write
        self.may_overwrite: set[str] = set()

    def apply(self, step: str, direction: str, spec: ToolSpec, key: str, now: int) -> Any:
        if step not in self.values or spec.effect == "read" or self.remembers(key, spec, now):
            return super().apply(step, direction, spec, key, now)
        stood = bool(self.standing.get(step))
        name = spec.name.replace("del_", "undo_")
        result = super().apply(step, direction, replace(spec, name=name), key, now)
        value = self.values[step]
        if direction == FORWARD and spec.name.startswith("do_"):
            if self.before[step] != image(value):
                raise Violation(f"{step}: it overwrites {value}, and its before-image is {self.before[step]}")
            self.overwrote[step] = value
            self.count += 1
            self.values[step] = f"mine-{step}-{self.count}"
        elif direction == COMPENSATE and step in self.overwrote and self.made_by.get(step, "").startswith("do_"):
            if str(value).startswith("stranger") and step not in self.may_overwrite:
                raise Violation(f"{step}: the undo overwrites {value}, which somebody else wrote")
            if stood and step not in self.may_overwrite and self.to[step] != self.overwrote[step]:
                raise Violation(f"{step}: undone to {self.to[step]}, and it had overwritten {self.overwrote[step]}")
            self.values[step] = self.to[step]
        return result


def image(value: Any) -> dict[str, Any]:
    return {"absent": True} if value is None else {"value": value}


class ImageSimulation(Simulation):
    """As ``Simulation``, with tools that have before-images."""

    world: Values

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        self.world.start_values(dice, [step.key for step in self.plan.steps if step.before is not None])
        self.seen: set[str] = set()  # drifts, by what an operator saw

    def _world(self) -> type[World]:
        return type("Values", (Values, super()._world()), {})

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = {name: catalog.specs[name] for name in catalog.names()}
        for step in body["steps"]:
            key = step["step_id"]
            if "rollback" not in step or self.dice.random() < 0.2:
                continue
            sole = self.dice.random() < 0.3
            specs[f"do_{key}"] = replace(
                specs[f"do_{key}"],
                before=f"look_{key}",
                absent=Absence(null=True),
                undo_absent=f"del_{key}",
                remembers=False,
                sole_writer=sole,
                probe=None if sole else specs[f"do_{key}"].probe,
            )
            specs[f"look_{key}"] = ToolSpec(name=f"look_{key}", effect="read")
            specs[f"del_{key}"] = replace(specs[f"undo_{key}"], name=f"del_{key}", input_schema={"type": "object"})
            step["rollback"]["params"] = {"ref": "$before"}
        return body, Catalog(list(specs.values()))

    # --- reading -------------------------------------------------------------------------------------------------

    def _look(self, step: str) -> images.Image | NotDone:
        if self.dice.random() < 0.08 * self.trouble:
            return NotDone(ErrorInfo("image_unread", "away"), retryable=self.dice.random() < 0.8)
        return image(self.world.values[step])

    def _read(self, state: State, effect: ReadBefore) -> None:
        self._maybe_crash()
        if state.steps[effect.step].forward.tries:
            self._stranger(state)
        seen = self._look(state.plan.steps[effect.step].key)
        self.machine.learn(effect, seen, max(self.now, state.at), self.dice.random())

    def _after_undo(self, state: State, effect: LookAfterUndo) -> Any:
        if effect.by != "before":
            return super()._after_undo(state, effect)
        self._stranger(state)
        return self._look(state.plan.steps[effect.step].key)

    def _waits(self, state: State, effect: CallTool) -> r.AnyRecord | None:
        self._stranger(state)
        return super()._waits(state, effect)

    def _begun(self, state: State, effect: CallTool, now: int) -> r.StepBegun:
        record = super()._begun(state, effect, now)
        if effect.direction != FORWARD or not images.needs_image(state, effect.step):
            return record
        return msgspec.structs.replace(record, before=image(self.world.values[record.step]))

    def _stranger(self, state: State) -> None:
        """Somebody else changes a value, when no call of ours is on its way to it."""
        for index, step in enumerate(state.plan.steps):
            at = state.steps[index]
            spec = step.spec
            quiet = state.in_flight.get((index, FORWARD)) in (None, "queued") and not at.forward.doubt
            quiet = quiet and (index, COMPENSATE) not in state.in_flight and not (at.undo and at.undo.doubt)
            if step.key not in self.world.values or (spec and spec.sole_writer) or not quiet:
                continue
            if self.dice.random() < (0.3 if self.world.standing.get(step.key) else 0.1) * self.trouble:
                old = self.world.overwrote.get(step.key, "")
                self.world.count += 1
                back = old != "" and self.dice.random() < 0.3
                self.world.values[step.key] = old if back else f"stranger-{self.world.count}"

    # --- calls ---------------------------------------------------------------------------------------------------

    def _perform(self, state: State, effect: Any) -> None:
        self._at = state, effect
        super()._perform(state, effect)

    def _call(self, step: str, direction: str, spec: ToolSpec, key: str) -> Outcome:
        state, effect = self._at
        at, read = state.steps[effect.step], state.acting(effect.step).before
        self.world.before[step] = at.before
        self.world.may_overwrite.discard(step)
        if direction == FORWARD:
            outcome = super()._call(step, direction, spec, key)
            if read is None or type(outcome) is not Done:
                return outcome
            after = self._look(step)
            return outcome._replace(after=images.unread(after) if isinstance(after, NotDone) else after)
        if at.before is None:
            return super()._call(step, direction, spec, key)
        assert read is not None
        found = self._look(step)
        if isinstance(found, NotDone):
            return found
        judged = images.judge(at, found, sole_writer=read.sole_writer)
        if judged == "restored":
            if self.world.standing.get(step) and found != image(self.world.overwrote.get(step)):
                raise Violation(f"{step}: nothing is left to undo, and {found} is there")
            self.world.standing[step] = 0
            return Done(None, via="unchanged")
        if judged == "drift":
            return Drifted(images.drift(read, at), found)
        if f"{step}:{found}" in self.seen:
            self.world.may_overwrite.add(step)
        self.world.to[step] = at.before.get("value")
        return super()._call(step, direction, spec, key)

    def _probe(self, step: str, direction: str, spec: ToolSpec) -> Outcome:
        state, effect = self._at
        outcome = super()._probe(step, direction, spec) if spec.probe else Unknown(ErrorInfo("no_probe", "none"))
        if type(outcome) is not Unknown or outcome.lost or not images.reads_settle(state, effect.step, direction):
            return outcome
        found = self._look(step)
        if isinstance(found, NotDone):
            return Unknown(found.error)
        outcome = images.settled(state, effect.step, direction, found)
        stands = bool(self.world.standing.get(step))
        wrong = {Done: not stands, NotDone: stands}.get(type(outcome), False)
        if direction == COMPENSATE:
            back = found == image(self.world.overwrote.get(step))
            wrong = {Done: stands and not back, NotDone: not stands}.get(type(outcome), False)
        if wrong:
            raise Violation(f"{step} {direction}: {found} is taken for {outcome}")
        if direction == COMPENSATE and type(outcome) is Done:
            self.world.standing[step] = 0
        return outcome

    # --- people --------------------------------------------------------------------------------------------------

    def _person(self, state: State) -> None:
        count = len(self.inbox)
        super()._person(state)
        for message in self.inbox[count:]:
            step = message.step
            if step not in self.world.values:
                continue
            asked = state.questions[message.question]
            if message.decision == "undo":
                self.seen.add(f"{step}:{asked.found}")
                if self.dice.random() < 0.5:  # and somebody changes it once more
                    self.world.count += 1
                    self.world.values[step] = f"stranger-{self.world.count}"
            elif message.decision in ("undone", "happened") and asked.direction == COMPENSATE:
                self.world.values[step] = self.world.overwrote.get(step, self.world.values[step])
            elif message.decision == "happened" and not str(self.world.values[step]).startswith("mine"):
                self.world.overwrote[step] = self.world.values[step]  # by hand, over whatever was there
                self.world.count += 1
                self.world.values[step] = f"mine-{step}-{self.world.count}"
