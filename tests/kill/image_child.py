"""What a forked child does in the cases about before-images: a saga that changes values, and a stranger who does, too.

The values, and every write with what it overwrote, lie in a file beside the ledger.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, ToolContext, ToolError, tool
from saga_engine.errors import SagaNotFound
from saga_engine.plan.tool_spec import RetryPolicy
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

Told = dict[str, Any]

FIRST = {"a": 10, "c": 3}
FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.001)


def rollback(item: str) -> Told:
    """An undo of two calls, whether there was a value or not."""
    then = [{"tool": "tell", "params": {"item": item}}]
    absent = {"tool": "drop", "params": {"item": item}, "then": then}
    params = {"item": item, "value": "$before.value"}
    return {"tool": "put", "params": params, "then": then, "when_absent": absent}


PLAN = {
    "steps": [
        {"step_id": "a", "tool": "put", "params": {"item": "a", "value": 12}, "rollback": rollback("a")},
        {"step_id": "b", "tool": "put", "params": {"item": "b", "value": 5}, "rollback": rollback("b")},
        {"step_id": "c", "tool": "put", "params": {"item": "c", "value": 7}},
        {"step_id": "x", "tool": "fail", "kind": "pivot"},
    ]
}


class Values:
    """The outside world of one case."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Told:
        if self._path.exists():
            return dict(json.loads(self._path.read_text()))
        return {"values": dict(FIRST), "keys": [], "writes": [], "told": []}

    def write(self, who: str, item: str, value: int | None, key: str = "") -> None:
        """At most once for each key."""
        world = self.load()
        if key and key in world["keys"]:
            return
        world["writes"].append([who, item, world["values"].pop(item, None), value])
        if value is not None:
            world["values"][item] = value
        self._keep(world, key)

    def tell(self, item: str, key: str) -> None:
        """The second call of an undo; at most once for each key."""
        world = self.load()
        if key not in world["keys"]:
            world["told"].append([item, world["values"].get(item)])
            self._keep(world, key)

    def _keep(self, world: Told, key: str) -> None:
        world["keys"].append(key)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(world))
        new.replace(self._path)


def tools(world: Values, faults: Faults, *, stranger: bool) -> list[Any]:
    @tool(effect="read", retry=FAST)
    async def look(item: str) -> dict:
        with faults.at("read"):
            values = world.load()["values"]
        if item not in values:
            raise ToolError("there is none", error_code="not_found", retryable=False)
        return {"value": values[item]}

    @tool(keyed=True, retry=FAST)
    async def drop(item: str, ctx: ToolContext) -> dict:
        with faults.at("call"):
            world.write("undo", item, None, ctx.idempotency_key)
        return {}

    @tool(keyed=True, retry=FAST, before=look, undo="put", absent={"error_code": "not_found"}, undo_absent=drop)
    async def put(item: str, value: int, ctx: ToolContext) -> dict:
        with faults.at("call"):
            world.write("do" if ctx.direction == "forward" else "undo", item, value, ctx.idempotency_key)
        return {"ok": True}

    @tool(keyed=True, retry=FAST)
    async def tell(item: str, ctx: ToolContext) -> dict:
        with faults.at("call"):
            world.tell(item, ctx.idempotency_key)
        return {}

    @tool(keyed=True)
    async def fail() -> dict:
        if stranger:
            world.write("stranger", "c", 99, "stranger")
        raise ToolError("no", error_code="no", retryable=False)

    return [look, drop, put, tell, fail]


def main(case: dict[str, Any]) -> Told:
    """Submit, or resume and answer; then say how it ended and what the world is like."""
    faults = Faults(case.get("fault", ""))
    world = Values(Path(case["ledger"]).parent / "values.json")
    return asyncio.run(_play(case, faults, world))


async def _play(case: dict[str, Any], faults: Faults, world: Values) -> Told:
    store = FaultyStore(open_store(case["url"]), faults)
    saga_id = case["saga_id"]
    try:
        async with Coordinator.open(store, tools(world, faults, stranger=case["stranger"])) as coordinator:
            try:
                if case["part"] == "submit":
                    raise SagaNotFound("not submitted yet")
                outcome = await coordinator.resume(saga_id)
            except SagaNotFound:
                outcome = await coordinator.run(PLAN, saga_id=saga_id)
            if outcome.body["questions"]:
                await coordinator.resolve(saga_id, "c", "accept")
                outcome = await coordinator.resume(saga_id)
            history = await coordinator.history(saga_id)
    finally:
        await store.close()
    asked = [record["kind"] for record in history if record["k"] == "StepEscalated"]
    return {"status": outcome.status, "asked": asked, "history": history, **world.load()}
