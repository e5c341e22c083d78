"""The laws of every ``Store``, as tests.

Shipped, so that you can test a store of your own in a few lines::

    from saga_engine.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self):
            store = MyStore(...)
            await store.open()
            yield store          # opened, and empty
            await store.close()

It needs pytest and pytest-asyncio. Call ``pytest.register_assert_rewrite("saga_engine.testing.conformance")`` in a
``conftest.py`` for readable failures. Nothing here waits for a fixed time: a lease that must end is polled for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from saga_engine.core.transitions import SAGA_STATES
from saga_engine.errors import JournalUnreadable, LeaseLost, SagaNotFound, StoreRefused
from saga_engine.ports import PAGE_START, Ack, Acquired, Creation, Entry, Head, Held, PagePlace, Store
from saga_engine.testing.document_conformance import DocumentConformance
from saga_engine.testing.ended_conformance import EndedConformance
from saga_engine.testing.event_conformance import EventConformance
from saga_engine.testing.queue_conformance import WorkConformance
from saga_engine.testing.reservation_conformance import ReservationConformance
from saga_engine.testing.search_conformance import SearchConformance
from saga_engine.testing.value_conformance import ValueConformance

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG_MS = 600_000
DAY_MS = 86_400_000
EVERY_BYTE = bytes(range(256))


async def begin(store: Store, saga_id: str = "s1", owner: str = "A", records: Sequence[bytes] = (b"r0",)) -> None:
    """A running saga at epoch 1, owned under a lease that lasts."""
    await store.open_lease(owner, LONG_MS)
    ack = await one(store, owner, Entry(saga_id, 0, 0, records, "RUNNING", b"{}", creation=Creation("d", owned=True)))
    assert ack == Ack("ok")


async def one(store: Store, owner: str, entry: Entry) -> Ack:
    """Append a single entry."""
    (ack,) = (await store.append(owner, [entry])).acks
    return ack


async def journal(store: Store, saga_id: str = "s1") -> list[bytes]:
    """The whole journal."""
    return list(await store.read(saga_id))


async def until_ended(store: Store, saga_id: str = "s1") -> None:
    """Wait until the server says that the lease of the saga's owner has ended."""
    async with asyncio.timeout(30):
        while (await store.head(saga_id)).owner_ttl_ms > 0:  # noqa: ASYNC110 -- it is the server's clock that decides
            await asyncio.sleep(0.005)


class _Journal:
    """Appending and reading."""

    async def test_creation_makes_head_and_journal(self, store: Store) -> None:
        """A new saga has its records, epoch 1 for its owner, and times of the store's clock."""
        before = await store.open_lease("A", LONG_MS)
        await begin(store, records=[b"r0", b"r1"])
        head = await store.head("s1")
        assert await journal(store) == [b"r0", b"r1"]
        assert (head.status, head.epoch, head.owner, head.digest) == ("RUNNING", 1, "A", "d")
        assert (head.length, head.messages, head.summary) == (2, 0, b"{}")
        assert head.created_ms == head.changed_ms >= before
        assert 0 < head.owner_ttl_ms <= LONG_MS

    async def test_creation_without_owner(self, store: Store) -> None:
        """A saga created for workers has epoch 0 and no owner; nobody writes to it before taking it."""
        await store.open_lease("A", LONG_MS)
        entry = Entry("s1", 0, 0, [b"r0"], "PENDING", creation=Creation("d", owned=False))
        assert await one(store, "A", entry) == Ack("ok", released=True)
        head = await store.head("s1")
        assert (head.epoch, head.owner, head.owner_ttl_ms, head.status) == (0, "", 0, "PENDING")
        assert (await one(store, "A", Entry("s1", 1, 0, [b"r1"]))).code == "fenced"
        assert await journal(store) == [b"r0"]

    async def test_creation_asked_again_is_ok(self, store: Store) -> None:
        """The same creation is recognised, even if the journal has grown since."""
        await begin(store)
        await one(store, "A", Entry("s1", 1, 1, [b"r1"], "COMPENSATING"))
        await begin(store)
        assert await journal(store) == [b"r0", b"r1"]
        assert (await store.head("s1")).status == "COMPENSATING"

    async def test_creation_of_a_taken_id(self, store: Store) -> None:
        """The creation of another saga with the same id gets the digest of the existing plan, and changes nothing."""
        await begin(store)
        entry = Entry("s1", 0, 0, [b"other"], "RUNNING", creation=Creation("e", owned=True))
        assert await one(store, "A", entry) == Ack("exists", 0, "d")
        assert await journal(store) == [b"r0"]
        assert (await store.head("s1")).digest == "d"

    async def test_creation_by_an_ended_lease(self, store: Store) -> None:
        """Nobody can create a saga under a lease that has ended."""
        entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
        assert (await one(store, "nobody", entry)).code == "fenced"
        with pytest.raises(SagaNotFound):
            await store.head("s1")

    async def test_append_continues_the_journal(self, store: Store) -> None:
        """Records are returned in order, from any position on."""
        await begin(store)
        assert await one(store, "A", Entry("s1", 1, 1, [b"r1", b"r2"])) == Ack("ok")
        assert await one(store, "A", Entry("s1", 3, 1, [b"r3"])) == Ack("ok")
        assert await journal(store) == [b"r0", b"r1", b"r2", b"r3"]
        assert list(await store.read("s1", 2)) == [b"r2", b"r3"]
        assert list(await store.read("s1", 9)) == []

    async def test_append_elsewhere_is_a_conflict(self, store: Store) -> None:
        """An append that does not continue at ``seq`` changes nothing: too early, too late, other records."""
        await begin(store, records=[b"r0", b"r1"])
        for seq, records in ((1, [b"x"]), (3, [b"x"]), (0, [b"r0"]), (1, [b"r1", b"x"])):
            assert (await one(store, "A", Entry("s1", seq, 1, records, "COMPENSATING"))).code == "conflict"
        assert await journal(store) == [b"r0", b"r1"]
        assert (await store.head("s1")).status == "RUNNING"

    async def test_append_asked_again_is_ok_and_applied_once(self, store: Store) -> None:
        """A repeat of an append that consumed a message, changed the status and released is only acknowledged."""
        await begin(store)
        await store.post("s1", b"m1")
        await store.post("s1", b"m2")
        entry = Entry("s1", 1, 1, [b"r1"], "ESCALATED", b"sum", release=True, consumed=2)
        first = await store.append("A", [entry])
        head = await store.head("s1")
        again = await store.append("A", [entry])
        assert first.acks == again.acks == [Ack("ok", released=True)]
        assert await store.head("s1") == head
        assert list(await store.messages("s1")) == []
        assert await journal(store) == [b"r0", b"r1"]

    async def test_release_alone_asked_again_is_ok(self, store: Store) -> None:
        """A release without a record can be repeated too."""
        await begin(store)
        for _ in range(2):
            assert await one(store, "A", Entry("s1", 1, 1, [], release=True)) == Ack("ok", released=True)
        assert (await store.head("s1")).owner == ""

    async def test_append_to_nothing(self, store: Store) -> None:
        """A saga that does not exist is missing, and is not created."""
        await store.open_lease("A", LONG_MS)
        assert await one(store, "A", Entry("s1", 0, 1, [b"r0"])) == Ack("missing")
        for look in (store.read("s1"), store.head("s1"), store.acquire("s1", "A"), store.post("s1", b"m")):
            with pytest.raises(SagaNotFound):
                await look

    async def test_every_entry_stands_by_itself(self, store: Store) -> None:
        """One bad entry does not affect the others; the acks are in the order of the entries."""
        for saga_id in ("s1", "s2", "s3"):
            await begin(store, saga_id)
        reply = await store.append(
            "A",
            [
                Entry("s1", 1, 1, [b"r1"]),
                Entry("none", 1, 1, [b"r1"]),
                Entry("s2", 7, 1, [b"r1"]),
                Entry("s4", 0, 0, [b"r0"], "RUNNING", creation=Creation("d4", owned=True)),
                Entry("s3", 1, 9, [b"r1"]),
                Entry("s2", 0, 0, [b"x"], "RUNNING", creation=Creation("e", owned=True)),
            ],
        )
        codes = [ack.code for ack in reply.acks]
        assert codes == ["ok", "missing", "conflict", "ok", "fenced", "exists"]
        assert reply.acks[5].digest == "d"
        assert [len(await journal(store, saga_id)) for saga_id in ("s1", "s2", "s3", "s4")] == [2, 1, 1, 1]

    async def test_512_entries(self, store: Store) -> None:
        """A full group commit: every saga has its own records afterwards."""
        await store.open_lease("A", LONG_MS)
        ids = [f"saga-{number}" for number in range(512)]
        creations = [Entry(i, 0, 0, [i.encode()], "RUNNING", creation=Creation("d", owned=True)) for i in ids]
        assert set((await store.append("A", creations)).acks) == {Ack("ok")}
        more = [Entry(saga_id, 1, 1, [EVERY_BYTE, b"end"]) for saga_id in ids]
        assert set((await store.append("A", more)).acks) == {Ack("ok")}
        for saga_id in ids[::100]:
            assert await journal(store, saga_id) == [saga_id.encode(), EVERY_BYTE, b"end"]

    async def test_many_records_at_once(self, store: Store) -> None:
        """One entry may contain thousands of records."""
        records = [b"%d" % number for number in range(20_000)]
        await begin(store, records=records)
        await begin(store, records=records)
        assert await journal(store) == records

    async def test_nothing_to_append(self, store: Store) -> None:
        """An empty group commit still returns the time."""
        now_ms = await store.open_lease("A", LONG_MS)
        reply = await store.append("A", [])
        assert list(reply.acks) == []
        assert reply.now_ms >= now_ms

    async def test_bytes_are_kept_as_they_are(self, store: Store) -> None:
        """Records, summaries, messages and values are arbitrary bytes."""
        await begin(store, records=[EVERY_BYTE, b"", b"\r\n"])
        await one(store, "A", Entry("s1", 3, 1, [b"x"], summary=EVERY_BYTE, values={"v": EVERY_BYTE}))
        await store.post("s1", EVERY_BYTE)
        assert await journal(store) == [EVERY_BYTE, b"", b"\r\n", b"x"]
        assert (await store.head("s1")).summary == EVERY_BYTE
        assert (await store.values("s1", ["v"]))["v"] == EVERY_BYTE
        assert list(await store.messages("s1")) == [EVERY_BYTE]

    async def test_values_by_digest(self, store: Store) -> None:
        """A value is stored once, the first bytes stay, and a missing one is an error, never an empty answer."""
        await begin(store)
        large = EVERY_BYTE * 40_960
        await one(store, "A", Entry("s1", 1, 1, [b"r1"], values={"big": large, "small": b"1"}))
        await one(store, "A", Entry("s1", 2, 1, [b"r2"], values={"small": b"2"}))
        assert await store.values("s1", ["big", "small", "big"]) == {"big": large, "small": b"1"}
        assert await store.values("s1", []) == {}
        with pytest.raises(JournalUnreadable):
            await store.values("s1", ["none"])

    async def test_large_group_commit(self, store: Store) -> None:
        """More bytes than one call should carry still arrive, each entry in its position."""
        ids = [f"s{number}" for number in range(5)]
        large = b"x" * 5_000_000
        for saga_id in ids:
            await begin(store, saga_id)
        reply = await store.append("A", [Entry(i, 1, 1, [i.encode()], values={"v": large}) for i in ids])
        assert list(reply.acks) == [Ack("ok")] * 5
        for saga_id in ids:
            assert await journal(store, saga_id) == [b"r0", saga_id.encode()]
            assert (await store.values(saga_id, ["v"]))["v"] == large


class _Leases:
    """Owning, fencing, taking over."""

    async def test_a_smaller_epoch_is_fenced(self, store: Store) -> None:
        """A former owner cannot write, even with the right ``seq``, and even a record that is already there."""
        await begin(store)
        await store.open_lease("B", LONG_MS)
        await store.close_lease("A")
        await store.open_lease("A", LONG_MS)
        taken = await store.acquire("s1", "B", dead_owner="A")
        assert isinstance(taken, Acquired)
        assert (taken.epoch, taken.seq) == (2, 1)
        assert (await one(store, "A", Entry("s1", 1, 1, [b"late"]))).code == "fenced"
        assert (await one(store, "B", Entry("s1", 1, 2, [b"r1"]))) == Ack("ok")
        assert (await one(store, "A", Entry("s1", 1, 1, [b"r1"]))).code == "fenced"
        assert await journal(store) == [b"r0", b"r1"]

    async def test_the_right_epoch_of_another_owner_is_fenced(self, store: Store) -> None:
        """The epoch alone is not enough: it belongs to one owner."""
        await begin(store)
        await store.open_lease("B", LONG_MS)
        assert (await one(store, "B", Entry("s1", 1, 1, [b"x"]))).code == "fenced"
        assert await journal(store) == [b"r0"]

    async def test_a_lease_that_was_closed_is_fenced(self, store: Store) -> None:
        """Without its lease an owner cannot write, although nobody has taken over."""
        await begin(store)
        await store.close_lease("A")
        await store.close_lease("A")
        assert (await one(store, "A", Entry("s1", 1, 1, [b"late"]))).code == "fenced"
        assert await journal(store) == [b"r0"]

    async def test_a_lease_that_expired_is_fenced(self, store: Store) -> None:
        """A lease ends by itself on the server's clock: the epoch is unchanged, but nothing is written."""
        await begin(store)
        await store.open_lease("A", 20)
        await until_ended(store)
        assert (await one(store, "A", Entry("s1", 1, 1, [b"late"]))).code == "fenced"
        assert (await store.head("s1")).epoch == 1
        assert (await store.renew("A", LONG_MS)).alive is False
        assert (await store.head("s1")).owner_ttl_ms == 0

    async def test_already_there_outlives_the_lease(self, store: Store) -> None:
        """An acknowledged append is acknowledged again, even after the lease."""
        await begin(store)
        entry = Entry("s1", 1, 1, [b"r1"])
        await one(store, "A", entry)
        await store.close_lease("A")
        assert (await one(store, "A", entry)).code == "ok"
        assert await journal(store) == [b"r0", b"r1"]

    async def test_renew_extends(self, store: Store) -> None:
        """A valid lease gets its full time again."""
        await begin(store)
        await store.open_lease("A", 60_000)
        renewal = await store.renew("A", LONG_MS)
        assert renewal.alive is True
        assert (await store.head("s1")).owner_ttl_ms > 60_000

    async def test_a_live_owner_holds(self, store: Store) -> None:
        """Nobody takes a saga from an owner with a valid lease, and the answer says how long to wait at most."""
        await begin(store)
        await store.open_lease("B", LONG_MS)
        held = await store.acquire("s1", "B")
        assert isinstance(held, Held)
        assert held.owner == "A"
        assert 0 < held.ttl_ms <= LONG_MS
        assert isinstance(await store.acquire("s1", "B", dead_owner="C"), Held)
        assert (await store.head("s1")).epoch == 1

    async def test_take_over_after_the_lease(self, store: Store) -> None:
        """When the lease has ended, the next owner gets the saga, its position and its messages."""
        await begin(store, records=[b"r0", b"r1"])
        await store.post("s1", b"m")
        await store.close_lease("A")
        await store.open_lease("B", LONG_MS)
        assert await store.acquire("s1", "B") == Acquired(2, 2, [b"m"])
        assert (await store.head("s1")).owner == "B"

    async def test_acquire_again_by_the_owner(self, store: Store) -> None:
        """A repeat succeeds and makes one more epoch, so a lost answer does no harm."""
        await begin(store)
        first = await store.acquire("s1", "A")
        second = await store.acquire("s1", "A")
        assert isinstance(first, Acquired)
        assert isinstance(second, Acquired)
        assert second.epoch > first.epoch > 1
        assert (await one(store, "A", Entry("s1", 1, first.epoch, [b"x"]))).code == "fenced"
        assert (await one(store, "A", Entry("s1", 1, second.epoch, [b"r1"]))).code == "ok"

    async def test_acquire_without_a_lease(self, store: Store) -> None:
        """A lease that has ended cannot take anything."""
        await begin(store)
        await store.close_lease("A")
        with pytest.raises(LeaseLost):
            await store.acquire("s1", "A")
        assert (await store.head("s1")).epoch == 1

    async def test_two_racing_acquires(self, store: Store) -> None:
        """If several owners acquire a free saga at once, exactly one gets it."""
        await begin(store)
        await store.close_lease("A")
        owners = [f"W{number}" for number in range(8)]
        for owner in owners:
            await store.open_lease(owner, LONG_MS)
        answers = await asyncio.gather(*(store.acquire("s1", owner) for owner in owners))
        winners = [owner for owner, answer in zip(owners, answers, strict=True) if isinstance(answer, Acquired)]
        assert len(winners) == 1
        assert (await store.head("s1")).owner == winners[0]
        assert {answer.owner for answer in answers if isinstance(answer, Held)} == set(winners)

    async def test_release(self, store: Store) -> None:
        """A released saga is free at once; a release with an old epoch does nothing; both can be repeated."""
        await begin(store)
        await store.release("s1", 9)
        assert (await store.head("s1")).owner == "A"
        await store.release("s1", 1)
        await store.release("s1", 1)
        await store.release("none", 1)
        assert (await one(store, "A", Entry("s1", 1, 1, [b"late"]))).code == "fenced"
        await store.open_lease("B", LONG_MS)
        assert isinstance(await store.acquire("s1", "B"), Acquired)
        await store.release("s1", 1)
        assert (await store.head("s1")).owner == "B"


class _Mail:
    """Messages for a saga."""

    async def test_post_wakes_the_owner(self, store: Store) -> None:
        """A message waits in order, and renewing reports it until it has been consumed."""
        await begin(store)
        await begin(store, "s2")
        head = await store.post("s1", b"m1")
        assert isinstance(head, Head)
        assert (head.owner, head.messages, head.status) == ("A", 1, "RUNNING")
        await store.post("s1", b"m2")
        assert list(await store.messages("s1")) == [b"m1", b"m2"]
        assert list((await store.renew("A", LONG_MS)).wakes) == ["s1"]
        assert await one(store, "A", Entry("s1", 1, 1, [b"r1"])) == Ack("ok", 2)
        assert await one(store, "A", Entry("s1", 2, 1, [b"r2"], consumed=1)) == Ack("ok", 1)
        assert list((await store.renew("A", LONG_MS)).wakes) == ["s1"]
        assert await one(store, "A", Entry("s1", 3, 1, [b"r3"], consumed=1)) == Ack("ok")
        assert list((await store.renew("A", LONG_MS)).wakes) == []
        assert list(await store.messages("s1")) == []

    async def test_the_same_message_waits_once(self, store: Store) -> None:
        """A post that is repeated after a lost answer adds no second message."""
        await begin(store)
        for _ in range(3):
            assert (await store.post("s1", b"m")).messages == 1
        assert list(await store.messages("s1")) == [b"m"]

    async def test_messages_for_nobody_wait(self, store: Store) -> None:
        """A saga without an owner keeps its messages for its next owner; a released one wakes nobody."""
        await begin(store)
        assert (await one(store, "A", Entry("s1", 1, 1, [b"r1"], release=True))).released
        await store.post("s1", b"m1")
        await store.post("s1", b"m2")
        assert list((await store.renew("A", LONG_MS)).wakes) == []
        taken = await store.acquire("s1", "A")
        assert isinstance(taken, Acquired)
        assert list(taken.messages) == [b"m1", b"m2"]

    async def test_messages_are_bounded(self, store: Store) -> None:
        """Beyond the limit posts are refused; the waiting messages are not lost, and do not wait twice."""
        await begin(store)
        posted = 0

        async def flood() -> None:
            nonlocal posted
            while posted < 5000:
                await store.post("s1", b"%d" % posted)
                posted += 1

        with pytest.raises(StoreRefused, match="unread messages"):
            await flood()
        assert len(await store.messages("s1")) == posted
        assert 100 <= posted < 5000
        assert (await store.post("s1", b"0")).messages == posted

    async def test_a_saga_with_messages_is_not_given_up(self, store: Store) -> None:
        """Its owner reads the messages first: a release that races with one does not happen."""
        await begin(store)
        await store.post("s1", b"m1")
        ack = await one(store, "A", Entry("s1", 1, 1, [b"r1"], "ESCALATED", release=True))
        assert (ack.code, ack.messages, ack.released) == ("ok", 1, False)
        assert list((await store.renew("A", LONG_MS)).wakes) == ["s1"]
        again = await one(store, "A", Entry("s1", 1, 1, [b"r1"], "ESCALATED", release=True))
        assert (again.code, again.released) == ("ok", False)
        ack = await one(store, "A", Entry("s1", 2, 1, [b"r2"], consumed=1, release=True))
        assert (ack.code, ack.messages, ack.released) == ("ok", 0, True)

    async def test_a_repeated_release_says_that_it_happened(self, store: Store) -> None:
        """The answer to a release was lost and a message came since: the saga has no owner, and the repeat says so."""
        await begin(store)
        entry = Entry("s1", 1, 1, [b"r1"], "ESCALATED", release=True)
        assert (await one(store, "A", entry)).released
        await store.post("s1", b"late")
        ack = await one(store, "A", entry)
        assert (ack.code, ack.messages, ack.released) == ("ok", 1, True)

    async def test_a_saga_may_end_in_the_append_that_creates_it(self, store: Store) -> None:
        """It is released at once, and a repeat of the creation says so."""
        await store.open_lease("A", LONG_MS)
        entry = Entry("s1", 0, 0, [b"r0"], "COMPENSATED", release=True, creation=Creation("d", owned=True))
        for _ in range(2):
            ack = await one(store, "A", entry)
            assert (ack.code, ack.released) == ("ok", True)
        assert (await store.head("s1")).owner == ""

    async def test_an_ended_saga_is_given_up_whatever_its_messages(self, store: Store) -> None:
        """Messages for a saga that has ended are irrelevant."""
        await begin(store)
        await store.post("s1", b"m1")
        assert (await one(store, "A", Entry("s1", 1, 1, [b"r1"], "COMPLETED", release=True))).released

    async def test_a_take_over_moves_the_wake(self, store: Store) -> None:
        """The former owner is not woken for a saga that it no longer owns."""
        await begin(store)
        await store.post("s1", b"m1")
        await store.open_lease("B", LONG_MS)
        await store.acquire("s1", "B", dead_owner="A")
        assert list((await store.renew("A", LONG_MS)).wakes) == []
        await store.post("s1", b"m2")
        assert list((await store.renew("B", LONG_MS)).wakes) == ["s1"]


class _Lists(SearchConformance):
    """Finding sagas, and how long they are kept."""

    async def test_list_follows_the_status(self, store: Store) -> None:
        """A saga is found under its status and under no other; a finished one is in no list of live sagas."""
        await begin(store)
        seq = 1
        for status in SAGA_STATES:
            assert await one(store, "A", Entry("s1", seq, 1, [b"r"], status)) == Ack("ok")
            seq += 1
            found = {other: [head.saga_id for head in await store.list(other)] for other in SAGA_STATES}
            assert found == {other: ["s1"] if other == status else [] for other in SAGA_STATES}
            assert [head.saga_id for head in await store.list()] == ["s1"]

    async def test_list_newest_first(self, store: Store) -> None:
        """The most recently changed saga comes first, over all partitions, and ``limit`` cuts the oldest."""
        ids = [f"s{number}" for number in range(40)]
        for saga_id in ids:
            await begin(store, saga_id)
        await one(store, "A", Entry("s7", 1, 1, [b"r"], summary=b"changed"))
        heads = await store.list()
        times = [head.changed_ms for head in heads]
        assert times == sorted(times, reverse=True)
        assert {head.saga_id for head in heads} == set(ids)
        newest = await store.list("RUNNING", limit=5)
        assert [head.changed_ms for head in newest] == times[:5]
        assert await store.list("COMPLETED") == []
        assert await store.list(limit=0) == []

    async def test_pages_have_every_saga_of_a_status(self, store: Store) -> None:
        """Many sagas or few in a partition: each that has the status throughout is found, and no other."""
        ids = [f"s{number}" for number in range(1300)]
        created = [Entry(saga_id, 0, 0, [b"r"], "PENDING", creation=Creation("d", owned=False)) for saga_id in ids]
        await store.append("A", created)
        await begin(store, "other")
        found: list[str] = []
        at: PagePlace | None = PAGE_START
        pages = 0
        while at is not None:
            heads, at = await store.page("PENDING", at)
            assert {head.status for head in heads} <= {"PENDING"}
            found += [head.saga_id for head in heads]
            pages += 1
        assert set(found) == set(ids)
        assert pages > 1
        assert await store.page("COMPENSATED") == ([], None)

    async def test_a_live_saga_never_expires(self, store: Store) -> None:
        """Idle is not finished: long after its owner's lease, a saga is still there and can be taken."""
        await begin(store)
        await store.post("s1", b"m")
        await store.open_lease("A", 20)
        await until_ended(store)
        await store.open_lease("B", LONG_MS)
        assert await store.acquire("s1", "B") == Acquired(2, 1, [b"m"])

    async def test_a_finished_saga_goes_after_its_time(self, store: Store) -> None:
        """Journal, head, values and messages expire together, and no list contains the saga any more."""
        await begin(store)
        await begin(store, "s2")
        await store.post("s1", b"m")
        final = Entry("s1", 1, 1, [b"end"], "COMPLETED", b"{}", release=True, keep_ms=30, values={"v": b"1"})
        assert (await one(store, "A", final)).code == "ok"
        async with asyncio.timeout(30):
            while await self._there(store, "s1"):  # noqa: ASYNC110 -- it is the server's clock that decides
                await asyncio.sleep(0.005)
        with pytest.raises(SagaNotFound):
            await store.read("s1")
        with pytest.raises(JournalUnreadable):
            await store.values("s1", ["v"])
        assert list(await store.messages("s1")) == []
        assert await store.list("COMPLETED") == []
        assert [head.saga_id for head in await store.list()] == ["s2"]

    async def test_the_name_is_free_afterwards(self, store: Store) -> None:
        """A new saga with the same id has nothing of the old one."""
        await begin(store)
        await store.post("s1", b"m")
        await one(store, "A", Entry("s1", 1, 1, [b"end"], "WAIVED", keep_ms=30, values={"v": b"1"}))
        async with asyncio.timeout(30):
            while await self._there(store, "s1"):  # noqa: ASYNC110 -- it is the server's clock that decides
                await asyncio.sleep(0.005)
        await begin(store, records=[b"new"])
        assert await journal(store) == [b"new"]
        assert list(await store.messages("s1")) == []
        assert await store.list("WAIVED") == []
        assert [head.saga_id for head in await store.list("RUNNING")] == ["s1"]

    async def test_a_finished_saga_is_kept_for_its_time(self, store: Store) -> None:
        """Until then it can be read and found; 0 keeps it for ever."""
        await begin(store)
        await begin(store, "s2")
        await one(store, "A", Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, keep_ms=DAY_MS))
        await one(store, "A", Entry("s2", 1, 1, [b"end"], "COMPLETED", release=True))
        assert await journal(store) == [b"r0", b"end"]
        assert {head.saga_id for head in await store.list("COMPLETED")} == {"s1", "s2"}

    async def _there(self, store: Store, saga_id: str) -> bool:
        try:
            await store.head(saga_id)
        except SagaNotFound:
            return False
        return True


class _Beside(EventConformance, DocumentConformance, ReservationConformance, WorkConformance, ValueConformance):
    """The laws of what lies beside the journals."""


class StoreConformance(_Journal, _Leases, _Mail, _Lists, _Beside, EndedConformance):
    """The whole suite. Subclass it and give it a fixture ``store``: an opened, empty ``Store``."""

    pytestmark = pytest.mark.asyncio

    async def test_promise_tells_its_level(self, store: Store) -> None:
        """A store reports its durability, and every finding is a severity, a text and a hint."""
        promise = await store.promise()
        assert promise.level in ("fsync", "relaxed") or promise.level.startswith("replicated:")
        assert promise.url == store.url
        assert all(severity in ("ok", "warning", "error") and text for severity, text, _ in promise.findings)

    async def test_the_clock_never_goes_back(self, store: Store) -> None:
        """Every answer with a time has the store's time."""
        times = [await store.open_lease("A", LONG_MS)]
        times.append((await store.renew("A", LONG_MS)).now_ms)
        times.append((await store.append("A", [])).now_ms)
        times.append(await store.open_lease("B", LONG_MS))
        assert times == sorted(times)
