"""The simulation of undos of several calls, of which some are made for each item of a list.

Beside the laws of ``simulation``: the calls of an undo happen in their order, each one once, and a step counts as
undone only when all of them have happened. A model is not asked to make up for a step that is half undone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, FORWARD, AskPlanner, Done, Outcome
from saga_engine.core.state import State
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation, World

Part = tuple[int, int]


class Parts(World):
    """What each undo consists of, and what of it has happened."""

    def start_parts(self, wanted: dict[str, list[Part]], items: dict[str, int]) -> None:
        self.wanted = wanted
        self.items = items
        self.done: dict[str, list[Part]] = {}
        self.part: dict[str, Part] = {}  # the call of the undo that is being made

    def of_parts(self, step: str) -> bool:
        return step in self.wanted and self.made_by.get(step, "do_").startswith("do_")

    def knock(self, step: str, spec: ToolSpec, key: str) -> None:
        name = f"{spec.name}{self.part[step]}" if spec.name.startswith("part_") else spec.name
        super().knock(step, replace(spec, name=name), key)

    def apply(self, step: str, direction: str, spec: ToolSpec, key: str, now: int) -> Any:
        if direction == FORWARD or spec.effect == "read" or not self.of_parts(step) or self.remembers(key, spec, now):
            known = self.remembers(key, spec, now)
            result = super().apply(step, direction, spec, key, now)
            if direction == FORWARD and not known and step in self.items and spec.name.startswith("do_"):
                self.done[step] = []
                result["items"] = list(range(self.items[step]))
            return result
        done, part = self.done.setdefault(step, []), self.part[step]
        if (part in done or not self.standing.get(step)) and not spec.tolerates_absence:
            raise Violation(f"{step}: call {part} of its undo is made again, and does not tolerate that")
        if part not in done:
            if self.wanted[step][len(done)] != part:
                raise Violation(f"{step}: {part} of its undo happens after {done} of {self.wanted[step]}")
            done.append(part)
        if len(done) == len(self.wanted[step]):
            self.standing[step] = 0
        if spec.keyed:
            self.applied[key] = (now, {"ok": True})
        return {"ok": True}

    def happened(self, step: str, direction: str) -> bool:
        if direction == COMPENSATE and self.of_parts(step):
            return self.part[step] in self.done.get(step, ())
        return super().happened(step, direction)


class UndoCallsSimulation(Simulation):
    """As ``Simulation``, with rollbacks of several calls."""

    world: Parts

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        self.wanted: dict[str, list[Part]] = {}
        self.items: dict[str, int] = {}
        super().__init__(dice, trouble)
        self.world.start_parts(self.wanted, self.items)

    def _world(self) -> type[World]:
        return type("Parts", (Parts, super()._world()), {})

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = {name: catalog.specs[name] for name in catalog.names()}
        for step in body["steps"]:
            key = step["step_id"]
            if "rollback" not in step or specs[f"do_{key}"].before or self.dice.random() < 0.2:
                continue
            specs[f"do_{key}"] = replace(specs[f"do_{key}"], remembers=False)
            self.items[key] = self.dice.choice([0, 1, 2, 2])
            calls, parts = [], []
            for entry in range(self.dice.choice([1, 2, 2, 3])):
                tool = f"part_{key}_{entry}"
                undo = specs[f"undo_{key}"]
                specs[tool] = replace(undo, name=tool, tolerates_absence=self.dice.random() < 0.5)
                call = {"tool": tool, "params": {"ref": "$key"}, "retry": step["rollback"]["retry"]}
                listed = self.dice.random() < 0.5
                if listed:
                    call |= {"each": f"$output.step_{key}.items", "params": {"ref": "$item"}}
                calls.append(call)
                parts += [(entry, item) for item in range(self.items[key])] if listed else [(entry, -1)]
            step["rollback"] = calls[0] | ({"then": calls[1:]} if calls[1:] else {})
            self.wanted[key] = parts
        return body, Catalog(list(specs.values()))

    def _perform(self, state: State, effect: Any) -> None:
        if getattr(effect, "direction", FORWARD) == COMPENSATE:
            self._remember_part(state, effect.step)
        if isinstance(effect, AskPlanner) and state.steps[effect.step].undo_calls:
            raise Violation(f"a model is asked about step {effect.step}, which is half undone")
        super()._perform(state, effect)

    def _remember_part(self, state: State, index: int) -> None:
        call = state.steps[index].undo_call
        self.world.part[state.plan.steps[index].key] = (0, -1) if call is None else (call.entry, call.item)

    def _learned(self, effect: Any, result: Any, now: int, dice: float) -> r.AnyRecord:
        record = super()._learned(effect, result, now, dice)
        self._learn(record)
        return record

    def _append(self, state: State, epoch: int, seq: int, records: Sequence[r.AnyRecord]) -> int:
        for record in records:
            self._learn(record)
        return super()._append(state, epoch, seq, records)

    def _learn(self, record: r.AnyRecord) -> None:
        """An undo whose lists are empty takes back nothing, and there was nothing to take back."""
        if isinstance(record, r.StepSucceeded) and record.via == "nothing":
            if self.wanted.get(record.step) != []:
                raise Violation(f"{record.step}: its undo was to call {self.wanted.get(record.step)}")
            self.world.standing[record.step] = 0

    def _probe(self, step: str, direction: str, spec: ToolSpec) -> Outcome:
        outcome = super()._probe(step, direction, spec)
        if type(outcome) is Done and direction == FORWARD and step in self.items:
            return Done(self._told(step))
        return outcome

    def _told(self, step: str) -> dict[str, Any]:
        return super()._told(step) | ({"items": list(range(self.items[step]))} if step in self.items else {})

    # --- people --------------------------------------------------------------------------------------------------

    def _person(self, state: State) -> None:
        for question in state.questions.values():
            if question.direction == COMPENSATE:
                self._remember_part(state, question.step)
        stood, count = dict(self.world.standing), len(self.inbox)
        super()._person(state)
        for message in self.inbox[count:]:
            asked, step = state.questions[message.question], message.step
            if asked.direction == FORWARD and message.decision == "happened":
                self.world.done[step] = []
            if asked.direction == FORWARD or not self.world.of_parts(step):
                continue
            done = self.world.done.setdefault(step, [])
            if message.decision == "happened" and state.steps[asked.step].undo_call is not None:
                # If this call had not happened, the person made it by hand.
                done += [self.world.part[step]] if self.world.part[step] not in done else []
                self.world.standing[step] = stood.get(step, 0) if len(done) < len(self.wanted[step]) else 0

    def _truthful(self, option: str, step: str, direction: str, key: str, spec: ToolSpec | None) -> bool:
        if direction == COMPENSATE and self.world.of_parts(step) and option in ("retry", "not-happened"):
            return self.world.part[step] not in self.world.done.get(step, ()) and bool(self.world.standing.get(step))
        return super()._truthful(option, step, direction, key, spec)
