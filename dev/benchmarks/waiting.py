"""What a million live sagas cost that wait on one store: ``python dev/benchmarks/waiting.py --sagas 1000000``.

Every saga waits for an event of its own, and a worker runs beside them. Measured are the memory for each saga (server
and worker), the disk, the time of a page of the list and of searches, the CPU of the idle worker and of its server
before and after, and the time from ``send_event`` to the begin of the next call. It is one run on one embedded store,
so the figures depend on the machine; 1,000,000 sagas need 1.7 GB of memory, and 1.2 GB of the folder's disk or memory.

    python dev/benchmarks/waiting.py [--sagas N] [--fillers N] [--idle S] [--events N] [--folder DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from booking import cpu_s, server_of
from redis.asyncio import Redis

from saga_engine import Coordinator, tool
from saga_engine.api.requests import submission_of
from saga_engine.plan.model import load_plan

_AT_ONCE = 64
_LOOKS = 20
_PLAN = {
    "steps": [
        {"step_id": 1, "wait": {"event": "paid", "key": "$input.order"}},
        {"step_id": 2, "tool": "note", "params": {"order": "$input.order"}, "depends_on": [1]},
    ]
}
_BEGUN: dict[str, asyncio.Future[float]] = {}


@tool(undo="forget")
async def note(order: str) -> dict[str, str]:
    """Note when it began."""
    _BEGUN[order].set_result(time.perf_counter())
    return {"order": order}


@tool
async def forget(order: str) -> dict[str, str]:
    """Undoes nothing."""
    return {"order": order}


async def _fill(engine: Coordinator, first: int, end: int) -> None:
    """Have the sagas with these numbers, all waiting; each is driven here until only its event can move it."""
    plan, numbers = load_plan(_PLAN), iter(range(first, end))

    async def some() -> None:
        for number in numbers:
            given = {"order": str(number)}
            submission = submission_of(
                plan, f"s{number:07d}", given, engine.tools, (), limits=engine.limits, template=""
            )
            await engine.supervisor.begin(submission, queued=True).wait()
            if number % 50_000 == 0 and number:
                print(f"  {number:,} sagas", flush=True)

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


async def _filler(folder: str, first: int, end: int) -> None:
    """A process that only has sagas, and leaves them to wait."""
    async with Coordinator.open(f"embedded://{folder}", [note, forget], lease_s=60) as engine:
        await _fill(engine, first, end)
        while engine.supervisor.count()[0]:  # noqa: ASYNC110 - what has just been released
            await asyncio.sleep(0.05)


async def _fill_by(fillers: int, folder: str, first: int, end: int) -> None:
    """The same by several processes, each with a part."""
    part = -(-(end - first) // fillers)
    parts = [(at, min(at + part, end)) for at in range(first, end, part)]
    commands = [(sys.executable, __file__, "--fill", folder, str(begin), str(stop)) for begin, stop in parts]
    processes = [await asyncio.create_subprocess_exec(*command) for command in commands]
    assert not any([await process.wait() for process in processes])


def _resident(pid: int | str) -> int:
    gc.collect()
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _on_disk(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


async def _used(folder: str) -> int:
    """Bytes that the server has allocated."""
    async with Redis(unix_socket_path=server_of(folder)["socket"]) as server:
        return int((await server.info("memory"))["used_memory"])


async def _idle(folder: str, idle_s: float) -> float:
    """CPU milliseconds a second of the worker's process and the server."""
    pid = server_of(folder)["pid"]
    begun, since = cpu_s(pid), time.perf_counter()
    await asyncio.sleep(idle_s)
    return (cpu_s(pid) - begun) / (time.perf_counter() - since) * 1000


async def _ms(look: Callable[[], Awaitable[Any]]) -> float:
    """The median of some looks, in milliseconds."""
    took = []
    for _ in range(_LOOKS):
        begun = time.perf_counter()
        await look()
        took.append((time.perf_counter() - begun) * 1000)
    return round(statistics.median(took), 1)


async def _pages(engine: Coordinator) -> dict[str, float]:
    """Milliseconds of the pages that people and programs look at, of 100 sagas each."""
    page = await engine.search(limit=100)
    for _ in range(_LOOKS):  # some way down
        page = await engine.search(limit=100, cursor=page.cursor) if page.cursor else page
    return {
        "list": await _ms(lambda: engine.list(limit=100)),
        "search_all": await _ms(lambda: engine.search(limit=100)),
        "search_further_down": await _ms(lambda: engine.search(limit=100, cursor=page.cursor)),
        "search_by_tool": await _ms(lambda: engine.search(tool="note", limit=100)),
        "search_that_finds_none": await _ms(lambda: engine.search(asks=True, limit=100)),
        "overview": await _ms(lambda: engine.store.work().overview()),
    }


async def _events(engine: Coordinator, sagas: int, events: int) -> dict[str, float]:
    """Milliseconds from ``send_event`` to the begin of the next call, and how many of these sagas completed."""
    took, completed = [], 0
    for number in random.Random(7).sample(range(sagas), min(events, sagas)):
        await asyncio.sleep(0.3)  # the worker is idle
        order = str(number)
        _BEGUN[order] = asyncio.get_running_loop().create_future()
        sent = time.perf_counter()
        await engine.send_event("paid", order, {})
        took.append((await _BEGUN[order] - sent) * 1000)
        completed += (await engine.wait(f"s{number:07d}")).completed
    worst = sorted(took)[-1 - len(took) // 20]
    return {"median_ms": round(statistics.median(took), 1), "p95_ms": round(worst, 1), "completed": completed}


async def measure(folder: str, sagas: int, fillers: int, idle_s: float, events: int) -> dict[str, Any]:
    """All figures of one store."""
    async with Coordinator.open(f"embedded://{folder}", [note, forget], lease_s=60) as engine:
        worker = asyncio.create_task(engine.work(concurrency=64))
        await asyncio.sleep(1)
        empty = await _idle(folder, idle_s)
        warm = min(500, sagas // 2)
        await _fill(engine, 0, warm)  # the caches are full: what is kept for each saga is all that grows
        tasks, worker_bytes, server_bytes = len(asyncio.all_tasks()), _resident("self"), await _used(folder)
        begun = time.perf_counter()
        if fillers > 1:
            await _fill_by(fillers, folder, warm, sagas)
        else:
            await _fill(engine, warm, sagas)
        fill_s = time.perf_counter() - begun
        while engine.supervisor.count()[0]:  # noqa: ASYNC110 - what has just been released
            await asyncio.sleep(0.05)
        waits = (await engine.store.work().overview()).statuses
        figures: dict[str, Any] = {
            "sagas": sagas,
            "live": sum(count for status, count in waits.items() if status in ("RUNNING", "PENDING")),
            "begun_per_s": round((sagas - warm) / fill_s),
            "driven": engine.supervisor.count()[0],
            "tasks_more": len(asyncio.all_tasks()) - tasks,
            "server_bytes_a_saga": round((await _used(folder) - server_bytes) / (sagas - warm)),
            "server_resident_mb": _resident(server_of(folder)["pid"]) // 2**20,
            "worker_bytes_a_saga": round((_resident("self") - worker_bytes) / (sagas - warm)),
            "disk_mb": _on_disk(folder) // 2**20,
            "idle_ms_of_cpu_a_second_before": round(empty, 2),
            "idle_ms_of_cpu_a_second": round(await _idle(folder, idle_s), 2),
            "page_ms": await _pages(engine),
            "event_to_call": await _events(engine, sagas, events),
        }
        begun = time.perf_counter()
        async with Coordinator.open(f"embedded://{folder}", [note, forget]) as other:
            await other.list(limit=1)
        figures["another_process_opens_ms"] = round((time.perf_counter() - begun) * 1000, 1)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return figures


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sagas", type=int, default=20_000)
    options.add_argument("--fillers", type=int, default=1, help="so many processes begin the sagas")
    options.add_argument("--fill", nargs=3, help=argparse.SUPPRESS)
    options.add_argument("--idle", type=float, default=60.0, help="seconds; twice")
    options.add_argument("--events", type=int, default=50)
    options.add_argument("--folder", type=Path, help="where the store is made, and removed again")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    if chosen.fill:
        folder, first, end = chosen.fill
        asyncio.run(_filler(folder, int(first), int(end)))
        return
    with tempfile.TemporaryDirectory(prefix="saga-waiting-", dir=chosen.folder) as folder:
        figures = asyncio.run(measure(folder, chosen.sagas, chosen.fillers, chosen.idle, chosen.events))
    for name, value in figures.items():
        print(f"  {name}: {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
