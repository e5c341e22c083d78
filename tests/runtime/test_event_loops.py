"""A coordinator belongs to the event loop in which it was opened."""

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import EventLoopMismatch


@tool(undo="give_back", keyed=True)
async def take(item: str) -> dict:
    return {"item": item}


@tool
async def give_back(item: str) -> dict:
    return {"item": item}


PLAN = {"steps": [{"step_id": 1, "tool": "take", "params": {"item": "x"}}]}


async def elsewhere(call) -> Any:
    """What comes of ``call`` in the event loop of another thread."""

    async def body() -> Any:
        async with asyncio.timeout(30):
            return await call()

    return await asyncio.to_thread(lambda: asyncio.run(body()))


async def collected(records) -> list:
    return [record async for record in records]


async def begun(manager) -> None:
    async with manager:
        pass


CALLS = {
    "run": lambda c: c.run(PLAN, saga_id="s2"),
    "submit": lambda c: c.submit(PLAN, saga_id="s2"),
    "detach": lambda c: c.submit(PLAN, saga_id="s2", detach=True),
    "resume": lambda c: c.resume("s1"),
    "resume_all": lambda c: c.resume_all(),
    "show": lambda c: c.show("s1"),
    "list": lambda c: c.list(),
    "cancel": lambda c: c.cancel("s1"),
    "work": lambda c: c.work(),
    "wait": lambda c: c.wait("s1"),
    "follow": lambda c: collected(c.follow("s1")),
    "session": lambda c: begun(c.session("s2")),
    "close": lambda c: c.close(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_use_from_another_event_loop_is_refused(name) -> None:
    """It is told at once and begins nothing; it neither hangs nor disturbs those who use it properly."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        assert (await coordinator.run(PLAN, saga_id="s1")).completed
        with pytest.raises(EventLoopMismatch, match="run_coroutine_threadsafe"):
            await elsewhere(lambda: CALLS[name](coordinator))
        assert [head.saga_id for head in await coordinator.list()] == ["s1"]
        assert (await coordinator.run(PLAN, saga_id="s3")).completed


async def test_a_handle_and_a_session_belong_to_the_loop_as_well() -> None:
    """Their callers wait for futures of that loop. What is known already can be had anywhere."""
    gate = asyncio.Event()

    @tool(undo="give_back", keyed=True)
    async def late(item: str) -> dict:
        await gate.wait()
        return {"item": item}

    plan = {"steps": [{"step_id": 1, "tool": "late", "params": {"item": "x"}}]}
    async with Coordinator.open("memory://", [take, late, give_back]) as coordinator:
        handle = await coordinator.submit(plan, saga_id="s1")
        with pytest.raises(EventLoopMismatch):
            await elsewhere(handle.wait)
        async with coordinator.session("s2") as session:
            with pytest.raises(EventLoopMismatch):
                await elsewhere(lambda: session.call(take, item="x"))
            await session.call(take, item="x")
        gate.set()
        assert (await handle.wait()).completed
        assert (await elsewhere(handle.wait)).completed


async def test_another_thread_hands_its_call_to_the_loop() -> None:
    """As the error tells: the call is made in the other thread and runs in the loop of the coordinator."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        loop = asyncio.get_running_loop()

        def body() -> str:
            return asyncio.run_coroutine_threadsafe(coordinator.run(PLAN), loop).result().status

        assert await asyncio.to_thread(body) == "COMPLETED"
