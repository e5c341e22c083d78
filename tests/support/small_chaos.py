"""Chaos in one process: its plans, external system, operator, customer and laws, and no process that dies.

What a call meets, a rival who writes, and answers that are lost are the same as in ``python -m dev.chaos``. So a test can
break the engine, run some sagas within seconds, and see which law names it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from random import Random

from dev.chaos import customer, operator, plans, verdict, world
from dev.chaos.stops import Stopper
from dev.chaos.tools import make_tools
from saga_engine import Coordinator
from saga_engine.core import transitions as t
from saga_engine.errors import SagaNotFound

_LEASE_S = 15.0
#: A call was held, or it was made.
_HELD_OR_MADE = frozenset({"StepQueued", "StepSucceeded", "StepFailed"})


async def run(
    folder: Path, seed: int, numbers: Sequence[int], *, longest_s: float = 60.0, stopped: tuple[str, str] | None = None
) -> verdict.Found:
    """Run these sagas of a seed until they have ended; then what the laws say. Those that do not end break a law.

    ``stopped``: what an operator stops before any saga begins, until each has got to a call; and then until all have
    ended.
    """
    begun_ms = time.time_ns() // 1_000_000
    world.Outside.path = str(folder / "world")
    outside = asyncio.create_task(world.serve(folder, folder / "world", None))
    while not (folder / "world").exists():  # noqa: ASYNC110 - it listens in a moment
        await asyncio.sleep(0)
    url = f"memory://{folder.name}"
    try:
        async with Coordinator.open(url, make_tools()) as coordinator:
            stopper, began, ended = Stopper(coordinator, Random(seed)), asyncio.Event(), asyncio.Event()
            people = [
                asyncio.create_task(operator.Desk(coordinator, seed).serve()),
                asyncio.create_task(customer.Errands(coordinator, seed, numbers).run()),
            ]
            if stopped is not None:
                sagas = [plans.saga_id(seed, number) for number in numbers]
                first = stopper.hold(stopped[0], _got_to_a_call(coordinator, sagas, began))
                people.append(asyncio.create_task(_then(first, stopper.hold(stopped[1], ended.wait()))))
                await began.wait()
            try:
                for number in numbers:
                    await coordinator.submit(plans.plan(seed, number), saga_id=plans.saga_id(seed, number))
                await _ended(coordinator, people[1], time.monotonic() + longest_s)
                ended.set()
                await asyncio.gather(*people[2:])
            finally:
                for each in people:
                    each.cancel()
                await asyncio.gather(*people, return_exceptions=True)
            share = verdict.Share(
                url, str(folder), 0, seed, begun_ms, _now_ms(), list(numbers), [], [], stopper.windows
            )
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


async def _then(*parts: Awaitable[None]) -> None:
    for part in parts:
        await part


async def _got_to_a_call(coordinator: Coordinator, sagas: Sequence[str], began: asyncio.Event) -> None:
    """Until the journal of each saga says that a call of it was held, or made."""
    began.set()
    for saga_id in sagas:
        while not await _is_at_a_call(coordinator, saga_id):  # noqa: ASYNC110 - it gets there in a moment
            await asyncio.sleep(0.02)


async def _is_at_a_call(coordinator: Coordinator, saga_id: str) -> bool:
    try:
        return any(record["k"] in _HELD_OR_MADE for record in await coordinator.history(saga_id))
    except SagaNotFound:  # it is about to be submitted
        return False


async def _ended(coordinator: Coordinator, errands: asyncio.Task[None], until_s: float) -> None:
    """Wait until the customer has nothing more to do and no saga runs; or until then."""
    while time.monotonic() < until_s:
        done = errands.done()  # before the look: what the customer did last may have begun a saga
        statuses = (await coordinator.overview()).statuses
        if done and not {status for status, count in statuses.items() if count} - t.SAGA_FINAL:
            await asyncio.gather(errands)
            return
        await asyncio.sleep(0.05)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000 + 1
