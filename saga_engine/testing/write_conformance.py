"""The laws of the writes of a resource, for every ``GuardStore``: part of ``guard_conformance``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.testing.hold_conformance import LONG_MS

if TYPE_CHECKING:
    from saga_engine.ports import GuardStore


def ticket(key: str, nonce: str = "aa", mark: str = "b", attempt: int = 1) -> str:
    """The ticket of a call that writes; the mark ``b`` begins a list, ``w`` does not."""
    return f"{key}:{attempt}:{nonce}:{mark} {LONG_MS} somebody"


class Writes:
    """Who wrote a resource."""

    async def wrote(self, guards: GuardStore, *tickets: str, resource: str = "r") -> None:
        """Each has its turn, and writes."""
        for one in tickets:
            assert await guards.take(resource, [one], LONG_MS) == one
            await guards.give(resource, one)

    async def keys(self, guards: GuardStore, resource: str = "r") -> list[str]:
        """The calls that have written."""
        return [write.key for write in await guards.writes(resource)]

    async def test_writes_are_known_in_the_order_of_their_turns(self, guards: GuardStore) -> None:
        """Law: a write is known from its turn on, before its call ends, and while it waits it is none."""
        first, second, third = ticket("x:1:f:s"), ticket("y:1:f:s"), ticket("z:1:f:s", mark="w")
        await guards.take("r", [first, second, third], LONG_MS)
        assert await self.keys(guards) == ["x:1:f:s"]
        assert await guards.give("r", first) == second
        await guards.give("r", third)  # it has never had its turn
        assert await guards.keep("r", [second], LONG_MS) == second
        assert await self.keys(guards) == ["x:1:f:s", "y:1:f:s"]
        one, other = await guards.writes("r")
        assert one.at_ms < other.at_ms
        assert await guards.writes("another") == []

    async def test_a_list_begins_with_a_write_whose_undo_asks(self, guards: GuardStore) -> None:
        """Law: what nobody will ask for is not kept; reads are no writes."""
        read = f"q:1:f:s:1:aa {LONG_MS} somebody"
        await self.wrote(guards, ticket("y:1:f:s", mark="w"), read)
        assert await self.keys(guards) == []
        await self.wrote(guards, ticket("x:1:f:s"), ticket("y:1:c:s", mark="w"), read)
        assert await self.keys(guards) == ["x:1:f:s", "y:1:c:s"]

    async def test_a_call_that_was_not_made_is_no_write(self, guards: GuardStore) -> None:
        """Law: neither is one that changed nothing; a release by another attempt drops nothing."""
        one, again = ticket("x:1:f:s"), ticket("x:1:f:s", "bb", attempt=2)
        await guards.take("r", [one], LONG_MS)
        await guards.give("r", one, wrote=False)
        assert await self.keys(guards) == []
        await guards.take("r", [again], LONG_MS)
        await guards.give("r", one, wrote=False)
        assert await self.keys(guards) == ["x:1:f:s"]
        await guards.give("r", again, wrote=False)
        await guards.give("r", again, wrote=False)
        assert await self.keys(guards) == []

    async def test_the_attempts_of_a_call_are_one_write(self, guards: GuardStore) -> None:
        """Law: that of the first one, even if a later one was not made: nobody knows whether the first one was."""
        one, again = ticket("x:1:f:s"), ticket("x:1:f:s", "bb", attempt=2)
        await self.wrote(guards, one, ticket("y:1:f:s"))
        before = await guards.writes("r")
        await guards.take("r", [again], LONG_MS)
        await guards.give("r", again, wrote=False)
        await guards.give("r", one, wrote=False)  # a release that was lost, and comes late
        assert await guards.writes("r") == before

    async def test_the_list_is_bounded(self, guards: GuardStore) -> None:
        """Law: the last hundred are known, whatever came before."""
        await self.wrote(guards, *(ticket(f"s{number}:1:f:s") for number in range(300)))
        found = await self.keys(guards)
        assert 100 <= len(found) <= 130
        assert found == [f"s{number}:1:f:s" for number in range(300)][-len(found) :]
