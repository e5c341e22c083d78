"""A session that waits for its agent costs nothing, however often somebody looks after it."""

import asyncio

import pytest

from saga_engine import Coordinator, tool
from tests.kill.polling import eventually


@tool(undo="give_back", keyed=True)
async def take(item: str) -> dict:
    return {"item": item}


@tool
async def give_back(item: str) -> dict:
    return {"item": item}


TOOLS = [take, give_back]


async def leave_open(coordinator: Coordinator, **options) -> None:
    """A session whose agent has gone."""
    with pytest.raises(GeneratorExit):
        async with coordinator.session("s1", **options) as session:
            await session.call(take, item="x")
            raise GeneratorExit

    async def is_free() -> bool:
        return not (await coordinator.store.head("s1")).owner

    await eventually(is_free, "the session to be given up")


async def test_resuming_an_idle_session_writes_nothing() -> None:
    """Neither `resume_all` nor `resume` grows its journal; it stays open, and its agent goes on with it."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await leave_open(coordinator)
        before = (await coordinator.store.head("s1")).length
        for _ in range(3):
            assert {name: outcome.status for name, outcome in (await coordinator.resume_all()).items()} == {
                "s1": "RUNNING"
            }
            assert not (await coordinator.resume("s1")).ended
        head = await coordinator.store.head("s1")
        assert (head.length, head.owner) == (before, "")
        async with coordinator.session("s1") as session:
            await session.call(take, item="x")
            await session.call(take, item="y")
        assert (await coordinator.show("s1")).completed


async def test_an_idle_session_of_an_owner_that_is_gone_is_freed_without_a_record() -> None:
    """Whoever takes it over has nothing to do, and gives it up."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await leave_open(coordinator)
        store = coordinator.store
        await store.open_lease("gone", 60_000)
        await store.acquire("s1", "gone")
        await store.close_lease("gone", clean=True)
        before = (await store.head("s1")).length
        assert not (await coordinator.resume("s1")).ended
        head = await store.head("s1")
        assert (head.length, head.owner) == (before, "")
        assert (await coordinator.overview()).queued == 0


@pytest.mark.parametrize("deadline_s", [None, 3600])
async def test_a_worker_gives_an_idle_session_back_without_a_record(deadline_s) -> None:
    """It comes to the queue when an owner dies; its deadline is still kept."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await leave_open(coordinator, deadline_s=deadline_s)
        store = coordinator.store
        before = (await store.head("s1")).length
        await store.open_lease("gone", 60_000)
        epoch = (await store.acquire("s1", "gone")).epoch
        await store.release("s1", epoch, 1)
        working = asyncio.create_task(coordinator.work())

        async def is_idle() -> bool:
            load = await coordinator.overview()
            return load.queued == 0 and load.timed == (deadline_s is not None) and not (await store.head("s1")).owner

        await eventually(is_idle, "the worker to give it back")
        assert (await store.head("s1")).length == before
        assert (await store.head("s1")).epoch > epoch
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_messages_and_a_deadline_move_an_idle_session() -> None:
    """What can be done without its agent is done: a cancel, and the end of its time."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await leave_open(coordinator)
        await coordinator.cancel("s1", wait=False)
        assert (await coordinator.resume("s1")).status == "COMPENSATED"
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await leave_open(coordinator, deadline_s=0.2)

        async def has_ended() -> bool:
            return (await coordinator.resume("s1")).status == "COMPENSATED"

        await eventually(has_ended, "its time to be up")
