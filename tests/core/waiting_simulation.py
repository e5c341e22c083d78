"""A saga whose steps wait: for time, and for events that come early, twice, late, not fitting, or through a crash."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import late_events
from saga_engine.core import records as r
from saga_engine.core.messages import Message
from saga_engine.core.state import State
from saga_engine.core.steps import wait as wait_steps
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

SCHEMA = {"type": "object", "required": ["ref"]}


class WaitingSimulation(Simulation):
    """The plans of ``Simulation``, with steps that wait among the others."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        #: By wait: the events that its store has for it, and that no record has taken.
        self.held: dict[str, list[Message]] = {}
        self.sent = 0
        #: By step that waited and by event: the sagas that owners would begin for it, if it came late.
        self.begun_late: dict[tuple[str, str], set[str]] = {}
        super().__init__(dice, trouble)

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        steps: list[dict[str, Any]] = []
        free = all(step.get("kind") != "pivot" for step in body["steps"])
        for step in body["steps"]:
            steps.append(step)
            if self.dice.random() < 0.6:
                steps.append(self._builtin(f"w{len(steps)}", step, free=free))
                if "wait" in steps[-1] and free and self.dice.random() < 0.6:
                    self._take_back(steps[-1], catalog)
        catalog.add(ToolSpec(name="give_back", keyed=True))
        return {**body, "steps": steps}, catalog

    def _builtin(self, key: str, after: dict[str, Any], *, free: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"step_id": key}
        if "depends_on" in after or self.dice.random() < 0.3:
            made["depends_on"] = [after["step_id"]] if self.dice.random() < 0.6 or not free else []
        if self.dice.random() < 0.4:
            return made | {"sleep": self.dice.choice([0, 3, "PT4S", {"until": "1970-01-01T00:16:45Z"}])}
        wait: dict[str, Any] = {"event": key, "key": "k", "schema": SCHEMA}
        if self.dice.random() < 0.5:
            wait["timeout_s"] = self.dice.choice([1, 5])
            wait["on_timeout"] = self.dice.choice(["fail", "continue", {"value": {"ref": "none"}}])
        if self.dice.random() < 0.5:
            wait["on_late"] = {"tool": "give_back", "params": {"ref": f"$output.step_{key}.ref", "of": "$saga.id"}}
        return made | {"wait": wait}

    def _take_back(self, step: dict[str, Any], catalog: Catalog) -> None:
        """What the event stands for, a payment, is undone."""
        key = step["step_id"]
        catalog.add(ToolSpec(name=f"undo_{key}", keyed=self.dice.random() < 0.6))
        step["rollback"] = {"tool": f"undo_{key}", "params": {"ref": f"$output.step_{key}.ref"}}

    # --- the outside ---------------------------------------------------------------------------------------------

    def _outside_message(self, state: State) -> None:
        super()._outside_message(state)
        waits = [step["step_id"] for step in self.plan_body["steps"] if "wait" in step]
        if waits and self.dice.random() < 0.1:
            self._send(self.dice.choice(waits))
        if waits and self.dice.random() < 0.5:
            self._deliver()

    def _send(self, step: str) -> Message:
        """An event: sometimes one that does not fit, sometimes one that is sent again."""
        known = self.held.setdefault(step, [])
        if known and self.dice.random() < 0.3:
            return known[-1]
        self.sent += 1
        payload = {"ref": self.sent} if self.dice.random() < 0.8 else {"nothing": 1}
        made = Message(id=f"e{self.sent}", kind="event", step=step, event=step, key="k", output=payload)
        known.append(made)
        return made

    def _deliver(self) -> None:
        """A sender, or a worker in its place, tells the saga; some do although it waits no more."""
        if not self.journal.data:
            return
        state = self._folded()
        waiting = {state.plan.steps[index].key for index, each in state.pending.items() if each.of_step}
        answered = {getattr(record, name, "") for record in self.journalled() for name in ("message", "source")}
        for step, events in self.held.items():
            for event in events:
                if event.id in answered or event in self.inbox:
                    continue
                if step in waiting or self.dice.random() < 0.1:
                    self.inbox.append(event)
                break

    def _amount(self, state: State, index: int) -> int:
        """Of a wait, what its event says: neither its time-out nor its key is an amount."""
        if state.plan.steps[index].builtin:
            output = state.steps[index].output
            said = output.get("ref") if isinstance(output, dict) else 0
            return said if isinstance(said, int) else 0
        return super()._amount(state, index)

    def _idle(self, state: State) -> bool:
        """Only an event can move the saga: it comes in the end."""
        waits = [state.plan.steps[index].key for index, wait in state.pending.items() if wait.on == "event"]
        if not waits:
            return super()._idle(state)
        self._send(waits[0])
        self._deliver()
        return True

    # --- the laws ------------------------------------------------------------------------------------------------

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        timed_out = {
            record.step
            for record in self.journalled()
            if isinstance(record, r.StepFailed) and record.error.error_code == "wait_timed_out"
        }
        goes_on = {key for key in timed_out if self._wait(key).get("on_timeout") == "continue"}
        # A value in place of an event stands for nothing outside.
        replaced = {record.step for record in self.journalled() if getattr(record, "via", "") == "timer"}
        passed = super()._passed_over(statuses, dropped) | {key for key in goes_on if statuses[key] == "FAILED"}
        return passed | {key for key in replaced if statuses[key] == "SUCCEEDED"}

    def _wait(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = next(step for step in self.plan_body["steps"] if step["step_id"] == key)["wait"]
        return found

    def _append(self, state: State, epoch: int, seq: int, records: list[r.AnyRecord]) -> int:
        if any(isinstance(record, r.SagaEscalated) for record in records) and state.pending:
            raise Violation("the saga says that only an operator can move it, and it waits for something else")
        for record in records:
            if not (isinstance(record, r.StepSucceeded) and record.via == "event"):
                continue
            step = next(each for each in self.plan_body["steps"] if each["step_id"] == record.step)
            if "rollback" in step:
                self.world.standing[record.step] = 1
                self.world.made_by[record.step] = f"do_{record.step}"
        written = super()._append(state, epoch, seq, records)
        self._note_late(state)
        return written

    def _note_late(self, state: State) -> None:
        """What the owner tells the store for the late events of each wait that is over."""
        for step in state.plan.steps:
            over = state.steps[step.index].status in ("SUCCEEDED", "FAILED", "SKIPPED", "RESOLVED", "COMPENSATED")
            call = late_events.late_call(state, step.index) if over and step.late is not None else None
            for event in self.held.get(step.key, ()) if call is not None else ():
                self.begun_late.setdefault((step.key, event.id), set()).add(
                    call.saga_id(event.id, event.event, event.key)
                )
                late_events.with_event(call, {"ref": 1})

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        waiting: dict[str, r.StepWaiting] = {}
        taken: list[str] = []
        ended: set[str] = set()
        turned = False
        for record in self.journalled():
            turned = turned or isinstance(record, r.CompensationStarted)
            because = record.step if isinstance(record, r.CompensationStarted) else ""
            if (
                because in waiting
                and waiting[because].on == "event"
                and self._wait(because).get("on_timeout") == "continue"
            ):
                raise Violation(f"the saga turned around because of {because}, and its plan goes on without it")
            if isinstance(record, r.StepWaiting):
                waiting[record.step] = record
                ended.discard(record.step)  # an operator wants it once more
                continue
            wait = waiting.get(getattr(record, "step", ""))
            if wait is None or not isinstance(record, (r.StepSucceeded, r.StepFailed)):
                continue
            if record.direction != "forward":
                continue
            if wait.step in ended or turned:
                raise Violation(f"the wait of {wait.step} was over, and ended once more")
            ended.add(wait.step)
            by_event = isinstance(record, r.StepSucceeded) and record.via == "event"
            if by_event == (wait.due_ms is not None and wait.due_ms <= record.at):
                raise Violation(f"{wait.step}: {record} does not fit the time that it had, {wait.due_ms}")
            if isinstance(record, r.StepSucceeded) and by_event:
                taken.append(record.source)
                if set(record.output) != {"ref"}:
                    raise Violation(f"{wait.step} took an event that does not fit")
        if len(taken) != len(set(taken)):
            raise Violation(f"an event counts twice: {taken}")
        if any(each.of_step for each in state.pending.values()):
            raise Violation("the saga has ended, and a step still waits")
        self._check_late(state, ended, taken)
        self._check_dispositions(state)
        self._check_statuses(state)

    def _check_late(self, state: State, ended: set[str], taken: list[str]) -> None:
        """An event that came too late is handled by one saga, whoever begins it; one that was in time by none."""
        by_event = {record.step for record in self.journalled() if getattr(record, "via", "") == "event"}
        waited = {record.step for record in self.journalled() if isinstance(record, r.StepWaiting)}
        for step in state.plan.steps:
            if step.late is None or step.key not in waited:
                continue
            call, timer = late_events.late_call(state, step.index), state.steps[step.index].effect
            if step.key in by_event and call is not None:
                raise Violation(f"{step.key} took its event, and a late one is given back")
            if step.key not in by_event and call is None and getattr(timer, "via", "timer") == "timer":
                raise Violation(f"{step.key} had no event, and a late one is not given back")
        for (key, event), sagas in self.begun_late.items():
            if len(sagas) != 1:
                raise Violation(f"the event {event} of {key} is given back by {len(sagas)} sagas")
            if event in taken and key in by_event:
                raise Violation(f"the event {event} was in time for {key}, and was given back")

    def _check_dispositions(self, state: State) -> None:
        """What came for a wait of a saga that turned is used, or an operator knew of it, or it is for ``on_late``.

        Whether the wait had begun makes no difference: what came early, for one that never begins, is no less money.
        """
        if not state.backward:
            return
        settled = {
            record.step
            for record in self.journalled()
            if getattr(record, "via", "") == "event" or isinstance(record, r.QuestionResolved)
        }
        past = {index for index, _ in wait_steps.never_begun(state)}
        dropped = {key for added in state.added for key in added.addition.dropped}
        for step in state.plan.steps:
            fits = [event for event in self.held.get(step.key, ()) if "ref" in (event.output or ())]
            if step.late is None or not fits or step.key in settled or step.key in dropped:
                continue
            over = state.steps[step.index].begun or step.index in past
            if not over or late_events.late_call(state, step.index) is None:
                raise Violation(f"{step.key} never took {fits[0].id}, the saga turned, and nobody hears of it")

    def _check_statuses(self, state: State) -> None:
        for step in state.steps:
            if step.status == "WAITING":
                raise Violation("the saga has ended, and a step is said to wait")
