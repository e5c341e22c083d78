"""A process that drives sagas one after the other, several at once, until it is told to stop; told by JSON, tells JSON.

Every record that the engine says is durable goes to a file at once, so that the test knows what was acknowledged, however
the process and the servers end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from typing import Any

from saga_engine import Coordinator, SagaError
from saga_engine.core.codec import encode
from saga_engine.core.records import Record
from saga_engine.testing.faults import Faults
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.world import PLANS, TOOLS, World

KINDS = ("succeeds", "fails", "graph")


async def play(case: dict[str, Any]) -> dict[str, Any]:
    """Drive sagas until the file ``stop`` is there; or, with ``resume``, drive what is left to its end."""
    World.ledger = OutsideLedger(case["ledger"])
    World.faults = Faults("")
    log = os.open(case["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    errors: dict[str, Any] = {}
    finals: dict[str, Any] = {}

    def durable(saga_id: str, record: Record) -> None:
        os.write(log, f"{saga_id} {encode(record, {}).hex()}\n".encode())

    numbers = itertools.count()
    stop = case["stop"]

    async def drive(coordinator: Coordinator) -> None:
        while not os.path.exists(stop):  # noqa: ASYNC240, PTH110 -- one look at a small folder
            number = next(numbers)
            saga_id = f"{case['name']}-{number}"
            try:
                outcome = await coordinator.run(PLANS[KINDS[number % 3]], saga_id=saga_id)
                finals[saga_id] = outcome.to_dict()
            except SagaError as error:
                errors[saga_id] = error.to_dict()
                if not case.get("goes_on"):
                    return

    try:
        opened = Coordinator.open(
            case["url"],
            TOOLS["keyed"],
            durability=case["durability"],
            patience_s=case["patience_s"],
            lease_s=case["lease_s"],
            observers=[durable],
        )
        async with opened as coordinator:
            if case.get("resume"):
                for saga_id, result in (await coordinator.resume_all()).items():
                    if isinstance(result, SagaError):
                        errors[saga_id] = result.to_dict()
                for shown in await coordinator.list(limit=100_000):
                    finals[shown.saga_id] = (await coordinator.show(shown.saga_id)).to_dict()
            else:
                await asyncio.gather(*(drive(coordinator) for _ in range(case["at_once"])))
    except SagaError as error:
        errors[""] = error.to_dict()
    return {"errors": errors, "finals": finals}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(play(json.loads(sys.argv[1])))))
