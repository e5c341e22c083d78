"""A worker in a process of its own, to be killed: its faults come from ``SAGA_FAULT``, the rest as JSON on the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from temporalio import activity

from saga_engine import RetryPolicy, ToolContext, tool
from saga_engine.api.temporal import serve
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.testing.faults import CALL, Faults
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from tests.kill.world import TOOLS, World, make

ONCE = RetryPolicy(max_attempts=1)


class FaultyRegistry(ToolRegistry):
    """Tools with a fault point ``look``: a call was taken from the server, and its tool is looked for. Nothing has begun."""

    def spec(self, name: str) -> ToolSpec | None:
        """As any registry's."""
        if not activity.in_activity():
            return super().spec(name)
        with World.faults.at("look"):
            return super().spec(name)


@tool(undo="leave", resource="room:{room}", timeout_s=600)
async def hold(room: str, ctx: ToolContext) -> dict:
    """Holds a room until its process dies. No key and no probe: of a call in doubt only a person can tell."""
    World.ledger.sent(ctx, "hold", {"room": room})
    await asyncio.Event().wait()
    return {}


@tool
async def leave() -> None: ...


@tool(effect="read", retry=ONCE)
async def look() -> dict:
    """A read of one attempt, at a point where its process may die."""
    with World.faults.at(CALL):
        return {"seen": True}


@tool(undo="leave", probe="fatal")
async def vanish() -> dict:
    """It never answers."""
    raise TimeoutError


@tool(effect="read")
async def fatal() -> dict | None:
    """A probe that ends each process that asks."""
    os.kill(os.getpid(), signal.SIGKILL)
    return None


#: By the name of a variant.
VARIANTS = TOOLS | {
    "rooms": [hold, leave],
    "fatal": [vanish, fatal, leave],
    "once": [*make(keyed=True, retry=ONCE), look],
}


async def main(told: dict) -> None:
    World.ledger = OutsideLedger(told["ledger"])
    World.faults = Faults.from_environment()
    World.folder = Path(told["folder"])
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await serve(
        told["url"],
        FaultyRegistry(VARIANTS[told["variant"]]),
        task_queue=told["queue"],
        lease_s=told["lease_s"],
        cached=0,
        stopped=stopped,
        begun=(World.folder / f"worker-{os.getpid()}").touch,
    )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
