"""Workers that are told of work: by events, with polls that are an hour apart; and healed by the poll without hints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.runtime import worker as working
from saga_engine.runtime.worker import Worker
from saga_engine.stores import hints
from saga_engine.stores.queue import RedisWork
from tests.stores.permissions import documented_rules
from tests.support.servers import DebianRedis

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
    async with asyncio.timeout(240):
        while not condition():  # noqa: ASYNC110 - what another task makes true
            await asyncio.sleep(0.005)


async def waits(engine: Coordinator, saga_id: str) -> None:
    async with asyncio.timeout(240):
        while True:
            head = await engine.store.head(saga_id)
            if b'"waits"' in head.summary and not head.owner:
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workers hear, and "asked" after each of their requests, in order."""
    found: list[Any] = []
    hear, ask = Worker._heard, Worker._ask

    def noted(self: Worker, hint: Any) -> None:
        found.append(hint)
        hear(self, hint)

    async def asked(self: Worker, limit: int) -> Any:
        taking = await ask(self, limit)
        found.append("asked")
        return taking

    monkeypatch.setattr(Worker, "_heard", noted)
    monkeypatch.setattr(Worker, "_ask", asked)
    return found


def opened(where: Path | str) -> Any:
    url = where if isinstance(where, str) else f"embedded://{where}"
    return Coordinator.open(url, [book, unbook], on_escalation=())


def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_ASK_AGAIN_S", (AN_HOUR_S, AN_HOUR_S))
    monkeypatch.setattr(working, "_LISTENING_S", AN_HOUR_S)


async def stopped(worker: asyncio.Task[Any]) -> None:
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def subscriptions(engine: Coordinator) -> int:
    """Connections of the server that listen."""
    found: bytes = await engine.store._plain("CLIENT", "LIST", "TYPE", "pubsub")  # type: ignore[attr-defined]
    return len(found.splitlines())


async def test_an_event_wakes_a_worker_that_asks_once_an_hour(tmp_path, heard, monkeypatch) -> None:
    """A submission and an event of another coordinator reach an idle worker by hints alone; it closes what it opened."""
    seldom(monkeypatch)
    async with opened(tmp_path) as engine:
        async with opened(tmp_path) as there:
            worker = asyncio.create_task(there.work(concurrency=2))
            await happened(lambda: working.Hint() in heard)
            assert await subscriptions(engine) == 1
            await engine.submit(PLAN, saga_id="s", detach=True)
            await waits(engine, "s")
            await engine.send_event("paid", "s", {"sum": 7})
            await happened(lambda: CALLED == [7])
            await stopped(worker)
        async with asyncio.timeout(240):
            while await subscriptions(engine):  # noqa: ASYNC110 - what the server notices
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("found_by", ["the new subscription", "the poll"])
async def test_work_that_comes_while_the_subscription_is_down_is_found(
    found_by: str, tmp_path, heard, monkeypatch
) -> None:
    """Its hint reaches nobody. The worker asks once when it listens again, and polls while it does not."""
    if found_by != "the poll":
        seldom(monkeypatch)
    down, again = asyncio.Event(), asyncio.Event()
    listen = hints._listen

    async def gated(*args: Any) -> bool:
        if down.is_set():
            await again.wait()
        return await listen(*args)

    monkeypatch.setattr(hints, "_listen", gated)
    monkeypatch.setattr(hints, "_PAUSES_S", (0.01, 0.01))
    async with opened(tmp_path) as there, opened(tmp_path) as engine:
        worker = asyncio.create_task(there.work(concurrency=2))
        await happened(lambda: working.Hint() in heard)
        down.set()
        await engine.store._plain("CLIENT", "KILL", "TYPE", "pubsub")
        await happened(lambda: None in heard and "asked" in heard[heard.index(None) :])
        assert await subscriptions(engine) == 0
        noticed = len(heard)
        await engine.submit(PLAN, saga_id="s", detach=True)
        if found_by != "the poll":
            again.set()
        await waits(engine, "s")
        assert (working.Hint() in heard[noticed:]) == (found_by != "the poll")
        await stopped(worker)


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
        await stopped(worker)


@pytest.mark.debian_redis
async def test_a_user_who_may_not_listen_polls_and_is_told_once(
    heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without permission for channels the scripts work, a worker polls, and one line of the log says so."""
    monkeypatch.setattr(hints, "_PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(hints, "_REFUSED_S", 0.01)
    caplog.set_level(logging.INFO, "saga_engine.stores")
    with DebianRedis(tcp=True) as server:
        with server.client() as client:
            rules = documented_rules().split()
            client.execute_command("ACL", "SETUSER", "engine", "on", ">geheim", "~saga:*", "resetchannels", *rules)
        async with opened(f"redis://engine:geheim@127.0.0.1:{server.port}") as engine:
            worker = asyncio.create_task(engine.work(concurrency=2))
            await happened(lambda: heard.count(None) > 2)  # it was refused again
            await engine.submit(PLAN, saga_id="s", detach=True)
            await waits(engine, "s")
            await engine.send_event("paid", "s", {"sum": 7})
            await happened(lambda: CALLED == [7])
            await stopped(worker)
    (line,) = [each for each in caplog.records if "no hints of work" in each.message]
    assert (line.levelname, "&saga:*" in line.message, "geheim" in line.message) == ("WARNING", True, False)
    assert working.Hint() not in heard
