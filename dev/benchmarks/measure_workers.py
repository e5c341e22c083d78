"""Four worker processes against one, on one store: sagas a second from a queue that was filled before.

The store is not what is waited for: each call parses an answer of some 50 KB, as tools do, so the workers need more
CPU than the server. Each number of workers is measured at its best concurrency. With tools that do nothing the server
and the workers share the two cores, and there is less to be had; that figure is given beside.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from booking import BOOK, make_plan, tools_with
from turn import Turn, answer, asked

from saga_engine import Coordinator, tool

_LEVELS = (32, 256)
_ROUNDS = 3
_WARM = 30
_SAGAS = {"busy": 1500, "idle": 4000}
_SUBMITTED_AT_ONCE = 200
_LIMIT_S = 120.0
_POLL_S = 0.01
_ANSWER = json.dumps([{"flight": index, "seats": list(range(20)), "fare": index * 1.5} for index in range(400)])


def _tools(kind: str) -> list[object]:
    """For all steps of the booking; ``busy`` ones parse an answer, ``idle`` ones do nothing."""

    def book(name: str) -> Any:
        async def call(city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG001
            if kind == "busy":
                json.loads(_ANSWER)
            return {"order_id": f"{name}-1"}

        return tool(name=name, undo=f"cancel_{name}")(call)

    return tools_with(*(book(name) for name in BOOK))


# --- one worker ----------------------------------------------------------------------------------------------------


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def work(turn: Turn) -> None:
    """A worker that says when it is warm, begins at the first line that it reads, and ends at the next."""
    kind, concurrency = turn.argument.split()
    async with Coordinator.open(f"embedded://{turn.place}", _tools(kind), lease_s=60) as coordinator:
        plan = make_plan(BOOK)
        for _ in range(_WARM):
            await coordinator.run(plan)
        print("warm", flush=True)
        if await _line():
            working = asyncio.create_task(coordinator.work(concurrency=int(concurrency)))
            await _line()
            await coordinator.close()
            await working


async def _start(stack: AsyncExitStack, turn: Turn, argument: str) -> asyncio.subprocess.Process:
    other = Turn(task="work", place=turn.place, out="", argument=argument)
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, __file__, other.to_json()]
    worker = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    stack.push_async_callback(_end, worker)
    assert worker.stdout is not None
    async with asyncio.timeout(_LIMIT_S):
        if await worker.stdout.readline() != b"warm\n":
            raise RuntimeError("a worker did not start")
    return worker


async def _end(worker: asyncio.subprocess.Process) -> None:
    """The end of its input is the end of its work."""
    assert worker.stdin is not None
    worker.stdin.close()
    await worker.wait()


# --- the comparison ------------------------------------------------------------------------------------------------


async def fill(coordinator: Coordinator, count: int) -> None:
    """Put so many bookings into the queue."""
    plan = make_plan(BOOK)
    for first in range(0, count, _SUBMITTED_AT_ONCE):
        several = range(first, min(first + _SUBMITTED_AT_ONCE, count))
        await asyncio.gather(*(coordinator.submit(plan, detach=True) for _ in several))


async def ended(coordinator: Coordinator) -> int:
    """How many sagas of the store have ended well."""
    return (await coordinator.overview()).statuses.get("COMPLETED", 0)


async def rate(turn: Turn, coordinator: Coordinator, kind: str, workers: int, concurrency: int, count: int) -> float:
    """Sagas a second from the moment when ``workers`` begin on a queue of ``count``, until all have ended."""
    async with AsyncExitStack() as stack:
        await fill(coordinator, count)
        argument = f"{kind} {concurrency}"
        started = await asyncio.gather(*(_start(stack, turn, argument) for _ in range(workers)))
        wanted = await ended(coordinator) + count
        begun = time.perf_counter()
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
        async with asyncio.timeout(_LIMIT_S):
            while await ended(coordinator) < wanted:  # noqa: ASYNC110 -- other processes end them
                await asyncio.sleep(_POLL_S)
        return count / (time.perf_counter() - begun)


async def compare(turn: Turn, coordinator: Coordinator, kind: str, count: int) -> dict[str, Any]:
    """Both numbers of workers in turns, each at its best concurrency."""
    best: dict[int, int] = {}
    rates: dict[int, list[float]] = {1: [], 4: []}
    levels = _LEVELS[:1] if turn.argument == "short" else _LEVELS
    for workers, found in rates.items():
        tried = {level: await rate(turn, coordinator, kind, workers, level, count) for level in levels}
        best[workers] = max(tried, key=tried.__getitem__)
        found.append(tried[best[workers]])
    for _ in range(0 if turn.argument == "short" else _ROUNDS - 1):
        for workers, found in rates.items():
            found.append(await rate(turn, coordinator, kind, workers, best[workers], count))
    ratios = [four / one for one, four in zip(rates[1], rates[4], strict=True)]
    return {
        "one_sagas_per_s": statistics.median(rates[1]),
        "four_sagas_per_s": statistics.median(rates[4]),
        "ratio": statistics.median(ratios),
        "concurrency": [best[1], best[4]],
    }


def _parse_ms() -> float:
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        json.loads(_ANSWER)
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


async def main(turn: Turn) -> None:
    if turn.task == "work":
        await work(turn)
        return
    found: dict[str, Any] = {"call_ms": _parse_ms()}
    async with Coordinator.open(f"embedded://{turn.place}", _tools("idle")) as coordinator:
        if turn.argument == "short":
            found["busy"] = await compare(turn, coordinator, "busy", 40)
        else:
            for kind, sagas in _SAGAS.items():
                found[kind] = await compare(turn, coordinator, kind, sagas)
    answer(turn, found)


if __name__ == "__main__":
    asyncio.run(main(asked()))
