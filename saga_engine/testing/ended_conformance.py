"""The laws of how ended sagas leave a store (``EndedStore``), as tests. A part of ``StoreConformance``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from saga_engine.errors import SagaNotFound
from saga_engine.ports import Acquired, Creation, Entry, Query

if TYPE_CHECKING:
    from saga_engine.ports import Head, Store

LONG_MS = 600_000


async def _ended(store: Store, saga_id: str, status: str = "COMPLETED", *, keep_ms: int = 0) -> Head:
    """A saga with records, a large value, terms and a message, which has ended."""
    begun = Entry(saga_id, 0, 0, [b"r0"], "RUNNING", b"{}", creation=Creation("d", owned=True), terms=("*", "t"))
    end = Entry(saga_id, 1, 1, [b"end"], status, b"{}", release=True, values={"v": b"1"}, keep_ms=keep_ms)
    for entry in (begun, end):
        (ack,) = (await store.append("A", [entry])).acks
        assert ack.code == "ok"
    if not keep_ms:
        await store.post(saga_id, b"late")
    return await store.head(saga_id)


async def _aged(store: Store, status: str = "COMPLETED", age_ms: int = 0) -> set[str]:
    ended = store.ended()
    pieces = [await ended.aged(number, status, age_ms, 0, 100) for number in range(ended.count)]
    return {head.saga_id for piece in pieces for head in piece.heads}


class EndedConformance:
    """Ended sagas: by age, kept, purged."""

    async def test_a_purged_saga_leaves_nothing(self, store: Store) -> None:
        """Neither journal nor values, messages, lists, searches; its id is free. The same again finds nothing."""
        await store.open_lease("A", LONG_MS)
        head = await _ended(store, "s1")
        other = await _ended(store, "s2")
        assert await store.ended().purge(head) is True
        assert await store.ended().purge(head) is None
        for gone in (store.head("s1"), store.read("s1")):
            with pytest.raises(SagaNotFound):
                await gone
        assert list(await store.messages("s1")) == []
        assert [each.saga_id for each in await store.list()] == ["s2"]
        assert [each.saga_id for each in (await store.search(Query(terms=("t",))))[0]] == ["s2"]
        assert await store.head("s2") == other
        again = await _ended(store, "s1")
        assert (again.length, again.messages) == (2, 1)

    async def test_only_what_is_as_it_was_is_purged(self, store: Store) -> None:
        """Neither a live saga, nor one that somebody took, nor one that has changed."""
        await store.open_lease("A", LONG_MS)
        live = Entry("live", 0, 0, [b"r0"], "RUNNING", b"{}", creation=Creation("d", owned=False))
        await store.append("A", [live])
        assert await store.ended().purge(await store.head("live")) is False
        head = await _ended(store, "s1")
        assert await store.ended().purge(head._replace(length=1)) is False
        assert await store.ended().purge(head._replace(status="WAIVED")) is False
        await store.open_lease("B", LONG_MS)
        assert await store.acquire("s1", "B") == Acquired(2, 2, [b"late"])
        assert await store.ended().purge(head) is False
        assert await store.ended().purge(await store.head("s1")) is False
        await store.close_lease("B")
        assert await store.ended().purge(head) is False
        assert list(await store.read("s1")) == [b"r0", b"end"]
        assert await store.ended().purge(await store.head("s1")) is True

    async def test_ended_sagas_by_age(self, store: Store) -> None:
        """Those of a status that ended long enough ago, the first in front, without those that are passed over."""
        await store.open_lease("A", LONG_MS)
        ids = [f"s{number}" for number in range(40)]
        for saga_id in ids:
            await _ended(store, saga_id)
        await _ended(store, "waived", "WAIVED")
        assert await _aged(store) == set(ids)
        assert await _aged(store, "WAIVED") == {"waived"}
        assert await _aged(store, age_ms=LONG_MS) == set()
        ended = store.ended()
        pieces = [await ended.aged(each, "COMPLETED", 0, 0, 100) for each in range(ended.count)]
        number, whole = max(enumerate(pieces), key=lambda each: each[1].looked)
        assert whole.looked > 1
        rest = await ended.aged(number, "COMPLETED", 0, 1, 100)
        assert [*rest.heads] == [*whole.heads[1:]]
        assert [head.changed_ms for head in whole.heads] == sorted(head.changed_ms for head in whole.heads)
        assert len((await ended.aged(number, "COMPLETED", 0, 0, 1)).heads) == 1
        assert whole.now_ms >= whole.heads[-1].changed_ms

    async def test_what_is_held_does_not_expire(self, store: Store) -> None:
        """A saga that would expire by itself stays until it is purged."""
        await store.open_lease("A", LONG_MS)
        head = await _ended(store, "soon", keep_ms=1500)
        ended = store.ended()
        held = [await ended.hold(number, 100) for number in range(ended.count)]
        assert sum(held) == 1
        assert sum([await ended.hold(number, 100) for number in range(ended.count)]) == 0
        async with asyncio.timeout(30):
            while (await store.open_lease("A", LONG_MS)) < head.changed_ms + 2000:  # noqa: ASYNC110 -- the server's clock
                await asyncio.sleep(0.02)
        assert await store.head("soon") == head
        assert await store.values("soon", ["v"]) == {"v": b"1"}
        assert [each.saga_id for each in await store.list()] == ["soon"]
        assert await ended.purge(head) is True

    async def test_a_reserved_id_is_seen(self, store: Store) -> None:
        """Until its saga exists."""
        await store.open_lease("A", LONG_MS)
        assert not await store.ended().reserved("s1")
        await store.reserve("s1", "d", "old", LONG_MS)
        assert await store.ended().reserved("s1")
        await _ended(store, "s1")
        assert not await store.ended().reserved("s1")
