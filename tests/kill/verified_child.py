"""A process whose undo is looked at, and that is killed at a moment of the undo or the look; another one resumes it.

``python verified_child.py STORE WORLD MOMENT SAGA``: the world is a file; at the moment ``undo`` (it is made, and not
recorded), ``look`` (the read has begun), ``seen`` (it has told, and nothing of it is recorded) or ``told`` (it is) the
process ends itself with SIGKILL, the first time. An undo lies while the world has ``lies``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from saga_engine import Coordinator, ToolError, tool
from saga_engine.core.images import image_of
from saga_engine.core.records import StepEscalated, UndoLooked
from saga_engine.errors import SagaExists
from saga_engine.runtime import image_reader

STORE, WORLD, MOMENT, SAGA = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]


def world() -> dict:
    return dict(json.loads(WORLD.read_text()))


def ends(moment: str) -> None:
    if moment == MOMENT and not world()["ended"]:
        WORLD.write_text(json.dumps(world() | {"ended": True}))
        os.kill(os.getpid(), signal.SIGKILL)


@tool(effect="read")
def get() -> dict:
    now = world()
    if now["undos"]:
        WORLD.write_text(json.dumps(now | {"looks": now["looks"] + 1, "looked": True}))
        ends("look")
    return {"n": now["n"]}


@tool(before=get, undo="back")
def put(n: int) -> dict:
    WORLD.write_text(json.dumps(world() | {"n": n}))
    return {}


@tool(keyed=True)
def back(n: int, idempotency_key: str) -> dict:
    now = world()
    if idempotency_key not in now["keys"]:
        value = now["n"] if now["lies"] else n
        WORLD.write_text(
            json.dumps(now | {"n": value, "undos": now["undos"] + 1, "keys": [*now["keys"], idempotency_key]})
        )
    ends("undo")
    return {}


@tool(undo="nothing")
def fail() -> dict:
    raise ToolError("no", retryable=False)


@tool
def nothing() -> None: ...


def told(_: str, record: object) -> None:
    if isinstance(record, UndoLooked | StepEscalated):
        ends("told")


def seen(*args: object, **more: object) -> object:
    found = image_of(*args, **more)  # type: ignore[arg-type]
    if world()["looked"]:
        ends("seen")
    return found


image_reader.images.image_of = seen  # type: ignore[assignment]
PLAN = {
    "steps": [{"step_id": 1, "tool": "put", "params": {"n": 12}}, {"step_id": 2, "tool": "fail", "depends_on": [1]}]
}


async def main() -> None:
    async with Coordinator.open(STORE, [get, put, back, fail, nothing], lease_s=1.0, observers=[told]) as coordinator:
        try:
            outcome = await coordinator.run(PLAN, saga_id=SAGA)
        except SagaExists:
            outcome = await coordinator.resume(SAGA)
        asked = [question["kind"] for question in outcome.body["questions"]]
        undo = outcome.body["steps"][0].get("compensation") or {}
        records = [record["k"] for record in await coordinator.history(SAGA)].count("UndoLooked")
        body = {"status": outcome.status, "asked": asked, "verified": undo.get("verified"), "records": records}
        sys.stdout.write(json.dumps(body | {"report": outcome.report.get("verified")}))


asyncio.run(main())
