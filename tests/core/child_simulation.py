"""A saga whose steps run other sagas: children end at any time, are told late, twice or not at all, and leave things."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, ErrorInfo
from saga_engine.core.messages import Message
from saga_engine.core.report import report
from saga_engine.core.state import State
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

KID = {"step_id": 1, "tool": "kid"}


class ChildSimulation(Simulation):
    """The plans of ``Simulation``, with steps that run children. A child is an effect of its step."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        #: By saga: how it ended, empty as long as it runs; and the step that it is of.
        self.kids: dict[str, str] = {}
        self.steps_of: dict[str, str] = {}
        self.undoes: dict[str, str] = {}
        self.ends: dict[str, ChildEnd] = {}
        self.said: dict[str, list[str]] = {}
        super().__init__(dice, trouble)

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        known = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
        specs = [*known, ToolSpec(name="kid", undo="unkid"), ToolSpec(name="unkid")]
        steps: list[dict[str, Any]] = []
        free = all(step.get("kind") != "pivot" for step in body["steps"])
        for step in body["steps"]:
            steps.append(step)
            if free and self.dice.random() < 0.6:
                steps.append(self._child(f"k{len(steps)}", step))
        on_failure = self.dice.choice(["pause", body.get("on_failure", "compensate")])
        return {**body, "steps": steps, "on_failure": on_failure}, Catalog(specs)

    def _child(self, key: str, after: dict[str, Any]) -> dict[str, Any]:
        inner = dict(KID, kind="irreversible") if self.dice.random() < 0.2 else KID
        made: dict[str, Any] = {"step_id": key, "saga": {"plan": {"steps": [inner]}, "input": {"n": 1}}}
        if "depends_on" in after or self.dice.random() < 0.3:
            made["depends_on"] = [after["step_id"]] if self.dice.random() < 0.6 else []
        if self.dice.random() < 0.2:
            made["on_error"] = "continue"
        return made

    # --- the children --------------------------------------------------------------------------------------------

    def _append(self, state: State, epoch: int, seq: int, records: list[r.AnyRecord]) -> int:
        for record in records:
            if isinstance(record, r.CompensationStarted) and (
                open_ := [kid for kid, end in self.kids.items() if not end]
            ):
                raise Violation(f"the saga turns around while {open_} run")
        seq = super()._append(state, epoch, seq, records)
        for record in records:
            if isinstance(record, r.StepWaiting) and record.on == "child":
                self._ordered(record)
        return seq

    def _ordered(self, record: r.StepWaiting) -> None:
        saga_id = record.about["saga"]
        if record.direction == COMPENSATE:
            self.undoes[saga_id] = record.about["undoes"]
        elif saga_id in self.kids:
            raise Violation(f"{saga_id} is started again, and is another child")
        self.kids[saga_id] = ""
        self.steps_of[saga_id] = record.step

    def _outside_message(self, state: State) -> None:
        super()._outside_message(state)
        running = [kid for kid, end in self.kids.items() if not end]
        if running and self.dice.random() < 0.15:
            self._end(self.dice.choice(running), turns=state.turns)
        if self.ends and self.dice.random() < 0.02:
            self._tell(self.dice.choice(list(self.ends)))  # once more

    def _end(self, saga_id: str, *, turns: bool) -> None:
        """A saga ends. What it did is in the world before anybody is told, if anybody is."""
        step, undoes = self.steps_of[saga_id], self.undoes.get(saga_id)
        luck = self.dice.random()
        if undoes is not None:
            status = "COMPENSATED" if luck < 0.6 else self.dice.choice(["WAIVED", ""])
            if self.kids.get(undoes) != "COMPLETED":
                status = ""  # there is nothing that it could undo
            if status == "COMPENSATED":
                self.world.standing[step] = 0
        else:
            status = "COMPLETED" if luck < (0.3 if turns else 0.6) else self.dice.choice(["COMPENSATED", "WAIVED", ""])
            if status in ("COMPLETED", "WAIVED"):
                self.world.standing[step] = 1
        self.kids[saga_id] = status or "none"
        self.said.setdefault(saga_id, []).append(status)
        error = None if status == "COMPLETED" else ErrorInfo("child_undone", f"{saga_id} is {status}")
        self.ends[saga_id] = ChildEnd(saga_id, status, {"outputs": {}}, error, left=["1"] if status == "WAIVED" else [])
        if self.dice.random() < 0.7:
            self._tell(saga_id)

    def _tell(self, saga_id: str) -> None:
        end = self.ends[saga_id]
        self.inbox.append(Message(id=f"child:{saga_id}", kind="child", step=self.steps_of[saga_id], end=end))

    def _idle(self, state: State) -> bool:
        """Nothing else moves the saga: its children end, and it looks at those of which nobody told it."""
        waits = [state.pending[index].about["saga"] for index in state.children()]
        for saga_id in waits:
            if not self.kids.get(saga_id):
                self._end(saga_id, turns=state.turns)
            if not any(message.end is not None and message.end.saga == saga_id for message in self.inbox):
                self._tell(saga_id)
        return super()._idle(state) or bool(waits)

    # --- the laws ------------------------------------------------------------------------------------------------

    def _check_turn(self, state: State, effect: Any) -> None:
        super()._check_turn(state, effect)
        if getattr(effect, "direction", "") == COMPENSATE:
            for other in self._after(state, effect.step):
                if other in state.children():
                    raise Violation(f"step {effect.step} is undone while the child of a later step runs")

    def _check_end(self, state: State) -> None:
        if state.status == t.COMPLETED:  # what a child left is no effect of a step that happened
            left = {self.steps_of[kid] for kid, end in self.kids.items() if end == "WAIVED"}
            kept = {step.key for step in state.plan.steps if state.steps[step.index].status == t.SUCCEEDED}
            for step in left - kept:
                self.world.standing[step] = 0
        super()._check_end(state)
        if running := [kid for kid, end in self.kids.items() if not end]:
            raise Violation(f"the saga has ended, and {running} run")
        ended = [record for record in self.journalled() if isinstance(record, r.ChildEnded)]
        if len({record.saga for record in ended}) != len([record for record in ended if not self._undo(record)]) + len(
            {record.saga for record in ended if self._undo(record)}
        ):
            raise Violation(f"the end of a child counts twice: {ended}")
        lists = report(state).plain()
        for record in ended:
            if record.status not in self.said[record.saga]:
                raise Violation(f"{record} is not how the child ended")
            if record.left and (lists["clean"] or record.step not in lists["left_in_place"]):
                raise Violation(f"{record.saga} left something, and the report does not say so: {lists}")
        if {state.steps[index].status for index in range(len(state.steps))} & {"WAITING"}:
            raise Violation("the saga has ended, and a step is said to wait")
        if state.status == t.COMPENSATED and any(record.left for record in ended):
            raise Violation("a child left something, and the saga counts as compensated")

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        goes_on = {str(step["step_id"]) for step in self.plan_body["steps"] if "on_error" in step}
        gone_on = {key for key, status in statuses.items() if status == t.FAILED and key in goes_on - dropped}
        return super()._passed_over(statuses, dropped) | gone_on

    @staticmethod
    def _undo(record: r.ChildEnded) -> bool:
        return record.direction == COMPENSATE
