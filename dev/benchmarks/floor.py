"""The floor: a bare loop that makes the same durable appends as the engine and does nothing else.

No plan, no checks, no states, no leases, no retries, no report: one record before each step that also holds the
result of the one before, one at the end, group commit through one script call that compares an epoch. Whatever an
engine in Python does on top of that is its own cost, so the engine is measured as a ratio of this loop in the same
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from redis.asyncio import Redis

_APPEND = """
local epoch = redis.call('GET', KEYS[1])
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return redis.error_reply('FENCED') end
for at = 2, #ARGV, 3 do
  redis.call('RPUSH', 'floor:journal:' .. ARGV[at], ARGV[at + 1])
  redis.call('HSET', 'floor:head:' .. ARGV[at], 'status', ARGV[at + 2])
end
return 1
"""
_PARAMS = {"city": "Lisbon", "nights": 3, "guest": {"name": "Ada Lovelace", "email": "ada@example.com"}}
_BATCH = 512


class Floor:
    """Runs sagas of the booking workload with nothing but durable appends."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._sha = ""
        self._queue: list[tuple[asyncio.Future[None], tuple[str, bytes, str]]] = []
        self._task: asyncio.Task[None] | None = None
        self._count = 0

    async def open(self) -> None:
        self._sha = await self._client.script_load(_APPEND)
        await self._client.set("floor:epoch", 7)

    def _append(self, saga: str, record: dict[str, object], status: str) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._queue.append((future, (saga, msgspec.json.encode(record), status)))
        if self._task is None:
            self._task = asyncio.create_task(self._flush())
        return future

    async def _flush(self) -> None:
        await asyncio.sleep(0)
        while self._queue:
            batch, self._queue = self._queue[:_BATCH], self._queue[_BATCH:]
            args: list[object] = [7]
            for _, item in batch:
                args.extend(item)
            await self._client.evalsha(self._sha, 1, "floor:epoch", *args)
            for future, _ in batch:
                future.set_result(None)
            await asyncio.sleep(0)
        self._task = None

    async def saga(self, steps: Sequence[str], fail_at: int | None = None) -> None:
        """One saga: the steps in order; the failing one has no effect, those before it are undone in reverse."""
        self._count += 1
        saga = f"s{self._count:012d}"
        done: list[str] = []
        result: object = None
        for index, step in enumerate(steps):
            await self._append(saga, _record(saga, "start", step, result), "running")
            if index == fail_at:
                for other in reversed(done):
                    await self._append(saga, _record(saga, "undo", other, result), "compensating")
                    result = await _tool(other)
                await self._append(saga, _record(saga, "end", step, result), "failed")
                return
            result = await _tool(step)
            done.append(step)
        await self._append(saga, _record(saga, "end", step, result), "done")


def _record(saga: str, kind: str, step: str, result: object) -> dict[str, object]:
    return {
        "v": 1,
        "saga": saga,
        "kind": kind,
        "step": step,
        "params": _PARAMS,
        "key": f"{saga}:{step}:1",
        "attempt": 1,
        "result": result,
    }


async def _tool(name: str) -> dict[str, str]:
    return {"order_id": f"{name}-1"}
