"""agent-saga: compensable tools, its log in Redis. It waits for two durable barriers a step."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from agent_saga import ActionSemantics, Compensation, saga_scope
from agent_saga.context import SagaAborted
from agent_saga.wal.redis_wal import RedisWAL
from turn import BOOK, Kind, act, asked, refuse, take, versions_of


async def _undo(name: str) -> Any:
    return await act(f"cancel-{name}")


def _compensation(result: Any) -> Compensation:
    return Compensation(fn=_undo, handler="undo", kwargs={"name": result["order_id"] if result else ""})


async def _step(scope: Any, name: str, *, fails: bool = False) -> None:
    await scope.execute(
        tool=name,
        semantics=ActionSemantics.COMPENSABLE,
        forward=refuse if fails else act,
        forward_kwargs={"name": name},
        compensate=None if fails else _compensation,
    )


async def main() -> None:
    turn = asked()
    wal = RedisWAL(url=turn.server["url"])
    await wal.start()

    async def saga(kind: Kind) -> None:
        try:
            async with saga_scope(wal=wal, name="book") as scope:
                for name in BOOK:
                    await _step(scope, name, fails=kind == "bad" and name == BOOK[-1])
        except SagaAborted:
            assert kind == "bad"
        else:
            assert kind == "good"

    async def long(length: int) -> None:
        async with saga_scope(wal=wal, name="long") as scope:
            for index in range(length):
                await _step(scope, f"step-{index}")

    versions = versions_of("agent-saga", "redis") | {"valkey": turn.server["version"]}
    await take(turn, saga, long, [turn.server["pid"]], versions)
    await wal.close()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # it tells of each saga that is undone
    asyncio.run(main())
