"""Injects faults: draws a list of them from the seed, and injects them as the work progresses."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Final

from dev.chaos.line import BadLine
from dev.chaos.stops import Stopper
from dev.chaos.store import StoreServer, until

_log = logging.getLogger("chaos")

#: The relative frequency of each fault. Each one occurs at least once if there are enough.
FAULTS: Final[Mapping[str, int]] = {
    "worker killed": 6,
    "worker frozen": 3,
    "worker told to stop": 2,
    "store killed": 2,
    "store frozen": 1,
    "request cut before": 3,
    "answer cut": 4,
    "line dead": 2,
    "line slow": 2,
    "disk full": 1,
    "out of memory": 2,
    "operator killed": 2,
    "agents killed": 2,
    "customer killed": 2,
    "calls stopped": 3,
}
_STOP_S: Final = 30.0
#: How much of the log of a process that ended by itself is told.
_LAST_LINES: Final = 30


def draw(seed: int, count: int) -> list[str]:
    """The faults of a run, in their order."""
    dice = Random(f"{seed}:blows")
    faults = list(FAULTS)[:count]
    faults += dice.choices(list(FAULTS), list(FAULTS.values()), k=count - len(faults))
    dice.shuffle(faults)
    return faults


class Child:
    """A process that is restarted, with the next orders, whenever it has ended.

    ``name``: what it is. ``finishes``: it ends with exit code 0 when it has nothing more to do. ``dies``: it may kill
    itself.
    """

    def __init__(
        self,
        context: ForkServerContext,
        target: Callable[[Any], None],
        orders: Callable[[], Any],
        name: str = "a worker",
        *,
        finishes: bool = False,
        dies: bool = False,
    ) -> None:
        self._context = context
        self._target = target
        self._orders = orders
        self.name = name
        self._finishes = finishes
        self._dies = dies
        self._process: BaseProcess | None = None
        self._log = Path()
        self.busy = asyncio.Lock()
        self.starts = 0

    def start(self) -> None:
        """Start it."""
        orders = self._orders()
        self._log = Path(orders.log)
        self._process = self._context.Process(target=self._target, args=(orders,), daemon=True)
        self._process.start()
        self.starts += 1

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.exitcode

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    @property
    def finished(self) -> bool:
        """Whether it has nothing more to do."""
        return self._finishes and self.ended() == 0

    def may_end(self, code: int) -> bool:
        """Whether it may end by itself with this exit code, and is to be restarted."""
        return self._dies and code == -signal.SIGKILL

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._process is not None and self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)

    async def end(self, number: signal.Signals) -> bool:
        """Signal it and wait for its end; returns whether it ended in time, without a kill."""
        self.send(number)
        try:
            await until(lambda: self.ended() is not None, "a process to end", _STOP_S)
        except TimeoutError:
            self.send(signal.SIGKILL)
            return False
        return True


class Injector:
    """Injects the faults. ``wrong`` are sentences about processes that misbehaved."""

    def __init__(
        self,
        seed: int,
        lease_s: float,
        workers: list[Child],
        operator: Child,
        agents: Child,
        customer: Child,
        lines: list[BadLine],
        store: StoreServer,
        stopper: Stopper,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._dice = Random(f"{seed}:conductor")
        self._lease_s = lease_s
        self._workers = workers
        self._operator = operator
        self._agents = agents
        self._customer = customer
        self.lines = lines
        self._store = store
        self.stopper = stopper
        self._store_busy = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def inject(self, fault: str) -> None:
        """Begin a fault; several may be in progress at once."""
        _log.info("%s", fault)
        task = asyncio.create_task(self._inject(fault), name=fault)
        self._tasks.add(task)

    async def _inject(self, fault: str) -> None:
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            "worker killed": self._kill_worker,
            "worker frozen": self._freeze_worker,
            "worker told to stop": self._stop_worker,
            "store killed": self._kill_store,
            "store frozen": self._freeze_store,
            "request cut before": lambda: self._cut("before"),
            "answer cut": lambda: self._cut("after"),
            "line dead": self._dead_line,
            "line slow": self._slow_line,
            "disk full": self._fill_disk,
            "out of memory": self._starve,
            "operator killed": lambda: self._kill(self._operator),
            "agents killed": lambda: self._kill(self._agents),
            "customer killed": lambda: self._kill(self._customer),
            "calls stopped": self.stopper.fault,
        }
        await actions[fault]()
        self.counts[fault] += 1

    def children(self) -> list[Child]:
        """All processes that it supervises."""
        return [*self._workers, self._operator, self._agents, self._customer]

    @property
    def finished(self) -> bool:
        """Whether the processes that finish have nothing more to do."""
        return self._agents.finished and self._customer.finished

    @property
    def busy(self) -> int:
        """The number of faults in progress."""
        return sum(not task.done() for task in self._tasks)

    async def rest(self) -> None:
        """Wait until all faults are over. Raises the error of one that failed."""
        await asyncio.gather(*self._tasks)

    # --- processes -------------------------------------------------------------------------------------------------

    async def _kill_worker(self) -> None:
        await self._kill(self._dice.choice(self._workers))

    async def _kill(self, child: Child) -> None:
        pause_s = self._dice.random()
        async with child.busy:
            await child.end(signal.SIGKILL)
            await asyncio.sleep(pause_s)
            child.start()

    async def _stop_worker(self) -> None:
        worker = self._dice.choice(self._workers)
        async with worker.busy:
            if not await worker.end(signal.SIGTERM):
                self.wrong.append("a worker that was told to stop did not")
            elif worker.ended() not in (0, -signal.SIGTERM):  # the latter: it had not even begun
                self.wrong.append(f"a worker that was told to stop ended with exit code {worker.ended()}")
            worker.start()

    async def _freeze_worker(self) -> None:
        worker, frozen_s = self._dice.choice(self._workers), self._lease_s * self._dice.uniform(1.1, 2.0)
        async with worker.busy:
            worker.send(signal.SIGSTOP)
            await asyncio.sleep(frozen_s)
            worker.send(signal.SIGCONT)

    def look_after(self) -> None:
        """Restart processes that ended by themselves, which none should. Raises the error of a fault that failed."""
        for task in self._tasks:
            if task.done():
                task.result()
        for child in self.children():
            code = child.ended()
            if code is not None and not child.finished and not child.busy.locked():
                if not child.may_end(code):
                    self.wrong.append(f"{child.name} ended by itself: exit code {code}\n{child.last_words()}")
                child.start()

    # --- the store and its connections -----------------------------------------------------------------------------

    async def _kill_store(self) -> None:
        async with self._store_busy:
            self._store.kill()
            await asyncio.sleep(self._dice.choice((0.0, 0.3, self._lease_s * 1.2)))
            await self._store.start()

    async def _freeze_store(self) -> None:
        async with self._store_busy:
            self._store.freeze()
            await asyncio.sleep(self._dice.choice((0.3, self._lease_s * 1.2)))
            self._store.thaw()

    async def _fill_disk(self) -> None:
        async with self._store_busy:
            if await self._store.run_out_of_disk(self._dice):
                await self._store.start()
            else:
                self.wrong.append("the store lived on with a full disk")

    async def _starve(self) -> None:
        async with self._store_busy:
            await asyncio.to_thread(self._store.starve, hungry=True)
            await asyncio.sleep(self._dice.uniform(0.2, 2.0))
            await asyncio.to_thread(self._store.starve, hungry=False)

    async def _cut(self, when: Any) -> None:
        self._dice.choice(self.lines).cut(when, times=self._dice.randint(1, 4))

    async def _dead_line(self) -> None:
        line, dead_s = self._dice.choice(self.lines), self._dice.choice((0.1, 0.5, self._lease_s * 1.5))
        line.outage()
        await asyncio.sleep(dead_s)
        line.restore()

    async def _slow_line(self) -> None:
        line, slow_s = self._dice.choice(self.lines), self._dice.uniform(0.5, 3.0)
        line.delay_s = self._dice.choice((0.02, 0.1, 0.4))
        await asyncio.sleep(slow_s)
        line.delay_s = 0.0
