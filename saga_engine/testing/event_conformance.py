"""The laws of every store's events (``EventStore``), as tests. A part of ``StoreConformance``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from saga_engine.ports import Channel, DueEvent, Receipt, StoredEvent, Waiter

if TYPE_CHECKING:
    from saga_engine.ports import Disposition, Store

LONG_MS = 3_600_000
MOST = 3
#: A name and a key that no encoding may confuse with others.
PAID = Channel('paid "now"', "order\n}:{7}ü")
A, B = Waiter("saga-a", "2"), Waiter("saga-b", "wait}")
ONE, TWO, THREE = (StoredEvent(f"evt:{number}", b'{"n":%d}' % number) for number in (1, 2, 3))


class EventConformance:
    """Events, the waits for them, and what becomes of both."""

    async def _send(self, store: Store, event: StoredEvent) -> Receipt:
        return await store.event_store().send(PAID, event, keep_ms=LONG_MS, most=MOST)

    async def _register(self, store: Store, waiter: Waiter, about: bytes = b"about") -> StoredEvent | None:
        return await store.event_store().register(PAID, waiter, about, keep_ms=LONG_MS)

    async def _address(self, store: Store, waiter: Waiter, event: StoredEvent) -> Receipt:
        return await store.event_store().address(PAID, waiter, event, keep_ms=LONG_MS)

    async def _over(self, store: Store, waiter: Waiter, taken: str = "", about: bytes = b"") -> DueEvent | None:
        return await store.event_store().over(PAID, waiter, keep_ms=LONG_MS, taken=taken, about=about)

    async def _became(self, store: Store, event: StoredEvent) -> Disposition | None:
        found = await store.event_store().look(PAID, event.id)
        return None if found is None else found.disposition

    async def test_an_early_event_is_kept(self, store: Store) -> None:
        """An event that nothing waits for is kept, for the first wait of its name and key only, and in its order."""
        events = store.event_store()
        assert await self._became(store, ONE) is None
        assert (await self._send(store, ONE)).disposition == "kept"
        assert (await self._send(store, TWO)).disposition == "kept"
        for other in (Channel(PAID.name, "8"), Channel("refunded", PAID.key), Channel(PAID.key, PAID.name)):
            assert await events.register(other, A, b"", keep_ms=LONG_MS) is None
        assert await self._register(store, A) == ONE
        assert await self._register(store, A) == ONE
        assert await self._register(store, B) == TWO
        assert await events.look(PAID, ONE.id) == Receipt("held", True, A, ONE.payload)

    async def test_an_event_is_for_the_wait_that_came_first(self, store: Store) -> None:
        """One event serves one wait: the first one registered; the next event serves the next wait."""
        events = store.event_store()
        assert await events.first(PAID) is None
        assert await self._register(store, A, b"a") is None
        assert await self._register(store, B, b"b") is None
        assert await self._register(store, A, b"a") is None
        assert await events.first(PAID) == b"a"
        assert await self._send(store, ONE) == Receipt("held", False, A, ONE.payload)
        assert await events.first(PAID) == b"b"
        assert await self._send(store, TWO) == Receipt("held", False, B, TWO.payload)
        assert (await self._send(store, THREE)).disposition == "kept"

    async def test_an_event_counts_once(self, store: Store) -> None:
        """The same id is dropped the second time, whatever became of the first one; its sender learns what."""
        await self._send(store, ONE)
        assert await self._send(store, StoredEvent(ONE.id, b"other")) == Receipt("kept", True, None, ONE.payload)
        await self._register(store, A)
        assert (await self._send(store, ONE))[:3] == ("held", True, A)
        assert await self._over(store, A, ONE.id) is None
        assert (await self._send(store, ONE))[:3] == ("taken", True, A)
        assert await self._register(store, B) is None

    async def test_a_channel_is_bounded(self, store: Store) -> None:
        """So many events are kept that nothing waits for; one more is not accepted, unless a step waits for it."""
        events = [StoredEvent(f"e{number}", b"1") for number in range(MOST)]
        for event in events:
            assert (await self._send(store, event)).disposition == "kept"
        assert await self._send(store, ONE) == Receipt("full", False)
        assert await self._became(store, ONE) is None
        assert await self._register(store, A) == events[0]
        assert (await self._send(store, ONE)).disposition == "kept"

    async def test_what_a_wait_did_not_take_is_for_the_next_one(self, store: Store) -> None:
        """A wait that is over without its event leaves it to the next wait, or else it is late, and said to be."""
        await self._register(store, A)
        await self._send(store, ONE)
        await self._register(store, B)
        assert await self._over(store, A) == DueEvent(PAID, B, ONE.id)
        assert (await store.event_store().look(PAID, ONE.id))[:3] == ("held", True, B)  # type: ignore[index]
        assert await self._over(store, B) is None
        assert (await store.event_store().look(PAID, ONE.id))[:3] == ("late", True, B)  # type: ignore[index]
        assert (await self._send(store, TWO))[:3] == ("late", False, B)
        assert await self._register(store, A) == ONE

    async def test_what_one_wait_left_another_does_not_take_away(self, store: Store) -> None:
        """A wait that ends and leaves nothing for late events says nothing of those that another one left something."""
        await self._register(store, A)
        await self._over(store, A, about=b"refund it")
        await self._register(store, B)
        await self._over(store, B)
        assert await self._send(store, ONE) == Receipt("late", False, A, ONE.payload, b"refund it")
        await self._register(store, B)
        await self._over(store, B, about=b"keep it")
        assert await self._send(store, THREE) == Receipt("late", False, B, THREE.payload, b"keep it")

    async def test_a_late_event_with_a_successor(self, store: Store) -> None:
        """What a wait left for late events goes to each of them once, and no other wait gets these events."""
        events = store.event_store()
        await self._register(store, A)
        await self._over(store, A, about=b"refund it")
        assert await self._send(store, ONE) == Receipt("late", False, A, ONE.payload, b"refund it")
        assert await self._send(store, ONE) == Receipt("late", True, A, ONE.payload, b"refund it")
        for _ in range(2):  # a repeat changes nothing
            await events.handled(PAID, ONE.id, keep_ms=LONG_MS)
            assert (await events.look(PAID, ONE.id))[:3] == ("handled", True, A)  # type: ignore[index]
        assert await self._send(store, THREE) == Receipt("late", False, A, THREE.payload, b"refund it")
        assert await self._register(store, B) is None
        await events.handled(PAID, THREE.id, keep_ms=LONG_MS)
        assert (await self._send(store, TWO))[:3] == ("held", False, B)

    async def test_a_taken_event_makes_the_next_ones_early(self, store: Store) -> None:
        """After a wait that got its event nothing is late: the next event is kept for the next wait."""
        await self._register(store, A)
        await self._send(store, ONE)
        await self._over(store, A, ONE.id)
        assert (await self._send(store, TWO)).disposition == "kept"

    async def test_an_event_of_a_wait_for_several_stays_held(self, store: Store) -> None:
        """It is due again later, and nobody else's, until the wait is over: taken, or for the next wait, or late."""
        events, partitions = store.event_store(), range(store.work().count)
        await self._register(store, A)
        await self._send(store, ONE)
        for _ in range(2):  # a repeat changes nothing
            await events.arrived(PAID, A, ONE.id, keep_ms=LONG_MS, again_ms=LONG_MS)
        assert await events.due(partitions, older_ms=0, limit=10) == []
        assert (await events.look(PAID, ONE.id))[:3] == ("held", True, A)  # type: ignore[index]
        assert (await self._send(store, TWO)).disposition == "kept"
        assert await self._register(store, A) == ONE
        await events.arrived(PAID, A, ONE.id, keep_ms=LONG_MS, again_ms=0)
        assert [due.event for due in await events.due(partitions, older_ms=0, limit=10)] == [ONE.id]
        await self._over(store, A, about=b"refund it")
        assert (await events.look(PAID, ONE.id)) == Receipt("late", True, A, ONE.payload, b"refund it")

    async def test_an_event_for_one_wait(self, store: Store) -> None:
        """It is held for that wait, past those that came first; a repeat is known, and another payload is refused."""
        events = store.event_store()
        await self._register(store, A)
        await self._register(store, B, b"b")
        assert await self._address(store, B, ONE) == Receipt("held", False, B, ONE.payload)
        assert await self._address(store, B, ONE) == Receipt("held", True, B, ONE.payload)
        assert (await self._address(store, B, StoredEvent(ONE.id, b"other")))[:2] == ("occupied", True)
        assert (await self._address(store, B, TWO))[:2] == ("occupied", False)
        assert await self._became(store, TWO) is None
        assert (await self._send(store, THREE))[:3] == ("held", False, A)
        # Those of one millisecond are in no order.
        due = {due.event for due in await events.due(range(store.work().count), older_ms=0, limit=10)}
        assert due == {ONE.id, THREE.id}
        await self._over(store, B, ONE.id)
        assert await self._became(store, ONE) == "taken"
        assert (await self._address(store, B, ONE))[:2] == ("taken", True)
        assert (await self._address(store, B, StoredEvent(ONE.id, b"other")))[:2] == ("occupied", True)

    async def test_a_wait_that_holds_an_event_is_addressed_no_other(self, store: Store) -> None:
        """It has been given one already; once that does not fit, it may be addressed another one."""
        await self._register(store, A)
        await self._send(store, ONE)
        assert (await self._address(store, A, TWO))[:3] == ("occupied", False, A)
        assert await self._became(store, TWO) is None
        await store.event_store().refuse(PAID, A, ONE.id, keep_ms=LONG_MS)
        assert (await self._address(store, A, TWO))[:3] == ("held", False, A)

    async def test_an_event_for_a_wait_that_is_registered_later(self, store: Store) -> None:
        """It is held for that wait meanwhile, and no other gets it; nor does the wait get any other event."""
        assert (await self._address(store, A, ONE))[:3] == ("held", False, A)
        assert await self._register(store, B, b"b") is None
        assert await store.event_store().first(PAID) == b"b"
        for _ in range(2):
            assert await self._register(store, A, b"a") == ONE
        assert (await self._send(store, TWO))[:3] == ("held", False, B)
        assert (await self._send(store, THREE)).disposition == "kept"
        assert await self._over(store, A, ONE.id) is None
        assert await self._became(store, ONE) == "taken"

    @pytest.mark.parametrize("about", [b"refund it", b""])
    async def test_an_event_for_one_wait_that_did_not_take_it(self, store: Store, about: bytes) -> None:
        """It is late, whatever its wait left for it, and no other wait gets it, waiting or to come."""
        events, partitions = store.event_store(), range(store.work().count)
        await self._register(store, A)
        await self._register(store, B)
        await self._address(store, A, ONE)
        assert await self._over(store, A, about=about) == (DueEvent(PAID, A, ONE.id) if about else None)
        assert await events.look(PAID, ONE.id) == Receipt("late", True, A, ONE.payload, about)
        assert [due.event for due in await events.due(partitions, older_ms=0, limit=10)] == ([ONE.id] if about else [])
        assert await self._register(store, A) is None
        assert (await self._send(store, TWO))[:3] == ("held", False, B)
        if about:
            await events.handled(PAID, ONE.id, keep_ms=LONG_MS)
            assert (await self._address(store, A, ONE))[:2] == ("handled", True)
        assert (await self._address(store, A, StoredEvent(ONE.id, b"other")))[:2] == ("occupied", True)

    async def test_an_event_for_a_wait_that_was_over_changes_no_other(self, store: Store) -> None:
        """It is late with what its wait left; what comes after the waits that ended since goes where it would go."""
        await self._register(store, A)
        await self._over(store, A, about=b"refund it")
        await self._register(store, B)
        await self._send(store, ONE)
        await self._over(store, B, ONE.id)
        assert (await self._address(store, A, TWO))[:3] == ("held", False, A)
        for _ in range(2):  # two that found it
            await self._over(store, A, about=b"refund it")
            assert (await store.event_store().look(PAID, TWO.id)) == Receipt("late", True, A, TWO.payload, b"refund it")
        assert (await self._send(store, THREE)).disposition == "kept"

    async def test_a_step_that_waits_again_has_another_wait(self, store: Store) -> None:
        """What is said of one of a step's waits changes no other, and none gets an event for the other."""
        again = A._replace(nth=2)
        await self._register(store, A)
        await self._address(store, A, ONE)
        assert await self._register(store, again) is None
        assert (await self._address(store, again, TWO))[:3] == ("held", False, again)
        await self._over(store, A, about=b"refund it")
        assert (await store.event_store().look(PAID, ONE.id))[:3] == ("late", True, A)  # type: ignore[index]
        assert (await store.event_store().look(PAID, TWO.id))[:3] == ("held", True, again)  # type: ignore[index]
        due = await store.event_store().due(range(store.work().count), older_ms=0, limit=10)
        assert sorted(due) == [DueEvent(PAID, A, ONE.id), DueEvent(PAID, again, TWO.id)]
        assert [event.waiter for event in await store.event_store().listed(PAID, 10)] == [again, A]

    async def test_an_event_that_does_not_fit(self, store: Store) -> None:
        """It is refused once and for all; the wait goes on with the next event when it is registered anew."""
        events = store.event_store()
        await self._register(store, A)
        await self._send(store, ONE)
        await events.refuse(PAID, A, ONE.id, keep_ms=LONG_MS)
        assert (await self._send(store, ONE))[:3] == ("refused", True, A)
        assert await self._register(store, A) is None
        assert (await self._send(store, TWO))[:3] == ("held", False, A)

    async def test_only_the_wait_that_holds_an_event_settles_it(self, store: Store) -> None:
        """What is said of an event that is held for another wait changes nothing."""
        events = store.event_store()
        await self._register(store, A)
        await self._send(store, ONE)
        await events.refuse(PAID, B, ONE.id, keep_ms=LONG_MS)
        await self._over(store, B, ONE.id)
        assert (await events.look(PAID, ONE.id))[:3] == ("held", True, A)  # type: ignore[index]

    async def test_the_end_of_a_wait_is_said_twice(self, store: Store) -> None:
        """A repeat after a lost reply changes nothing: the next wait's event stays the next wait's."""
        await self._register(store, A)
        await self._register(store, B)
        await self._send(store, ONE)
        await self._over(store, A, ONE.id)
        await self._send(store, TWO)
        assert await self._over(store, A, ONE.id) is None
        assert await self._became(store, ONE) == "taken"
        assert (await store.event_store().look(PAID, TWO.id))[:3] == ("held", True, B)  # type: ignore[index]

    async def test_what_no_saga_settles_is_due(self, store: Store) -> None:
        """An event that is held, or late with something left for it, is due until that is settled; each time once."""
        events, partitions = store.event_store(), range(store.work().count)

        async def due(older_ms: int = 0) -> list[DueEvent]:
            return [*await events.due(partitions, older_ms=older_ms, limit=10)]

        assert await due() == []
        await self._register(store, A)
        await self._send(store, ONE)
        assert await due() == [DueEvent(PAID, A, ONE.id)]
        assert await due(LONG_MS) == []
        await self._over(store, A, ONE.id)
        await self._register(store, B)
        await self._over(store, B, about=b"refund it")
        await self._send(store, TWO)
        assert await due() == [DueEvent(PAID, B, TWO.id)]
        await self._over(store, B, TWO.id)
        assert await due() == []

    async def test_what_is_forgotten_of_a_saga(self, store: Store) -> None:
        """The content of its events goes; their ids stay known, and the events of others are as they were."""
        events = store.event_store()
        assert await self._register(store, A) is None
        await self._send(store, ONE)
        assert await self._over(store, A, ONE.id, about=b"late") is None
        await events.forget(PAID, A.saga_id, keep_ms=LONG_MS)
        assert await events.listed(None, 10) == []
        assert await self._send(store, ONE) == Receipt("taken", True, A)
        await self._register(store, B)
        await self._send(store, TWO)
        await events.forget(PAID, A.saga_id, keep_ms=LONG_MS)
        assert await events.look(PAID, TWO.id) == Receipt("held", True, B, TWO.payload)
        assert {event.id for event in await events.listed(None, 10)} == {ONE.id, TWO.id}

    async def test_nothing_is_done_about_late_events_of_a_forgotten_saga(self, store: Store) -> None:
        """What its wait left goes, too: an event that comes after it is late, and nobody's."""
        events = store.event_store()
        await self._register(store, A)
        await self._over(store, A, about=b"late")
        assert (await self._send(store, ONE)).about == b"late"
        await events.forget(PAID, A.saga_id, keep_ms=LONG_MS)
        assert await events.look(PAID, ONE.id) == Receipt("late", True, A)
        assert (await self._send(store, TWO))[:3] == ("late", False, A)
        assert (await events.look(PAID, TWO.id)).about == b""  # type: ignore[union-attr]

    async def test_events_are_listed(self, store: Store) -> None:
        """The events of one name and key, or of all, last come first, with what became of each."""
        events = store.event_store()
        await self._register(store, A)
        for event in (ONE, TWO):
            await self._send(store, event)
        other = Channel("shipped", "1")
        await events.send(other, THREE, keep_ms=LONG_MS, most=MOST)
        listed = await events.listed(PAID, 10)
        assert [(event.id, event.disposition, event.waiter) for event in listed] == [
            (TWO.id, "kept", None),
            (ONE.id, "held", A),
        ]
        assert {(event.channel, event.id) for event in await events.listed(None, 10)} == {
            (PAID, ONE.id),
            (PAID, TWO.id),
            (other, THREE.id),
        }
        assert len(await events.listed(PAID, 1)) == 1
