"""What a forked child does in the cases about events that come after their wait is over.

The tools honour keys, so a doubt about a call settles itself. Whoever sends the event sends it under one id, or as the
answer to the wait (``answers``), which has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, SagaError, ToolContext, tool
from saga_engine.errors import SagaExists, SagaNotFound
from saga_engine.runtime import events as delivering
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from tests.kill.world import FAST, World, did
from tests.support.mutating import Mutant, rewrite

Told = dict[str, Any]
Part = Callable[[Coordinator, dict[str, Any]], Awaitable[Told]]


@tool(undo="cancel", keyed=True, retry=FAST)
async def book(item: Any, ctx: ToolContext) -> dict:
    """An effect that is undone when no event comes."""
    World.ledger.sent(ctx, "book", {"item": item})
    return did(ctx, "book", {"ref": item}, once=True)


@tool(keyed=True, retry=FAST)
async def cancel(ref: Any, ctx: ToolContext) -> dict:
    """The undo of ``book``."""
    World.ledger.sent(ctx, "cancel", {"ref": ref})
    return did(ctx, "cancel", {"cancelled": ref}, once=True)


@tool(keyed=True, retry=FAST)
async def refund(sum: Any, of: Any, ctx: ToolContext) -> dict:  # noqa: A002 - a param
    """What is done about a payment that comes too late."""
    World.ledger.sent(ctx, "refund", {"sum": sum, "of": of})
    return did(ctx, "refund", {"sum": sum, "of": of}, once=True)


TOOLS = ToolRegistry([book, cancel, refund])


_CALL = "        call = _DECODE(receipt.about)\n"
MUTANTS: dict[str, Mutant] = {
    # The id of the saga that refunds does not follow from the event, so a repeat is refunded again.
    "another saga for each delivery": rewrite(("*what])[:16]}", "*what])[:16]}{__import__('secrets').token_hex(4)}")),
    # The store is told that the event was handled, and only then the saga is begun: a death in between loses it.
    "handled before it is begun": rewrite(
        (
            f"{_CALL}        payload",
            f"""\
        await self._store.event_store().handled(due.channel, due.event, keep_ms=EVENT_KEEP_MS)
{_CALL}        payload""",
        )
    ),
    # What a wait leaves is for every event, and not only if none ended it.
    "in time is late": rewrite(
        (
            "if not anew and (taken := state.steps[index].took(*channel)):\n        return Left(taken)",
            "anew = True",
        )
    ),
    # An answer is a message to its saga and nothing else: a saga that waits no more refuses it, and it is gone.
    "past the store": rewrite(
        (
            'return _receipt(await self._run("address", channel, keep_ms, _name(waiter), event.id, event.payload, mark))',
            'return Receipt("held", known=False, waiter=waiter, payload=event.payload)',
        )
    ),
    # The id of an answer does not follow from its wait, so a repeat is another one.
    "another answer for each delivery": rewrite(
        ('return f"answer-{digest(made)[:32]}"', "return f\"answer-{__import__('secrets').token_hex(8)}\"")
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
    return asyncio.run(play(case, PARTS))


async def play(case: dict[str, Any], parts: Mapping[str, Part]) -> Told:
    """The part of the case, in a process whose store may fail."""
    store = FaultyStore(open_store(case["url"]), World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(store, TOOLS, on_escalation=()) as coordinator:
            told = await parts[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


async def _send(coordinator: Coordinator, case: dict[str, Any]) -> str:
    if case.get("answers"):
        return await coordinator.answer_wait(case["saga_id"], 2, {"sum": 7})
    receipt = await coordinator.send_event("paid", case["saga_id"], {"sum": 7}, event_id="p1")
    return receipt.late_saga


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """The saga whose event comes too late, or in time."""
    if case["in_time"]:
        await _send(coordinator, case)
    final = await coordinator.run(case["plan"], saga_id=case["saga_id"])
    return {"final": final.to_dict()}


async def _pay(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """The event comes, and this process does what is to be done about it."""
    saga_id = await _send(coordinator, case)
    return {"late": (await coordinator.wait(saga_id)).to_dict() if saga_id else None}


async def wait_longer(coordinator: Coordinator) -> None:
    """The time of each wait is over for this process. It has a lease, whose begin would set its clock."""
    await coordinator.supervisor.lease()
    clock = coordinator.supervisor.clock
    clock.set(clock.now_ms() + 2_000_000)


async def _answer(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """An answer comes while the step waits, and the owner of the saga finds that the time is over."""
    await _send(coordinator, case)
    await wait_longer(coordinator)
    await coordinator.resume(case["saga_id"])
    await _look_after(coordinator)
    return {}


async def _look_after(coordinator: Coordinator) -> None:
    """What workers do about what was not handled."""
    events = delivering.Events(coordinator.store, coordinator.supervisor, coordinator._begin_late)
    for _ in range(2):
        await events.tell_again(range(coordinator.store.work().count))
    await coordinator.resume_all()


async def _settle(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Whoever lives goes on, senders repeat their event, and workers look what was not handled.

    An answer that is durable is repeated only after that (``unrepeated``): who repeats it may bring it to its saga.
    """
    if case.get("moment"):
        await wait_longer(coordinator)
    try:
        await coordinator.resume(case["saga_id"])
    except SagaNotFound:
        try:
            await coordinator.run(case["plan"], saga_id=case["saga_id"])
        except SagaExists as error:
            return {"error": error.to_dict()}
    unrepeated = None
    if case.get("answers") and await coordinator.events("paid"):
        await _look_after(coordinator)
        unrepeated = [event.disposition for event in await coordinator.events("paid")]
    await _send(coordinator, case)
    await _look_after(coordinator)
    found = {head.saga_id: (await coordinator.show(head.saga_id)).to_dict() for head in await _sagas(coordinator)}
    events = [event.disposition for event in await coordinator.events("paid")]
    return {"sagas": found, "events": events, "unrepeated": unrepeated}


async def _sagas(coordinator: Coordinator) -> Any:
    return (await coordinator.search()).sagas


PARTS = {"submit": _submit, "pay": _pay, "answer": _answer, "settle": _settle}
