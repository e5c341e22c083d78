"""What the tests of held resources share: a shop whose tools hold its items, and gates at which its calls wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.api.holds import held
from saga_engine.core.states import SAGA_FINAL
from tests.guards.world import poll

ONCE = RetryPolicy(max_attempts=1)


class Shop:
    """Numbers by item, tools that read and write them, and gates at which a call waits."""

    def __init__(self, *items: str) -> None:
        self.stock = dict.fromkeys(items, 1)
        self.log: list[Any] = []
        self.gates: dict[Any, asyncio.Event] = {}
        self.arrived: Counter[Any] = Counter()

    def tools(self, note_s: float = 10.0, **options: Any) -> list[Any]:
        options = {"resource": "item:{item}", "hold": "saga", "retry": ONCE} | options

        @tool(effect="read", **options)
        async def look(item: str) -> dict[str, Any]:
            self.log.append(("look", item))
            return {"n": self.stock[item]}

        @tool(undo="give", **options)
        async def take(item: str) -> dict[str, Any]:
            await self.pass_gate(("take", item))
            self.log.append(("take", item))
            self.stock[item] -= 1
            return {"item": item}

        @tool(**options)
        async def give(item: str) -> None:
            await self.pass_gate(("give", item))
            self.log.append(("give", item))
            self.stock[item] += 1

        @tool(undo="take_again", **options)
        async def put(item: str) -> dict[str, Any]:
            self.log.append(("put", item))
            self.stock[item] += 1
            return {"item": item}

        @tool(**options)
        async def take_again(item: str) -> None:
            self.stock[item] -= 1

        @tool(undo="note_again", timeout_s=note_s)
        async def note() -> None:
            await self.pass_gate("note")

        @tool(undo="note_again", timeout_s=note_s)
        async def pause() -> None:
            await self.pass_gate("pause")

        @tool
        async def note_again() -> None:
            await self.pass_gate("note_again")

        @tool
        async def ship(order: str) -> None:
            await self.pass_gate("ship")
            self.log.append("ship")

        @tool(undo="note_again", retry=ONCE)
        async def refuse() -> None:
            await self.pass_gate("refuse")
            raise ToolError("no", retryable=False)

        return [look, take, give, put, take_again, note, pause, note_again, ship, refuse]

    async def pass_gate(self, name: Any) -> None:
        self.arrived[name] += 1
        if name in self.gates:
            await self.gates[name].wait()

    def shut(self, name: Any) -> asyncio.Event:
        gate = self.gates[name] = asyncio.Event()
        return gate

    async def at(self, name: Any, times: int = 1) -> None:
        async def arrived() -> bool:
            return self.arrived[name] >= times

        await poll(arrived)


def opened(shop: Shop, store: Any = "memory://", *, limits: Any = None, **options: Any) -> Any:
    given = dict(durability="relaxed", on_escalation=(), limits=limits, settings=None)
    return Coordinator.open(store, shop.tools(**options), **given)  # type: ignore[arg-type]


def plan(*calls: Any, **more: Any) -> dict[str, Any]:
    """Steps one after the other: ``("take", "a")``, a name alone, or a whole step."""
    steps = []
    for number, call in enumerate(calls, 1):
        if isinstance(call, dict):
            step = dict(call)
        elif isinstance(call, str):
            step = {"tool": call}
        else:
            step = {"tool": call[0], "params": {"item": call[1]}}
        steps.append({"step_id": number, **({"depends_on": [number - 1]} if number > 1 else {}), **step})
    return {"steps": steps, **more}


SHIP = {"tool": "ship", "params": {"order": "o"}, "kind": "pivot"}


async def holders(c: Any) -> dict[str, str]:
    return {each.resource: each.saga for each in await held(c.store)}


async def waiting(c: Any, *sagas: str) -> None:
    """Until these sagas stand in line."""

    async def so() -> bool:
        left = {*sagas} - {who for each in await held(c.store) for who, _ in each.waiting}
        ended = [head.saga_id for head in await c.list() if head.saga_id in left and head.status in SAGA_FINAL]
        assert not ended, f"{ended} waited for nothing"
        return not left

    await poll(so)
