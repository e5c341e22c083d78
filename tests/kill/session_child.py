"""What a forked child does in the cases about sessions: one life of an agent, and the life that follows its death.

The agents are scripts: fixed, so that another life of one makes the same calls. What they do outside stands in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from saga_engine import CallFailed, Coordinator, NeedsPerson, SagaError, SagaResult, Session
from saga_engine.errors import SagaNotFound, SessionEnded
from saga_engine.runtime.session import Savepoint
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.polling import eventually
from tests.kill.session_mutants import MUTANTS
from tests.kill.world import TOOLS, World

Told = dict[str, Any]


class AgentError(Exception):
    """The agent's own: what it did is to be undone."""


async def _book(s: Session, *items: str) -> None:
    found = await asyncio.gather(*(s.call("book", item=item) for item in items))
    assert found == [{"ref": item} for item in items], found


async def well(s: Session) -> None:
    await _book(s, "a")
    await _book(s, "b")
    await _book(s, "c")


async def ill(s: Session) -> None:
    await _book(s, "a")
    await _book(s, "b")
    try:
        await s.call("fail", item="x")
    except CallFailed as error:
        raise AgentError(error.error_code) from error


async def parts(s: Session) -> None:
    """Three calls, two of them taken back, and another way."""
    await _book(s, "a")
    point: Savepoint = s.savepoint()
    await _book(s, "b")
    await _book(s, "c")
    await s.rollback(point)
    await _book(s, "d")


async def parts_ill(s: Session) -> None:
    await parts(s)
    raise AgentError


async def back(s: Session) -> None:
    """Its second call is taken back by itself, and then it gives up."""
    await _book(s, "a")
    await _book(s, "b")
    assert await s.call("cancel", ref="b") == {"cancelled": "b"}
    await _book(s, "c")
    raise AgentError


async def kept(s: Session) -> None:
    """Its third call is wrong, and its session is kept."""
    await _book(s, "a")
    await _book(s, "b")
    try:
        await s.call("fail", item="c")
    except CallFailed as error:
        raise AgentError(error.error_code) from error


async def side(s: Session) -> None:
    await _book(s, "a")
    await _book(s, "b", "c", "d")
    await _book(s, "e")
    raise AgentError


async def waits(s: Session) -> None:
    await _book(s, "a")
    await s.call("wait", item="b")
    await _book(s, "c")


async def torn(s: Session) -> None:
    """A call whose answer is lost is a question to a person, and the agent gives up over it."""
    await _book(s, "a")
    try:
        await s.call("lose", item="b")
    except NeedsPerson as error:

        async def rests() -> bool:
            return not (await World.store.head(s.saga_id)).owner

        await eventually(rests, "nobody to drive the session")
        raise AgentError from error


AGENTS: dict[str, Callable[[Session], Awaitable[None]]] = {
    "well": well,
    "ill": ill,
    "parts": parts,
    "parts, ill": parts_ill,
    "back": back,
    "kept": kept,
    "side": side,
    "waits": waits,
    "torn": torn,
}


#: What its author makes of an agent that was wrong, before it runs again.
MENDED = {"kept": well}
KEPT = {"kept"}


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    if "mutant" in case:
        MUTANTS[case["mutant"]].install()
    return asyncio.run(_play(case))


async def _play(case: dict[str, Any]) -> Told:
    store = World.store = FaultyStore(open_store(case["url"]), World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(store, TOOLS[case["variant"]], lease_s=case.get("lease_s", 15.0)) as coordinator:
            told = await PARTS[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


async def _live(coordinator: Coordinator, case: dict[str, Any], *, mended: bool = False) -> Told:
    """One life of the agent."""
    name = case["agent"]
    agent = MENDED.get(name, AGENTS[name]) if mended else AGENTS[name]
    options: Told = {"goal": name, "deadline_s": case.get("deadline_s")}
    if name in KEPT:
        options["on_failure"] = "keep"
    try:
        async with coordinator.session(case["saga_id"], **options) as s:
            await agent(s)
    except AgentError as error:
        if str(error) not in ("", "full"):
            raise
    return await _end(coordinator, case)


async def _come_back(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """The agent again, until it has ended; what only a person can know is answered as it is outside."""
    told: Told = {"before": None}
    try:
        told["before"] = await coordinator.history(case["saga_id"])
    except SagaNotFound:
        told["before"] = []
    while True:
        try:
            told |= await _live(coordinator, case, mended=True)
        except SessionEnded:  # its end was durable before it died
            return {**told, **await _end(coordinator, case)}
        except NeedsPerson:
            await _answer(coordinator, case["saga_id"])
        else:
            if told["final"]["status"] != "ESCALATED":
                return told
            await _answer(coordinator, case["saga_id"])


async def _answer(coordinator: Coordinator, saga_id: str) -> None:
    """Look at the world, then answer as it is: a call that did not happen is to be made."""
    outcome = await coordinator.show(saga_id)
    for question in (each for each in outcome.body["questions"] if each["kind"] != "session-kept"):
        found = World.ledger.find(question["idempotency_key"])
        if found is None:
            mark = question["outlooks"]["retry"]["mark"]
            await coordinator.resolve(saga_id, question["step_id"], "retry", by="ada", expect=mark)
        else:
            output = found.output if question["direction"] == "forward" else None
            await coordinator.resolve(saga_id, question["step_id"], "happened", output=output, by="ada")


async def _end(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    outcome: SagaResult = await coordinator.show(case["saga_id"])
    return {"final": outcome.to_dict(), "history": await coordinator.history(case["saga_id"])}


PARTS = {"live": _live, "come-back": _come_back}
