"""A request of ours that arrives late, after its repeat was answered: it must leave no saga without a driver."""

import asyncio

from saga_engine import Coordinator, tool

CALLS: list[str] = []


async def test_a_late_acquire_of_our_own_does_not_strand_a_saga() -> None:
    """It makes a greater epoch, so the driver is fenced off by its own process; the saga goes back into the queue."""
    begun, gate = asyncio.Event(), asyncio.Event()
    CALLS.clear()

    @tool(undo="cancel", keyed=True)
    async def book(item: str, idempotency_key: str) -> dict:
        CALLS.append(idempotency_key)
        begun.set()
        await gate.wait()
        return {"item": item}

    @tool
    async def cancel(item: str) -> dict:
        return {}

    async with Coordinator.open("memory://", [book, cancel]) as coordinator:
        await coordinator.submit(
            {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}, saga_id="s1", detach=True
        )
        working = asyncio.create_task(coordinator.work(concurrency=4))
        await begun.wait()
        owner = (await coordinator.store.head("s1")).owner
        late = await coordinator.store.acquire("s1", owner)
        gate.set()
        async with asyncio.timeout(30):
            outcome = await coordinator.wait("s1")
        head = await coordinator.store.head("s1")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert outcome.completed
    assert head.epoch > late.epoch
    assert len(CALLS) == 2
    assert len(set(CALLS)) == 1  # the same request, asked for twice
