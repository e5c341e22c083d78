"""What the guards cost a call, in microseconds: ``python benchmarks/guards.py``.

The tool does nothing and the store lives in this process, so only the guards themselves are seen. The ratio is to the
bare call.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from saga_engine.ports import Call
from saga_engine.runtime.lease import StoreClock
from saga_engine.stores import open_store
from saga_engine.tools.decorator import tool
from saga_engine.tools.guards.chain import GuardedTools
from saga_engine.tools.registry import ToolRegistry

_CALLS = 4000
_ROUNDS = 15
_PARAMS = {"city": "Lisbon", "nights": 3}
_CALL = Call("s1", "1", "forward", 1, "s1:1:f:seed", 1, None, 30.0)

Make = Callable[[], Awaitable[Any]]


async def _act(city: str, nights: int) -> str:
    return f"{nights} nights in {city}"


class _AllowAll:
    """A policy that concerns every tool and allows every call."""

    def concerns(self, *_: Any) -> bool:
        return True

    async def judge(self, *_: Any) -> None:
        return None

    async def settled(self, *_: Any) -> None:
        return None


async def _microseconds(make: Make) -> float:
    begun = time.perf_counter()
    for _ in range(_CALLS):
        await make()
    return (time.perf_counter() - begun) / _CALLS * 1e6


def _policy(store: Any) -> tuple[str, Any]:
    """A policy of one rule that matches by a param, or a stand-in where the room is not there."""
    try:
        from saga_engine.tools.policy.gate import Gate
        from saga_engine.tools.policy.rules import Policy
    except ImportError:
        return "a policy that allows all", _AllowAll()
    from pathlib import Path

    rule = {"name": "long stays", "when": [{"param": "nights", "op": ">", "value": 30}], "verdict": "deny"}
    return "a policy of one rule", Gate(Policy.parse({"rules": [rule]}, base=Path(), source="benchmark"), store)


async def main() -> None:
    opened = open_store("memory://")
    await opened.open()
    store, clock = opened.guard_store(), StoreClock()
    plain = ToolRegistry(tool(_act, name="act"))
    busy = ToolRegistry(tool(_act, name="act", breaker=True, max_concurrency=8))
    named, gate = _policy(store)
    without = GuardedTools(plain, store, gate=None, clock=clock)
    two = GuardedTools(busy, store, gate=None, clock=clock)
    three = GuardedTools(busy, store, gate=gate, clock=clock)
    ways: dict[str, Make] = {
        "registry, bare call": lambda: plain.call("act", _PARAMS, _CALL),
        "guarded, no guards": lambda: without.call("act", _PARAMS, _CALL),
        "breaker, bulkhead": lambda: two.call("act", _PARAMS, _CALL),
        f"breaker, bulkhead, {named}": lambda: three.call("act", _PARAMS, _CALL),
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


if __name__ == "__main__":
    asyncio.run(main())
