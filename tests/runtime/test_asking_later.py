"""A saga that waits to ask a model again: it holds no task and no worker, and the next process asks."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core import asking_later, waits
from saga_engine.errors import ModelUnreachable
from saga_engine.runtime import takeover
from saga_engine.stores import open_store
from saga_engine.testing.scripted import ScriptedPlanner
from tests.kill.polling import eventually
from tests.runtime.sleeping import asleep

ONCE = RetryPolicy(max_attempts=1)
SAVOY = [{"step_id": "savoy", "tool": "book", "params": {"what": "Savoy"}}]
PLAN = {
    "steps": [
        {"step_id": "flight", "tool": "book", "params": {"what": "flight"}},
        {"step_id": "hotel", "tool": "book", "params": {"what": "Hilton"}},
    ],
    "on_failure": "replan",
}
LOG: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOG.clear()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    if what == "Hilton":
        raise ToolError("full", error_code="full", retryable=False)
    LOG.append(f"book {what}")
    return {"ref": what}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    LOG.append(f"unbook {ref}")
    return {}


TOOLS = [book, unbook]


def away(times: int, *then: Any) -> ScriptedPlanner:
    return ScriptedPlanner(*[ModelUnreachable("the line is down")] * times, *then)


@pytest.fixture
async def store():
    """One store for all coordinators of a test."""
    store = open_store("memory://")
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def worker(store: Any, **options: Any):
    """A coordinator that works; it stops with the block."""
    async with Coordinator.open(store, TOOLS, **options) as coordinator:
        task = asyncio.create_task(coordinator.work())
        await asyncio.sleep(0)  # it has begun
        yield coordinator
    await task


async def kinds(store: Any) -> list[str]:
    async with Coordinator.open(store, TOOLS) as coordinator:
        return [record["k"] for record in await coordinator.history("s1")]


async def _gave_up(store: Any) -> bool:
    return "PlannerGaveUp" in await kinds(store)


async def test_a_saga_that_waits_to_ask_has_no_task() -> None:
    """Half a minute costs no task; a cancel wakes the saga, which is undone once, and the model is not asked again."""
    planner = away(2)
    async with Coordinator.open("memory://", TOOLS, planner=planner) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        assert "saga s1" not in {task.get_name() for task in asyncio.all_tasks()}
        shown = await coordinator.show("s1")
        assert shown.steps.by_id("hotel").model_asked_ms > shown.body["started_ms"] + 29_000
        await coordinator.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"
    assert len(planner.asked) == 1
    assert LOG == ["book flight", "unbook flight"]


async def test_a_worker_spends_the_delay_in_the_store(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process holds the saga meanwhile; at its time a worker takes it and asks."""
    monkeypatch.setattr(asking_later, "DELAYS_MS", (50, 50, 50))
    monkeypatch.setattr(takeover, "_REST_MS", 0)
    async with Coordinator.open(store, TOOLS) as coordinator:
        await coordinator.submit(PLAN, saga_id="s1", detach=True)
    async with worker(store, planner=away(1, SAVOY)) as coordinator:
        assert (await coordinator.wait("s1")).status == "COMPLETED"
    asked = [kind for kind in await kinds(store) if kind in ("PlannerAsked", "PlannerGaveUp", "SagaResumed")][1:]
    assert asked == ["PlannerAsked", "PlannerGaveUp", "SagaResumed", "PlannerAsked"]
    assert LOG == ["book flight", "book Savoy"]


async def test_a_worker_without_a_planner_leaves_it_to_one_that_has(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the saga, decides nothing, and gives it back, until a worker comes that can ask."""
    monkeypatch.setattr(asking_later, "DELAYS_MS", (1_000, 1_000, 1_000))
    monkeypatch.setattr(waits, "OFFER_MS", 20)
    monkeypatch.setattr(takeover, "_REST_MS", 0)
    async with Coordinator.open(store, TOOLS, planner=away(4)) as first:
        await first.submit(PLAN, saga_id="s1")
        await eventually(lambda: _gave_up(store), "the first request")
    async with worker(store) as blind:

        async def offered() -> bool:
            body = (await blind.show("s1")).body
            history = await blind.history("s1")
            return history[-1]["k"] == "SagaResumed" and history[-1]["at"] >= body["steps"][1]["model_asked_ms"]

        await eventually(offered, "the time of the second request")
        async with worker(store, planner=away(0, SAVOY)) as able:
            assert (await able.wait("s1")).status == "COMPLETED"
    assert {"CompensationStarted", "StepEscalated"}.isdisjoint(await kinds(store))
    assert LOG == ["book flight", "book Savoy"]
