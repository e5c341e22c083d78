"""The laws of every ``GuardStore``, as tests.

Shipped beside ``conformance``, for the same fixture: you can test a store of your own in a few lines::

    from saga_engine.testing.guard_conformance import GuardConformance

    class TestMyGuards(GuardConformance):
        @pytest.fixture
        async def store(self):
            store = MyStore(...)
            await store.open()
            yield store          # opened, and empty
            await store.close()

It needs pytest and pytest-asyncio. Call ``pytest.register_assert_rewrite("saga_engine.testing.guard_conformance")`` in
a ``conftest.py`` for readable failures. Nothing here waits for a fixed time: the end of a time is polled for.
"""

from __future__ import annotations

import asyncio

import pytest

from saga_engine.ports import BreakerState, Claim, Creation, Entry, GuardStore, Store
from saga_engine.testing.hold_conformance import LONG_MS, SHORT_MS, Holds, until
from saga_engine.testing.write_conformance import Writes

HOUR_US = 3_600_000_000
EVERY_BYTE = bytes(range(256))


class _Deduplication:
    """Claims, results, and the owners that rely on them."""

    async def test_the_first_claim_is_new_and_then_ours(self, guards: GuardStore) -> None:
        """A call is claimed once; a second claim of the same owner learns that a call may have been made since."""
        assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("new")
        assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("ours")
        assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("ours")

    async def test_another_owner_waits_for_the_claim(self, guards: GuardStore) -> None:
        """A claim without a result blocks other owners, but not other tools or other params."""
        await guards.claim("pay", "d", "A", LONG_MS)
        assert await guards.claim("pay", "d", "B", LONG_MS) == Claim("busy", "A")
        assert await guards.claim("pay", "other", "B", LONG_MS) == Claim("new")
        assert await guards.claim("ship", "d", "B", LONG_MS) == Claim("new")

    async def test_a_result_is_shared(self, guards: GuardStore) -> None:
        """A claim for a call that was made gets its result, byte for byte, its maker and its age."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", EVERY_BYTE, LONG_MS)
        for owner in ("B", "A"):
            claim = await guards.claim("pay", "d", owner, LONG_MS)
            assert claim[:3] == ("done", "A", EVERY_BYTE)
            assert 0 <= claim.age_ms < LONG_MS

    async def test_the_age_of_a_result_grows(self, guards: GuardStore) -> None:
        """It counts from the first report of the call; a repeated report does not reset it."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", LONG_MS)

        async def aged() -> bool:
            return (await guards.claim("pay", "d", "A", LONG_MS)).age_ms >= SHORT_MS

        await until(aged, "the result to age")
        await guards.remember("pay", "d", "A", b"2", LONG_MS)
        claim = await guards.claim("pay", "d", "A", LONG_MS)
        assert claim.age_ms >= SHORT_MS
        assert claim.result == b"2"

    async def test_a_claim_is_free_after_its_time(self, guards: GuardStore) -> None:
        """After its time another owner may claim the call; the first may no longer report a result."""
        await guards.claim("pay", "d", "A", SHORT_MS)

        async def free() -> bool:
            return (await guards.claim("pay", "d", "B", LONG_MS)).code == "new"

        await until(free, "the claim to expire")
        await guards.remember("pay", "d", "A", b"A's", LONG_MS)
        assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("busy", "B")
        await guards.remember("pay", "d", "B", b"B's", LONG_MS)
        assert (await guards.claim("pay", "d", "A", LONG_MS)).result == b"B's"

    async def test_a_result_is_kept_although_its_claim_expired(self, guards: GuardStore) -> None:
        """A call that took longer than its claim is remembered, if nobody has claimed it meanwhile."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"early", SHORT_MS)

        async def gone() -> bool:
            return await guards.recollect("pay", "A") is None

        await until(gone, "the result to expire")
        await guards.remember("pay", "d", "A", b"late", LONG_MS)
        assert await guards.recollect("pay", "A") == b"late"
        assert (await guards.claim("pay", "d", "B", LONG_MS))[:3] == ("done", "A", b"late")

    async def test_a_result_is_forgotten_after_its_time(self, guards: GuardStore) -> None:
        """After its time-to-live any owner may make the call anew."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", SHORT_MS)

        async def free() -> bool:
            return (await guards.claim("pay", "d", "B", LONG_MS)).code == "new"

        await until(free, "the result to expire")
        await guards.remember("pay", "d", "B", b"B's", LONG_MS)
        assert await guards.recollect("pay", "A") is None

    async def test_only_the_claims_owner_remembers(self, guards: GuardStore) -> None:
        """Neither another owner nor one that never claimed the call can write a result."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "B", b"B's", LONG_MS)
        await guards.remember("pay", "free", "B", b"B's", LONG_MS)
        assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("ours")
        assert await guards.claim("pay", "free", "A", LONG_MS) == Claim("new")
        assert await guards.recollect("pay", "B") is None

    async def test_recollection(self, guards: GuardStore) -> None:
        """The maker finds its result by its own key; other owners do not, nor is a claim a result."""
        assert await guards.recollect("pay", "A") is None
        await guards.claim("pay", "d", "A", LONG_MS)
        assert await guards.recollect("pay", "A") is None
        await guards.remember("pay", "d", "A", EVERY_BYTE, LONG_MS)
        await guards.claim("pay", "d", "B", LONG_MS)
        assert await guards.recollect("pay", "A") == EVERY_BYTE
        assert await guards.recollect("pay", "B") is None
        assert await guards.recollect("ship", "A") is None

    async def test_what_is_forgotten_can_be_made_anew(self, guards: GuardStore) -> None:
        """A claim without result, or a result, is dropped at its owner's request; a repeat changes nothing."""
        for result in (None, b"1"):
            await guards.claim("pay", "d", "A", LONG_MS)
            if result is not None:
                await guards.remember("pay", "d", "A", result, LONG_MS)
            assert list(await guards.forget("pay", "A")) == []
            assert list(await guards.forget("pay", "A")) == []
            assert await guards.recollect("pay", "A") is None
        assert await guards.claim("pay", "d", "B", LONG_MS) == Claim("new")
        assert list(await guards.forget("pay", "A")) == []
        assert await guards.claim("pay", "d", "B", LONG_MS) == Claim("ours")

    async def test_what_is_forgotten_does_not_come_back(self, guards: GuardStore) -> None:
        """A result that is reported after the call was dropped for its undo is not given to anybody."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.forget("pay", "A")
        await guards.remember("pay", "d", "A", b"late", LONG_MS)
        assert await guards.recollect("pay", "A") is None
        assert await guards.claim("pay", "d", "B", LONG_MS) == Claim("new")

    async def test_a_result_that_others_rely_on_stays(self, guards: GuardStore) -> None:
        """Forgetting names the owners that rely on it, each once, and drops nothing until the last no longer does."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", LONG_MS)
        for owner in ("B", "C", "B", "A"):
            await guards.claim("pay", "d", owner, LONG_MS)
        assert sorted(await guards.forget("pay", "A")) == ["B", "C"]
        assert await guards.recollect("pay", "A") == b"1"
        await guards.unrely("pay", "A", "B")
        await guards.unrely("pay", "A", "B")
        assert list(await guards.forget("pay", "A")) == ["C"]
        await guards.unrely("pay", "A", "C")
        assert list(await guards.forget("pay", "A")) == []
        assert await guards.recollect("pay", "A") is None

    async def test_busy_is_not_relying(self, guards: GuardStore) -> None:
        """An owner that was told to wait got nothing."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.claim("pay", "d", "B", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", LONG_MS)
        assert list(await guards.forget("pay", "A")) == []

    async def test_reliance_outlives_the_result(self, guards: GuardStore) -> None:
        """An expired result was given out nevertheless: its maker still learns who has it."""
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", LONG_MS)
        await guards.claim("pay", "d", "B", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", SHORT_MS)

        async def gone() -> bool:
            return await guards.recollect("pay", "A") is None

        await until(gone, "the result to expire")
        assert await guards.claim("pay", "d", "C", LONG_MS) == Claim("new")
        assert list(await guards.forget("pay", "A")) == ["B"]
        await guards.unrely("pay", "A", "B")
        assert list(await guards.forget("pay", "A")) == []
        assert await guards.claim("pay", "d", "C", LONG_MS) == Claim("ours")

    async def test_a_large_result(self, guards: GuardStore) -> None:
        """A result of ten megabytes is returned whole."""
        large = EVERY_BYTE * 40_000
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", large, LONG_MS)
        assert (await guards.claim("pay", "d", "B", LONG_MS)).result == large
        assert await guards.recollect("pay", "A") == large

    async def test_one_of_many_gets_the_claim(self, guards: GuardStore) -> None:
        """Of several concurrent claims exactly one is new."""
        claims = await asyncio.gather(*(guards.claim("pay", "d", f"o{number}", LONG_MS) for number in range(50)))
        assert sorted(claim.code for claim in claims) == ["busy"] * 49 + ["new"]

    async def test_the_status_of_a_saga(self, store: Store, guards: GuardStore) -> None:
        """It is the head's; a saga that does not exist has none."""
        await store.open_lease("A", LONG_MS)
        entry = Entry("s1", 0, 0, [b"r0"], "ESCALATED", b"{}", creation=Creation("d", owned=True))
        await store.append("A", [entry])
        assert await guards.saga_status("s1") == "ESCALATED"
        assert await guards.saga_status("s2") is None
        assert await guards.saga_driven("s1")
        assert not await guards.saga_driven("s2")
        await store.close_lease("A")
        assert not await guards.saga_driven("s1")


class _Resources:
    """Queues."""

    async def test_first_come_first_served(self, guards: GuardStore) -> None:
        """The turn is the first ticket's until it leaves, then the next one's, in the order of arrival."""
        assert await guards.take("r", ["a"], LONG_MS) == "a"
        assert await guards.take("r", ["c", "b"], LONG_MS) == "a"
        assert await guards.take("r", ["d"], LONG_MS) == "a"
        assert [await guards.give("r", ticket) for ticket in ("a", "c", "b", "d")] == ["c", "b", "d", ""]

    async def test_asking_again_keeps_the_place(self, guards: GuardStore) -> None:
        """A ticket in the queue keeps its place, whatever other tickets the same call names."""
        await guards.take("r", ["a", "b", "c"], LONG_MS)
        assert await guards.take("r", ["d", "c", "a"], LONG_MS) == "a"
        assert [await guards.give("r", ticket) for ticket in ("a", "b", "c", "d")] == ["b", "c", "d", ""]

    async def test_leaving_from_the_middle(self, guards: GuardStore) -> None:
        """A waiting ticket that leaves changes nobody's turn; leaving twice, or without having joined, does nothing."""
        await guards.take("r", ["a", "b", "c"], LONG_MS)
        assert [await guards.give("r", ticket) for ticket in ("b", "b", "x", "a", "a")] == ["a", "a", "a", "c", "c"]

    async def test_back_again_is_last(self, guards: GuardStore) -> None:
        """A ticket that has left and joins again stands at the end."""
        await guards.take("r", ["a", "b"], LONG_MS)
        await guards.give("r", "a")
        assert await guards.take("r", ["a"], LONG_MS) == "b"
        assert await guards.give("r", "b") == "a"

    async def test_only_those_who_have_a_place_are_kept(self, guards: GuardStore) -> None:
        """Law: ``keep`` extends the life of a ticket in the queue, and adds none that is dead or gone."""
        for attempt in range(100):  # on a machine that stops for a moment, "a" is dead before it is kept
            queue = f"r{attempt}"
            await guards.take(queue, ["a", "b"], SHORT_MS)
            if (first := await guards.keep(queue, ["a", "gone"], LONG_MS)) == "a":
                break
        assert first == "a"
        assert await guards.keep(queue, ["b"], 0) == "a"
        assert await guards.give(queue, "nobody") == "a"
        assert await guards.give(queue, "a") in ("", "b")
        assert await guards.keep(queue, ["a"], LONG_MS) in ("", "b")
        await guards.give(queue, "b")
        assert await guards.take(queue, [], LONG_MS) == ""

    async def test_a_dead_holder_that_is_silent_is_dropped(self, guards: GuardStore) -> None:
        """Law: ``free`` drops a ticket that was not kept alive for the given time, and no other ticket."""
        half_ms = LONG_MS // 2  # of a ticket that is kept alive for an hour each time: it was so half an hour ago
        await guards.take("r", ["dead", "b"], half_ms)
        assert await guards.free("r", "dead", LONG_MS, LONG_MS) == "dead"
        assert await guards.free("r", "nobody", LONG_MS, 0) == "dead"
        assert await guards.free("r", "dead", LONG_MS, half_ms - 1) == "b"
        assert await guards.free("r", "dead", LONG_MS, half_ms - 1) == "b"
        assert await guards.take("r", ["dead"], LONG_MS) == "b"
        assert [await guards.give("r", ticket) for ticket in ("b", "dead")] == ["dead", ""]

    async def test_who_is_kept_alive_is_not_silent(self, guards: GuardStore) -> None:
        """Law: each ``take`` and ``keep`` ends the silence of the tickets that it names, and of no others."""
        half_ms = LONG_MS // 2
        for number, verb in enumerate((guards.take, guards.keep)):
            queue = f"r{number}"
            await guards.take(queue, ["a", "b"], half_ms)
            await verb(queue, ["a"], LONG_MS)
            assert await guards.free(queue, "a", LONG_MS, half_ms // 2) == "a"
            assert await guards.free(queue, "b", LONG_MS, half_ms // 2) == "a"
            assert await guards.give(queue, "a") == ""

    async def test_resources_do_not_meet(self, guards: GuardStore) -> None:
        """Any text is a resource, and each has its own queue; the same ticket may be in several."""
        names = ["r", "R", "r ", "user:ü}{", "\ud800", "", "r" * 100_000]
        for number, name in enumerate(names):
            assert await guards.take(name, [f"t{number}", "same"], LONG_MS) == f"t{number}"

    async def test_a_dead_holder_loses_its_turn(self, guards: GuardStore) -> None:
        """A ticket that is not kept alive is dropped after its time; the others move up in order."""
        await guards.take("r", ["dead"], SHORT_MS)
        await guards.take("r", ["b", "c"], LONG_MS)

        async def moved_up() -> bool:
            return await guards.take("r", ["c"], LONG_MS) == "b"

        await until(moved_up, "the dead holder to be dropped")
        assert await guards.take("r", ["dead"], LONG_MS) == "b"
        assert [await guards.give("r", ticket) for ticket in ("b", "c", "dead")] == ["c", "dead", ""]

    async def test_the_dead_in_the_middle_are_passed_over(self, guards: GuardStore) -> None:
        """The turn never goes to a dead ticket, however many of them are in a row."""
        await guards.take("r", ["a"], LONG_MS)
        await guards.take("r", [f"dead{number}" for number in range(300)], 0)
        await guards.take("r", ["b"], LONG_MS)
        assert await guards.give("r", "a") == "b"

    async def test_dead_and_not_yet_dropped_is_dead(self, guards: GuardStore) -> None:
        """A ticket that died behind the front has lost its place even before it is dropped, or if many died with it."""
        await guards.take("r", ["a"], LONG_MS)
        await guards.take("r", [*(f"dead{number}" for number in range(300)), "late"], 0)
        await guards.take("r", ["b"], LONG_MS)
        assert await guards.take("r", ["late"], LONG_MS) == "a"
        assert [await guards.give("r", ticket) for ticket in ("a", "b", "late")] == ["b", "late", ""]

    async def test_nobody_asks(self, guards: GuardStore) -> None:
        """A call without a ticket returns whose turn it is, or that it is nobody's."""
        assert await guards.take("r", [], LONG_MS) == ""
        await guards.take("r", ["a"], LONG_MS)
        assert await guards.take("r", [], LONG_MS) == "a"

    async def test_never_two_at_once(self, guards: GuardStore) -> None:
        """The owner of the ticket at the front has the resource alone, and all are served."""
        inside: list[str] = []
        served: list[str] = []

        async def user(ticket: str) -> None:
            while await guards.take("r", [ticket], LONG_MS) != ticket:  # noqa: ASYNC110 -- the queue is the server's
                await asyncio.sleep(0)
            inside.append(ticket)
            assert inside == [ticket]
            await asyncio.sleep(0)
            inside.remove(ticket)
            served.append(ticket)
            await guards.give("r", ticket)

        await asyncio.gather(*(user(f"t{number}") for number in range(12)))
        assert len(served) == 12
        assert await guards.take("r", [], LONG_MS) == ""


class _Rates:
    """Reservations."""

    async def test_a_burst_and_then_one_by_one(self, store: Store, guards: GuardStore) -> None:
        """A burst at once, then each an interval after the one before."""
        began_ms = await store.open_lease("clock", LONG_MS)
        waits = [await guards.reserve("x", HOUR_US, 3, None) for _ in range(6)]
        took_ms = await store.open_lease("clock", LONG_MS) - began_ms
        assert waits[:3] == [0, 0, 0]
        for number, wait_ms in enumerate(waits[3:], start=1):
            assert number * LONG_MS - took_ms - 1 <= wait_ms <= number * LONG_MS

    async def test_no_longer_than_one_would_wait(self, guards: GuardStore) -> None:
        """A wait that is too long is refused, and reserves nothing."""
        assert await guards.reserve("x", HOUR_US, 1, 0) == 0
        assert [await guards.reserve("x", HOUR_US, 1, LONG_MS // 2) for _ in range(3)] == [-1] * 3
        assert LONG_MS // 2 < await guards.reserve("x", HOUR_US, 1, LONG_MS) <= LONG_MS
        assert LONG_MS < await guards.reserve("x", HOUR_US, 1, None) <= 2 * LONG_MS

    async def test_time_frees_a_moment(self, guards: GuardStore) -> None:
        """After an interval another call is allowed."""
        assert await guards.reserve("x", 1000 * SHORT_MS, 1, None) == 0

        async def free() -> bool:
            return await guards.reserve("x", 1000 * SHORT_MS, 1, 0) == 0

        await until(free, "the next moment")

    async def test_rates_do_not_meet(self, guards: GuardStore) -> None:
        """Each name has its own limit; any text is a name."""
        for name in ("x", "y", "", "{}", "\udfff"):
            assert await guards.reserve(name, HOUR_US, 1, 0) == 0
            assert await guards.reserve(name, HOUR_US, 1, 0) == -1

    async def test_no_rate(self, guards: GuardStore) -> None:
        """An interval or a burst below one is invalid."""
        for interval_us, burst in ((0, 1), (-1, 1), (1, 0)):
            with pytest.raises(ValueError, match="rate"):
                await guards.reserve("x", interval_us, burst, None)


class _Breakers:
    """Breakers. ``open_ms=0`` is a time that is over at once, ``LONG_MS`` one that does not end within a test."""

    async def fail(self, guards: GuardStore, open_ms: int = LONG_MS) -> BreakerState:
        """One failure; three in a row open."""
        return await guards.breaker_outcome("pay", failed=True, failures=3, open_ms=open_ms)

    async def succeed(self, guards: GuardStore) -> BreakerState:
        """One success."""
        return await guards.breaker_outcome("pay", failed=False, failures=3, open_ms=LONG_MS)

    async def test_failures_in_a_row_open(self, guards: GuardStore) -> None:
        """The third in a row opens it for the given time; a success before that starts the row anew."""
        assert await self.fail(guards) == BreakerState(1)
        assert await self.fail(guards) == BreakerState(2)
        assert await self.succeed(guards) == BreakerState()
        assert [await self.fail(guards) for _ in range(2)] == [BreakerState(1), BreakerState(2)]
        state = await self.fail(guards)
        assert state[:2] == (3, True)
        assert 0 < state.opens_ms <= LONG_MS
        assert await guards.breaker_trial("pay", LONG_MS) is False

    async def test_all_breakers_at_once(self, guards: GuardStore) -> None:
        """Each tool has its own; an unknown one is closed; without tools nothing is read."""
        await self.fail(guards)
        found = await guards.breakers(["ship", "pay"])
        assert dict(found) == {"ship": BreakerState(), "pay": BreakerState(1)}
        assert dict(await guards.breakers([])) == {}

    async def test_late_failures_do_not_keep_it_open(self, guards: GuardStore) -> None:
        """Failures while it is open, or waits for its trial, are not counted."""
        for _ in range(3):
            await self.fail(guards, open_ms=0)
        for _ in range(5):
            assert await self.fail(guards, open_ms=LONG_MS) == BreakerState(3, tripped=True, opens_ms=0)
        assert await guards.breaker_trial("pay", LONG_MS) is True

    async def test_it_waits_for_a_trial_after_its_time(self, guards: GuardStore) -> None:
        """It is open for the given time, and has no trial before."""
        for _ in range(3):
            await self.fail(guards, open_ms=SHORT_MS)

        async def on_trial() -> bool:
            return await guards.breaker_trial("pay", LONG_MS)

        await until(on_trial, "the time for a trial")
        assert await guards.breakers(["pay"]) == {"pay": BreakerState(3, tripped=True, opens_ms=0)}

    async def test_one_trial_at_a_time(self, guards: GuardStore) -> None:
        """Of several concurrent requests one is let through."""
        for _ in range(3):
            await self.fail(guards, open_ms=0)
        asked = await asyncio.gather(*(guards.breaker_trial("pay", LONG_MS) for _ in range(20)))
        assert sorted(asked) == [False] * 19 + [True]

    async def test_a_trial_that_succeeds_closes(self, guards: GuardStore) -> None:
        """After that it is closed without failures, and no trial is needed."""
        for _ in range(3):
            await self.fail(guards, open_ms=0)
        await guards.breaker_trial("pay", LONG_MS)
        assert await self.succeed(guards) == BreakerState()
        assert await guards.breaker_trial("pay", LONG_MS) is True
        assert await self.fail(guards) == BreakerState(1)

    async def test_a_trial_that_fails_opens_again(self, guards: GuardStore) -> None:
        """It is open for the whole time, and then has a trial again."""
        for _ in range(3):
            await self.fail(guards, open_ms=0)
        await guards.breaker_trial("pay", LONG_MS)
        assert await self.fail(guards, open_ms=0) == BreakerState(4, tripped=True)
        assert await guards.breaker_trial("pay", LONG_MS) is True
        assert (await self.fail(guards, open_ms=LONG_MS)).opens_ms > 0
        assert await guards.breaker_trial("pay", LONG_MS) is False

    async def test_a_trial_that_is_never_heard_of_again(self, guards: GuardStore) -> None:
        """After its time another trial is allowed; if the first fails late, that counts."""
        for _ in range(3):
            await self.fail(guards, open_ms=0)
        assert await guards.breaker_trial("pay", SHORT_MS) is True

        async def another() -> bool:
            return await guards.breaker_trial("pay", 0)

        await until(another, "the trial to lapse")
        assert (await self.fail(guards, open_ms=LONG_MS)).opens_ms > 0

    async def test_a_success_while_open_closes(self, guards: GuardStore) -> None:
        """A compensation passes an open breaker; if it succeeds, the tool is available again."""
        for _ in range(3):
            await self.fail(guards)
        assert await self.succeed(guards) == BreakerState()

    async def test_a_breaker_of_no_failures(self, guards: GuardStore) -> None:
        """A limit below one is invalid."""
        with pytest.raises(ValueError, match="at least one"):
            await guards.breaker_outcome("pay", failed=True, failures=0, open_ms=LONG_MS)


class _Numbers:
    """Statistics, tallies, last good results."""

    async def test_counters_add_up(self, guards: GuardStore) -> None:
        """By tool and by name; a tool without any has none."""
        await guards.count("pay", {"calls": 1, "waited_ms": 2**40})
        await guards.count("pay", {"calls": 2, "done": 1})
        await guards.count("pay", {})
        found = await guards.counters(["ship", "pay"])
        assert found["pay"] == {"calls": 3, "waited_ms": 2**40, "done": 1}
        assert found["ship"] == {}
        assert dict(await guards.counters([])) == {}

    async def test_counting_at_once_loses_nothing(self, guards: GuardStore) -> None:
        """No concurrent addition is lost."""
        await asyncio.gather(*(guards.count("pay", {"calls": 1}) for _ in range(50)))
        assert (await guards.counters(["pay"]))["pay"] == {"calls": 50}

    async def test_a_tally_has_one_entry_for_an_owner(self, guards: GuardStore) -> None:
        """A second set replaces it, a removal deletes it, and other tallies are unaffected. Any text is valid."""
        await guards.tally_set("t\ns1", "A", "1", LONG_MS)
        await guards.tally_set("t\ns1", "A", "10.50", LONG_MS)
        await guards.tally_set("t\ns1", "B", "ü\x00", LONG_MS)
        await guards.tally_set("t\ns1", "C", "", LONG_MS)
        assert dict(await guards.tally("t\ns1")) == {"A": "10.50", "B": "ü\x00", "C": ""}
        await guards.tally_set("t\ns1", "A", None, LONG_MS)
        await guards.tally_set("t\ns1", "A", None, LONG_MS)
        assert dict(await guards.tally("t\ns1")) == {"B": "ü\x00", "C": ""}
        assert dict(await guards.tally("t\ns2")) == {}

    async def test_a_tally_goes_after_its_time(self, guards: GuardStore) -> None:
        """Its time counts from the last entry, for all of them."""
        await guards.tally_set("t", "A", "1", SHORT_MS)
        await guards.tally_set("t", "B", "1", LONG_MS)
        assert "B" in await guards.tally("t")
        await guards.tally_set("t", "C", "1", SHORT_MS)

        async def gone() -> bool:
            return dict(await guards.tally("t")) == {}

        await until(gone, "the tally to expire")

    async def test_the_last_good_result(self, guards: GuardStore) -> None:
        """The last one kept, byte for byte, with its age; by tool and by params."""
        assert await guards.good("find", "d") is None
        await guards.keep_good("find", "d", b"old", LONG_MS)
        await guards.keep_good("find", "d", EVERY_BYTE, LONG_MS)
        found = await guards.good("find", "d")
        assert found is not None
        assert found[0] == EVERY_BYTE
        assert 0 <= found[1] < LONG_MS
        assert await guards.good("find", "e") is None
        assert await guards.good("other", "d") is None

    async def test_a_good_result_ages_and_goes(self, guards: GuardStore) -> None:
        """Its age grows on the store's clock, and after its time it expires."""
        await guards.keep_good("find", "d", b"1", LONG_MS)

        async def aged() -> bool:
            found = await guards.good("find", "d")
            assert found is not None
            return found[1] >= SHORT_MS

        await until(aged, "the result to age")
        await guards.keep_good("find", "d", b"2", SHORT_MS)

        async def gone() -> bool:
            return await guards.good("find", "d") is None

        await until(gone, "the result to expire")


class GuardConformance(_Deduplication, _Resources, Holds, Writes, _Rates, _Breakers, _Numbers):
    """The whole suite. Subclass it and give it a fixture ``store``: an opened, empty ``Store``."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def guards(self, store: Store) -> GuardStore:
        """The guards of the store under test."""
        return store.guard_store()
