"""A process that drives sagas which hold resources: ``python -m tests.guards.hold_worker URL LOG [GATE]``.

It works until its input ends. All effects are lines of the log: ``SAGA ITEM DELTA SEEN KEY``, where SEEN is the sum of
the item as the tool read it before. A line is written in one piece, and once for each key. GATE: a saga after whose end
it writes ``ended`` and stands still, before it gives back what that held.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.guards.holds.holding import Holds

SOON = RetryPolicy(max_attempts=3, base_s=0.01, max_s=0.01)
LEASE_S = 2.0
HELD: dict[str, Any] = {"resource": "item:{item}", "hold": "saga", "retry": SOON, "keyed": True}


def lines_of(log: Path) -> list[list[str]]:
    """The lines of the log, in order; one that is being written is left out."""
    return [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def sum_of(log: Path, item: str) -> int:
    """What the lines of an item make together."""
    return sum(int(line[2]) for line in lines_of(log) if line[1] == item)


def tools_on(log: Path) -> list[Any]:
    """The tools of one world."""

    async def write(ctx: ToolContext, item: str, delta: int) -> dict[str, Any]:
        if any(line[4] == ctx.idempotency_key for line in lines_of(log)):
            return {"item": item}
        seen = sum_of(log, item)
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)
        out = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.write(out, f"{ctx.saga_id} {item} {delta} {seen} {ctx.idempotency_key}\n".encode())
        os.close(out)
        return {"item": item}

    @tool(effect="read", resource="item:{item}", hold="saga", retry=SOON)
    async def look(item: str) -> dict[str, Any]:
        return {"n": sum_of(log, item)}

    @tool(undo="give", **HELD)
    async def take(item: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, -1)

    @tool(**HELD)
    async def give(item: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, 1)

    @tool(undo="nothing")
    async def note() -> None: ...

    @tool(undo="give", **{**HELD, "resource": ["item:{item}", "item:{to}"]})
    async def move(item: str, to: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, -1)

    @tool
    async def nothing() -> None: ...

    @tool(keyed=True, retry=SOON)
    async def ship(order: str) -> None: ...

    @tool(undo="nothing", keyed=True, retry=RetryPolicy(max_attempts=1))
    async def refuse() -> None:
        raise ToolError("no", retryable=False)

    return [look, take, move, give, note, nothing, ship, refuse]


def opened(url: str, log: Path) -> Any:
    """A coordinator of that world."""
    limits = {"guard_wait_s": 20, "max_crashes": 100}
    given: dict[str, Any] = {"durability": "relaxed", "on_escalation": (), "limits": limits, "settings": None}
    return Coordinator.open(url, tools_on(log), lease_s=LEASE_S, **given)


async def main(url: str, log: Path, gate: str = "") -> None:
    if gate:
        release = Holds._release

        async def stands(self: Holds, saga_id: str, *held: Any, **more: Any) -> None:
            if saga_id == gate:
                sys.stdout.write("ended\n")
                sys.stdout.flush()
                await asyncio.Event().wait()
            await release(self, saga_id, *held, **more)

        Holds._release = stands  # type: ignore[method-assign]
    async with opened(url, log) as c:
        working = asyncio.create_task(c.work(concurrency=32))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
