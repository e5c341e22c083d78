"""What a forked child does in the cases about erasures: it makes sealed sagas, or erases one of them, and may die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.errors import SagaError
from saga_engine.execution.retention import Retention
from saga_engine.runtime import family
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

KEYS = {"k1": bytes(range(32))}
WORD, OTHER = "mk-is-forgotten", "mk-stays"


@tool(undo="back")
async def forth(word: str) -> dict:
    """An effect."""
    return {"said": word}


@tool
async def back(said: str) -> None:
    """Its undo."""


@tool
async def back_later(word: str, sum: int) -> None:  # noqa: A002 - a param
    """What is done about an event that comes too late."""


def _waiting(word: str) -> dict[str, Any]:
    late = {"tool": "back_later", "params": {"word": word, "sum": "$output.step_w.sum"}}
    wait = {"event": "paid", "key": word, "timeout_s": 600, "on_late": late}
    return {"steps": [_step(1, word), {"step_id": "w", "wait": wait}]}


def _step(number: int, word: str) -> dict[str, Any]:
    return {"step_id": number, "tool": "forth", "params": {"word": word}}


def main(case: dict[str, Any]) -> dict[str, Any]:
    """Play the part and say what came of it."""
    if case.get("mutant") == "ties are forgotten":
        family.Ties.to_dict = lambda _: {}  # type: ignore[method-assign, assignment]
    return asyncio.run(_play(case, Faults(case.get("fault", ""))))


async def _play(case: dict[str, Any], faults: Faults) -> dict[str, Any]:
    store = FaultyStore(open_store(case["url"]), faults)
    await store.open()
    rules = Retention({}, archive=Path(case["archive"]))
    try:
        async with Coordinator.open(
            store, [forth, back, back_later], on_escalation=(), privacy=KEYS, retention=rules
        ) as coordinator:
            if case["part"] == "make":
                await _make(coordinator)
            told: Any = None
            if case["part"] == "erase":
                told = await coordinator.erase(
                    case["saga"], by=case["by"], why="asked", family=case.get("family", False)
                )
            found = {head.saga_id: await _readable(coordinator, head.saga_id) for head in await coordinator.list()}
            return {
                "told": told,
                "stored": found,
                "tagged": [head.saga_id for head in (await coordinator.search(tags=[WORD])).sagas],
                "keys": sorted({event.channel.key for event in await coordinator.events()}),
                "counts": dict(faults.counts),
            }
    finally:
        await store.close()


async def _make(coordinator: Coordinator) -> None:
    """A parent with a child that waited in vain, forks and undos; two that stand for themselves, one to be erased."""
    parent = {"steps": [{"step_id": 1, "saga": {"plan": {"steps": [_step(1, WORD)]}}}, _step(2, WORD)]}
    await coordinator.run(parent, saga_id="p", tags=[WORD])
    await coordinator.fork("p", new_id="f", run_from=2)
    await coordinator.undo("f")
    for saga_id, word in (("w", WORD), ("stays", OTHER)):
        await coordinator.submit(_waiting(word), saga_id=saga_id, tags=[word])
        await coordinator.cancel(saga_id)
        late = (await coordinator.send_event("paid", word, {"sum": 7}, event_id=word)).late_saga
        await coordinator.wait(late)
    await coordinator.run({"steps": [_step(1, WORD)]}, saga_id="alone", tags=[WORD])


async def _readable(coordinator: Coordinator, saga_id: str) -> Any:
    """What can be read of a saga: all, or only why not."""
    try:
        body = (await coordinator.show(saga_id)).to_dict()
        return [body["status"], body["steps"], len(await coordinator.history(saga_id))]
    except SagaError as error:
        return error.code
