"""The part of the simulation that asks a model: what it answers, and the laws about its answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

from saga_engine.core import codec, interpret
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import FORWARD, AskPlanner, CallTool, ErrorInfo
from saga_engine.core.state import State
from tests.core.world import Violation

WRITTEN = r.Written("simulated", "replan@1")


class Replanning:
    """What ``Simulation`` has for models: one that makes up for a step, or finds another way (``on_failure: replan``)."""

    allowed_compensations: set[str]
    capabilities: Capabilities
    catalog: Any
    dice: random.Random
    journal: Any
    plan_body: dict[str, Any]
    spare: Iterator[int]

    def journalled(self) -> list[r.AnyRecord]:
        raise NotImplementedError

    def _ask_planner(self, state: State, effect: AskPlanner) -> None:
        """A model that may be away, may write nonsense, and may know a way."""
        key = state.plan.steps[effect.step].key
        for data in self.journal.data:
            record = codec.decode(data)
            if isinstance(record, r.CompensationProposed) and record.step == key:
                raise Violation(f"the model was asked again about {key}")
        self._maybe_crash()
        luck = self.dice.random()
        number = next(self.spare, None)
        advice: interpret.Advice | ErrorInfo
        if luck < 0.2 or number is None:
            advice = ErrorInfo("model_unreachable", "no answer")
        elif luck < 0.35:
            advice = interpret.Advice([{"step_id": "made-up", "tool": "nope"}], WRITTEN)
        elif effect.purpose == "replan":
            advice = self._other_way(state, number)
        else:
            tool = f"fix_x{number}"
            amount = self.dice.choice([0, 0, number])
            steps = [{"step_id": f"x{number}", "tool": tool, "params": {"n": amount}}]
            if self.dice.random() < 0.6:
                other = tool if self.dice.random() < 0.2 else f"fix_y{number}"
                steps.append({"step_id": f"y{number}", "tool": other, "params": {"n": amount}})
                if self.dice.random() < 0.6:  # side by side
                    steps[1]["depends_on"] = []
            advice = interpret.Advice(steps, WRITTEN)
            specs = [self.catalog.spec(str(step["tool"])) for step in steps]
            modest = amount <= self._amount(state, effect.step) and len({s["tool"] for s in steps}) == len(steps)
            auto = all(spec is not None and (spec.semantic or self.capabilities.semantic) == "auto" for spec in specs)
            if auto and modest:
                self.allowed_compensations |= {str(step["step_id"]) for step in steps}
        self._maybe_crash()
        now = self._tick(state)
        going, failed = set(self._going(state)), {state.plan.steps[index].key for index in state.failed}
        record = self._learned(effect, advice, now, 0.5)
        self._check_other_way(state, record, going, failed)

    def _new_steps(self, number: int) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = [{"step_id": f"x{number}", "tool": f"do_x{number}", "params": {"n": number}}]
        if self.dice.random() < 0.3:
            steps[0]["depends_on"] = []
        return steps

    def _other_way(self, state: State, number: int) -> interpret.Advice:
        """Another step for the failed one, with reasons for all others that go; now and then a wrong answer."""
        steps = self._new_steps(number)
        luck = self.dice.random()
        if luck < 0.2:  # the call that failed, once more
            written = next((step for step in self.plan_body["steps"] if step["step_id"] == self._failed(state)), None)
            if written is not None:
                wanted = {name: written[name] for name in ("tool", "params", "kind") if name in written}
                again = {"step_id": f"x{number}", **wanted, "depends_on": []}
                if "rollback" in written:
                    again["rollback"] = {**written["rollback"], "params": {"ref": "$key"}}
                return interpret.Advice([again], WRITTEN, dropped=dict.fromkeys(self._going(state), "not needed"))
        reasons = {} if luck < 0.35 else dict.fromkeys(self._going(state), "not needed")
        kept = [step.key for step in state.plan.steps if state.steps[step.index].status == t.PENDING]
        if kept and self.dice.random() < 0.15:  # more than it has to
            more = [key for key in kept if key not in reasons]
            reasons |= dict.fromkeys(more, "not wanted")
        return interpret.Advice(steps, WRITTEN, dropped=reasons)

    def _amount(self, state: State, index: int) -> int:
        """What a step was about: a model that makes up for more of it is not let through."""
        found: int = state.plan.steps[index].params.raw["n"]
        return found

    def _failed(self, state: State) -> str:
        return state.plan.steps[state.failed[0]].key if state.failed else ""

    def _going(self, state: State) -> list[str]:
        """The steps that have not started and need one that failed, as the plan says."""
        written = {str(step["step_id"]): step for step in self.plan_body["steps"]}
        gone = {state.plan.steps[index].key for index in state.failed}
        going: list[str] = []
        for step in state.plan.steps:  # a step needs only earlier ones
            body = written.get(step.key, {})
            bound = re.findall(r"\$output\.step_(\w+)", str(body.get("params", {})))
            needs = {*body.get("depends_on", ()), *bound}
            if state.steps[step.index].status == t.PENDING and needs & gone:
                gone.add(step.key)
                going.append(step.key)
        return going

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        """Steps of a completed saga that did not happen, as the plan says."""
        return set()

    def _check_pivot(self, state: State, pivot: str) -> None:
        """The pivot runs when everything that can be undone has happened."""
        for compiled in state.plan.steps:
            at = state.steps[compiled.index]
            if compiled.kind == "compensatable" and not (at.settled or at.status in (t.SUCCEEDED, t.SKIPPED, t.FAILED)):
                raise Violation(f"the pivot {pivot} runs, and {compiled.key} is {at.status}")

    def _check_other_way(self, state: State, record: r.AnyRecord, going: set[str], failed: set[str]) -> None:
        """What does not need a failed step is kept unless there is a reason, and no write goes without one."""
        if not isinstance(record, r.StepsAdded):
            return
        kinds = {step.key: step.kind for step in state.plan.steps}
        needless = set(record.dropped) - going - failed
        because = {key for key in needless if key not in record.reasons}
        if because and not record.reasons:
            raise Violation(f"{because} do not need what failed, and were dropped")
        silent = {key for key in going if key not in record.reasons and kinds[key] != "read"}
        if silent:
            raise Violation(f"{silent} were dropped, and nobody said why")
        if going - set(record.dropped):
            raise Violation(f"{going - set(record.dropped)} need what failed, and are still wanted")

    def _check_replans(self) -> None:
        """What a planner dropped, it had seen, and it repeats no call that failed."""
        known = {step["step_id"] for step in self.plan_body["steps"]}
        calls = {step["step_id"]: (step.get("tool"), step.get("params")) for step in self.plan_body["steps"]}
        failed: list[Any] = []
        seen: set[Any] = set()
        for record in self.journalled():
            if isinstance(record, r.PlannerAsked):
                seen = set(known)
            elif isinstance(record, r.StepFailed) and record.direction == FORWARD:
                failed.append(calls.get(record.step))
            elif isinstance(record, r.StepsAdded):
                if record.written is not None and any((s["tool"], s["params"]) in failed for s in record.steps):
                    raise Violation(f"a call that failed is made again: {record.steps}")
                if record.written is not None and set(record.dropped) - seen:
                    raise Violation(f"{set(record.dropped) - seen} were dropped by a planner that never saw them")
                known |= {step["step_id"] for step in record.steps}

    def _begun(self, state: State, effect: CallTool, now: int) -> r.StepBegun:
        """The record of a call that has waited."""
        return r.StepBegun(at=now, step=state.plan.steps[effect.step].key, direction=effect.direction)
