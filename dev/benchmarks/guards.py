"""What the guards cost: ``python dev/benchmarks/guards.py``.

First a call, in microseconds: the tool does nothing and the store lives in this process, so only the guards themselves
are seen. Then the engine: steps a second of the booking workload on an embedded server with ``appendfsync always``,
with and without a breaker, a bulkhead and a policy on every tool. Only the ratios of one run mean something.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from booking import BOOK, make_plan, make_tools

from saga_engine import Coordinator, Plan
from saga_engine.execution.clock import StoreClock
from saga_engine.guards.chain import GuardedTools
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import Policy
from saga_engine.ports import Call
from saga_engine.stores import open_store
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry

_CALLS = 4000
_ROUNDS = 15
_PARAMS = {"city": "Lisbon", "nights": 3}
_CALL = Call("s1", "1", "forward", 1, "s1:1:f:seed", 1, None, 30.0)

Make = Callable[[], Awaitable[Any]]


async def _act(city: str, nights: int) -> str:
    return f"{nights} nights in {city}"


async def _microseconds(make: Make) -> float:
    begun = time.perf_counter()
    for _ in range(_CALLS):
        await make()
    return (time.perf_counter() - begun) / _CALLS * 1e6


RULES = {
    "rules": [{"name": "long stays", "when": [{"param": "nights", "op": ">", "value": 30}], "verdict": "deny"}],
}
_GUARDED = {"*": {"breaker": True, "max_concurrency": 1000}}
_SAGAS = 600
_AT_ONCE = 200


async def main() -> None:
    opened = open_store("memory://")
    await opened.open()
    store, clock = opened.guard_store(), StoreClock()
    plain = ToolRegistry(tool(_act, name="act"))
    busy = ToolRegistry(tool(_act, name="act", breaker=True, max_concurrency=8))
    gate = Gate(Policy.parse(RULES, base=Path(), source="benchmark"), store)
    without = GuardedTools(plain, store, gate=None, clock=clock)
    two = GuardedTools(busy, store, gate=None, clock=clock)
    three = GuardedTools(busy, store, gate=gate, clock=clock)
    ways: dict[str, Make] = {
        "registry, bare call": lambda: plain.call("act", _PARAMS, _CALL),
        "guarded, no guards": lambda: without.call("act", _PARAMS, _CALL),
        "breaker, bulkhead": lambda: two.call("act", _PARAMS, _CALL),
        "breaker, bulkhead, a policy of one rule": lambda: three.call("act", _PARAMS, _CALL),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):  # in turns, so that a slow spell of the machine meets all alike
        for name, make in ways.items():
            times[name].append(await _microseconds(make))
    bare = statistics.median(times["registry, bare call"])
    print(f"{'a call through':<46}{'µs':>8}{'more':>8}{'ratio':>8}")
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<46}{median:>8.2f}{median - bare:>8.2f}{median / bare:>8.2f}")
    for tools in (without, two, three):
        await tools.close()
    await opened.close()
    await engine()


async def engine() -> None:
    """Steps a second, in turns."""
    plan = make_plan(BOOK)
    rates: dict[str, list[float]] = {"no guards": [], "breaker, bulkhead, policy": []}
    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}"
        async with (
            Coordinator.open(url, make_tools()) as bare,
            Coordinator.open(url, make_tools(), policy=RULES, tool_options=_GUARDED) as guarded,
        ):
            ways = list(zip(rates, (bare, guarded), strict=True))
            for _ in range(8):
                ways.reverse()  # who goes first finds a colder machine
                for name, coordinator in ways:
                    rates[name].append(await _steps_a_second(coordinator, plan))
    best = statistics.median(rates["no guards"])
    print(f"\n{'the engine with':<46}{'steps/s':>8}{'ratio':>16}")
    for name, measured in rates.items():
        print(f"{name:<46}{statistics.median(measured):>8.0f}{statistics.median(measured) / best:>16.2f}")


async def _steps_a_second(coordinator: Coordinator, plan: Plan) -> float:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with gate:
            assert (await coordinator.run(plan)).completed

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(_SAGAS)))
    return _SAGAS * len(BOOK) / (time.perf_counter() - begun)


if __name__ == "__main__":
    asyncio.run(main())
