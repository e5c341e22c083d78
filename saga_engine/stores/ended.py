"""The sagas that have ended, in the same Redis or Valkey: the oldest of them, and how they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from saga_engine.ports import Aged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from saga_engine.ports import Head
    from saga_engine.stores.connection import Argument
    from saga_engine.stores.index import Candidate
    from saga_engine.stores.repair import Mender

#: Lua's stack limits the number of names that one command can take.
_AT_ONCE: Final = 1000
_GONE: Final = -1


class RedisEnded:
    """An ``EndedStore`` (see ``ports``) beside the journals of a ``RedisStore``, whose ``heads_of`` reads heads."""

    def __init__(
        self,
        mender: Mender,
        tags: Sequence[str],
        heads_of: Callable[[Sequence[Candidate], Sequence[str], str], Awaitable[Sequence[Head]]],
    ) -> None:
        self._mender = mender
        self._tags = tags
        self._heads_of = heads_of

    @property
    def count(self) -> int:
        """How many partitions the store has."""
        return len(self._tags)

    async def aged(self, partition: int, status: str, age_ms: int, skip: int, limit: int) -> Aged:
        """The first to end of a final status; see ``ports.EndedStore``."""
        key = f"{self._tags[partition]}index:{status}"
        now_ms, *found = await self._mender.run("ended", [key], [age_ms, skip, min(limit, _AT_ONCE)])
        ids = [str(raw, "utf-8", "replace") for raw in found]
        piece = [(0, saga_id, status) for saga_id in ids]
        return Aged(now_ms, await self._heads_of(piece, (status,), "purge") if piece else (), len(found))

    async def hold(self, partition: int, limit: int) -> int:
        """Take the time-out from ended sagas; see ``ports.EndedStore``."""
        return int(await self._mender.run("hold", [f"{self._tags[partition]}expiry"], [min(limit, _AT_ONCE)]))

    async def purge(self, head: Head) -> bool | None:
        """Remove a saga that is as ``head`` says; see ``ports.EndedStore``."""
        args: list[Argument] = [head.status, head.epoch, head.length]
        found = await self._mender.run("purge", [self._key("head", head.saga_id)], args)
        return None if found == _GONE else bool(found)

    async def reserved(self, saga_id: str) -> bool:
        """Whether the id is reserved for a saga that has not begun."""
        return bool(await self._mender.plain("EXISTS", self._key("reserved", saga_id)))

    def _key(self, kind: str, saga_id: str) -> str:
        return f"{self._tags[crc32(saga_id.encode()) % len(self._tags)]}{kind}:{saga_id}"
