"""A worker process: runs sagas over a faulty connection and with a wrong clock, until it is stopped or killed."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import NamedTuple

from dev.chaos.child import become
from dev.chaos.tools import make_tools
from saga_engine import Coordinator
from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.ports.machine_clock import machine_clock

_log = logging.getLogger("dev.chaos.worker")
_AGAIN_S = 0.1
_JUMP_EVERY_S = 3.0


class Orders(NamedTuple):
    """The configuration of a worker. ``clock_s``: the error of its clock, and the size of its occasional jumps."""

    url: str
    world: str
    log: str
    lease_s: float
    patience_s: float
    at_once: int
    clock_s: tuple[float, float]


def main(orders: Orders) -> None:
    """The process."""
    become(orders.log, orders.world)
    move_clock(*orders.clock_s)
    asyncio.run(_main(orders))


def move_clock(offset_s: float, jump_s: float) -> None:
    """Falsify this process's wall clock: by ``offset_s``, and by ``jump_s`` more or less every few seconds.

    The engine must not be affected: leases and times in journals use the store's clock, waits are monotonic.
    """
    if not offset_s and not jump_s:
        return
    true_ns = time.time_ns

    def wrong_ns() -> int:
        jumps = int(time.monotonic() / _JUMP_EVERY_S) % 3 - 1
        return true_ns() + int((offset_s + jumps * jump_s) * 1e9)

    time.time_ns = machine_clock.time_ns = wrong_ns
    time.time = machine_clock.time = lambda: wrong_ns() / 1e9


async def _main(orders: Orders) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    while not stopping.is_set():
        try:
            await _open(orders, stopping)
        except (StoreUnavailable, StoreRefused) as error:
            _log.warning("the store is away: %s", error)
            await asyncio.sleep(_AGAIN_S)


async def _open(orders: Orders, stopping: asyncio.Event) -> None:
    """Work until told to stop. An outage of the store may delay the start; afterwards the worker waits outages out."""
    async with Coordinator.open(
        orders.url, make_tools(), lease_s=orders.lease_s, patience_s=orders.patience_s
    ) as coordinator:
        working = asyncio.create_task(coordinator.work(concurrency=orders.at_once))
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if working.done():
            raise RuntimeError("the worker ended by itself") from working.exception()


def log_lines(folder: Path, words: str) -> int:
    """The number of lines in the logs of workers and agents that contain these words."""
    return sum(
        line.count(words) > 0
        for path in (*folder.glob("worker-*.log"), *folder.glob("agents.log"))
        for line in path.read_text(errors="replace").splitlines()
    )
