"""The wrapped keys of sagas and of the store: fields of their heads, and of the store's meta key (``seal.lua``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from saga_engine.stores.repair import Mender


class RedisSeals:
    """A ``SealStore`` (see ``ports``) beside the journals of a ``RedisStore``."""

    def __init__(self, mender: Mender, found: bytes, meta: str, head: Callable[[str], str]) -> None:
        self._mender = mender
        self._meta = meta
        self._head = head
        #: The store's own wrapped key, as ``open`` found it.
        self.found = found

    async def replace(self, saga_id: str, old: bytes, new: bytes) -> bytes | None:
        """Replace a wrapped key; see ``ports.SealStore``."""
        key = self._head(saga_id) if saga_id else self._meta
        present: bytes | None = await self._mender.run("seal", [key], ["replace", old, new])
        return present

    async def erase(self, saga_id: str, summary: bytes) -> bool | None:
        """Remove a saga's wrapped key and what only that can read; see ``ports.SealStore``."""
        done: int = await self._mender.run("seal", [self._head(saga_id)], ["erase", summary])
        return None if done < 0 else done == 1
