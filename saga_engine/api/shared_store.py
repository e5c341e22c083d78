"""The store beside Temporal: large values, and what the guards of all workers share."""

from __future__ import annotations

import asyncio

from saga_engine.ports import GuardStore, Store
from saga_engine.stores import open_store


class SharedStore:
    """A store as Temporal's workers and clients use it: a ``ValueStore``, and what guards share.

    It is opened on first use: most sagas have no large value, and most clients read small ones.
    """

    def __init__(self, store: Store, *, ours: bool) -> None:
        self._store = store
        self._ours = ours
        self._tried = False
        self._opened = False
        self._opening = asyncio.Lock()

    @classmethod
    def of(cls, store: str | Store | None, durability: str, patience_s: float) -> SharedStore:
        """The store behind a URL; without one, a store in this process. Raises ``StoreUrlInvalid``."""
        if store is None:
            return cls(open_store("memory://", durability="relaxed", patience_s=patience_s), ours=True)
        if isinstance(store, str):
            return cls(open_store(store, durability=durability, patience_s=patience_s), ours=True)
        return cls(store, ours=False)

    async def guards(self) -> GuardStore:
        """What guards share. Raises ``StoreUnavailable`` and ``DurabilityInsufficient``."""
        return (await self._ready()).guard_store()

    async def put(self, digest: str, data: bytes, ttl_ms: int) -> None:
        """Store a large value."""
        await (await self._ready()).value_store().put(digest, data, ttl_ms)

    async def get(self, digest: str) -> bytes | None:
        """A large value; None if it is not there."""
        return await (await self._ready()).value_store().get(digest)

    async def _ready(self) -> Store:
        async with self._opening:
            if self._ours and not self._opened:
                self._tried = True
                await self._store.open()
                self._opened = True
        return self._store

    async def close(self) -> None:
        """Release connections; an embedded server that was started for this ends with its last client."""
        if self._tried:
            await self._store.close()
