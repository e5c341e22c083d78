"""Absurd on Postgres: a task is spawned, claimed and run at once in this process, with a connection for each saga."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from turn import BOOK, Declined, Kind, act, asked, refuse, take, versions_of

_CLAIM_S = 120


async def book(params: Any, ctx: Any) -> str:
    done = []
    try:
        for name in BOOK:
            call = refuse if params["kind"] == "bad" and name == BOOK[-1] else act
            await ctx.step(name, lambda call=call, name=name: call(name))
            done.append(name)
    except Declined:
        for name in reversed(done):
            await ctx.step(f"cancel-{name}", lambda name=name: act(f"cancel-{name}"))
        return "bad"
    return "good"


_stopped: set[str] = set()


async def many(params: Any, ctx: Any) -> str:
    for index in range(params["length"]):
        name = params.get("stops", "")
        if name and index == params["length"] - 1 and name not in _stopped:
            _stopped.add(name)
            raise Declined("stopped")
        await ctx.step(f"step-{index}", lambda: act("step"))
    return "good"


class _Client:
    """One connection. It takes whichever task waits, so each runs as many as it spawned."""

    def __init__(self, url: str) -> None:
        self._absurd = AsyncAbsurd(url)
        self._ran = False
        for name, task in (("book", book), ("many", many)):
            self._absurd.register_task(name=name)(self._noting(task))

    async def run_one(self, name: str, params: dict[str, Any]) -> None:
        self._ran = False
        await self._absurd.spawn(name, params)
        while not self._ran:  # two that claim at once may both see the same task, and one of them gets none
            await self._absurd.work_batch(claim_timeout=_CLAIM_S, batch_size=1)

    async def run_twice(self, name: str, params: dict[str, Any]) -> float:
        """A task that fails in its first attempt; milliseconds of the second."""
        await self._absurd.spawn(name, params, max_attempts=2, retry_strategy={"kind": "none"})
        await self._absurd.work_batch(claim_timeout=_CLAIM_S, batch_size=1)
        self._ran = False
        begun = time.perf_counter()
        await self._absurd.work_batch(claim_timeout=_CLAIM_S, batch_size=1)
        assert self._ran
        return (time.perf_counter() - begun) * 1000

    def _noting(self, task: Any) -> Any:
        async def run(params: Any, ctx: Any) -> str:
            self._ran = True
            return await task(params, ctx)

        return run


def _make_database(admin: str, url: str) -> None:
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("drop database if exists absurd with (force)")
        connection.execute("create database absurd")
    control = Path(sys.executable).parent / "absurdctl"
    for words in (["init"], ["create-queue", "default"]):
        subprocess.run([control, *words, "-d", url], check=True, stdout=subprocess.DEVNULL)


async def main() -> None:
    turn = asked()
    url = turn.server["url"].format("absurd")
    _make_database(turn.server["url"].format("postgres"), url)
    free: list[_Client] = []

    async def run(name: str, params: dict[str, Any]) -> None:
        client = free.pop() if free else _Client(url)
        try:
            await client.run_one(name, params)
        finally:
            free.append(client)

    async def saga(kind: Kind) -> None:
        await run("book", {"kind": kind})

    async def long(length: int) -> None:
        await run("many", {"length": length})

    async def resume(length: int) -> float:
        return await _Client(url).run_twice("many", {"length": length, "stops": uuid.uuid4().hex})

    versions = versions_of("absurd-sdk", "psycopg") | {"postgres": turn.server["version"]}
    await take(turn, saga, long, [turn.server["pid"]], versions, resume)
    with psycopg.connect(url) as connection:
        states = dict(connection.execute("select state, count(*) from absurd.t_default group by 1").fetchall())
    assert set(states) == {"completed"}, states


if __name__ == "__main__":
    asyncio.run(main())
