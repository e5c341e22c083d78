"""Every face says of an undone step whether the engine saw its undo, or has it from the tool alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.cli import run as command
from saga_engine.telemetry.metrics import Metrics
from tests.gateway.agents import agent
from tests.server.harness import serving
from tests.support.servers import EmbeddedFolder

LABELS: dict[str, str] = {}


@tool(effect="read")
async def label_of(item: str) -> dict[str, str]:
    return {"label": LABELS.get(item, "")}


@tool(before=label_of, undo="peel")
async def stick(item: str, label: str) -> dict[str, str]:
    LABELS[item] = label
    return {}


@tool(before=label_of, undo="peel", verify=False)
async def pin(item: str, label: str) -> dict[str, str]:
    LABELS[item] = label
    return {}


@tool
async def peel(item: str) -> None:
    del LABELS[item]


@tool(undo=peel, retry=RetryPolicy(max_attempts=1))
async def refuse(item: str) -> None:
    raise ToolError("no", retryable=False)


TOOLS = [label_of, stick, pin, peel, refuse]
GIVEN: dict[str, Any] = {"durability": "relaxed", "on_escalation": (), "settings": None}


async def undone(c: Coordinator) -> None:
    """``seen`` has an undo that was verified; ``told`` has one that nobody looks at."""
    LABELS.clear()
    for name, first in (("seen", "stick"), ("told", "pin")):
        steps = [
            {"step_id": 1, "tool": first, "params": {"item": name, "label": "new"}},
            {"step_id": 2, "tool": "refuse", "params": {"item": name}, "depends_on": [1]},
        ]
        assert (await c.run({"steps": steps}, saga_id=name)).status == "COMPENSATED"


async def test_the_api_the_console_the_trace_and_the_metrics() -> None:
    """The body of the saga, its page, its records, and a counter of looks by what they showed."""
    metrics = Metrics()
    async with Coordinator.open("memory://", TOOLS, meters=[metrics], **GIVEN) as c, serving(c) as server:
        await undone(c)
        api = await server.api()
        bodies = {name: await api.get(f"/v1/sagas/{name}") for name in ("seen", "told")}
        pages = {n: (await server.client.get(f"/ui/sagas/{n}", headers=api.headers)).text for n in bodies}
        traces = {name: "".join(await c.trace(name, full=True)) for name in bodies}
    assert {n: body["steps"][0]["compensation"].get("verified") for n, body in bodies.items()} == {
        "seen": True,
        "told": False,
    }
    assert (bodies["seen"]["report"].get("verified"), bodies["told"]["report"].get("verified")) == ([1], None)
    assert "every undo verified" in pages["seen"]
    assert "every undo verified" not in pages["told"]
    assert "UndoLooked" in traces["seen"]
    assert "UndoLooked" not in traces["told"]
    counted = [line for line in generate_latest(metrics.registry).decode().splitlines() if "undo_looks_total{" in line]
    assert [(line.count("verified"), line.split()[-1]) for line in counted] == [(1, "1.0")]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``saga show`` says it of the step and of the saga, ``saga list`` of the saga."""

    async def main(url: str) -> None:
        async with Coordinator.open(url, TOOLS, **GIVEN) as c:
            await undone(c)

    with EmbeddedFolder(tmp_path / "saga") as folder:
        asyncio.run(main(folder.url))
        shown = {}
        for name in ("seen", "told"):
            assert command(["show", name, "--store", folder.url]) == 3  # undone
            shown[name] = capsys.readouterr().out
        assert command(["list", "--store", folder.url]) == 0
        listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "its undo is verified" in shown["seen"]
    assert "every undo verified" in shown["seen"]
    assert "verified" not in shown["told"].replace("not verified", "")
    assert "every undo verified" in listed["seen"]
    assert "every undo verified" not in listed["told"]


async def test_the_gateway() -> None:
    """An agent that takes its calls back is told of each whether the engine saw it."""
    LABELS.clear()
    async with Coordinator.open("memory://", TOOLS, **GIVEN) as c, agent(c) as it:
        await it.done("stick", item="a", label="x")
        await it.done("pin", item="b", label="x")
        report = json.loads(json.dumps(await it.done("saga_rollback")))
    assert {each["tool"]: each.get("verified") for each in report["undone"]} == {"stick": True, "pin": False}
