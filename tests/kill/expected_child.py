"""A process that writes only what its saga has read, and is killed at a moment of the write; another one resumes it.

``python expected_child.py STORE WORLD MOMENT SAGA``: the world is a file; at the moment ``before`` or ``after`` the effect
the process ends itself with SIGKILL, the first time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from saga_engine import Coordinator, tool
from saga_engine.errors import SagaExists

STORE, WORLD, MOMENT, SAGA = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]


def world() -> dict:
    return dict(json.loads(WORLD.read_text()))


def ends(moment: str) -> None:
    if moment == MOMENT and not world()["ended"]:
        WORLD.write_text(json.dumps(world() | {"ended": True}))
        os.kill(os.getpid(), signal.SIGKILL)


@tool(effect="read")
def get() -> dict:
    return {"n": world()["n"]}


@tool(before=get, undo="back", expect="$before")
def put(n: int, idempotency_key: str) -> dict:
    now = world()
    if idempotency_key in now["keys"]:
        return {"n": now["n"]}
    WORLD.write_text(json.dumps(now | {"puts": now["puts"] + 1}))
    ends("before")
    WORLD.write_text(json.dumps(world() | {"n": n}))
    ends("after")
    return {"n": n}


@tool
def back(n: int) -> dict:
    WORLD.write_text(json.dumps(world() | {"n": n}))
    return {}


PLAN = {"steps": [{"step_id": 1, "tool": "get"}, {"step_id": 2, "tool": "put", "params": {"n": 12}}]}


async def main() -> None:
    async with Coordinator.open(STORE, [get, put, back], lease_s=1.0) as coordinator:
        try:
            outcome = await coordinator.run(PLAN, saga_id=SAGA)
        except SagaExists:
            outcome = await coordinator.resume(SAGA)
        told = [question["error"]["error_code"] for question in outcome.body["questions"]]
        sys.stdout.write(json.dumps({"status": outcome.status, "asked": told}))


asyncio.run(main())
