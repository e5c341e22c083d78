"""Messages that cannot be read: each is refused in the journal, and the saga goes on."""

import asyncio
import json

from saga_engine import Coordinator, tool

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
