"""What a forked child does in the cases about a saga that has ended and whose process dies before it told others.

``submit`` queues a saga and works until it has ended; ``work`` only works. ``undo`` undoes a saga that has ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saga_engine import Coordinator
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import SagaNotFound
from saga_engine.runtime import children
from saga_engine.testing.faults import Faults
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.late_child import Told, play, wait_longer
from tests.kill.polling import eventually
from tests.kill.world import World


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    children._LOOK_MS = (86_400_000, 86_400_000)  # type: ignore[misc]  # no parent finds the end by itself
    return asyncio.run(play(case, PARTS))


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    await coordinator.submit(case["plan"], saga_id=case["saga_id"], detach=True)
    return await _work(coordinator, case)


async def _work(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """As a worker, until all the sagas ``ends`` have ended."""
    worker = asyncio.create_task(coordinator.work())

    async def over() -> bool:
        for saga_id in case["ends"]:
            try:
                if (await coordinator.show(saga_id)).status not in SAGA_FINAL:
                    return False
            except SagaNotFound:
                return False
        return True

    await eventually(lambda: over() if not worker.done() else True, "the end of the sagas")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    return {"history": {saga_id: await coordinator.history(saga_id) for saga_id in case["ends"]}}


async def _undo(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    await coordinator.undo(case["of"])
    return {}


async def _moment(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """An answer comes while the step waits, and in that moment the time of the wait is over."""
    await coordinator.answer_wait(case["saga_id"], 2, {"sum": 7})
    await wait_longer(coordinator)
    await coordinator.resume(case["saga_id"])
    return {}


PARTS = {"submit": _submit, "work": _work, "undo": _undo, "moment": _moment}
