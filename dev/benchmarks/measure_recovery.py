"""Going on after a stop: how long one saga takes to resume, and ten thousand to be taken over from a killed worker."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from booking import make_plan, make_tools, tools_with
from measure_workers import ended, fill
from turn import Turn, answer, asked

from saga_engine import Coordinator, tool

#: Steps of a saga, and how often it is made and resumed.
_REPEATS = {10: 5, 100: 5, 1000: 5, 10000: 3}
_SHORT = (10, 100)
_IN_FLIGHT = 10_000
_LEASE_S = 5.0
_SHORT_LEASE_S = 2.0
_LIMIT_S = 120.0
_POLL_S = 0.02


class Gate:
    """The tool ``flight``, which waits in its ``at``-th call until it is let through."""

    def __init__(self, at: int) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._at = at
        self._calls = itertools.count(1)

    async def call(self, city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG002
        if next(self._calls) == self._at:
            self.reached.set()
            await self.opened.wait()
        return {"order_id": "flight-1"}

    def tools(self) -> list[object]:
        return tools_with(tool(name="flight", undo="cancel_flight")(self.call))


async def resume_ms(url: str, length: int, number: int) -> float:
    """A saga of ``length`` steps of which all but one are done: milliseconds from ``resume`` to its end.

    It reads and folds the journal, takes the saga over, makes one call and ends. The process that began the saga has
    closed its coordinator; the one that goes on has opened its own before the clock starts.
    """
    saga_id = f"resume-{length}-{number}"
    gate = Gate(length - 1)
    async with Coordinator.open(url, gate.tools()) as first:
        handle = await first.submit(make_plan(("flight",) * length), saga_id=saga_id)
        await gate.reached.wait()
        closing = asyncio.create_task(first.close())
        await asyncio.sleep(0)
        gate.opened.set()
        await closing
        await asyncio.gather(handle.wait(), return_exceptions=True)  # it was interrupted, as it should be
    async with Coordinator.open(url, make_tools()) as second:
        assert (await second.show(saga_id)).status == "RUNNING"
        begun = time.perf_counter()
        outcome = await second.resume(saga_id)
        taken_ms = (time.perf_counter() - begun) * 1000
    assert outcome.status == "COMPLETED"
    return taken_ms


async def measure_resume(turn: Turn) -> dict[str, Any]:
    """Median milliseconds by the number of steps."""
    url = f"embedded://{turn.place}"
    lengths = _SHORT if turn.argument == "short" else tuple(_REPEATS)
    async with Coordinator.open(url):  # keeps the server
        return {
            str(length): statistics.median([await resume_ms(url, length, number) for number in range(_REPEATS[length])])
            for length in lengths
        }


# --- take-over -----------------------------------------------------------------------------------------------------


async def fly(turn: Turn) -> None:
    """A worker whose sagas never return from their second call; it says when all are in it, and waits to be killed."""
    count = 0
    wanted, lease_s = turn.argument.split()

    async def hotel(city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG001
        nonlocal count
        count += 1
        if count == int(wanted):
            answer(turn, {"in_flight": count})
        await asyncio.Event().wait()
        return {}

    tools = tools_with(tool(name="hotel", undo="cancel_hotel", timeout_s=3600)(hotel))
    async with Coordinator.open(f"embedded://{turn.place}", tools, lease_s=float(lease_s)) as coordinator:
        await coordinator.work(concurrency=int(wanted))


async def _begin_flight(turn: Turn, count: int, lease_s: float, *, apart: bool) -> asyncio.subprocess.Process:
    """The process with so many sagas in flight; ``apart`` in a pid namespace of its own, as if on another machine."""
    flag = Path(turn.place) / "flying"
    flag.unlink(missing_ok=True)
    other = Turn(task="fly", place=turn.place, out=str(flag), argument=f"{count} {lease_s}")
    command = [sys.executable, __file__, other.to_json()]
    if apart:
        command = ["unshare", "--pid", "--fork", "--kill-child", *command]
    process = await asyncio.create_subprocess_exec(*command)
    async with asyncio.timeout(_LIMIT_S):
        while not flag.exists():
            if process.returncode is not None:
                raise RuntimeError(f"the process that begins the sagas ended with {process.returncode}")
            await asyncio.sleep(0.05)
    return process


async def take_over(turn: Turn, count: int, lease_s: float, *, apart: bool) -> dict[str, Any]:
    """Seconds from SIGKILL until the first and the last saga goes on with another worker, and until all have ended."""
    calls: list[float] = []

    async def hotel(city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG001
        calls.append(time.perf_counter())
        return {"order_id": "hotel-1"}

    tools = tools_with(tool(name="hotel", undo="cancel_hotel")(hotel))
    async with Coordinator.open(f"embedded://{turn.place}", tools, lease_s=lease_s) as coordinator:
        await fill(coordinator, count)
        wanted = await ended(coordinator) + count
        process = await _begin_flight(turn, count, lease_s, apart=apart)
        killed = time.perf_counter()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        working = asyncio.create_task(coordinator.work())
        async with asyncio.timeout(_LIMIT_S):
            while await ended(coordinator) < wanted:  # noqa: ASYNC110 -- it is the store that knows
                await asyncio.sleep(_POLL_S)
        all_ended = time.perf_counter()
        await coordinator.close()
        await working
    assert len(calls) == count, (len(calls), count)
    return {"first_s": min(calls) - killed, "last_s": max(calls) - killed, "ended_s": all_ended - killed}


def _can_stand_apart() -> bool:
    """Whether this process may make a pid namespace."""
    program = shutil.which("unshare")
    return program is not None and subprocess.run([program, "--pid", "--fork", "true"], check=False).returncode == 0


async def measure_take_over(turn: Turn) -> dict[str, Any]:
    """Both ways: the owner is provably dead, and (where a pid namespace can be had) only its lease tells."""
    count, lease_s = (50, _SHORT_LEASE_S) if turn.argument == "short" else (_IN_FLIGHT, _LEASE_S)
    found: dict[str, Any] = {"sagas": count, "lease_s": lease_s}
    async with Coordinator.open(f"embedded://{turn.place}"):  # keeps the server
        found["dead_owner"] = await take_over(turn, count, lease_s, apart=False)
        if _can_stand_apart():
            found["by_lease"] = await take_over(turn, count, lease_s, apart=True)
    return found


async def main(turn: Turn) -> None:
    if turn.task == "fly":
        await fly(turn)
    else:
        answer(turn, await (measure_resume if turn.task == "resume" else measure_take_over)(turn))


if __name__ == "__main__":
    asyncio.run(main(asked()))
