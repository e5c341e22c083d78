"""What a store must do when it is searched; part of ``StoreConformance``."""

# The laws are the same on every store: see ``conformance``.

from __future__ import annotations

import asyncio

from saga_engine.ports import Ack, Creation, Entry, Head, Query, SearchPlace, Store

LONG_MS = 600_000
DAY_MS = 86_400_000


async def ids_found(store: Store, query: Query) -> set[str]:
    """The ids of all pages of a search."""
    found: set[str] = set()
    place: SearchPlace | None = None
    while True:
        heads, place = await store.search(query, place)
        found |= {head.saga_id for head in heads}
        if place is None:
            return found


def queued(saga_id: str, *terms: str) -> Entry:
    """A new saga for workers."""
    return Entry(saga_id, 0, 0, [b"r"], "PENDING", creation=Creation("d", owned=False), terms=["*", *terms])


def owned(saga_id: str, *terms: str) -> Entry:
    """A new saga that its creator owns."""
    return Entry(saga_id, 0, 1, [b"r"], "RUNNING", creation=Creation("d", owned=True), terms=["*", *terms])


class SearchConformance:
    """Search by terms, statuses and time of creation, page by page."""

    async def test_a_search_finds_what_fits(self, store: Store) -> None:
        """By all of its terms, one of its statuses and an open question; the most recently created saga first."""
        words = ["odd" if n % 2 else "even" for n in range(60)]
        created = [queued(f"s{n}", "tool:book", f"tag:{n % 10}", f"name:{words[n]}") for n in range(60)]
        await store.append("A", created)
        await store.open_lease("A", LONG_MS)
        await store.append("A", [owned(f"o{n}", "tool:book")._replace(asks=n > 0) for n in range(3)])
        await store.append("A", [owned("apart")._replace(terms=())])  # it has no terms, so no search finds it
        assert await ids_found(store, Query()) == {*(f"s{n}" for n in range(60)), "o0", "o1", "o2"}
        assert await ids_found(store, Query(["tool:book"])) == {*(f"s{n}" for n in range(60)), "o0", "o1", "o2"}
        assert await ids_found(store, Query(["tag:3", "name:odd"])) == {f"s{n}" for n in range(60) if n % 10 == 3}
        assert await ids_found(store, Query(["tag:3", "name:even"])) == set()
        assert await ids_found(store, Query(["tool:book"], ["RUNNING"])) == {"o0", "o1", "o2"}
        assert await ids_found(store, Query(statuses=["RUNNING", "COMPLETED"])) == {"o0", "o1", "o2"}
        assert await ids_found(store, Query(asks=True)) == {"o1", "o2"}
        assert await ids_found(store, Query(["name:odd"], asks=True)) == set()
        later = Entry("o1", 1, 1, [b"r"], summary=b"{}", asks=False, terms=["tool:late", "tool:book"])
        assert (await store.append("A", [later])).acks == [Ack("ok")]
        assert await ids_found(store, Query(asks=True)) == {"o2"}
        assert await ids_found(store, Query(["tool:late", "tool:book"])) == {"o1"}
        # Each server of a cluster has its own clock, so any of them may be the oldest.
        oldest = min([(await store.head(f"s{n}")).created_ms for n in range(60)])
        assert await ids_found(store, Query(["name:odd"], since_ms=oldest)) == {f"s{n}" for n in range(1, 60, 2)}
        assert await ids_found(store, Query(since_ms=oldest + DAY_MS)) == set()
        assert await ids_found(store, Query(until_ms=oldest - 1)) == set()

    async def test_pages_of_a_search_follow_each_other(self, store: Store) -> None:
        """Each saga is on one page, in the order of creation, and sagas that begin meanwhile disturb nothing."""
        for at in range(0, 120, 40):
            await store.append("A", [queued(f"s{n}", "tag:x") for n in range(at, at + 40)])
        found: list[Head] = []
        place: SearchPlace | None = None
        while True:
            heads, place = await store.search(Query(["tag:x"], limit=7), place)
            assert len(heads) <= 7
            found += heads
            if place is None:
                break
            await store.append("A", [queued(f"new{len(found)}", "tag:x")])
        assert sorted(head.saga_id for head in found) == sorted(f"s{n}" for n in range(120))
        order = [(head.created_ms, head.saga_id.encode()) for head in found]
        assert order == sorted(order, reverse=True)

    async def test_a_search_forgets_what_expired(self, store: Store) -> None:
        """And a saga with the same name afterwards has its own terms alone."""
        await store.open_lease("A", LONG_MS)
        await store.append("A", [owned("s1", "tag:old")])
        await store.append("A", [Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, keep_ms=30)])
        async with asyncio.timeout(30):
            while await ids_found(store, Query()):  # noqa: ASYNC110 -- it is the server's clock that decides
                await asyncio.sleep(0.005)
        assert await ids_found(store, Query(["tag:old"])) == set()
        await store.append("A", [owned("s1", "tag:new")])
        assert await ids_found(store, Query(["tag:old"])) == set()
        assert await ids_found(store, Query(["tag:new"])) == {"s1"}
