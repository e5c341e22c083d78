"""The simulation of sagas with conditions: ``when``, ``on_error``, ``failed_when``, and computations between the calls."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.state import State
from saga_engine.core.state_values import Made
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

INPUT = {"one": 1, "word": "many"}
YES = {"value": "$input.one", "op": "==", "to": 1}
NO = {"value": "$input.one", "op": "!=", "to": 1}
#: A word has no order.
ODD = {"value": "$input.word", "op": ">", "to": 1}
WORDS = {"yes": YES, "no": NO, "odd": ODD}


def with_conditions(dice: random.Random, plan: dict[str, Any], catalog: Catalog) -> dict[str, Any]:
    """The plan with conditions that pass the checks."""
    lacking: set[str] = set()
    for step in plan["steps"]:
        kind = step.get("kind")
        reads = catalog.spec(step["tool"]).effect == "read"
        if kind != "pivot" and dice.random() < 0.4:
            step["when"] = WORDS[dice.choice(["yes", "yes", "no", "no", "odd"])]
        if kind != "pivot" and dice.random() < 0.3 and "each" not in step:
            step["on_error"] = "continue"
        goes_on = "on_error" in step or step.get("each", {}).get("on_error") == "collect"
        checked = kind not in ("pivot", "retriable", "irreversible") and (reads or not goes_on)
        if checked and dice.random() < 0.35:
            step["failed_when"] = WORDS[dice.choice(["yes", "no", "no", "odd"])]
        earlier = step["params"].get("earlier")
        if earlier is not None and earlier.split(".")[1].removeprefix("step_") in lacking:
            step["params"]["earlier"] = {"$first": [earlier, None]}
        if "when" in step or "on_error" in step:
            lacking.add(str(step["step_id"]))
    if dice.random() < 0.4:
        plan["steps"].insert(dice.randrange(len(plan["steps"]) + 1), _computation(dice))
    return {**plan, "input": {**plan.get("input", {}), **INPUT}}


def _computation(dice: random.Random) -> dict[str, Any]:
    step: dict[str, Any] = {"step_id": "c", "compute": {"add": ["$input.one", 2]}}
    if dice.random() < 0.3:
        step["compute"] = {"add": ["$input.word", 2]}
    if dice.random() < 0.3:
        step["on_error"] = "continue"
    return step


class ConditionalSimulation(Simulation):
    """A plan with conditions. The outside world knows nothing of them: the laws compare it with what the plan says."""

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        plan, catalog = super()._case()
        return with_conditions(self.dice, plan, catalog), catalog

    def _said(self, name: str) -> dict[str, str]:
        """What each step's conditions come to."""
        words = {id(value): word for word, value in WORDS.items()}
        return {str(step["step_id"]): words[id(step[name])] for step in self.plan_body["steps"] if name in step}

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        when, outputs = self._said("when"), self._said("failed_when")
        goes_on = {str(step["step_id"]) for step in self.plan_body["steps"] if "on_error" in step}
        lists = {str(step["step_id"]) for step in self.plan_body["steps"] if "each" in step}
        passed = super()._passed_over(statuses, dropped)
        for key, status in statuses.items():
            if status == t.SKIPPED and when.get(key) == "no":
                passed.add(key)
            elif status in (t.FAILED, t.BLOCKED) and key in goes_on:
                passed.add(key)
                if self.world.standing.get(key):
                    raise Violation(f"{key} stands, and counts as a failure that the saga went on from")
            elif outputs.get(key, "no") != "no" and key not in dropped and key not in lists:
                raise Violation(f"completed, although the output of {key} means failure")
        return passed

    def _made_any(self, state: State, key: str) -> bool:
        """Whether a step has an output that could mean failure: a list of no items has none, and some collect failures."""
        each = next((step.get("each") for step in self.plan_body["steps"] if step["step_id"] == key), None)
        return each is None or (each.get("on_error") != "collect" and f"{key}[0]" in state.plan.by_key)

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        when, outputs = self._said("when"), self._said("failed_when")
        dropped = {key for added in state.added for key in added.addition.dropped}
        for record in self.journalled():
            forward = isinstance(record, r.StepIntended) and record.direction == "forward"
            if forward and when.get(record.step, "yes") != "yes":
                raise Violation(f"{record.step} was called, although its conditions do not hold")
            if isinstance(record, r.StepSkipped) and when.get(record.step) != "no":
                raise Violation(f"{record.step} was skipped, although nothing says no")
            if forward:
                before = state.plan.steps[state.plan.by_key[record.step]].deps
                for key in {state.plan.steps[index].key for index in before} - dropped:
                    compiled = state.plan.steps[state.plan.by_key[key]]
                    bad = when.get(key, "yes") == "yes" and outputs.get(key, "no") != "no"
                    if bad and not compiled.continues and self._made_any(state, key):
                        raise Violation(f"{record.step} was called after {key}, whose output means failure")
        for compiled, step in zip(state.plan.steps, state.steps, strict=True):
            said = isinstance(step.effect, Made) and step.effect.via == "decision"
            if when.get(compiled.key, "yes") != "yes" and step.effect is not None and not said:
                raise Violation(f"{compiled.key} counts as happened, and was never called")
