"""A saga whose steps wait for several events, the first or all: they come early, twice, late, not fitting, in any order.

The store is that of ``WaitingSimulation``, with a queue of events for each name. What it would be told of each event
(that it was taken, or is late) is compared with the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saga_engine.core import late_events
from saga_engine.core import records as r
from saga_engine.core.messages import Message
from saga_engine.core.state import State
from tests.core.cases import Catalog
from tests.core.waiting_simulation import SCHEMA, WaitingSimulation
from tests.core.world import Violation


class SeveralSimulation(WaitingSimulation):
    """The plans of ``WaitingSimulation``, with waits for several events."""

    def _builtin(self, key: str, after: dict[str, Any], *, free: bool) -> dict[str, Any]:
        made = super()._builtin(key, after, free=free)
        wait = made.get("wait")
        if wait is None or self.dice.random() < 0.2:
            return made
        names = [f"{key}{letter}" for letter in "abc"[: self.dice.randint(1, 3)]]
        word = self.dice.choice(["first", "all", "all"])
        events = [{"event": name, "key": "k", "schema": SCHEMA} for name in names]
        rest = {name: value for name, value in wait.items() if name not in ("event", "key", "schema")}
        if "on_late" in rest:
            params = {"ref": f"$output.step_{key}.payload.ref", "of": "$saga.id"}
            rest["on_late"] = {"tool": "give_back", "params": params}
        return {**made, "wait": {word: events, **rest}}

    def _take_back(self, step: dict[str, Any], catalog: Catalog) -> None:
        super()._take_back(step, catalog)
        where = {"first": ".payload", "all": "[0].payload"}.get(next(iter(step["wait"])), "")
        step["rollback"]["params"] = {"ref": f"$output.step_{step['step_id']}{where}.ref"}

    def _names(self, step: str) -> list[str]:
        wait = self._wait(step)
        return [each["event"] for each in wait.get("first") or wait.get("all") or [wait]]

    def _amount(self, state: State, index: int) -> int:
        output = state.steps[index].output if state.plan.steps[index].builtin else None
        if isinstance(output, list):
            output = output[0]
        if isinstance(output, dict) and "payload" in output:
            said = output["payload"].get("ref")
            return said if isinstance(said, int) else 0
        return super()._amount(state, index)

    def _told(self, step: str) -> Any:
        """What a person says that came for a wait, in the form of its output."""
        wait = next((each for each in self.plan_body["steps"] if each["step_id"] == step), {}).get("wait", {})
        word = next((word for word in ("first", "all") if word in wait), "")
        said = super()._told(step)
        if not word:
            return said
        came = [{"event": each["event"], "key": each["key"], "payload": said} for each in wait[word]]
        return came[0] if word == "first" else came

    # --- the outside ---------------------------------------------------------------------------------------------

    def _send(self, step: str) -> Message:
        """An event of one of the names for which the step waits; ``held`` has a queue for each name."""
        name = self.dice.choice(self._names(step))
        known = self.held.setdefault(name, [])
        if known and self.dice.random() < 0.3:
            return known[-1]
        self.sent += 1
        payload = {"ref": self.sent} if self.dice.random() < 0.8 else {"nothing": 1}
        made = Message(id=f"e{self.sent}", kind="event", step=step, event=name, key="k", output=payload)
        known.append(made)
        return made

    def _deliver(self) -> None:
        """The first event of a name that is not answered; some come past the store, or although nothing waits."""
        if not self.journal.data:
            return
        state = self._folded()
        open_names = {
            each.event
            for index, wait in state.pending.items()
            for entry, each in enumerate(wait.events())
            if entry not in state.steps[index].came
        }
        answered = {getattr(record, name, "") for record in self.journalled() for name in ("message", "source")}
        for name, events in self.held.items():
            for event in events:
                if event.id in answered or event in self.inbox:
                    continue
                if name in open_names or self.dice.random() < 0.1:
                    self.inbox.append(event)
                break

    # --- the laws ------------------------------------------------------------------------------------------------

    def _note_late(self, state: State) -> None:
        """What the owner tells the store for the late events of each wait that is over."""
        for step in state.plan.steps:
            over = state.steps[step.index].status in ("SUCCEEDED", "FAILED", "SKIPPED", "RESOLVED", "COMPENSATED")
            if not over or step.builtin != "wait":
                continue
            for event in self._events_of(step.key):
                call = None
                if not state.steps[step.index].took(event.event, event.key):
                    call = late_events.late_call(state, step.index)
                if call is not None:
                    sagas = self.begun_late.setdefault((step.key, event.id), set())
                    sagas.add(call.saga_id(event.id, event.event, event.key))
                    late_events.with_event(call, call.output(event.event, event.key, {"ref": 1}))

    def _events_of(self, step: str) -> list[Message]:
        return [event for name in self._names(step) for event in self.held.get(name, ())]

    def _check_end(self, state: State) -> None:
        """The laws of ``WaitingSimulation`` know outputs of one event: those of several are checked here."""
        whole = self.journalled
        several = {
            step["step_id"] for step in self.plan_body["steps"] if {"first", "all"} & step.get("wait", {}).keys()
        }
        self._check_several(state, several)

        def single() -> list[r.AnyRecord]:
            return [_alone(record) if getattr(record, "step", "") in several else record for record in whole()]

        self.journalled = single  # type: ignore[method-assign]
        try:
            super()._check_end(state)
        finally:
            self.journalled = whole  # type: ignore[method-assign]

    def _check_several(self, state: State, several: set[str]) -> None:
        sent = {event.id: event for events in self.held.values() for event in events}
        came: dict[str, dict[int, str]] = {}
        due: dict[str, int | None] = {}
        open_waits: set[str] = set()
        used: list[str] = []
        for record in self.journalled():
            key = getattr(record, "step", "")
            if isinstance(record, r.CompensationStarted):
                open_waits.clear()
            if key not in several:
                continue
            if isinstance(record, r.StepWaiting):
                came[key], due[key] = {}, record.due_ms
                open_waits.add(key)
            elif isinstance(record, r.EventArrived):
                self._came(record, sent[record.source], open_waits, came[key], due[key])
                used.append(record.source)
            elif isinstance(record, r.StepFailed) or (isinstance(record, r.StepSucceeded) and record.via == "timer"):
                open_waits.discard(key)
            elif isinstance(record, r.StepSucceeded) and record.via == "event":
                self._came(record, sent[record.source], open_waits, came[key], due[key])
                open_waits.discard(key)
                used += [*came[key].values()] if "first" in self._wait(key) else [record.source]
                self._check_output(record, came[key], sent)
        twice = {event for event in used if used.count(event) > 1 and not self._waited_again(sent[event].step)}
        if twice:
            raise Violation(f"events count twice: {twice}")
        for key in several:
            self._check_told(state, key, came.get(key, {}))

    def _came(
        self,
        record: r.EventArrived | r.StepSucceeded,
        event: Message,
        open_waits: set[str],
        came: dict[int, str],
        due: int | None,
    ) -> None:
        if record.step not in open_waits or (due is not None and due <= record.at):
            raise Violation(f"{record} came after the wait of {record.step} was over")
        if record.entry is None or record.entry in came or self._names(record.step)[record.entry] != event.event:
            raise Violation(f"{record} is another event than {event}, or there twice")
        if "ref" not in event.output:
            raise Violation(f"{record.step} took an event that does not fit")
        came[record.entry] = event.id

    def _check_output(self, record: r.StepSucceeded, came: dict[int, str], sent: dict[str, Message]) -> None:
        made = [
            {"event": each.event, "key": "k", "payload": each.output}
            for each in (sent[came[entry]] for entry in sorted(came))
        ]
        wait = self._wait(record.step)
        if len(came) != (1 if "first" in wait else len(wait["all"])):
            raise Violation(f"{record} ended a wait for {wait} with {came}")
        if record.output != (made[0] if "first" in wait else made):
            raise Violation(f"the output {record.output} is not what came: {made}")

    def _waited_again(self, step: str) -> bool:
        """After its time-out an operator wanted the step once more: what it had is given to it again."""
        return sum(isinstance(each, r.StepWaiting) and each.step == step for each in self.journalled()) > 1

    def _check_told(self, state: State, key: str, came: dict[int, str]) -> None:
        """Of each name the store is told the event that ended the wait, or none: then it is late, or the next wait's."""
        step = state.steps[state.plan.by_key[key]]
        ended = [each for each in self.journalled() if getattr(each, "via", "") == "event" and each.step == key]
        for entry, name in enumerate(self._names(key)):
            wanted = came.get(entry, "") if ended else ""
            if step.took(name, "k") != wanted:
                raise Violation(f"the store is told {step.took(name, 'k')!r} of {name}, and {wanted!r} was taken")

    def _check_late(self, state: State, ended: set[str], taken: list[str]) -> None:
        used = {
            event
            for step in state.steps
            for each in (step.came.values() if step.event else ())
            for event in (each.source,)
        } | {step.event for step in state.steps if step.event}
        for (key, event), sagas in self.begun_late.items():
            if len(sagas) != 1:
                raise Violation(f"the event {event} of {key} is given back by {len(sagas)} sagas")
            if event in used:
                raise Violation(f"the event {event} was in time for {key}, and was given back")
        for compiled in state.plan.steps:
            step = state.steps[compiled.index]
            others = compiled.late is not None and step.event and "first" in self._wait(compiled.key)
            if others and late_events.late_call(state, compiled.index) is None:
                raise Violation(f"the others of which {compiled.key} took the first are not given back")
        for key, event in self._not_given_back(state, used):
            raise Violation(f"the event {event} of {key} came in vain, and is not given back")

    def _not_given_back(self, state: State, used: set[str]) -> Iterator[tuple[str, str]]:
        """What the journal had when its wait ended in vain."""
        for compiled in state.plan.steps:
            step = state.steps[compiled.index]
            if compiled.late is None or step.event or getattr(step.effect, "via", "timer") != "timer":
                continue
            for each in step.came.values():
                if each.source not in used and (compiled.key, each.source) not in self.begun_late:
                    yield compiled.key, each.source


def _alone(record: r.AnyRecord) -> r.AnyRecord:
    """The end of a wait for several as that of a wait for one event."""
    if not isinstance(record, r.StepSucceeded) or record.via != "event":
        return record
    return r.StepSucceeded(at=record.at, step=record.step, output={"ref": 0}, via="event", source=record.source)
