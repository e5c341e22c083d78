"""The connection between a worker and the store: cut, down for a while, or slow."""

from __future__ import annotations

import asyncio
from typing import Any

from saga_engine.testing.proxy import CuttingProxy


class BadLine(CuttingProxy):
    """A ``CuttingProxy`` that can also be slow: each part of a response is delayed by ``delay_s`` seconds."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.delay_s = 0.0

    async def _replies(self, there: asyncio.StreamReader, back: asyncio.StreamWriter, losing: list[Any]) -> None:
        await super()._replies(_Slow(there, self), back, losing)  # type: ignore[arg-type]


class _Slow:
    """A reader with a delay for each part."""

    def __init__(self, reader: asyncio.StreamReader, line: BadLine) -> None:
        self._reader = reader
        self._line = line

    async def read(self, size: int) -> bytes:
        data = await self._reader.read(size)
        if self._line.delay_s:
            await asyncio.sleep(self._line.delay_s)
        return data
