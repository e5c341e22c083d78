"""The laws of every store's reserved ids, as tests. A part of ``StoreConformance``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from saga_engine.ports import Ack, Creation, Entry

if TYPE_CHECKING:
    from saga_engine.ports import Store

LONG_MS = 3_600_000
SHORT_MS = 30


async def created(store: Store, digest: str, *, owned: bool = True) -> Ack:
    """The answer to the creation of ``s1``."""
    entry = Entry("s1", 0, 0, [digest.encode()], "RUNNING", creation=Creation(digest, owned=owned))
    return (await store.append("A", [entry])).acks[0]


class ReservationConformance:
    """An id that is kept for one saga."""

    async def test_a_reserved_id_is_for_one_saga(self, store: Store) -> None:
        """No other saga is created with it, owned or queued; the one that it is for is, once, and then it is free."""
        await store.open_lease("A", LONG_MS)
        assert await store.reserve("s1", "d", "old", LONG_MS) == "d"
        assert await store.reserve("s1", "d", "old", LONG_MS) == "d"
        assert await store.reserve("s1", "e", "other", LONG_MS) == "d"
        for owned in (True, False):
            assert await created(store, "e", owned=owned) == Ack("reserved", 0, "old")
        assert [head.saga_id for head in await store.list()] == []
        assert await created(store, "d") == Ack("ok")
        assert await created(store, "d") == Ack("ok")
        assert await created(store, "e") == Ack("exists", 0, "d")

    async def test_a_taken_id_is_not_reserved(self, store: Store) -> None:
        """Of a saga that exists it tells the digest, and reserves nothing."""
        await store.open_lease("A", LONG_MS)
        assert await created(store, "d") == Ack("ok")
        assert await store.reserve("s1", "e", "old", LONG_MS) == "d"
        assert await created(store, "d") == Ack("ok")

    async def test_a_reservation_ends(self, store: Store) -> None:
        """After its time the id is free."""
        await store.open_lease("A", LONG_MS)
        await store.reserve("s1", "d", "old", SHORT_MS)
        async with asyncio.timeout(30):
            while await store.reserve("s1", "e", "new", SHORT_MS) != "e":  # noqa: ASYNC110 -- the server's clock decides
                await asyncio.sleep(0.005)
        async with asyncio.timeout(30):
            while (await created(store, "f")).code == "reserved":  # noqa: ASYNC110 -- the server's clock decides
                await asyncio.sleep(0.005)
