"""How soon an idle worker begins what an event makes due: ``python dev/benchmarks/waking.py [--events N] [--idle S]``.

Prints the median and the 95th percentile from the call of ``send_event`` to the beginning of the next call, and the CPU
that an idle worker and its server use in ``--idle`` seconds; both with hints and without them (a worker that only
polls), in one run. Only the ratio means something on another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from typing import Any
from unittest.mock import patch

from booking import cpu_s, server_of

from saga_engine import Coordinator, tool
from saga_engine.stores.queue import RedisWork

_PLAN = {
    "steps": [
        {"step_id": 1, "wait": {"event": "paid"}},
        {"step_id": 2, "tool": "note", "params": {"number": "$output.step_1.number"}, "depends_on": [1]},
    ]
}
_BEGUN: dict[int, asyncio.Future[float]] = {}


@tool(undo="forget")
async def note(number: int) -> dict[str, int]:
    """Note when it began."""
    _BEGUN[number].set_result(time.perf_counter())
    return {"number": number}


@tool
async def forget(number: int) -> dict[str, int]:
    """Undoes nothing."""
    return {"number": number}


async def _deaf(*_: Any) -> None:
    return


async def measure(events: int, idle_s: float) -> None:
    """Print what one kind of worker does."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}"
        async with Coordinator.open(url, [note, forget]) as there, Coordinator.open(url, [note, forget]) as engine:
            worker = asyncio.create_task(there.work(concurrency=8))
            took = []
            for number in range(events):
                await engine.submit(_PLAN, saga_id=f"s{number}", detach=True)
                while b'"waits"' not in (head := await engine.store.head(f"s{number}")).summary or head.owner:  # noqa: ASYNC110 - what the worker does
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)  # the worker is idle
                _BEGUN[number] = asyncio.get_running_loop().create_future()
                sent = time.perf_counter()
                await engine.send_event("paid", f"s{number}", {"number": number})
                took.append((await _BEGUN[number] - sent) * 1000)
            pid = server_of(folder)["pid"]
            begun = time.process_time(), cpu_s(pid)
            await asyncio.sleep(idle_s)
            used = time.process_time() - begun[0], cpu_s(pid) - begun[1]
            worst = sorted(took)[-1 - events // 20]
            print(f"  event to call: median {statistics.median(took):.1f} ms, 95 % {worst:.1f} ms")
            print(f"  idle for {idle_s:g} s: process {used[0] * 1000:.0f} ms of CPU, server {used[1] * 1000:.0f} ms")
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


async def main() -> None:
    """Both kinds, in one run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=50)
    options.add_argument("--idle", type=float, default=10.0)
    chosen = options.parse_args()
    print("with hints")
    await measure(chosen.events, chosen.idle)
    print("without hints: a worker that polls")
    with patch.object(RedisWork, "listen", _deaf):
        await measure(chosen.events, chosen.idle)


if __name__ == "__main__":
    asyncio.run(main())
