"""Tasks that begin at once, as ``asyncio.eager_task_factory`` makes them: web servers set it, and nothing may differ."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")


@tool(undo="undo")
async def do(x: int) -> dict:
    if x == 99:
        raise ToolError("no", error_code="no")
    return {"x": x}


@tool
async def undo(x: int) -> dict:
    return {}


@tool(undo="undo", retry=RetryPolicy(max_attempts=1))
async def doubt(x: int) -> dict:
    raise TimeoutError


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    async with Coordinator.open("memory://", [do, undo, doubt], on_escalation=()) as opened:
        yield opened


def side_by_side(count: int, *more: dict) -> dict:
    return {
        "steps": [{"step_id": x, "tool": "do", "params": {"x": x}, "depends_on": []} for x in range(count)] + [*more]
    }


async def test_plans_end(coordinator: Coordinator) -> None:
    """One after the other, side by side, and undone: every saga comes to its end."""
    in_a_row = {"steps": [{"step_id": x, "tool": "do", "params": {"x": x}} for x in range(3)]}
    failing = {"step_id": "last", "tool": "do", "params": {"x": 99}}
    async with asyncio.timeout(30):
        assert (await coordinator.run(in_a_row)).status == "COMPLETED"
        assert (await coordinator.run(side_by_side(5))).status == "COMPLETED"
        assert (await coordinator.run(side_by_side(4, failing))).status == "COMPENSATED"
        handle = await coordinator.submit(side_by_side(3))
        assert (await handle.wait()).status == "COMPLETED"


async def test_a_saga_rests_and_is_answered(coordinator: Coordinator) -> None:
    """A question lets the saga rest, and its answer moves it."""
    in_doubt = {"step_id": "x", "tool": "doubt", "params": {"x": 1}}
    async with asyncio.timeout(30):
        assert (await coordinator.run(side_by_side(3, in_doubt), saga_id="d")).status == "ESCALATED"
        assert (await coordinator.resolve("d", "x", "not-happened")).status == "COMPENSATED"


async def test_sessions_end(coordinator: Coordinator) -> None:
    """Calls side by side in a session."""
    async with asyncio.timeout(30):
        async with coordinator.session("s") as session:
            await asyncio.gather(*(session.call(do, x=x) for x in range(3)))
        assert (await coordinator.show("s")).status == "COMPLETED"


async def test_a_worker_drives(coordinator: Coordinator) -> None:
    """Sagas that were left to workers."""
    async with asyncio.timeout(30):
        await coordinator.submit(side_by_side(3), saga_id="w", detach=True)
        worker = asyncio.create_task(coordinator.work())
        assert (await coordinator.wait("w")).status == "COMPLETED"
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
