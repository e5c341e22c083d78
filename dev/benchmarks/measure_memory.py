"""What a saga costs while it waits: memory of the process that drives it, and of the store beyond the journal."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from booking import BOOK, make_plan, server_of, tools_with
from redis.asyncio import Redis
from turn import Turn, answer, answered, asked

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core.records import Record
from saga_engine.stores import open_store

_SAGAS = 2000
#: Before the clock starts; a worker fills the engine's caches, so that what it keeps for each saga is all that grows.
_WARM = {"driven": 500, "parked": 5000}
_AT_ONCE = 100
_POLL_S = 0.02
_FAR = RetryPolicy(base_s=3600, max_s=3600, jitter=False)


def _used() -> int:
    """Bytes that Python has allocated, where that is traced; else the resident memory of this process."""
    if tracemalloc.is_tracing():
        return tracemalloc.get_traced_memory()[0]
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Waiting:
    """Sagas whose second step is tried again in an hour: driven by this process, or ``parked`` by its worker."""

    def __init__(self, *, parked: bool) -> None:
        self._parked = parked
        self._count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def observe(self, _saga_id: str, record: Record) -> None:
        if type(record).__name__ == "StepRetryScheduled":
            self._count += 1
            if self._count == self._wanted:
                self._reached.set()

    async def begin(self, coordinator: Coordinator, count: int) -> list[str]:
        """Have so many more of them, all at rest."""
        self._wanted = self._count + count
        self._reached.clear()
        plan = make_plan(BOOK)
        names: list[str] = []
        while len(names) < count:
            some = range(min(_AT_ONCE, count - len(names)))
            begun = await asyncio.gather(*(coordinator.submit(plan, detach=self._parked) for _ in some))
            names += [handle.saga_id for handle in begun]
        await self._reached.wait()
        while self._parked and (await coordinator.overview()).timed < self._wanted:  # noqa: ASYNC110 -- the store knows
            await asyncio.sleep(_POLL_S)
        return names


async def measure(turn: Turn, count: int, *, parked: bool, traced: bool) -> dict[str, Any]:
    """Bytes a saga. Traced, only what Python has allocated; else what the kernel and the server say."""

    async def hotel(city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG001
        raise ToolError("no rooms yet", error_code="full", retryable=True)

    tools = tools_with(tool(name="hotel", undo="cancel_hotel", retry=_FAR)(hotel))
    waiting = Waiting(parked=parked)
    if traced:
        tracemalloc.start()
    url = f"embedded://{turn.place}"
    async with AsyncExitStack() as stack:
        opened = Coordinator.open(url, tools, lease_s=60, observers=[waiting.observe])
        coordinator = await stack.enter_async_context(opened)
        if parked:
            stack.callback(asyncio.create_task(coordinator.work()).cancel)
        await waiting.begin(coordinator, 100 if turn.argument == "short" else _WARM["parked" if parked else "driven"])
        client = Redis(unix_socket_path=server_of(turn.place)["socket"])
        gc.collect()
        before, before_store = _used(), (await client.info("memory"))["used_memory"]
        names = await waiting.begin(coordinator, count)
        gc.collect()
        used = _used() - before
        used_store = (await client.info("memory"))["used_memory"] - before_store
        await client.aclose()
        client_bytes = round((used - sum(map(sys.getsizeof, names)) * traced) / count)
        if traced:
            return {"traced_bytes": client_bytes}
        journal = await _journal_bytes(url, names)
    return {
        "resident_bytes": client_bytes,
        "store_bytes": round(used_store / count),
        "journal_bytes": round(journal / count),
        "store_beyond_journal_bytes": round((used_store - journal) / count),
    }


async def _journal_bytes(url: str, names: list[str]) -> int:
    store = open_store(url)
    await store.open()
    total = 0
    for name in names:
        total += sum(len(record) for record in await store.read(name))
    await store.close()
    return total


async def main(turn: Turn) -> None:
    """Tracing has a cost of its own, and a process does not give back all that it had: each way is a process."""
    count = 100 if turn.argument == "short" else _SAGAS
    if turn.task != "memory":
        way, _, traced = turn.task.partition(" ")
        answer(turn, await measure(turn, count, parked=way == "parked", traced=traced == "traced"))
        return
    found: dict[str, Any] = {"sagas": count, "driven": {}, "parked": {}}
    for task in ("driven", "driven traced", "parked", "parked traced"):
        place = Path(turn.place) / task.replace(" ", "-")
        other = Turn(task=task, place=str(place), out=f"{place}.json", argument=turn.argument)
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, other.to_json())
        if await process.wait() != 0:
            raise RuntimeError(f"{task}: it ended with {process.returncode}")
        found[task.split()[0]] |= answered(other)
    answer(turn, found)


if __name__ == "__main__":
    asyncio.run(main(asked()))
