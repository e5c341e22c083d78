"""What a forked child does in the cases about purging: it makes ended sagas, or archives and purges them, and may die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.execution.retention import Retention
from saga_engine.runtime import archive
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

PLAN = {"steps": [{"step_id": 1, "tool": "book", "params": {"n": 1}}]}


@tool(undo="unbook")
async def book(n: int) -> dict[str, int]:
    """An effect."""
    return {"n": n}


@tool
async def unbook(n: int) -> dict[str, int]:
    """Its undo."""
    return {}


def main(case: dict[str, Any]) -> dict[str, Any]:
    """Play the part and say what came of it."""
    faults = Faults(case.get("fault", ""))
    written = archive._written

    def faulty(path: Path, body: bytes) -> Path:
        with faults.at("archive"):
            return written(path, body)

    def torn(path: Path, body: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(body[:100])
            file.flush()
            with faults.at("torn"):
                file.write(body[100:])
        return path

    async def purged_first(made: archive.Archive, head: Any, data: Any) -> Path:
        await made._store.ended().purge(head)
        return await saved(made, head, data)

    saved = archive.Archive.save
    archive._written = torn if case.get("mutant") == "torn" else faulty
    if case.get("mutant") == "purged first":
        archive.Archive.save = purged_first  # type: ignore[method-assign]
    return asyncio.run(_play(case, faults))


async def _play(case: dict[str, Any], faults: Faults) -> dict[str, Any]:
    store = FaultyStore(open_store(case["url"]), faults)
    await store.open()
    try:
        async with Coordinator.open(store, [book, unbook], on_escalation=()) as coordinator:
            if case["part"] == "make":
                for number in range(3):
                    await coordinator.run(PLAN, saga_id=f"s{number}")
                await coordinator.undo("s0")
            elif case["part"] == "purge":
                rules = dict.fromkeys(("COMPLETED", "COMPENSATED"), 0)
                await coordinator.purge(Retention(rules, archive=Path(case["archive"])))
            return {
                "stored": {head.saga_id: head.status for head in await coordinator.list()},
                "whole": [len(await coordinator.history(head.saga_id)) for head in await coordinator.list()],
                "counts": dict(faults.counts),
            }
    finally:
        await store.close()
