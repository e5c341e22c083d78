"""Large values of sagas whose journals lie elsewhere (in Temporal), in the same Redis or Valkey as the store.

There is one key for each value::

    saga:{v:<first two digits>}:value:<digest>   string with a TTL   the bytes

Values are spread over 256 hash tags, so the nodes of a cluster share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.stores.guards import bounded_ms

if TYPE_CHECKING:
    from saga_engine.stores.repair import Mender


class RedisValues:
    """A ``ValueStore`` (see ``ports``) beside the journals of a ``RedisStore``."""

    def __init__(self, mender: Mender, namespace: str) -> None:
        self._mender = mender
        self._namespace = namespace

    async def put(self, digest: str, data: bytes, ttl_ms: int) -> None:
        """Keep the bytes. At ``replicated:N`` it returns once N replicas have them on disk."""
        await self._mender.run("value", [self._key(digest)], [bounded_ms(ttl_ms), data])

    async def get(self, digest: str) -> bytes | None:
        """The bytes; None if they do not exist."""
        found: bytes | None = await self._mender.plain("GET", self._key(digest))
        return found

    def _key(self, digest: str) -> str:
        return f"{self._namespace}:{{v:{digest[:2]}}}:value:{digest}"
