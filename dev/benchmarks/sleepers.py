"""What sagas that sleep or wait cost a worker.

    python dev/benchmarks/sleepers.py [--sagas N] [--idle S] [--json FILE]

One run on one embedded store: the CPU of an idle worker and of its server in ``--idle`` seconds, then N sagas, half of
which sleep for a day and half of which wait for an event, then the same measure again. Afterwards an event wakes one,
and some that sleep for seconds wake by themselves. Only the ratio means something on another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from booking import cpu_s, server_of
from redis.asyncio import Redis

from saga_engine import Coordinator, tool

_AT_ONCE = 50
_SOON = 20


@tool(undo="forget")
async def note(number: int) -> dict[str, int]:
    """Note it."""
    return {"number": number}


@tool
async def forget(number: int) -> dict[str, int]:
    """Undoes nothing."""
    return {"number": number}


def _plan(first: dict[str, Any], number: int) -> dict[str, Any]:
    then = {"step_id": 2, "tool": "note", "params": {"number": number}, "depends_on": [1]}
    return {"steps": [{"step_id": 1, **first}, then]}


def _memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _idle(folder: str, idle_s: float) -> float:
    """CPU milliseconds a second of the worker's process and the server."""
    pid = server_of(folder)["pid"]
    begun = cpu_s(pid)
    await asyncio.sleep(idle_s)
    return (cpu_s(pid) - begun) / idle_s * 1000


async def _server_bytes(folder: str) -> int:
    async with Redis(unix_socket_path=server_of(folder)["socket"]) as server:
        return int((await server.info("memory"))["used_memory"])


async def _fill(engine: Coordinator, sagas: int) -> None:
    """Have so many sagas, all at rest."""
    for start in range(0, sagas, _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, sagas))
        kinds = [{"wait": {"event": "paid", "key": str(n)}} if n % 2 else {"sleep": "P1D"} for n in some]
        await asyncio.gather(
            *(engine.submit(_plan(kind, n), saga_id=f"s{n}", detach=True) for n, kind in zip(some, kinds, strict=True))
        )
    for n in range(sagas):
        while (head := await engine.store.head(f"s{n}")).owner or b"waits" not in head.summary:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def measure(sagas: int, idle_s: float) -> dict[str, Any]:
    """Figures, and what woke."""
    with tempfile.TemporaryDirectory() as folder:
        async with Coordinator.open(f"embedded://{folder}", [note, forget]) as engine:
            worker = asyncio.create_task(engine.work(concurrency=64))
            await asyncio.sleep(1)
            empty = await _idle(folder, idle_s)
            await _fill(engine, 500)  # the caches of the engine are full: what is kept for each saga is all that grows
            tasks, bytes_, server = len(asyncio.all_tasks()), _memory(), await _server_bytes(folder)
            async with asyncio.timeout(3600):
                await _fill(engine, sagas)
            figures = {
                "sagas": sagas,
                "tasks_more": len(asyncio.all_tasks()) - tasks,
                "driven": engine.supervisor.count()[0],
                "worker_bytes_a_saga": round((_memory() - bytes_) / max(sagas - 500, 1)),
                "server_bytes_a_saga": round((await _server_bytes(folder) - server) / max(sagas - 500, 1)),
                "idle_ms_of_cpu_a_second": round(empty, 2),
                "full_ms_of_cpu_a_second": round(await _idle(folder, idle_s), 2),
            }
            figures["ratio"] = round(figures["full_ms_of_cpu_a_second"] / figures["idle_ms_of_cpu_a_second"], 2)
            names = [f"soon{n}" for n in range(_SOON)]
            for n, name in enumerate(names):
                await engine.submit(_plan({"sleep": "PT3S"}, n), saga_id=name, detach=True)
            await engine.send_event("paid", str(sagas // 2 | 1), {"sum": 1})
            names.append(f"s{sagas // 2 | 1}")
            ended = [await engine.wait(name) for name in names]
            figures["woken"] = sum(result.completed for result in ended)
            figures["completed"] = len(await engine.list("COMPLETED"))
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            return figures


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sagas", type=int, default=10_000)
    options.add_argument("--idle", type=float, default=60.0)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    figures = asyncio.run(measure(chosen.sagas, chosen.idle))
    for name, value in figures.items():
        print(f"  {name}: {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
