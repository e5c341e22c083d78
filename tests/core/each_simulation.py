"""The simulation of sagas with ``each``: lists of random length, in lanes, some of which collect failures."""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, CallTool
from saga_engine.core.state import State
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

ABOVE = {"value": "$item.n", "op": ">", "to": 1}


def with_lists(dice: random.Random, plan: dict[str, Any], catalog: Catalog) -> dict[str, Any]:
    """The plan with lists that pass the checks."""
    if plan.get("on_failure") == "replan":
        plan["on_failure"] = "pause"
    lists: dict[str, list[Any]] = {}
    for step in plan["steps"]:
        key = step["step_id"]
        earlier = step["params"].get("earlier")
        if earlier is not None and earlier.split(".")[1].removeprefix("step_") in lists:
            step["params"]["earlier"] = earlier.removesuffix(".ref")
        undo = step.get("rollback", {})
        special = undo.get("tool", "").startswith("part_") or getattr(catalog.spec(step["tool"]), "before", None)
        if step.get("kind") == "pivot" or special or dice.random() < 0.4:
            continue
        lists[key] = [{"n": number} for number in range(dice.choice([0, 1, 2, 3, 3, 5]))]
        step["params"]["n"] = "$item.n"
        step["each"] = {"of": f"$input.{key}", "parallel": dice.choice([1, 1, 2, 3])}
        if dice.random() < 0.3:
            step["each"]["on_error"] = "collect"
        if dice.random() < 0.3:
            step["each"]["when"] = ABOVE
        if dice.random() < 0.1:
            lists[key] = {"no": "list"}  # type: ignore[assignment]
            step["each"]["of"] = {"$first": [f"$input.{key}", None]}  # not known before it runs
        elif dice.random() < 0.3:
            step["each"]["of"] = lists[key]
    return {**plan, "input": {**plan.get("input", {}), **lists}}


class EachSimulation(Simulation):
    """A plan with lists. The outside world sees the calls of their items, each under its own key."""

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        plan, catalog = super()._case()
        return with_lists(self.dice, plan, catalog), catalog

    def _written(self) -> dict[str, dict[str, Any]]:
        return {step["step_id"]: step["each"] for step in self.plan_body["steps"] if "each" in step}

    def _wanted(self, key: str) -> list[str] | None:
        """The keys of a list's items; None: it is no list."""
        given = self.plan_body["input"][key]
        if not isinstance(given, list):
            return None
        kept = [item for item in given if "when" not in self._written()[key] or item["n"] > 1]
        return [f"{key}[{number}]" for number in range(len(kept))]

    def _perform(self, state: State, effect: Any) -> None:
        if isinstance(effect, CallTool) and effect.direction == FORWARD:
            self._check_lanes(state, state.plan.steps[effect.step].key)
        super()._perform(state, effect)

    def _check_lanes(self, state: State, key: str) -> None:
        """Not more calls of one list are in flight than it allows."""
        of = key.partition("[")[0]
        if of == key:
            return
        under_way = {state.plan.steps[index].key for index, way in state.in_flight if way == FORWARD}
        if sum(1 for other in under_way if other.startswith(f"{of}[")) > self._written()[of].get("parallel", 1):
            raise Violation(f"{under_way} are in flight, more than step {of} allows")

    def _check_turn(self, state: State, effect: Any) -> None:
        super()._check_turn(state, effect)
        if isinstance(effect, CallTool) and effect.direction == COMPENSATE:
            self._check_undo(state, state.plan.steps[effect.step].key)

    def _check_undo(self, state: State, key: str) -> None:
        """What a list depends on stands until its items are undone; in a lane, what came later goes first."""
        of, _, number = key.rstrip("]").partition("[")
        for other, written in self._written().items():
            parallel = written.get("parallel", 1)
            for item in self._wanted(other) or ():
                index = state.plan.by_key.get(item)
                if index is None or not self.world.standing.get(item) or state.undoing(index) is None:
                    continue
                if state.steps[index].status in (t.RESOLVED, t.COMPENSATED):
                    continue
                at = int(item.rstrip("]").partition("[")[2])
                behind = number and of == other and at > int(number) and at % parallel == int(number) % parallel
                if behind or (not number and of in self._deps(other)):
                    raise Violation(f"{key} is undone, and {item} stands")

    def _deps(self, key: str) -> set[str]:
        return {self.plan.steps[dep].key for dep in self.plan.steps[self.plan.by_key[key]].deps}

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        passed = super()._passed_over(statuses, dropped)
        for key, status in statuses.items():
            written = self._written().get(key.partition("[")[0], {})
            if "[" in key and status in (t.FAILED, t.BLOCKED) and written.get("on_error") == "collect":
                passed.add(key)
                if self.world.standing.get(key):
                    raise Violation(f"{key} stands, and is collected as a failure")
        return passed

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        done: dict[str, Any] = {}
        skipped: set[str] = set()  # by conditions: their items are never made
        for record in self.journalled():
            said = isinstance(record, r.QuestionResolved) and record.decision == "happened"
            if said or (isinstance(record, r.StepSucceeded) and record.direction == FORWARD):
                done.setdefault(record.step, record.output)  # (what is said of an undo comes later)
            elif isinstance(record, r.StepIntended) and record.direction == FORWARD:
                self._check_order(record.step, done.keys() | skipped)
            elif isinstance(record, r.StepSkipped):
                skipped.add(record.step)
            elif isinstance(record, r.OutputChecked) and record.error is not None:
                done.pop(record.step, None)  # its output means failure
            elif isinstance(record, r.CompensationStarted | r.StepEscalated):
                written = self._written().get(record.step.partition("[")[0], {})
                asked = isinstance(record, r.CompensationStarted) or record.kind == "step-failed"
                if asked and "[" in record.step and written.get("on_error") == "collect":
                    raise Violation(f"the failure of {record.step} is collected, and changes the saga's way")
        for key, written in self._written().items():
            wanted = self._wanted(key)
            there = [step.key for step in state.plan.steps if step.key.startswith(f"{key}[")]
            if there and there != wanted:
                raise Violation(f"step {key} has the items {there}, and its list {wanted}")
            if key not in done:
                if state.status == t.COMPLETED and wanted is not None and key not in skipped:
                    raise Violation(f"completed without {key}")
                continue
            if done[key] == self._told(key):
                continue  # a person said so
            if wanted is None:
                raise Violation(f"step {key} has no list, and happened")
            outputs = [done.get(item) for item in wanted]
            output = done[key]
            given = output["outputs"] if written.get("on_error") == "collect" else output
            if given != outputs:
                raise Violation(f"the output of {key} is {given}, and the items' were {outputs}")
            if given is not output and {wanted[found["index"]] for found in output["failed"]} & done.keys():
                raise Violation(f"{key} tells of failures that were none: {output}")

    def _check_order(self, key: str, over: AbstractSet[str]) -> None:
        of = key.partition("[")[0]
        if of not in self.plan.by_key:
            return  # it was added later
        for before in self._deps(of):
            if before in self._written() and before not in over:
                raise Violation(f"{key} was called before all items of {before} had ended")
