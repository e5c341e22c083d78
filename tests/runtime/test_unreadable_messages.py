"""Messages and records that cannot be read: a message is refused in the journal, a record leaves the saga to others."""

import asyncio
import json

from saga_engine import Coordinator, tool
from saga_engine.ports import Acquired, Entry

GARBAGE = [
    b"\xff\x00 foreign bytes",
    b"[1]",
    b'{"id": "m-new", "kind": "from a newer engine", "by": "ada"}',
    json.dumps({"id": "m-amend", "kind": "amend", "by": "ada", "steps": [1]}).encode(),
    json.dumps({"id": "m-digits", "kind": "resolve", "by": "ada", "step": 7, "decision": []}).encode(),
]


async def test_garbage_among_the_messages_stops_nothing() -> None:
    """Foreign bytes, an unknown kind and steps that are none are refused by their id; what was sent well is heard."""
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool(effect="read", timeout_s=600)
    async def wait() -> dict:
        begun.set()
        await gate.wait()
        return {}

    plan = {"steps": [{"step_id": 1, "tool": "wait"}, {"step_id": 2, "tool": "wait"}]}
    async with asyncio.timeout(60), Coordinator.open("memory://", [wait]) as coordinator:
        handle = await coordinator.submit(plan, saga_id="s")
        await begun.wait()
        for data in GARBAGE:
            await coordinator.store.post("s", data)

        gate.set()
        assert (await handle.wait()).status == "COMPLETED"
        history = await coordinator.history("s")
        refused = [record["message"] for record in history if record["k"] == "MessageRefused"]
        assert len(refused) == len(GARBAGE)
        assert refused[2:] == ["m-new", "m-amend", "m-digits"]


async def test_a_saga_of_a_newer_engine_is_soon_offered_to_others() -> None:
    """A worker that cannot read a journal leaves the saga in the queue: seconds later another may take it."""

    @tool(effect="read")
    async def look() -> dict:
        return {}

    async with asyncio.timeout(60), Coordinator.open("memory://", [look]) as coordinator:
        store = coordinator.store
        await coordinator.submit({"steps": [{"step_id": 1, "tool": "look"}]}, saga_id="new", detach=True)
        lease = "newer:1:1:boot:ns:nonce"
        await store.open_lease(lease, 60_000)
        acquired = await store.acquire("new", lease)
        assert isinstance(acquired, Acquired)
        now_ms = (await store.work().take(lease, "n", 0, range(16))).now_ms
        newer = json.dumps({"k": "SagaImproved", "at": now_ms, "v": 2}).encode()
        entry = Entry("new", acquired.seq, acquired.epoch, [newer], status="RUNNING", release=True, due_ms=1)
        assert [ack.code for ack in (await store.append(lease, [entry])).acks] == ["ok"]
        working = asyncio.create_task(coordinator.work())
        waits_ms, turn = 0, 0
        while waits_ms <= 0:  # until it was taken, and released again
            await asyncio.sleep(0)
            turn += 1
            taking = await store.work().take(lease, f"n{turn}", 0, range(16))
            waits_ms = (taking.next_due_ms or 0) - taking.now_ms
        assert waits_ms < 30_000
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
