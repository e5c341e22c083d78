"""Makes the histories that ``test_histories`` plays again: ``python -m tests.temporal.recording``.

A history stays as it is for ever: it stands for the sagas that were under way when a newer engine was installed. Only add
to them. If one no longer replays, running sagas would not either: the change needs ``workflow.patched``.

Beside each history (``NAME-RUN.json``) is the journal that the workflow has written when that run ends (``.jsonl``). The
same command writes the journals anew, from the histories: review the difference, which is what an upgrade does to the
records of a saga under way.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter, DefaultPayloadConverter

from saga_engine import tool
from saga_engine.api.temporal import SagaWorkflow, TemporalCoordinator
from saga_engine.ports import Escalation
from saga_engine.temporal.payloads import unpack_journal
from saga_engine.temporal.worker import replay
from saga_engine.testing.scripted import ScriptedPlanner
from tests.kill.polling import eventually
from tests.planner import stuck_world
from tests.temporal.conftest import Place
from tests.temporal.outside import Outside, step
from tests.temporal.server import TemporalServer

FOLDER = Path(__file__).with_name("histories")


async def _eventful(place: Place, outside: Outside, name: str) -> Any:
    """Retries, a probe, an alert, a person's answer, a failure and the way back, in several runs."""
    outside.fails = 1
    plan = {
        "deadline_s": 86_400,
        "input": {"item": "i9"},
        "steps": [
            step(1),
            step(2, "silent"),
            step(3, "lose"),
            step(4, depends_on=[3]),
            step(5, depends_on=[3], params={"item": "$input.item"}),
            step(6, "refuse"),
        ],
    }
    async with place.both(outside.tools, on_escalation=lambda _: None, events=40) as coordinator:
        outcome = await coordinator.run(plan, saga_id=name)
        assert outcome.status == "ESCALATED"
        outcome = await coordinator.resolve(name, 3, "happened", output={"ref": "i3"}, by="ada")
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _conditional(place: Place, outside: Outside, name: str) -> Any:
    """Steps without a tool, one that is skipped, one from whose failure it goes on, one that stands, and ``finally``."""
    steps = [
        step(1),
        {"step_id": 2, "compute": {"join": ["i", {"add": ["0.1", "0.2"]}]}},
        step(3, when=[{"value": "$output.step_2", "op": "!=", "to": "i0.3"}]),
        step(4, "refuse", on_error="continue"),
        {"step_id": 5, "sleep": 0.1},
        {
            "step_id": 6,
            "ask": {"question": "Go on?", "options": ["yes"], "expires_s": 1, "on_timeout": {"value": "yes"}},
        },
        {"step_id": 7, "tool": "post", "params": {"text": "$output.step_2"}, "kind": "irreversible"},
        step(8, failed_when=[{"value": "$output.step_8.ref", "op": "==", "to": "i8"}]),
    ]
    last = [{"step_id": "told", "tool": "post", "params": {"text": "{$end.status}"}}]
    async with place.both(outside.tools, on_escalation=lambda _: None, events=30) as coordinator:
        outcome = await coordinator.run({"steps": steps, "finally": last}, saga_id=name)
        while outcome.status == "ESCALATED":  # until the question expires
            outcome = await coordinator.wait(name)
        assert outcome.status == "WAIVED"
        return await place.histories(coordinator, name)


async def _cancelled(place: Place, outside: Outside, name: str) -> Any:
    """Steps are added, and the saga is cancelled with a call in flight."""
    async with place.both(outside.tools) as coordinator:
        await coordinator.submit({"steps": [step(1), step(2, "wait")]}, saga_id=name)
        await outside.begun.wait()
        await coordinator.amend(name, [step(3)], wait=False)
        await coordinator.cancel(name, wait=False)
        outside.gate.set()
        outcome = await coordinator.wait(name)
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _each(place: Place, outside: Outside, name: str) -> Any:
    """An undo that makes a call for each item of a list, and one more; in several runs."""

    @tool
    async def order() -> dict:
        return {"id": "o1", "items": [{"name": "a"}, {"name": "b"}]}

    then = [{"tool": "cancel", "params": {"ref": "$output.step_2.id"}}]
    undo = {"tool": "cancel", "params": {"ref": "$item.name"}, "each": "$output.step_2.items", "then": then}
    steps = [
        step(1),
        {"step_id": 2, "tool": "order", "rollback": undo},
        step(3, "silent"),
        step(4, "refuse"),
    ]
    async with place.both([*outside.tools, order], events=30) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id=name)
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _fallback(place: Place, outside: Outside, name: str) -> Any:
    """A call that another tool replaces, and the undo of that one."""
    steps = [step(1), step(2, "refuse", fallback={"tool": "book"}), step(3, "refuse")]
    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id=name)
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _replan(place: Place, _: Outside, name: str) -> Any:
    """A model finds another way, whose step runs to the end."""
    steps = [
        {"step_id": 1, "tool": "wire", "params": {"amount": 7}},
        {"step_id": 2, "tool": "book", "params": {"what": "Hilton"}},
    ]
    plan = {"goal": "a bed", "steps": steps, "on_failure": "replan"}
    other = {"step_id": "other", "tool": "book", "params": {"what": "Ritz"}}
    async with place.both(stuck_world.TOOLS, planner=ScriptedPlanner([other])) as coordinator:
        outcome = await coordinator.run(plan, saga_id=name)
        assert outcome.completed
        return await place.histories(coordinator, name)


async def _semantic(place: Place, _: Outside, name: str) -> Any:
    """Steps of a model make up for what cannot be undone, after a person approved them."""
    steps = [
        {"step_id": 1, "tool": "tweet", "params": {"text": "hello"}},
        {"step_id": 2, "tool": "book", "params": {"what": "Hilton"}},
    ]
    planner = ScriptedPlanner([{"step_id": "sorry", "tool": "apologise", "params": {"to": "ada"}}])
    async with place.both(stuck_world.TOOLS, planner=planner) as coordinator:
        outcome = await coordinator.run({"goal": "fame", "steps": steps}, saga_id=name)
        assert outcome.body["questions"][0]["kind"] == "compensation"
        outcome = await coordinator.resolve(name, 1, "approve", by="ada")
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _alerts(place: Place, outside: Outside, name: str) -> Any:
    """People are told of two questions, of the first one only at the second try, and answer both."""
    told: list[Escalation] = []

    def tell(escalation: Escalation) -> None:
        told.append(escalation)
        if len(told) == 1:
            raise ConnectionError("the line is dead")

    steps = [step(1, "lose"), step(2, "lose")]
    async with place.both(outside.tools, on_escalation=tell) as coordinator:
        assert (await coordinator.run({"steps": steps}, saga_id=name)).status == "ESCALATED"
        await eventually(lambda: _alerted(coordinator, name, 1), "people to be told")
        await coordinator.resolve(name, 1, "happened", output={"ref": "i1"}, by="ada", wait=False)
        await eventually(lambda: _alerted(coordinator, name, 2), "people to be told")
        outcome = await coordinator.resolve(name, 2, "not-happened", by="ada")
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _alerted(coordinator: TemporalCoordinator, name: str, times: int) -> bool:
    return [record["k"] for record in await coordinator.history(name)].count("AlertSent") == times


async def _finally(place: Place, outside: Outside, name: str) -> Any:
    """A saga that is undone runs its last steps: one that happens, one that fails and is tried again, one in doubt."""
    outside.fails = 1
    last = [
        {"step_id": "told", "tool": "post", "params": {"text": "{$end.status}: {$end.reason}"}},
        {"step_id": "full", "tool": "refuse", "params": {"item": "x"}},
        {"step_id": "lost", "tool": "lose", "params": {"item": "y"}},
    ]
    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run({"steps": [step(1), step(2, "refuse")], "finally": last}, saga_id=name)
        assert outcome.status == "COMPENSATED"
        return await place.histories(coordinator, name)


async def _amend(place: Place, outside: Outside, name: str) -> Any:
    """Steps are added while a call is in flight, and then run with the rest."""
    async with place.both(outside.tools) as coordinator:
        await coordinator.submit({"steps": [step(1, "wait")]}, saga_id=name)
        await outside.begun.wait()
        await coordinator.amend(name, [step(2, params={"item": "$output.step_1.ref"})], by="ada", wait=False)
        outside.gate.set()
        assert (await coordinator.wait(name)).completed
        return await place.histories(coordinator, name)


RECORDINGS: dict[str, Callable[[Place, Outside, str], Awaitable[Any]]] = {
    "eventful": _eventful,
    "conditional": _conditional,
    "cancelled": _cancelled,
    "each": _each,
    "fallback": _fallback,
    "replan": _replan,
    "semantic": _semantic,
    "alerts": _alerts,
    "finally": _finally,
    "amend": _amend,
}


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem.rpartition("-")[0], path.read_text())


class _Heard(DefaultPayloadConverter):
    """Keeps what a workflow hands on: its result, and the input of the run that continues it."""

    said: ClassVar[list[dict[str, Any]]] = []

    def to_payloads(self, values: Sequence[Any]) -> Any:
        self.said.extend(value for value in values if isinstance(value, dict))
        return super().to_payloads(values)


async def journal(recorded: WorkflowHistory) -> bytes:
    """The journal that today's workflow has written when a recorded run ends, or is continued: one record a line."""
    _Heard.said.clear()
    await replay(SagaWorkflow, [recorded], DataConverter(payload_converter_class=_Heard))
    last = _Heard.said[-1]
    assert "status" in last or "started" in last, "the last that a run says is its end, or how the next one begins"
    return b"".join(line + b"\n" for line in unpack_journal(last["journal"]))


async def main() -> None:
    """Record what is missing, and write the journals of all."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STUCK_WORLD", f"{folder}/world")
        missing = [name for name in RECORDINGS if not list(FOLDER.glob(f"{name}-*.json"))]
        if missing:
            with TemporalServer() as server:
                for name in missing:
                    outside = Outside(Path(folder) / f"{name}.db")
                    histories = await RECORDINGS[name](Place(server.url), outside, name)
                    for number, recorded in enumerate(reversed(histories), 1):
                        text = recorded.to_json().replace(f"{os.getpid()}@{socket.gethostname()}", "1@here")
                        (FOLDER / f"{name}-{number}.json").write_text(text + "\n")
        for path in sorted(FOLDER.glob("*.json")):
            path.with_suffix(".jsonl").write_bytes(await journal(history(path)))


if __name__ == "__main__":
    asyncio.run(main())
