"""What a forked child does in the cases about forks: the saga that is forked, the fork, and whoever cleans up."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

from saga_engine import CallFailed, Coordinator, NeedsPerson, SagaError, SagaResult
from saga_engine.errors import SagaNotFound, SessionEnded
from saga_engine.runtime import messages as coordinating
from saga_engine.runtime.fork import Fork, Forking
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.runtime.undo import Undoing
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.child import _answer, _line_up
from tests.kill.session_child import _answer as answer_session
from tests.kill.world import TOOLS, World

Told = dict[str, Any]


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    if "mutant" in case:
        MUTANTS[case["mutant"]]()
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


def _begin_without_handing_over() -> None:
    async def nothing(*_: Any) -> None:
        return None

    coordinating.transfer = nothing  # type: ignore[assignment]


def _forget_to_whom() -> None:
    made = Forking.__init__

    def forgetful(self: Forking, *given: Any) -> None:
        made(self, *given)
        self._handed_to = None

    Forking.__init__ = forgetful  # type: ignore[method-assign]


def _hear_only_the_last() -> None:
    async def never(_self: Forking, _fork: Fork) -> bool:
        return False

    Forking.transferred = never  # type: ignore[method-assign]


def _claim_nothing() -> None:
    async def claim(_self: Forking, fork: Fork, _run_from: str | None) -> Fork:
        return fork

    Forking.claim = claim  # type: ignore[method-assign]


def _another_id() -> None:
    made = Undoing.__init__

    def fresh(self: Undoing, *given: Any) -> None:
        made(self, *given)
        self.saga_id = f"{self.saga_id}-{secrets.token_hex(2)}"

    def transfer(*_: Any) -> None:
        return None

    Undoing.__init__ = fresh  # type: ignore[method-assign]
    Undoing._transfer = transfer  # type: ignore[assignment,method-assign]


def _transfer_nothing() -> None:
    async def nothing(*_: Any) -> None:
        return None

    Supervisor.transfer_ended = nothing  # type: ignore[method-assign]


MUTANTS = {
    "undo again what was transferred": _another_id,
    "begin without a transfer": _transfer_nothing,
    "begin without handing over": _begin_without_handing_over,
    "forget to whom it was handed over": _forget_to_whom,
    "hear only the last message": _hear_only_the_last,
    "claim nothing": _claim_nothing,
}
