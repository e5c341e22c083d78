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
    """The timer is set anew after an outage, and not after a saga that went on."""
    store = FaultyStore(open_store("memory://"), Faults(""))
    async with Coordinator.open(store, [look]) as coordinator:
        await coordinator.run({"steps": [{"step_id": 1, "tool": "look"}]}, saga_id="s1")
        supervisor = coordinator.supervisor
        store.faults = away = Faults("read:1:before:raise")
        supervisor.resumptions.add("s1", 0)
        await eventually(lambda: away.counts["read"] and "s1" in supervisor.resumptions, "another timer")

        store.faults = back = Faults("")
        supervisor.resumptions.add("s1", 0)
        await eventually(lambda: back.counts["read"] and supervisor.find("s1") is None, "the saga to be looked at")
        await asyncio.sleep(0)
        assert "s1" not in supervisor.resumptions
    await store.close()
