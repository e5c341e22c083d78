"""What the search index costs and what it gives: ``python dev/benchmarks/search.py [--sagas N] [--rounds N]``.

First the cost: CPU of client and server for the booking workload, with the terms of each saga and without, in turns.
Then the pages: a store of 100,000 sagas on an embedded server, and the time of a page for different searches. Only
the ratio and the order of magnitude mean something on another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from unittest.mock import patch

from booking import BOOK, closed_loop, cpu_s, make_plan, make_tools, server_of

from saga_engine import Coordinator
from saga_engine.ports import Creation, Entry, Query
from saga_engine.runtime import index_changes
from saga_engine.stores import open_store
from saga_engine.stores.redis import RedisStore

_AT_ONCE = 200
_BATCH = 500
#: Every so many-th saga waits for an operator.
_ASKS = 1000

SEARCHES = {
    "all": Query(),
    "a tag of 1 %": Query(["tag:customer:7"]),
    "a tool that every saga calls": Query(["tool:flight"]),
    "a tool of every saga and a tag of 1 %": Query(["tool:flight", "tag:customer:7"]),
    "two tags that no saga has both": Query(["tag:customer:7", "tag:odd"]),
    "an open question": Query(asks=True),
    "a status of 0.1 %": Query(statuses=["ESCALATED"]),
    "a status of 0.1 %, and a tool": Query(["tool:flight"], ["ESCALATED"]),
    "a frequent status, a tag of half": Query(["tag:odd"], ["COMPLETED"]),
}


async def cost(rounds: int, sagas: int) -> None:
    """CPU milliseconds a saga."""
    used: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        async with Coordinator.open(f"embedded://{folder}", make_tools()) as coordinator:
            plan, pid = make_plan(BOOK), server_of(folder)["pid"]

            async def saga() -> None:
                assert (await coordinator.run(plan)).completed

            async def one(name: str) -> None:
                begun = cpu_s(pid)
                await closed_loop(saga, _AT_ONCE, sagas)
                used[name].append((cpu_s(pid) - begun) / sagas * 1000)

            await closed_loop(saga, _AT_ONCE, sagas)
            for turn in range(rounds):
                for name in ("with", "without") if turn % 2 else ("without", "with"):
                    if name == "with":
                        await one(name)
                    else:
                        with patch.object(index_changes, "terms_of", lambda *_: ()):
                            await one(name)
    plain, indexed = (statistics.median(used[name]) for name in ("without", "with"))
    print(f"CPU ms for a saga of {len(BOOK)} steps: {plain:.3f} without the index, {indexed:.3f} with it")
    print(f"the index costs {(indexed / plain - 1) * 100:.1f} %\n")


def entry(number: int) -> Entry:
    """A saga of the filled store; what is looked for in it depends on its number."""
    asks = number % _ASKS == 0
    status = "ESCALATED" if asks else ("COMPLETED", "RUNNING", "COMPENSATED", "COMPLETED")[number % 4]
    terms = ["*", "name:trip", f"tag:customer:{number % 100}", *(f"tool:{name}" for name in BOOK)]
    terms += ["tag:odd"] if number % 2 else []
    whole = Creation("d", owned=False)
    return Entry(f"s{number:06d}", 0, 0, [b"{}"], status, b"{}", creation=whole, terms=terms, asks=asks)


async def pages(sagas: int) -> None:
    """Milliseconds for pages of 100: the first, and others far down."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"embedded://{folder}")
        await store.open()
        assert isinstance(store, RedisStore)
        for start in range(0, sagas, _BATCH):
            await store.append("filler", [entry(number) for number in range(start, min(start + _BATCH, sagas))])
        what = f"a page of 100 of {sagas:,} sagas"
        print(f"{what:<44}{'first':>8}{'median':>8}{'worst ms':>10}{'pages':>7}{'found':>8}")
        for name, query in SEARCHES.items():
            times, found = await _through(store, query)
            print(f"{name:<44}{times[0]:>8.1f}{statistics.median(times):>8.1f}{max(times):>10.1f}", end="")
            print(f"{len(times):>7}{found:>8}")
        await store.close()


async def _through(store: RedisStore, query: Query) -> tuple[Sequence[float], int]:
    times, found, place = [], 0, None
    while True:
        begun = time.perf_counter()
        heads, place = await store.search(query, place)
        times.append((time.perf_counter() - begun) * 1000)
        found += len(heads)
        if place is None:
            return times, found


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sagas", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--cost-sagas", type=int, default=1000)
    args = options.parse_args()
    await cost(args.rounds, args.cost_sagas)
    await pages(args.sagas)


if __name__ == "__main__":
    asyncio.run(main())
