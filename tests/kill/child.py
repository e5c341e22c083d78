"""What a forked child of the zygote does: one part in a case, with a coordinator of its own, told as JSON.

It must be importable without starting a thread or an event loop, because it is imported before the fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# (What the engine imports when it needs it is imported here, so that no child has to.)
import saga_engine.core.report
import saga_engine.plan.compiler
import saga_engine.stores.embedded
import saga_engine.stores.redis
import saga_engine.stores.remote  # noqa: F401
from saga_engine import Coordinator, SagaError, SagaResult
from saga_engine.core.messages import decode_message
from saga_engine.core.records import Record, StepRetryScheduled
from saga_engine.errors import SagaNotFound
from saga_engine.stores import open_store
from saga_engine.testing.faults import Fault, Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.mutants import MUTANTS
from tests.kill.polling import eventually
from tests.kill.world import TOOLS, World, keys_of

Told = dict[str, Any]


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    if case.get("mutant"):
        MUTANTS[case["mutant"]].install()
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""), actions={"kill-server": _kill_server(case)})
    if case["part"] == "abandon":
        asyncio.run(_abandon(case))
        return {"abandoned": True}
    return asyncio.run(_play(case))


def _kill_server(case: dict[str, Any]) -> Callable[[Fault], None]:
    def action(_: Fault) -> None:
        World.sent_before = _sent(case)
        if "patience_then_s" in case:
            # From here on every attempt is refused at once, so little patience is as good as much, and ends sooner.
            for line in (World.store._calls.journal, World.store._calls.others):
                line._patience_s = case["patience_then_s"]
        if case.get("server_folder"):
            pid = json.loads((Path(case["server_folder"]) / "server.json").read_text())["pid"]
        else:
            pid = case["server_pid"]
        os.kill(pid, signal.SIGKILL)

    return action


def _sent(case: dict[str, Any]) -> int:
    return len(World.ledger.lines(case["saga_id"], what="sent"))


class Listener:
    """Keeps what the engine says is durable; may stop the process when a retry has been scheduled."""

    def __init__(self, freeze_in_backoff: str | None) -> None:
        self.durable: list[str] = []
        self._freeze_in_backoff = freeze_in_backoff
        self._loop = asyncio.get_running_loop()

    def __call__(self, _saga_id: str, record: Record) -> None:
        self.durable.append(type(record).__name__)
        if self._freeze_in_backoff and isinstance(record, StepRetryScheduled):
            # A moment later the driver is idle. The timer of the retry is later still, so this one comes first.
            self._loop.call_soon_threadsafe(self._loop.call_later, 0.01, self._stop)

    def _stop(self) -> None:
        Path(self._freeze_in_backoff or "").touch()
        os.kill(os.getpid(), signal.SIGSTOP)


async def _play(case: dict[str, Any]) -> Told:
    listener = Listener(case.get("freeze_in_backoff"))
    told: Told = {}
    waits: list[str] = []
    World.store = open_store(case["url"], patience_s=case.get("patience_s", 10.0))
    store = FaultyStore(World.store, World.faults)
    try:
        async with Coordinator.open(
            store,
            TOOLS[case["variant"]],
            lease_s=case.get("lease_s", 15.0),
            observers=[listener],
            privacy=keys_of(case.get("keys")),
            on_wait=lambda _saga, owner, _seconds: waits.append(owner),
        ) as coordinator:
            if case.get("line_up"):
                _line_up(Path(case["line_up"]))
            told = await PARTS[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    counts = dict(World.faults.counts)
    told |= {"counts": counts, "fired": len(World.faults.fired), "durable": listener.durable, "waits": waits}
    return {**told, "sent_after": _sent(case) - World.sent_before}


async def _abandon(case: dict[str, Any]) -> None:
    """Return in the middle of a saga, without closing anything: ``asyncio.run`` then cancels what is left."""
    opened = Coordinator.open(case["url"], TOOLS[case["variant"]])
    coordinator = await opened.__aenter__()
    await coordinator.submit(case["plan"], saga_id=case["saga_id"])
    await eventually(lambda: _sent(case) == 2, "the second call")


def _line_up(folder: Path) -> None:
    """Say that one more is ready, and start with all the others."""
    with (folder / "ready").open("w") as ready:
        ready.write("r")
    with (folder / "go").open("rb", buffering=0) as go:
        go.read(1)


def _body(result: SagaResult | SagaError | None) -> Any:
    return result.to_dict() if isinstance(result, SagaResult) else {"error": result.to_dict()} if result else None


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    outcome = await coordinator.run(case["plan"], saga_id=case["saga_id"])
    told = {"final": _body(outcome)}
    if case.get("with_history"):
        told["history"] = await coordinator.history(case["saga_id"])
    return told


async def _resume_all(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Resume whatever there is; then answer what is asked, truthfully, until the saga has ended."""
    saga_id = case["saga_id"]
    told: Told = {}
    try:
        told["before"] = await coordinator.history(saga_id)
    except SagaNotFound:
        told["before"] = None
    told["messages"] = [
        decode_message(data).question.split(":")[:2] for data in await coordinator.store.messages(saga_id)
    ]
    results = await coordinator.resume_all()
    told["resumed"] = _body(results.get(saga_id)) if results else None
    told["others"] = sorted(set(results) - {saga_id})
    if told["before"] is None:
        return told
    final = await coordinator.show(saga_id)
    if told["resumed"] is None:
        told["resumed"] = _body(final)
    while case.get("answer", True) and final.status == "ESCALATED":
        final = await _answer(coordinator, final)
    told["final"] = _body(final)
    told["history"] = await coordinator.history(saga_id)
    return told


async def _answer(coordinator: Coordinator, outcome: SagaResult) -> SagaResult:
    """Look at the world, then answer one question as it is."""
    question = outcome.body["questions"][0]
    step_id, direction = question["step_id"], question["direction"]
    found = World.ledger.find(question["idempotency_key"])
    if found is None:
        return await coordinator.resolve(outcome.saga_id, step_id, "not-happened", by="ada")
    output = found.output if direction == "forward" else None
    return await coordinator.resolve(outcome.saga_id, step_id, "happened", output=output, by="ada")


async def _resume(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    return {"final": _body(await coordinator.resume(case["saga_id"]))}


async def _detach(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    handle = await coordinator.submit(case["plan"], saga_id=case["saga_id"], detach=True)
    return {"final": _body(await handle.wait())}


async def _cancel(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    return {"final": _body(await coordinator.cancel(case["saga_id"], by="bob"))}


async def _decide(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    step_id, decision, output = case["answer"]
    asked = (await coordinator.show(case["saga_id"])).body["questions"]
    marks = [each["outlooks"][decision]["mark"] for each in asked if decision in each.get("outlooks", ())]
    mark = marks[0] if marks and decision == "retry" else ""
    outcome = await coordinator.resolve(case["saga_id"], step_id, decision, output=output, by=case["by"], expect=mark)
    return {"final": _body(outcome)}


PARTS = {
    "submit": _submit,
    "detach": _detach,
    "resume-all": _resume_all,
    "resume": _resume,
    "cancel": _cancel,
    "decide": _decide,
}
