"""The laws of the resources that sagas hold, for every ``GuardStore``: part of ``guard_conformance``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from saga_engine.ports import GuardStore, HoldClaim, Holder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONG_MS = 3_600_000
SHORT_MS = 30


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Poll until the server's clock has made ``condition`` true; fail the test if it never does."""
    try:
        async with asyncio.timeout(30):
            while not await condition():  # noqa: ASYNC110 -- it is the server's clock that decides
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"waited in vain for: {what}")


def claim(who: str, started_ms: int = 1, *, write: bool = True, of: str = "", **more: Any) -> HoldClaim:
    """What a saga wants; ``of``: its family."""
    return HoldClaim(of or who, who, started_ms, write, f"{who} ticket", **more)


class Holds:
    """The resources that sagas hold, and the line before each."""

    async def names(self, guards: GuardStore, resource: str, wanted: HoldClaim) -> list[str]:
        """The families in the way of a claim."""
        found = await guards.hold(resource, wanted, LONG_MS)
        assert not found.granted
        return [each.family for each in found.others]

    async def test_one_family_writes(self, guards: GuardStore) -> None:
        """Law: nobody else holds it, to read or to write, until it is released; a family that holds it passes."""
        first = await guards.hold("r", claim("a", 7, note="why"), LONG_MS)
        assert first[:2] == (True, True)
        assert await guards.hold("r", claim("a", 7), LONG_MS) == first._replace(new=False)
        for write in (True, False):
            found = await guards.hold("r", claim("b", write=write), LONG_MS)
            assert found.granted is False
            assert [*found.others] == [Holder("a", "a", write=True, since_ms=first.since_ms, started_ms=7, note="why")]
        assert (await guards.hold("other", claim("b"), LONG_MS)).granted
        assert await guards.unhold("r", "a", "a", first.since_ms)
        assert (await guards.hold("r", claim("b"), LONG_MS)).new

    async def test_many_families_read(self, guards: GuardStore) -> None:
        """Law: readers hold it together, and a writer waits for all of them, the oldest named first."""
        since = {}
        for started, who in enumerate("cba"):
            since[who] = (await guards.hold("r", claim(who, started, write=False), LONG_MS)).since_ms
        assert await self.names(guards, "r", claim("w")) == ["c", "b", "a"]
        for who in "abc":
            assert await guards.unhold("r", who, who, since[who])
        assert (await guards.hold("r", claim("w"), LONG_MS)).granted

    async def test_a_reader_that_writes(self, guards: GuardStore) -> None:
        """Law: the only reader may write at once; beside others it waits for them, before all who hold nothing."""
        await guards.hold("r", claim("a", write=False), LONG_MS)
        other = await guards.hold("r", claim("b", write=False), LONG_MS)
        assert await self.names(guards, "r", claim("w")) == ["a", "b"]
        assert await self.names(guards, "r", claim("a")) == ["b"]
        assert await guards.unhold("r", "b", "b", other.since_ms)
        assert (await guards.hold("r", claim("a"), LONG_MS)).granted
        assert await self.names(guards, "r", claim("b", write=False)) == ["a"]

    async def test_a_family_is_one_holder(self, guards: GuardStore) -> None:
        """Law: other sagas of the family pass; each releases what it holds itself, and no more."""
        root = await guards.hold("r", claim("root"), LONG_MS)
        undo = await guards.hold("r", claim("undo", of="root"), LONG_MS)
        assert undo.granted
        assert await guards.unhold("r", "root", "root", root.since_ms)
        assert await self.names(guards, "r", claim("b")) == ["root"]
        assert await guards.unhold("r", "root", "undo", undo.since_ms)
        assert (await guards.hold("r", claim("b"), LONG_MS)).granted

    async def test_only_what_is_held_is_released(self, guards: GuardStore) -> None:
        """Law: a repeat, another time, another saga or family releases nothing."""
        found = await guards.hold("r", claim("a"), LONG_MS)
        assert not await guards.unhold("r", "a", "a", found.since_ms + 1)
        assert not await guards.unhold("r", "a", "b", found.since_ms)
        assert not await guards.unhold("r", "b", "a", found.since_ms)
        assert await guards.unhold("r", "a", "a", found.since_ms)
        assert not await guards.unhold("r", "a", "a", found.since_ms)

    async def test_who_gives_back_takes_nothing_from_others(self, guards: GuardStore) -> None:
        """Law: a call that gives back what it took ends no hold on which another call of its saga relies."""
        for write in (True, False):
            first, second = claim("a", write=write), claim("a", write=False)._replace(ticket="a other")
            found = await guards.hold("r", first, LONG_MS)
            assert not await guards.unhold("r", "a", "a", found.since_ms, second.ticket)
            assert (await guards.hold("r", first, LONG_MS)).new is False
            assert (await guards.hold("r", second, LONG_MS)).new is False
            for ticket in (first.ticket, second.ticket):
                assert not await guards.unhold("r", "a", "a", found.since_ms, ticket)
            blocked = await guards.hold("r", claim("b"), LONG_MS)
            assert [(each.saga, each.write) for each in blocked.others] == [("a", write)]
            assert await guards.unhold("r", "a", "a", found.since_ms)
            await guards.leave("r", claim("b").ticket)
            found = await guards.hold("r", first, LONG_MS)
            assert await guards.unhold("r", "a", "a", found.since_ms, first.ticket)

    async def test_first_come_first_held(self, guards: GuardStore) -> None:
        """Law: who came first is next, also if it asks last; one that left has no place any more."""
        held = await guards.hold("r", claim("a"), LONG_MS)
        for who in ("b", "c", "d"):
            assert await self.names(guards, "r", claim(who)) == ["a"]
        await guards.leave("r", claim("b").ticket)
        await guards.unhold("r", "a", "a", held.since_ms)
        assert await self.names(guards, "r", claim("d")) == []
        assert await self.names(guards, "r", claim("new", write=False)) == []
        assert (await guards.hold("r", claim("c"), LONG_MS)).granted

    async def test_an_undo_goes_first(self, guards: GuardStore) -> None:
        """Law: it stands before all who go forward, behind undos that came first; who holds something else passes."""
        held = await guards.hold("r", claim("a"), LONG_MS)
        for wanted in (claim("b"), claim("u", undo=True), claim("v", undo=True)):
            assert await self.names(guards, "r", wanted) == ["a"]
        await guards.unhold("r", "a", "a", held.since_ms)
        assert await self.names(guards, "r", claim("b")) == []
        assert await self.names(guards, "r", claim("v", undo=True)) == []
        assert (await guards.hold("r", claim("u", undo=True), LONG_MS)).granted
        assert await self.names(guards, "r", claim("x")) == ["u"]
        assert await guards.unhold("r", "u", "u", (await guards.hold("r", claim("u"), LONG_MS)).since_ms)
        assert (await guards.hold("r", claim("z", skips=True), LONG_MS)).granted

    async def test_a_dead_ticket_has_no_place(self, guards: GuardStore) -> None:
        """Law: a ticket that is not named in time holds up nobody; a hold never dies."""
        held = await guards.hold("r", claim("a"), SHORT_MS)
        assert not (await guards.hold("r", claim("dead"), SHORT_MS)).granted
        assert await self.names(guards, "r", claim("b")) == ["a"]
        await guards.unhold("r", "a", "a", held.since_ms)

        async def next_one() -> bool:
            return (await guards.hold("r", claim("b"), LONG_MS)).granted

        await until(next_one, "the dead ticket to be dropped")
        assert await self.names(guards, "r", claim("dead")) == ["b"]

    async def test_what_is_held_is_listed(self, guards: GuardStore) -> None:
        """Each resource once, with those who hold it and who wait, from when on; none that nobody holds."""
        assert [*await guards.holds()] == []
        odd = "r \ud800}{"
        first = await guards.hold(odd, claim("a", 5, note="ü\n \x00"), LONG_MS)
        await guards.hold("s", claim("b", write=False), LONG_MS)
        await guards.hold(odd, claim("w"), LONG_MS)
        await guards.hold(odd, claim("u", undo=True), LONG_MS)
        found = {each.holders[0].saga: each for each in await guards.holds()}
        assert set(found) == {"a", "b"}
        assert found["a"].holders == [
            Holder("a", "a", write=True, since_ms=first.since_ms, started_ms=5, note="ü\n \x00")
        ]
        assert [ticket for ticket, _ in found["a"].waiting] == ["u ticket", "w ticket"]
        assert all(0 <= since - first.since_ms < LONG_MS for _, since in found["a"].waiting)
        await guards.unhold(odd, "a", "a", first.since_ms)
        assert [each.holders[0].saga for each in await guards.holds()] == ["b"]

    async def test_never_two_hold_at_once(self, guards: GuardStore) -> None:
        """All are served, one after the other."""
        inside: list[str] = []
        served: list[str] = []

        async def user(who: str) -> None:
            while not (found := await guards.hold("r", claim(who), LONG_MS)).granted:  # noqa: ASYNC110
                await asyncio.sleep(0)
            inside.append(who)
            assert inside == [who]
            await asyncio.sleep(0)
            inside.remove(who)
            served.append(who)
            await guards.unhold("r", who, who, found.since_ms)

        await asyncio.gather(*(user(f"s{number}") for number in range(12)))
        assert len(served) == 12
