"""sagaz: a snapshot in Redis before each step, its nearest thing to a write-ahead record."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

logging.disable(logging.CRITICAL)  # it tells of each step, from its import on

from sagaz.core.replay import ReplayConfig, SnapshotStrategy  # noqa: E402
from sagaz.core.saga import Saga  # noqa: E402
from sagaz.core.storage.backends.redis.snapshot import RedisSnapshotStorage  # noqa: E402
from turn import BOOK, Kind, act, asked, refuse, take, versions_of  # noqa: E402


class _Booking(Saga):
    pass


async def _act(_context: Any) -> Any:
    return await act("step")


async def _refuse(_context: Any) -> Any:
    return await refuse("step")


async def main() -> None:
    turn = asked()
    storage = RedisSnapshotStorage(turn.server["url"], enable_compression=False)
    config = ReplayConfig(enable_snapshots=True, snapshot_strategy=SnapshotStrategy.BEFORE_EACH_STEP)
    undone = 0

    async def undo(_context: Any, _result: Any = None) -> None:
        nonlocal undone
        undone += 1

    async def run(actions: list[Any]) -> bool:
        saga = _Booking(name="book", replay_config=config, snapshot_storage=storage)
        for index, action in enumerate(actions):
            await saga.add_step(f"step-{index}", action, undo, max_retries=0)
        return bool((await saga.execute()).success)

    async def saga(kind: Kind) -> None:
        last = _refuse if kind == "bad" else _act
        assert await run([*[_act] * (len(BOOK) - 1), last]) == (kind == "good")

    async def long(length: int) -> None:
        assert await run([_act] * length)

    versions = versions_of("sagaz", "redis") | {"valkey": turn.server["version"]}
    await take(turn, saga, long, [turn.server["pid"]], versions)
    assert undone or turn.task != "round"


if __name__ == "__main__":
    asyncio.run(main())
