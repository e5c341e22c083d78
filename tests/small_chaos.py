"""Chaos in one process: its plans, external system, operator, customer and laws, and no process that dies.

What a call meets, a rival who writes, and answers that are lost are the same as in ``python -m chaos``. So a test can
break the engine, run some sagas within seconds, and see which law names it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from chaos import customer, operator, plans, verdict, world
from chaos.tools import make_tools
from saga_engine import Coordinator
from saga_engine.core import transitions as t

_LEASE_S = 15.0


async def run(folder: Path, seed: int, numbers: Sequence[int], *, longest_s: float = 60.0) -> verdict.Found:
    """Run these sagas of a seed until they have ended; then what the laws say. Those that do not end break a law."""
    begun_ms = time.time_ns() // 1_000_000
    world.Outside.path = str(folder / "world")
    outside = asyncio.create_task(world.serve(folder, folder / "world", None))
    while not (folder / "world").exists():  # noqa: ASYNC110 - it listens in a moment
        await asyncio.sleep(0)
    url = f"memory://{folder.name}"
    try:
        async with Coordinator.open(url, make_tools()) as coordinator:
            people = [
                asyncio.create_task(operator.Desk(coordinator, seed).serve()),
                asyncio.create_task(customer.Errands(coordinator, seed, numbers).run()),
            ]
            try:
                for number in numbers:
                    await coordinator.submit(plans.plan(seed, number), saga_id=plans.saga_id(seed, number))
                await _ended(coordinator, people[1], time.monotonic() + longest_s)
            finally:
                for each in people:
                    each.cancel()
                await asyncio.gather(*people, return_exceptions=True)
            share = verdict.Share(url, str(folder), 0, seed, begun_ms, _now_ms(), list(numbers), [], [])
            found = verdict.Found(Counter(), {})
            for number in range(world.SHARES):
                here = [each for each in numbers if world.share_of(plans.saga_id(seed, each)) == number]
                checked = await verdict.Checking(share._replace(share=number, numbers=here), coordinator).all()
                found.figures.update(checked.figures)
                found.breaches.update(checked.breaches)
            return found
    finally:
        outside.cancel()
        await asyncio.gather(outside, return_exceptions=True)


async def _ended(coordinator: Coordinator, errands: asyncio.Task[None], until_s: float) -> None:
    """Wait until the customer has nothing more to do and no saga runs; or until then."""
    while time.monotonic() < until_s:
        statuses = (await coordinator.overview()).statuses
        if errands.done() and not {status for status, count in statuses.items() if count} - t.SAGA_FINAL:
            await asyncio.gather(errands)
            return
        await asyncio.sleep(0.05)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000 + 1
