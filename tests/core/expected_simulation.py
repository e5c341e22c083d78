"""The simulation of writes that expect what their saga last read, while strangers write as well.

Beside the laws of ``image_simulation``: such a write is made only over the value that its saga has read, and what is
not made because of a stranger says so.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec

from saga_engine.core import expected, images
from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD, CallTool, Done, NotDone, Outcome
from saga_engine.core.state import State
from saga_engine.plan.expect import CHANGED
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.image_simulation import ImageSimulation, image
from tests.core.world import Violation, World


class Shown(World):
    """Its reads show its values."""

    values: dict[str, Any]

    def apply(self, step: str, direction: str, spec: ToolSpec, key: str, now: int) -> Any:
        of = spec.name.removeprefix("look_")
        if of == spec.name or of not in self.values:
            return super().apply(step, direction, spec, key, now)
        return self.values[of]


class ExpectedSimulation(ImageSimulation):
    """As ``ImageSimulation``, with steps that read a value, and steps that write it only if it is still that."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        self.changed = 0

    def _world(self) -> type[World]:
        return type("Shown", (Shown, super()._world()), {})

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = {name: catalog.specs[name] for name in catalog.names()}
        steps: list[dict[str, Any]] = []
        for step in body["steps"]:
            key = step["step_id"]
            spec = specs.get(f"do_{key}")
            if spec is not None and spec.before is not None and self.dice.random() < 0.7:
                read = {"step_id": f"r{key}", "tool": f"look_{key}", "params": dict(step["params"])}
                if "depends_on" in step:
                    read["depends_on"] = list(step["depends_on"])
                    step["depends_on"] = [*step["depends_on"], f"r{key}"]
                steps.append(read)
                specs[f"do_{key}"] = replace(spec, expect="$before")
            steps.append(step)
        body["steps"] = steps
        return body, Catalog(list(specs.values()))

    def _perform(self, state: State, effect: Any) -> None:
        if self.dice.random() < 0.3:
            self._stranger(state)
        super()._perform(state, effect)

    def _begun(self, state: State, effect: CallTool, now: int) -> r.StepBegun:
        record = super()._begun(state, effect, now)
        kept = effect.direction == FORWARD and expected.expects(state, effect.step)
        return msgspec.structs.replace(record, before=None) if kept else record

    def _call(self, step: str, direction: str, spec: ToolSpec, key: str) -> Outcome:
        state, effect = self._at
        if direction != FORWARD or not expected.expects(state, effect.step) or spec.name != f"do_{step}":
            return super()._call(step, direction, spec, key)
        call = state.steps[effect.step].forward
        alone = call.doubt or spec.sole_writer
        if not alone and self.dice.random() < 0.3 * self.trouble:  # right before the call, when nobody else knows
            self.world.count += 1
            self.world.values[step] = f"stranger-{self.world.count}"
        found = self._look(step)
        said = expected.judged(state, effect.step, found)
        if said is None:
            read = state.steps[state.plan.by_key[f"r{step}"]].output
            if not (isinstance(read, list | dict) or images.same(image(read), found)):  # (a list has one for each item)
                raise Violation(f"{step}: the saga has read {read}, and writes over {found}")
            return super()._call(step, direction, spec, key)
        if type(said) is Done and not self.world.standing.get(step):
            raise Violation(f"{step}: {found} is taken for what the call would leave")
        if type(said) is NotDone and said.error.error_code == CHANGED:
            self.changed += 1
        return said

    def _person(self, state: State) -> None:
        """Who makes such a call by hand undoes it to what the saga had read."""
        count = len(self.inbox)
        super()._person(state)
        for message in self.inbox[count:]:
            if message.decision == "happened" and message.step in self.world.values:
                at = state.steps[state.plan.by_key[message.step]]
                if expected.expects(state, state.plan.by_key[message.step]) and isinstance(at.before, dict):
                    self.world.overwrote[message.step] = at.before.get("value")
