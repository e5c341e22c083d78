"""The laws of every store's queue (``WorkStore``), as tests. A part of ``conformance.StoreConformance``.

Nothing here waits for a fixed time, and nothing knows the partition of a saga.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import pytest

from saga_engine.core.states import SAGA_STATES
from saga_engine.errors import SagaNotFound
from saga_engine.ports import SWEEP_START, Ack, Acquired, Creation, Entry, Store, Taken, Taking

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG_MS = 600_000
#: The delay with which the store may queue a saga that got a message: the poster goes first.
SOON_MS = 30_000
_NONCES = count()


async def queue(store: Store, *saga_ids: str, due_ms: int = 1, room: int = 0) -> list[str]:
    """Create sagas for workers in one call; returns the acks."""
    creation = Creation("d", owned=False, room=room)
    entries = [
        Entry(saga_id, 0, 0, [b"r0"], "PENDING", b"{}", creation=creation, due_ms=due_ms) for saga_id in saga_ids
    ]
    return [ack.code for ack in (await store.append("nobody", entries)).acks]


async def own(store: Store, *saga_ids: str, owner: str = "A") -> None:
    """Running sagas at epoch 1, owned under a lease that lasts."""
    await store.open_lease(owner, LONG_MS)
    creation = Creation("d", owned=True)
    entries = [Entry(saga_id, 0, 0, [b"r0"], "RUNNING", b"{}", creation=creation) for saga_id in saga_ids]
    assert {ack.code for ack in (await store.append(owner, entries)).acks} == {"ok"}


async def ask(
    store: Store, owner: str = "W", limit: int = 100, *, nonce: str = "", partitions: Sequence[int] | None = None
) -> Taking:
    """Ask for work as ``owner``, which has a lease; with a nonce of its own unless one is given."""
    await store.open_lease(owner, LONG_MS)
    work = store.work()
    chosen = range(work.count) if partitions is None else partitions
    return await work.take(owner, nonce or f"n{next(_NONCES)}", limit, chosen)


async def names(store: Store, owner: str = "W", limit: int = 100, *, nonce: str = "") -> set[str]:
    """The ids of the taken sagas."""
    return {taken.saga_id for taken in (await ask(store, owner, limit, nonce=nonce)).sagas}


async def append(store: Store, owner: str, entry: Entry) -> Ack:
    """Append a single entry."""
    (ack,) = (await store.append(owner, [entry])).acks
    return ack


class _Taking:
    """Taking sagas."""

    async def test_a_saga_for_workers_is_taken_by_one(self, store: Store) -> None:
        """It comes with its journal and a new epoch, and belongs to the taker's lease and to no other."""
        assert await queue(store, "s1") == ["ok"]
        taking = await ask(store)
        assert taking.alive
        assert list(taking.sagas) == [Taken("s1", 1, 1, 0, [b"r0"])]
        head = await store.head("s1")
        assert (head.owner, head.epoch, head.status) == ("W", 1, "PENDING")
        assert head.owner_ttl_ms > 0
        assert await names(store, "V") == set()
        assert await append(store, "W", Entry("s1", 1, 1, [b"r1"], "RUNNING")) == Ack("ok")

    async def test_taking_is_fenced_by_a_new_epoch(self, store: Store) -> None:
        """The former owner of the saga cannot write any more."""
        await own(store, "s1")
        await store.release("s1", 1, 1)
        (taken,) = (await ask(store)).sagas
        assert taken.epoch == 2
        assert (await append(store, "A", Entry("s1", 1, 1, [b"late"]))).code == "fenced"
        assert (await append(store, "W", Entry("s1", 1, 2, [b"r1"]))).code == "ok"

    async def test_asked_again_with_the_nonce_the_answer_is_the_same(self, store: Store) -> None:
        """After a lost answer we own no saga without knowing it; another request gets none of them."""
        ids = [f"s{number}" for number in range(20)]
        await queue(store, *ids)
        first = await ask(store, nonce="n")
        await queue(store, "later")
        again = await ask(store, limit=0, nonce="n")
        assert {taken.saga_id for taken in first.sagas} == set(ids)
        assert sorted(again.sagas) == sorted(first.sagas)
        assert await names(store, nonce="other") == {"later"}

    async def test_the_repeated_answer_leaves_out_what_is_not_ours_any_more(self, store: Store) -> None:
        """A saga that was released or taken by others since is not offered a second time."""
        await queue(store, "s1", "s2", "s3")
        await ask(store, nonce="n")
        await store.release("s1", 1)
        await store.release("s2", 1, 1)
        assert await names(store, "V") == {"s2"}
        assert await names(store, nonce="n") == {"s3"}

    async def test_no_more_than_the_limit(self, store: Store) -> None:
        """The limit covers all partitions together; the rest is for the next."""
        ids = {f"s{number}" for number in range(30)}
        await queue(store, *ids)
        found = [await names(store, f"W{number}", 7) for number in range(5)]
        assert [len(some) for some in found] == [7, 7, 7, 7, 2]
        assert set().union(*found) == ids
        assert (await ask(store, limit=0)).sagas == []

    async def test_those_that_waited_longest_come_first(self, store: Store) -> None:
        """In each partition by the time when they need a worker, whatever their ids and order of arrival."""
        now_ms = await store.open_lease("W", LONG_MS)
        wanted = {f"s{number}": now_ms + 40 + number * 7 % 40 for number in range(40)}
        creation = Creation("d", owned=False)
        reply = await store.append(
            "W", [Entry(name, 0, 0, [b"r0"], "PENDING", creation=creation, due_ms=ms) for name, ms in wanted.items()]
        )
        dues = {name: max(due_ms, reply.now_ms) for name, due_ms in wanted.items()}  # a time in the past is now
        got: dict[int, list[int]] = {}
        async with asyncio.timeout(30):
            while sum(map(len, got.values())) < len(dues):
                for number in range(store.work().count):
                    taking = await ask(store, limit=1, partitions=[number])
                    got.setdefault(number, []).extend(dues[taken.saga_id] for taken in taking.sagas)
        assert list(got.values()) == [sorted(some) for some in got.values()]

    async def test_partitions_are_apart(self, store: Store) -> None:
        """Each saga is in one partition, and a request for some partitions gets no saga of the others."""
        ids = {f"s{number}" for number in range(100)}
        await queue(store, *ids)
        partitions = range(store.work().count)
        shares = [{taken.saga_id for taken in (await ask(store, partitions=[number])).sagas} for number in partitions]
        assert sum(map(len, shares)) == len(ids)
        assert set().union(*shares) == ids

    async def test_many_ask_at_once(self, store: Store) -> None:
        """Every saga is taken by exactly one."""
        ids = [f"s{number}" for number in range(60)]
        await queue(store, *ids)
        owners = [f"W{number}" for number in range(8)]
        takings = await asyncio.gather(*(ask(store, owner, 20) for owner in owners))
        found = [taken.saga_id for taking in takings for taken in taking.sagas]
        assert sorted(found) == sorted(ids)

    async def test_a_session_that_has_ended_takes_nothing(self, store: Store) -> None:
        """It learns that its lease has ended, and the saga continues to wait."""
        await queue(store, "s1")
        taking = await store.work().take("gone", "n", 10, range(store.work().count))
        assert (taking.alive, list(taking.sagas)) == (False, [])
        assert await names(store) == {"s1"}

    async def test_a_long_journal_is_left_out_or_whole(self, store: Store) -> None:
        """Never a part of it; its length is returned either way."""
        await own(store, "s1")
        await append(store, "A", Entry("s1", 1, 1, [b"x"] * 2000))
        await store.release("s1", 1, 1)
        (taken,) = (await ask(store)).sagas
        assert taken.seq == 2001
        assert taken.records is None or list(taken.records) == [b"r0", *[b"x"] * 2000]


class _Waiting:
    """The content of the queue, and when a saga needs a worker."""

    async def test_given_up_now_later_or_for_good(self, store: Store) -> None:
        """A time in the past is now; a later one is returned to every request; 0 is never."""
        await own(store, "now", "later", "never")
        now_ms = await store.open_lease("A", LONG_MS)
        await store.release("now", 1, 1)
        await store.release("later", 1, now_ms + LONG_MS)
        await store.release("never", 1, 0)
        taking = await ask(store)
        assert [taken.saga_id for taken in taking.sagas] == ["now"]
        assert taking.next_due_ms == now_ms + LONG_MS
        assert now_ms <= taking.now_ms < now_ms + LONG_MS

    async def test_a_timer_fires(self, store: Store) -> None:
        """A saga that was released until a time is taken after it, and not before."""
        await own(store, "s1")
        due_ms = await store.open_lease("A", LONG_MS) + 40
        await store.release("s1", 1, due_ms)
        async with asyncio.timeout(30):
            while not (taking := await ask(store)).sagas:
                assert taking.next_due_ms in (due_ms, None)
        assert taking.now_ms >= due_ms

    async def test_given_up_with_the_last_records(self, store: Store) -> None:
        """Records, release and the place in the queue are one write; a repeat changes nothing."""
        await own(store, "s1")
        entry = Entry("s1", 1, 1, [b"r1"], release=True, due_ms=1)
        for _ in range(2):
            assert await append(store, "A", entry) == Ack("ok", released=True)
        (taken,) = (await ask(store)).sagas
        assert list(taken.records or ()) == [b"r0", b"r1"]
        assert await append(store, "A", entry) == Ack("fenced")
        assert await names(store, "V") == set()

    async def test_with_messages_it_is_not_given_up(self, store: Store) -> None:
        """Its owner reads the messages first: it is not in the queue."""
        await own(store, "s1")
        await store.post("s1", b"m")
        ack = await append(store, "A", Entry("s1", 1, 1, [b"r1"], release=True, due_ms=1))
        assert (ack.code, ack.messages, ack.released) == ("ok", 1, False)
        assert await names(store) == set()
        ack = await append(store, "A", Entry("s1", 2, 1, [b"r2"], consumed=1, release=True, due_ms=1))
        assert ack.released
        assert await names(store) == {"s1"}

    async def test_what_has_ended_wants_nobody(self, store: Store) -> None:
        """A saga that has ended is never queued."""
        await own(store, "s1")
        await append(store, "A", Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True))
        taking = await ask(store)
        assert (list(taking.sagas), taking.next_due_ms) == ([], None)

    async def test_what_has_ended_and_is_to_be_told_stays_until_it_is_released(self, store: Store) -> None:
        """Nobody looks for a saga that has ended: if the worker that took it dies, another one gets it later."""
        await own(store, "s1")
        await append(store, "A", Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, due_ms=1))
        (taken,) = (await ask(store)).sagas
        assert taken.saga_id == "s1"
        again = await ask(store)
        assert list(again.sagas) == []
        assert again.next_due_ms is not None
        await store.release("s1", taken.epoch, 0)
        assert (await ask(store)).next_due_ms is None

    async def test_what_has_ended_and_is_to_be_told_stays_whoever_acquires_it(self, store: Store) -> None:
        """A fork or an undo takes it, and releases it as it was queued: a worker tells what follows, later."""
        await own(store, "s1")
        await append(store, "A", Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, due_ms=1))
        acquired = await store.acquire("s1", "A")
        assert isinstance(acquired, Acquired)
        assert list((await ask(store)).sagas) == []
        await store.release("s1", acquired.epoch, -1)
        assert (await ask(store)).next_due_ms is not None
        await store.release("s1", acquired.epoch, 0)
        assert (await ask(store)).next_due_ms is None

    async def test_whoever_acquires_it_takes_it_out(self, store: Store) -> None:
        """A saga with an owner is not offered to anybody; once released, it is queued again."""
        await queue(store, "s1")
        await store.open_lease("A", LONG_MS)
        acquired = await store.acquire("s1", "A")
        assert isinstance(acquired, Acquired)
        taking = await ask(store)
        assert (list(taking.sagas), taking.next_due_ms) == ([], None)
        await store.release("s1", acquired.epoch, 1)
        assert await names(store) == {"s1"}

    async def test_a_creation_asked_again_after_it_was_taken(self, store: Store) -> None:
        """It is the same saga: it is not queued a second time while it has an owner."""
        await queue(store, "s1")
        assert await names(store) == {"s1"}
        assert await queue(store, "s1") == ["ok"]
        assert await names(store, "V") == set()


class _Posting:
    """Messages for a saga that waits for a worker."""

    async def test_a_message_for_nobody_brings_a_worker_soon(self, store: Store) -> None:
        """The poster takes the saga over; if it dies, a worker comes. A saga that is due sooner stays so."""
        await own(store, "rests", "waits", "due")
        now_ms = await store.open_lease("A", LONG_MS)
        await store.release("rests", 1, 0)
        await store.release("waits", 1, now_ms + LONG_MS)
        await store.release("due", 1, 1)
        for saga_id in ("rests", "waits", "due"):
            await store.post(saga_id, b"m")
        taking = await ask(store)
        assert [(taken.saga_id, taken.messages) for taken in taking.sagas] == [("due", 1)]
        assert taking.next_due_ms is not None
        assert taking.now_ms <= taking.next_due_ms <= taking.now_ms + SOON_MS

    async def test_a_message_for_an_owner_is_the_owners(self, store: Store) -> None:
        """The owner is woken; no worker is."""
        await own(store, "s1")
        await store.post("s1", b"m")
        assert (await ask(store)).next_due_ms is None

    async def test_a_message_for_what_has_ended_wakes_nobody(self, store: Store) -> None:
        """They are irrelevant."""
        await own(store, "s1")
        await append(store, "A", Entry("s1", 1, 1, [b"end"], "WAIVED", release=True))
        await store.post("s1", b"m")
        assert (await ask(store)).next_due_ms is None

    @pytest.mark.parametrize("later_ms", [0, LONG_MS])
    async def test_a_message_that_the_owner_did_not_read_brings_a_worker(self, store: Store, later_ms: int) -> None:
        """It came between the last read and the release, and its sender relies on the owner: a worker must read it."""
        await own(store, "s1")
        now_ms = await store.open_lease("A", LONG_MS)
        assert (await store.post("s1", b"m")).owner == "A"
        await store.release("s1", 1, later_ms and now_ms + later_ms)
        taking = await ask(store)
        if later_ms:  # released for a reason that may also hold for the reader: not at once
            assert taking.next_due_ms is not None
            assert taking.now_ms < taking.next_due_ms <= taking.now_ms + SOON_MS
        else:
            assert [(taken.saga_id, taken.messages) for taken in taking.sagas] == [("s1", 1)]

    async def test_taking_moves_the_wake(self, store: Store) -> None:
        """The new owner is woken for messages that come now."""
        await queue(store, "s1")
        await ask(store)
        await store.post("s1", b"m")
        assert list((await store.renew("W", LONG_MS)).wakes) == ["s1"]


class _Owners:
    """Cleaning up after owners that are gone."""

    async def owners(self, store: Store) -> dict[str, bool]:
        """The known owners, and whether each has a valid lease."""
        found = await store.work().owners(range(store.work().count))
        return {owner: ttl_ms > 0 for owner, ttl_ms in found.items()}

    async def test_owners_are_known_until_they_leave_nothing(self, store: Store) -> None:
        """An owner that reports no sagas is removed; for one that just ends, its sagas must be looked for."""
        for owner in ("A", "B", "C"):
            await store.open_lease(owner, LONG_MS)
        assert await self.owners(store) == {"A": True, "B": True, "C": True}
        await store.close_lease("A", clean=True)
        await store.close_lease("B", clean=False)
        assert await self.owners(store) == {"B": False, "C": True}

    async def test_the_sagas_of_the_gone_go_into_the_queue(self, store: Store) -> None:
        """All of them, in every status, and no others; then the owner is removed."""
        work = store.work()
        live = [status for status in SAGA_STATES if status not in ("COMPLETED", "COMPENSATED", "WAIVED")]
        ids = [f"s{number}" for number in range(600)]
        await own(store, *ids, "ended")
        await own(store, "other", owner="B")
        for number, status in enumerate(live):
            await append(store, "A", Entry(f"s{number}", 1, 1, [b"r1"], status))
        await append(store, "A", Entry("ended", 1, 1, [b"end"], "COMPLETED", release=True))
        await store.close_lease("A")
        assert await work.reclaim("A", range(work.count)) == len(ids)
        assert await self.owners(store) == {"B": True}
        assert await names(store, limit=1000) == set(ids)
        assert (await store.head("other")).owner == "B"
        assert await work.reclaim("A", range(work.count)) == 0

    async def test_an_owner_that_lives_is_left_alone(self, store: Store) -> None:
        """Unless it is provably dead: then its lease is no obstacle, and is ended."""
        work = store.work()
        await own(store, "s1")
        assert await work.reclaim("A", range(work.count)) == 0
        assert (await store.head("s1")).owner == "A"
        assert await work.reclaim("A", range(work.count), dead=True) == 1
        assert await self.owners(store) == {}
        assert (await store.renew("A", LONG_MS)).alive is False
        assert await names(store) == {"s1"}

    async def test_a_dead_owner_whose_session_is_renewed_is_left_alone(self, store: Store) -> None:
        """It may live on a clone of its machine. Its last renewal counts, not the time of the first check."""
        work = store.work()
        await own(store, "s1")
        everywhere = range(work.count)
        assert await work.reclaim("A", everywhere, dead=True, silent_ms=LONG_MS) == 0
        assert (await store.head("s1")).owner == "A"
        while not await work.reclaim("A", everywhere, dead=True, silent_ms=50):
            pass
        assert await names(store) == {"s1"}

    async def test_what_others_have_taken_over_stays_theirs(self, store: Store) -> None:
        """A manual take-over precedes the reclaim."""
        work = store.work()
        await own(store, "s1", "s2")
        await store.close_lease("A")
        await store.open_lease("B", LONG_MS)
        assert isinstance(await store.acquire("s1", "B"), Acquired)
        assert await work.reclaim("A", range(work.count)) == 1
        assert (await store.head("s1")).owner == "B"
        assert await names(store) == {"s2"}

    async def test_nothing_is_remembered_of_who_is_gone(self, store: Store) -> None:
        """A later process with the same name does not get what an earlier one had taken."""
        work = store.work()
        await queue(store, "s1")
        await ask(store, nonce="n")
        await store.close_lease("W")
        await work.reclaim("W", range(work.count))
        await store.open_lease("V", LONG_MS)
        assert isinstance(await store.acquire("s1", "V"), Acquired)
        assert (await ask(store, nonce="n")).sagas == []


class _Sweeping:
    """Sagas without an owner and outside the queue."""

    async def test_a_saga_that_nobody_owns_and_nobody_queued_is_found(self, store: Store) -> None:
        """Its owner's lease ended as if it had owned nothing: only the saga itself shows it."""
        await own(store, *(f"s{number}" for number in range(40)), owner="gone")
        await store.close_lease("gone", clean=True)
        assert await names(store) == set()
        assert (await swept(store, queue=False))[0] == 40
        assert (await swept(store))[0] == 40
        assert (await swept(store))[0] == 0
        assert len(await names(store)) == 40

    async def test_what_is_owned_queued_resting_or_over_is_no_orphan(self, store: Store) -> None:
        """Nor is a saga that was released with nothing to do: its agent continues it."""
        await own(store, "owned", "idle", "later", "rests", "over")
        await store.release("idle", 1)
        await store.release("later", 1, LONG_MS)
        rest = Entry("rests", 1, 1, [b"r"], "ESCALATED", b"{}", release=True)
        over = Entry("over", 1, 1, [b"r"], "COMPLETED", b"{}", release=True)
        assert {ack.code for ack in (await store.append("A", [rest, over])).acks} == {"ok"}
        await queue(store, "queued")
        assert (await swept(store))[0] == 0
        acquired = await store.acquire("idle", "A")
        assert isinstance(acquired, Acquired)
        await store.close_lease("A", clean=True)
        assert (await swept(store))[0] == 2  # 'idle' has work again, and 'owned'

    async def test_an_owner_hears_what_is_its_own(self, store: Store) -> None:
        """It may not know a saga that the store assigns to it, after the store was restored from a backup."""
        await own(store, *(f"s{number}" for number in range(40)))
        await own(store, "other", owner="B")
        assert (await swept(store, "A"))[1] == {f"s{number}": 1 for number in range(40)}


async def swept(store: Store, owner: str = "W", *, queue: bool = True) -> tuple[int, dict[str, int]]:
    """A whole sweep: the number of orphans, and the owner's own sagas, with epochs."""
    at, orphans = SWEEP_START, 0
    owned: dict[str, int] = {}
    while True:
        found = await store.work().sweep(owner, at, queue=queue)
        orphans += found.orphans
        owned |= dict(found.owned)
        at = found.at
        if at == SWEEP_START:
            return orphans, owned


class _Load:
    """Back-pressure, and the numbers of the queue."""

    async def test_a_full_queue_takes_no_more(self, store: Store) -> None:
        """A partition has a limit; a refused creation changed nothing, and an existing saga is still the same saga."""
        ids = [f"s{number}" for number in range(store.work().count * 4)]
        verdicts = [(await queue(store, saga_id, room=1))[0] for saga_id in ids]
        taken = [saga_id for saga_id, verdict in zip(ids, verdicts, strict=True) if verdict == "ok"]
        refused = [saga_id for saga_id, verdict in zip(ids, verdicts, strict=True) if verdict == "full"]
        assert 1 <= len(taken) <= store.work().count
        assert len(taken) + len(refused) == len(ids)
        assert await queue(store, *taken, room=1) == ["ok"] * len(taken)
        with pytest.raises(SagaNotFound):
            await store.head(refused[0])
        assert await names(store) == set(taken)
        assert await queue(store, refused[0], room=1) == ["ok"]

    async def test_what_waits_for_a_timer_takes_no_room(self, store: Store) -> None:
        """Only sagas that need a worker now count."""
        now_ms = await store.open_lease("A", LONG_MS)
        ids = [f"t{number}" for number in range(store.work().count * 4)]
        await queue(store, *ids, due_ms=now_ms + LONG_MS)
        assert await queue(store, "s1", room=1) == ["ok"]

    async def test_overview(self, store: Store) -> None:
        """Sagas by status, how many need a worker now and later, since when, and which workers there are."""
        empty = await store.work().overview()
        assert (empty.queued, empty.timed, empty.oldest_ms, dict(empty.owners)) == (0, 0, None, {})
        assert set(empty.statuses) == set(SAGA_STATES)
        before_ms = await store.open_lease("A", LONG_MS)
        await own(store, "r1", "r2", "r3")
        await store.release("r1", 1, before_ms + LONG_MS)
        await queue(store, *(f"s{number}" for number in range(20)))
        load = await store.work().overview()
        assert (load.queued, load.timed) == (20, 1)
        assert {status: number for status, number in load.statuses.items() if number} == {"PENDING": 20, "RUNNING": 3}
        assert load.oldest_ms is not None
        assert before_ms <= load.oldest_ms <= load.now_ms
        assert set(load.owners) == {"A"}

    async def test_the_note_of_an_owner_lasts_as_long_as_its_lease(self, store: Store) -> None:
        """Renewing keeps it, and the end of the lease is its end; a note is no obstacle to a dead owner's end."""
        await store.open_lease("A", LONG_MS, note=b'{"of": "A"}')
        await store.open_lease("B", LONG_MS)
        await store.renew("A", LONG_MS)
        assert dict((await store.work().overview()).notes) == {"A": b'{"of": "A"}'}
        await own(store, "s1")
        assert await store.work().reclaim("A", range(store.work().count), dead=True, silent_ms=0) == 1
        assert dict((await store.work().overview()).notes) == {}

    async def test_reports_are_told_and_forgotten(self, store: Store) -> None:
        """A worker's report is kept for a while; a silent worker has none."""
        work = store.work()
        for owner in ("A", "B"):
            await store.open_lease(owner, LONG_MS)
        await work.report("A", b'{"pid":1}', LONG_MS)
        await work.report("B", b'{"pid":2}', 20)
        async with asyncio.timeout(30):
            while "B" in (reports := (await work.overview()).reports):
                pass
        assert dict(reports) == {"A": b'{"pid":1}'}


class WorkConformance(_Taking, _Waiting, _Posting, _Owners, _Sweeping, _Load):
    """The whole suite; give it a fixture ``store``: an opened, empty ``Store``."""
