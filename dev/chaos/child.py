"""What every child process of a run does first, and how one that is not a worker keeps a coordinator open."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

from dev.chaos.store import die_with_parent
from dev.chaos.tools import make_tools
from dev.chaos.world import Outside
from saga_engine import Coordinator, SagaError

_log = logging.getLogger("chaos.child")
_AGAIN_S = 0.2


class Duties(Protocol):
    """What every child is told: its store, the external system's database, its log, and the length of its lease."""

    @property
    def url(self) -> str: ...
    @property
    def world(self) -> str: ...
    @property
    def log(self) -> str: ...
    @property
    def lease_s(self) -> float: ...


def become(log: str, world: str) -> None:
    """Become a child like any other: it dies with its parent, and writes to its own log."""
    die_with_parent()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(process)d %(name)s %(message)s", force=True)
    logging.getLogger("chaos").setLevel(logging.INFO)
    Outside.path = world


def play(duties: Duties, part: Callable[[Coordinator], Awaitable[None]]) -> None:
    """Be a process that plays a part until it is over. When the store refuses or is away, the part begins again."""
    become(duties.log, duties.world)
    asyncio.run(_play(duties, part))


async def _play(duties: Duties, part: Callable[[Coordinator], Awaitable[None]]) -> None:
    while True:
        try:
            async with Coordinator.open(duties.url, make_tools(), lease_s=duties.lease_s) as coordinator:
                await part(coordinator)
                return
        except SagaError as error:
            _log.warning("not now: %s", error)
            await asyncio.sleep(_AGAIN_S)


async def together(*parts: Awaitable[None]) -> None:
    """Play parts at once. If one fails, the others are ended: their coordinator is about to be closed."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
