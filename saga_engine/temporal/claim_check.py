"""Stores large values beside Temporal, by digest; its history holds references (the claim-check pattern).

Temporal refuses payloads over 2 MB and histories over 50 MB. Its SDK passes payloads over a limit to a storage driver,
on both sides of the connection, so neither workflow nor activity is aware of it. This is a driver for the engine's own
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from saga_engine.core.codec import INLINE_LIMIT
from saga_engine.errors import JournalUnreadable
from saga_engine.ports import ValueStore

_NAME: Final = "saga-store"
#: How long large values are kept: longer than any saga runs that is not abandoned.
KEEP_MS: Final = 400 * 86_400_000


class ValueDriver(StorageDriver):
    """Temporal's storage driver for a ``ValueStore``."""

    def __init__(self, store: ValueStore) -> None:
        self._store = store

    def name(self) -> str:
        """The name by which references find the driver again."""
        return _NAME

    def type(self) -> str:
        """The kind of driver."""
        return _NAME

    async def store(
        self,
        context: StorageDriverStoreContext,  # noqa: ARG002 - values are shared by whoever has them
        payloads: Sequence[Payload],
    ) -> list[StorageDriverClaim]:
        """Store payloads; returns references to them."""
        claims = []
        for payload in payloads:
            data = payload.SerializeToString(deterministic=True)
            digest = sha256(data).hexdigest()
            await self._store.put(digest, data, KEEP_MS)
            claims.append(StorageDriverClaim({"digest": digest}))
        return claims

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        """Load payloads. Raises ``JournalUnreadable`` for one that is missing or does not match its digest."""
        found = []
        for claim in claims:
            digest = claim.claim_data["digest"]
            data = await self._store.get(digest)
            if data is None or sha256(data).hexdigest() != digest:
                raise JournalUnreadable(
                    f"the value {digest[:12]} of a saga in Temporal {'is missing' if data is None else 'was changed'}",
                    hint="workers and clients of one task queue need the same store",
                    digest=digest,
                )
            payload = Payload()
            payload.ParseFromString(data)
            found.append(payload)
        return found


def storage(store: ValueStore) -> ExternalStorage:
    """The options of a data converter that store payloads over 32 KiB beside Temporal."""
    return ExternalStorage(drivers=[ValueDriver(store)], payload_size_threshold=INLINE_LIMIT)
