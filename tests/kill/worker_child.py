"""What a forked child of the zygote does as a worker, or as somebody who posts to a saga and dies.

A worker touches files in the folder of its ledger: ``ready-<name>`` when it takes sagas, ``lost-<name>`` when it has lost its
lease, ``stopping-<name>`` when it has heard SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from saga_engine import Coordinator, RetryPolicy, SagaError, ToolContext, ToolError, tool
from saga_engine.core.messages import Message, encode_message
from saga_engine.core.records import Record
from saga_engine.privacy.keyring import Keyring
from saga_engine.privacy.rotation import rotate
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.runtime import takeover
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from tests.kill.world import TOOLS as OTHERS
from tests.kill.world import World, did, keys_of

Told = dict[str, Any]

#: Longer than a worker keeps a waiting saga in memory.
LONG_PAUSE_S = 3.0


@tool(
    undo="cancel", keyed=True, retry=RetryPolicy(max_attempts=2, base_s=LONG_PAUSE_S, max_s=LONG_PAUSE_S, jitter=False)
)
async def dawdle(item: str, ctx: ToolContext) -> dict:
    """Not done at the first attempt, and worth another, later."""
    World.ledger.sent(ctx, "dawdle", {"item": item})
    if ctx.attempt == 1:
        raise ToolError("later", error_code="busy", retryable=True)
    return did(ctx, "dawdle", {"ref": item}, once=True)


#: How many calls of ``linger`` are in flight in this process.
_lingering: list[str] = []


@tool(undo="cancel")
async def linger(item: str, ctx: ToolContext) -> dict:
    """A bare call that lasts until this process is said to drive the saga that ends it, and a moment more."""
    World.ledger.sent(ctx, "linger", {"item": item})
    _lingering.append(item)
    moments = 20
    while moments:
        await asyncio.sleep(0.01)
        moments -= (World.folder / f"drives-{os.getpid()}").exists()
    _lingering.remove(item)
    return did(ctx, "linger", {"ref": item}, once=False)


async def _end() -> None:
    """End the process, beside a bare call if there will be one: whoever keeps them apart lets none begin.

    It lasts until this process is said to drive all the sagas that would begin one, and a moment more.
    """
    pid = os.getpid()
    (World.folder / f"ends-{pid}").touch()
    moments = 30
    while moments and not _lingering:
        await asyncio.sleep(0.01)
        moments -= (World.folder / f"drives-all-{pid}").exists()
    os.kill(pid, signal.SIGKILL)


@tool(undo="cancel", keyed=True)
async def poison(item: str) -> dict:
    """Every call ends its process."""
    await _end()
    return {}


@tool(effect="read")
async def seek(item: str) -> dict | None:
    """Every probe ends its process."""
    await _end()
    return None


@tool(undo="cancel", probe="seek")
async def poison_probe(item: str) -> dict:
    """The first call ends its process, and then its probe."""
    await _end()
    return {}


@tool(undo="poison_undo")
async def fine(item: str) -> dict:
    return {"ref": item}


@tool(keyed=True)
async def poison_undo(ref: str) -> dict:
    """Every undo ends its process."""
    await _end()
    return {}


TOOLS = {name: ToolRegistry(registry, dawdle) for name, registry in OTHERS.items()}
TOOLS["fatal"] = ToolRegistry(OTHERS["keyed"], linger, poison, seek, poison_probe, fine, poison_undo)


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    return asyncio.run(PARTS[case["part"]](case))


class _Heard(logging.Handler):
    """Touches a file when a message begins so, and keeps the messages."""

    def __init__(self, file: Path, begin: str) -> None:
        super().__init__()
        self._file = file
        self._begin = begin
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith(self._begin):
            self.said.append(record.getMessage())
            self._file.touch()


async def _work(case: dict[str, Any]) -> Told:
    """Take and drive sagas until SIGTERM."""
    takeover.OFFER_AGAIN_MS = case.get("offer_again_ms", takeover.OFFER_AGAIN_MS)  # (a process that plays only this)
    durable: list[list[str]] = []

    def listen(saga_id: str, record: Record) -> None:
        durable.append([saga_id, type(record).__name__])

    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told_to_stop.set)
    name = case.get("name", "w")
    store = FaultyStore(open_store(case["url"], patience_s=case.get("patience_s", 10.0)), World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(
            store,
            TOOLS[case["variant"]],
            lease_s=case.get("lease_s", 15.0),
            observers=[listen],
            privacy=keys_of(case.get("keys")),
        ) as coordinator:
            logging.getLogger("saga_engine.lease").addHandler(_Heard(World.folder / f"lost-{name}", "lease lost"))
            refused = _Heard(World.folder / f"refused-{name}", "a saga went back into the queue")
            logging.getLogger("saga_engine.worker").addHandler(refused)
            task = asyncio.create_task(coordinator.work(concurrency=case.get("concurrency", 16)))
            await asyncio.sleep(0)
            (World.folder / f"ready-{name}").touch()
            stopped = asyncio.create_task(told_to_stop.wait())
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            (World.folder / f"stopping-{name}").touch()
            await coordinator.close()
            told["report"] = msgspec.to_builtins(await task)
            told["refused"] = refused.said
    except SagaError as error:
        told["error"] = error.to_dict()
    finally:
        await store.close()
    return {**told, "durable": durable, "counts": dict(World.faults.counts)}


async def _post(case: dict[str, Any]) -> Told:
    """Post a person's answer to an open question, and die before acting on it."""
    store = open_store(case["url"])
    await store.open()
    message = Message(id="m", kind="resolve", by="ada", step="1", decision="happened", output={"ref": "i1"})
    message = msgspec.structs.replace(message, question=case["question"])
    await store.post(case["saga_id"], encode_message(message))
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


async def _rewrap(case: dict[str, Any]) -> Told:
    """Wrap every data key by the first key of the keyring, and retire others."""
    keys = keys_of(case["keys"])
    assert keys is not None
    store = SealedStore(FaultyStore(open_store(case["url"]), World.faults), Keyring(keys))
    await store.open()
    try:
        found = await rotate(store, retire=case["retire"], wait=_nobody_begins)
    finally:
        await store.close()
    return {"failed": {saga_id: str(error) for saga_id, error in found.failed.items()}, "retired": found.retired}


async def _nobody_begins(_seconds: float) -> None:
    """No other process begins a saga meanwhile."""


PARTS = {"work": _work, "post": _post, "rewrap": _rewrap}
