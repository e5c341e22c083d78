"""Waiting for what a test has set going, by what the journal says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saga_engine import Coordinator
from saga_engine.errors import SagaNotFound


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
    """Until something in this process is so."""
    while not condition():  # noqa: ASYNC110 - what changes it knows nothing of who waits
        await asyncio.sleep(0)
