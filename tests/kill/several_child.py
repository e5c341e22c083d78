"""What a forked child does in the cases about a wait for all of several events.

Whoever sends an event sends it under one id. The tools are those of late events: they honour keys, so no doubt is left.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, SagaError
from saga_engine.errors import CancelRefused, SagaNotFound
from saga_engine.runtime import events as delivering
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.late_child import TOOLS
from tests.kill.world import World
from tests.support.mutating import Mutant, rewrite

Told = dict[str, Any]
#: Ends a part that a broken engine leaves waiting; nothing is asserted about time.
_LIMIT_S = 60


MUTANTS: dict[str, Mutant] = {
    # A new owner waits for all events again, also for those that its predecessor has journalled.
    "forget at a takeover what came": rewrite(
        (
            "state.epoch = record.epoch",
            "state.epoch = record.epoch\n    for step in state.steps:\n        step.came = {}",
        )
    ),
    # The store is told that an event is taken, though the step waits for others and may wait in vain.
    "take each event at once": rewrite(
        (
            'await self._run("arrived", channel, keep_ms, _name(waiter), event, bounded_ms(again_ms, 0))',
            "await self.over(channel, waiter, keep_ms=keep_ms, taken=event)",
        )
    ),
}


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    delivering._TELL_AGAIN_MS = 0  # type: ignore[misc]
    if "mutant" in case:
        MUTANTS[case["mutant"]].install()
    return asyncio.run(_play(case))


async def _play(case: dict[str, Any]) -> Told:
    store = FaultyStore(open_store(case["url"]), World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(store, TOOLS, on_escalation=()) as coordinator, asyncio.timeout(_LIMIT_S):
            told = await PARTS[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    except TimeoutError:
        told = {"error": "it waits for ever"}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


async def _send(coordinator: Coordinator, name: str, seats: int) -> None:
    await coordinator.send_event("confirmed", name, {"seats": seats}, event_id=f"e-{name}")


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """One event comes, and when it is journalled the other."""
    saga_id = case["saga_id"]
    handle = await coordinator.submit(case["plan"], saga_id=saga_id)
    await _send(coordinator, "bob", 2)
    async for record in coordinator.follow(saga_id):
        if record["k"] == "EventArrived":
            await _send(coordinator, "ada", 1)
    return {"final": (await handle.wait()).to_dict()}


async def _cancel(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """The other event never comes: someone gives up."""
    return {"final": (await coordinator.cancel(case["saga_id"])).to_dict()}


async def _settle(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Whoever lives goes on, senders repeat their events, and workers look what was not handled."""
    saga_id = case["saga_id"]
    try:
        before = await coordinator.history(saga_id)
    except SagaNotFound:
        before = []
        await coordinator.submit(case["plan"], saga_id=saga_id)
    await _send(coordinator, "bob", 2)
    if case["in_vain"]:
        try:
            await coordinator.cancel(saga_id)
        except CancelRefused:
            await coordinator.resume(saga_id)
    else:
        await _send(coordinator, "ada", 1)
        await (coordinator.resume(saga_id) if before else coordinator.wait(saga_id))
    events = delivering.Events(coordinator.store, coordinator.supervisor, coordinator._begin_late)
    for _ in range(2):
        await events.tell_again(range(coordinator.store.work().count))
    await coordinator.resume_all()
    found = {
        head.saga_id: (await coordinator.show(head.saga_id)).to_dict() for head in (await coordinator.search()).sagas
    }
    told = {event.id: event.disposition for event in await coordinator.events("confirmed")}
    return {"sagas": found, "events": told, "before": before, "history": await coordinator.history(saga_id)}


PARTS = {"submit": _submit, "cancel": _cancel, "settle": _settle}
