"""Leases that are waited out."""

from __future__ import annotations

from tests.kill.conftest import Place
from tests.kill.polling import eventually, opened

#: A short lease, in seconds: those that freeze are waited out. One that lives must keep it on a busy machine, too.
SHORT_S = 3.0


async def until_expired(place: Place) -> None:
    """Until the server says that the lease of the saga's owner is over: its clock decides, nobody else's."""
    async with opened(place.url) as store:

        async def expired() -> bool:
            return (await store.head(place.saga_id)).owner_ttl_ms == 0

        await eventually(expired, "the end of the lease")
