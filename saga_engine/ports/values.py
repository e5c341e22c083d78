"""The store of large values beside a journal that lies elsewhere: the claim check of another runtime."""

from __future__ import annotations

from typing import Protocol


class ValueStore(Protocol):
    """Bytes by the digest of their content. The content of a digest never changes.

    Both verbs are safe to repeat and raise ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``.
    """

    async def put(self, digest: str, data: bytes, ttl_ms: int) -> None:
        """Store the bytes for ``ttl_ms`` from now. When it returns they are as durable as a journal of this store."""

    async def get(self, digest: str) -> bytes | None:
        """The bytes; None if they are not there, or not any more."""
        ...
