"""Workers that are told of work: by events, with polls that are an hour apart; and healed by the poll without hints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.runtime import worker as working
from saga_engine.runtime.worker import Worker
from saga_engine.stores import hints
from saga_engine.stores.queue import RedisWork

AN_HOUR_S = 3600.0

PLAN = {
    "steps": [
        {"step_id": 1, "wait": {"event": "paid"}},
        {"step_id": 2, "tool": "book", "params": {"sum": "$output.step_1.sum"}},
    ]
}
CALLED: list[int] = []


@tool(undo="unbook")
async def book(sum: int) -> dict[str, int]:  # noqa: A002 - a param
    """Books."""
    CALLED.append(sum)
    return {"sum": sum}


@tool
async def unbook(sum: int) -> dict[str, int]:  # noqa: A002 - a param
    """Undoes it."""
    return {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    CALLED.clear()


async def happened(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what another task makes true
            await asyncio.sleep(0.005)


async def waits(engine: Coordinator, saga_id: str) -> None:
    async with asyncio.timeout(60):
        while True:
            head = await engine.store.head(saga_id)
            if b'"waits"' in head.summary and not head.owner:
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workers hear, in order."""
    found: list[Any] = []
    before = Worker._heard

    def noted(self: Worker, hint: Any) -> None:
        found.append(hint)
        before(self, hint)

    monkeypatch.setattr(Worker, "_heard", noted)
    return found


def opened(where: Path) -> Any:
    return Coordinator.open(f"embedded://{where}", [book, unbook], on_escalation=())


def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_ASK_AGAIN_S", (AN_HOUR_S, AN_HOUR_S))
    monkeypatch.setattr(working, "_LISTENING_S", AN_HOUR_S)


async def test_an_event_wakes_a_worker_that_asks_once_an_hour(tmp_path, heard, monkeypatch) -> None:
    """A submission and an event of another coordinator reach an idle worker by hints alone."""
    seldom(monkeypatch)
    async with opened(tmp_path) as there, opened(tmp_path) as engine:
        worker = asyncio.create_task(there.work(concurrency=2))
        await happened(lambda: heard)
        await engine.submit(PLAN, saga_id="s", detach=True)
        await waits(engine, "s")
        await engine.send_event("paid", "s", {"sum": 7})
        await happened(lambda: CALLED == [7])
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_a_subscription_that_breaks_is_made_anew_and_asks_once(tmp_path, heard, monkeypatch) -> None:
    """What was hinted at while nobody listened is found at once when the connection is back."""
    seldom(monkeypatch)
    monkeypatch.setattr(hints, "_PAUSES_S", (0.01, 0.01))
    async with opened(tmp_path) as there, opened(tmp_path) as engine:
        worker = asyncio.create_task(there.work(concurrency=2))
        await happened(lambda: heard)
        await engine.store._plain("CLIENT", "KILL", "TYPE", "pubsub")
        await happened(lambda: None in heard)
        await happened(lambda: heard[-1] is not None)
        await engine.submit(PLAN, saga_id="s", detach=True)
        await waits(engine, "s")
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_a_worker_without_hints_finds_the_work_by_its_poll(tmp_path, monkeypatch) -> None:
    """Hints are no more than hints: if every one is lost, the event goes through all the same."""

    async def deaf(self: RedisWork, partitions: Any, heard: Any) -> None:
        heard(working.Hint())
        await asyncio.Event().wait()

    monkeypatch.setattr(RedisWork, "listen", deaf)
    async with opened(tmp_path) as there, opened(tmp_path) as engine:
        worker = asyncio.create_task(there.work(concurrency=2))
        await engine.submit(PLAN, saga_id="s", detach=True)
        await waits(engine, "s")
        await engine.send_event("paid", "s", {"sum": 7})
        await happened(lambda: CALLED == [7])
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
