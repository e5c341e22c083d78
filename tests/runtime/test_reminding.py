"""A saga that rests is woken when something falls due, also if the store is away just then."""

import asyncio

from saga_engine import Coordinator, tool
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.kill.polling import eventually


@tool(effect="read")
async def look() -> dict:
    return {}


async def test_a_store_that_is_away_when_a_reminder_is_due_does_not_end_the_reminding() -> None:
    """The alarm is set anew after an outage, and not after a saga that went on."""
    faults = Faults("")
    store = FaultyStore(open_store("memory://"), faults)
    async with Coordinator.open(store, [look]) as coordinator:
        await coordinator.run({"steps": [{"step_id": 1, "tool": "look"}]}, saga_id="s1")
        supervisor = coordinator._supervisor
        nothing = asyncio.get_running_loop().call_later(3600, print)
        store.faults = Faults("read:1:before:raise")
        supervisor._alarms["s1"] = nothing
        supervisor._wake("s1")
        await eventually(lambda: "s1" in supervisor._alarms, "another alarm")

        supervisor._alarms["s1"].cancel()
        store.faults = faults
        supervisor._wake("s1")
        await supervisor.find("s1").task
        await asyncio.sleep(0)
        assert "s1" not in supervisor._alarms
        nothing.cancel()
    await store.close()
