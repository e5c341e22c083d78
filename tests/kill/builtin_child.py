"""What a forked child does in the cases about steps without a tool, conditions and ``finally``.

All tools but ``tell`` honour keys, so a doubt about them settles itself. ``tell`` is bare: a step of ``finally`` whose call
is in doubt stays so, and is not repeated. The event that the plan waits for is sent by each process, under one id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, RetryPolicy, SagaError, SagaResult, ToolContext, ToolError, tool
from saga_engine.core.records import Record, StepWaiting
from saga_engine.errors import SagaNotFound
from saga_engine.stores import open_store
from saga_engine.testing.faults import CALL, Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from tests.kill.builtin_mutants import MUTANTS
from tests.kill.world import FAST, World, did

Told = dict[str, Any]
ONCE = RetryPolicy(max_attempts=1)


@tool(undo="cancel", keyed=True, retry=FAST)
async def book(item: Any, ctx: ToolContext) -> dict:
    """An effect that is undone by what it answers."""
    World.ledger.sent(ctx, "book", {"item": item})
    return did(ctx, "book", {"ref": item}, once=True)


@tool(keyed=True, retry=FAST)
async def cancel(ref: Any, ctx: ToolContext) -> dict:
    """The undo of ``book``."""
    World.ledger.sent(ctx, "cancel", {"ref": ref})
    return did(ctx, "cancel", {"cancelled": ref}, once=True)


@tool(keyed=True, retry=FAST)
async def post(text: Any, ctx: ToolContext) -> dict:
    """An effect that nothing undoes."""
    World.ledger.sent(ctx, "post", {"text": text})
    return did(ctx, "post", {"id": 7}, once=True)


@tool(undo="cancel", keyed=True, retry=FAST)
async def full(item: Any, ctx: ToolContext) -> dict:
    """It never does anything, and says so."""
    World.ledger.sent(ctx, "full", {"item": item})
    with World.faults.at(CALL):
        raise ToolError("no rooms", error_code="full", retryable=False)


@tool(retry=ONCE)
async def tell(end: Any, ctx: ToolContext) -> dict:
    """Neither a key nor a probe."""
    World.ledger.sent(ctx, "tell", {"end": end})
    return did(ctx, "tell", {"end": end}, once=False)


TOOLS = ToolRegistry([book, cancel, post, full, tell])


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    if "mutant" in case:
        MUTANTS[case["mutant"]].install()
    return asyncio.run(_play(case))


class Waits:
    """Hears that a step waits for an event."""

    def __init__(self) -> None:
        self.one = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, _saga_id: str, record: Record) -> None:
        if isinstance(record, StepWaiting) and record.on == "event":
            self._loop.call_soon_threadsafe(self.one.set)


async def _play(case: dict[str, Any]) -> Told:
    store = FaultyStore(open_store(case["url"]), World.faults)
    told: Told = {}
    waits = Waits()
    try:
        async with Coordinator.open(store, TOOLS, observers=[waits], on_escalation=()) as coordinator:
            told = await PARTS[case["part"]](coordinator, case, waits)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


@asynccontextmanager
async def _paying(coordinator: Coordinator, case: dict[str, Any], until: Callable[[], Any]) -> AsyncIterator[None]:
    """Send the event while the saga goes on: at once (it is early), or as soon as ``until`` says that a step waits."""

    async def pay() -> None:
        if not case["early"]:
            await until()
        await coordinator.send_event("paid", case["saga_id"], {"sum": 7}, event_id="p1")

    if case["early"]:
        await pay()
        yield
        return
    async with asyncio.TaskGroup() as group:
        paying = group.create_task(pay())
        yield
        paying.cancel()


async def _submit(coordinator: Coordinator, case: dict[str, Any], waits: Waits) -> Told:
    async with _paying(coordinator, case, waits.one.wait):
        final = await _to_its_end(coordinator, await coordinator.run(case["plan"], saga_id=case["saga_id"]))
    return {"final": final.to_dict(), "history": await coordinator.history(case["saga_id"])}


async def _resume_all(coordinator: Coordinator, case: dict[str, Any], waits: Waits) -> Told:
    saga_id = case["saga_id"]
    told: Told = {"before": None}
    try:
        told["before"] = await coordinator.history(saga_id)
    except SagaNotFound:
        told["others"] = sorted(await coordinator.resume_all())
        return told
    if any(record["k"] == "StepWaiting" and record["on"] == "event" for record in told["before"]):
        waits.one.set()
    async with _paying(coordinator, case, waits.one.wait):
        told["others"] = sorted(set(await coordinator.resume_all()) - {saga_id})
        told["final"] = (await _to_its_end(coordinator, await coordinator.resume(saga_id))).to_dict()
    told["history"] = await coordinator.history(saga_id)
    told["events"] = [event.disposition for event in await coordinator.events("paid")]
    return told


async def _to_its_end(coordinator: Coordinator, found: SagaResult) -> SagaResult:
    """Answer what the plan asks; nothing else may be asked."""
    while found.status == "ESCALATED":
        question = found.body["questions"][0]
        assert question["kind"] == "ask", question
        found = await coordinator.resolve(found.saga_id, question["step_id"], "yes", by="ada")
    return found


PARTS = {"submit": _submit, "resume-all": _resume_all}
