"""Makes the histories that ``test_histories`` plays again: ``python -m tests.temporal.recording``.

A history stays as it is for ever: it stands for the sagas that were under way when a newer engine was installed. Only add
to them. If one no longer replays, running sagas would not either: the change needs ``workflow.patched``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

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


async def main() -> None:
    """Record all, beside those that are there."""
    with TemporalServer() as server, tempfile.TemporaryDirectory() as folder:
        for record in (_eventful, _conditional, _cancelled):
            name = record.__name__.strip("_")
            outside = Outside(Path(folder) / f"{name}.db")
            histories = await record(Place(server.url), outside, name)
            for number, history in enumerate(reversed(histories), 1):
                text = history.to_json().replace(f"{os.getpid()}@", "1@")
                target = FOLDER / f"{name}-{number}.json"
                if not target.exists():
                    target.write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(main())
