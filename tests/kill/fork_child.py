"""What a forked child does in the cases about forks: the saga that is forked, the fork, and whoever cleans up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saga_engine import CallFailed, Coordinator, NeedsPerson, SagaError, SagaResult
from saga_engine.errors import SagaNotFound, SessionEnded
from saga_engine.runtime.fork import Fork
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.child import _answer, _line_up
from tests.kill.session_child import _answer as answer_session
from tests.kill.world import TOOLS, World
from tests.support.mutating import Mutant, rewrite

Told = dict[str, Any]


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    if "mutant" in case:
        MUTANTS[case["mutant"]].install()
    return asyncio.run(_play(case))


async def _play(case: dict[str, Any]) -> Told:
    World.store = open_store(case["url"])
    store = FaultyStore(World.store, World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(
            store, TOOLS[case["variant"]], lease_s=case.get("lease_s", 15.0), on_escalation=()
        ) as coordinator:
            if case.get("line_up"):
                _line_up(Path(case["line_up"]))
            told = await PARTS[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    return {"final": (await coordinator.run(case["plan"], saga_id=case["saga_id"])).to_dict()}


async def _fork(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    chosen: list[Fork] = []
    outcome = await coordinator.fork(
        case["saga_id"],
        plan=case["mended"],
        run_from=case.get("run_from"),
        new_id=case["fork_id"],
        on_chosen=chosen.append,
    )
    assert isinstance(outcome, SagaResult), "only a dry run returns a fork"
    return {"final": outcome.to_dict(), "chosen": chosen[0].to_dict()}


async def _agent(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Lives of an agent, until its session has ended or is kept; what only a person can know is answered as it is."""
    saga_id, ends = case["session_id"], case["on_failure"] == "undo"
    while True:
        try:
            async with coordinator.session(saga_id, on_failure=case["on_failure"]) as s:
                for item in case["items"]:
                    await s.call("fail" if item == "no" else "book", item=item)
        except NeedsPerson:
            await answer_session(coordinator, saga_id)
            continue
        except (CallFailed, SessionEnded):
            pass
        final = await coordinator.show(saga_id)
        if not (ends and final.status == "ESCALATED"):
            return {"final": final.to_dict()}
        await answer_session(coordinator, saga_id)


async def _resume_all(coordinator: Coordinator, _case: dict[str, Any]) -> Told:
    found = await coordinator.resume_all()
    return {"resumed": {name: getattr(each, "status", "error") for name, each in found.items()}}


async def _settle(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Answer whatever either saga asks, truthfully, and say how both ended."""
    told: Told = {"sagas": {}, "history": {}}
    for saga_id in (case["saga_id"], *case["forks"]):
        try:
            final = await coordinator.resume(saga_id)
        except SagaNotFound:
            continue
        while final.status == "ESCALATED":
            final = await _answer(coordinator, final)
        told["sagas"][saga_id] = final.to_dict()
        told["history"][saga_id] = await coordinator.history(saga_id)
    return told


async def _show(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    return {"final": (await coordinator.show(case["saga_id"])).to_dict()}


async def _undo(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    outcome = await coordinator.undo(case["saga_id"])
    assert isinstance(outcome, SagaResult), "only a dry run returns a preview"
    return {"final": outcome.to_dict()}


PARTS = {
    "submit": _submit,
    "undo": _undo,
    "show": _show,
    "agent": _agent,
    "fork": _fork,
    "resume-all": _resume_all,
    "settle": _settle,
}


# --- engines that are broken in one way ------------------------------------------------------------------------------


_UNDO_ID = "self.saga_id = check_saga_id(undo_id(self._of)"
_TRANSFER = "        await self._supervisor.transfer_ended(self._of, lambda state: self._transfer(state, undo))\n"
_CLAIMED = "        identity = fork.submission.digest\n        if await self._store.reserve(fork.saga_id, identity,"

MUTANTS: dict[str, Mutant] = {
    "undo again what was transferred": rewrite(
        (_UNDO_ID, f"{_UNDO_ID} + f\"-{{__import__('secrets').token_hex(2)}}\""), (_TRANSFER, "")
    ),
    "begin without a transfer": rewrite((_TRANSFER, "")),
    "begin without handing over": rewrite(("    await transfer(store, supervisor, forking, fork)\n", "")),
    "forget to whom it was handed over": rewrite(
        (
            "self._handed_to = next((record.to for record in records",
            "self._handed_to = next((None for record in records",
        )
    ),
    "hear only the last message": rewrite(
        ("return any(set(fork.steps) <= set(record.steps) for", "return any(False for")
    ),
    "claim nothing": rewrite((_CLAIMED, f"        return fork\n{_CLAIMED}")),
}
