"""Waiting for what a test has set going, by what the journal says of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from saga_engine import Coordinator
from saga_engine.errors import SagaNotFound

#: So often the other tasks of the loop have their turn before whoever waits sleeps.
_TURNS = 100


async def journalled(engine: Coordinator, saga_id: str, kind: str) -> None:
    """Until the journal of a saga has a record of this kind."""
    while True:
        try:
            if kind in [record["k"] for record in await engine.history(saga_id)]:
                return
        except SagaNotFound:
            pass
        await asyncio.sleep(0.005)


async def until(condition: Callable[[], object]) -> None:
    """Until something in this process is so; what a thread must do first has time for it."""
    for turn in itertools.takewhile(lambda _: not condition(), itertools.count()):
        await asyncio.sleep(0 if turn < _TURNS else 0.001)
