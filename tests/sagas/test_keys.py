"""Promise 6: one idempotency key for all attempts of one step in one direction, and for nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from saga_engine import Coordinator, OutcomeUnknown, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.errors import StoreUnavailable
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
TWICE = {"steps": [{"step_id": 1, "tool": "book"}, {"step_id": 2, "tool": "book"}, {"step_id": 3, "tool": "refuse"}]}
_names = itertools.count()


class World:
    """Every key that a tool was given, by step and direction; ``behave`` says what comes of each attempt."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], list[str]] = {}
        self.behave: Callable[[int], Any] = lambda attempt: None

    async def _call(self, ctx: ToolContext) -> dict[str, str]:
        keys = self.keys.setdefault((ctx.step_id, ctx.direction), [])
        keys.append(ctx.idempotency_key)
        made = self.behave(len(keys))
        if made is not None:
            await made
        return {"ref": "r"}

    @property
    def tools(self) -> list[Any]:
        async def book(ctx: ToolContext) -> dict:
            return await self._call(ctx)

        async def unbook(ctx: ToolContext) -> dict:
            return await self._call(ctx)

        async def refuse(ctx: ToolContext) -> dict:
            await self._call(ctx)
            raise ToolError("full", retryable=False)

        return [
            tool(name="book", undo="unbook", keyed=True, retry=FAST)(book),
            tool(name="unbook", keyed=True, retry=FAST)(unbook),
            tool(name="refuse", undo="unbook", keyed=True, retry=FAST)(refuse),
        ]


async def refuses() -> None:
    raise ToolError("later", retryable=True)


async def says_nothing() -> None:
    raise OutcomeUnknown("no answer")


async def breaks() -> None:
    raise ConnectionError("reset")


@pytest.mark.parametrize("how", [refuses, says_nothing, breaks])
async def test_all_attempts_of_a_step_have_one_key_in_each_direction(how: Callable[[], Any]) -> None:
    """Whatever makes the engine try again, forward and back: one key, and nobody else has it."""
    world = World()
    world.behave = lambda attempt: how() if attempt < 3 else None
    async with Coordinator.open("memory://", world.tools) as coordinator:
        outcome = await coordinator.run(TWICE)
    assert outcome.status == "COMPENSATED"
    assert {place: len(keys) for place, keys in world.keys.items()} == {
        ("1", "forward"): 3,
        ("2", "forward"): 3,
        ("3", "forward"): 3,
        ("2", "compensate"): 3,
        ("1", "compensate"): 3,
    }
    assert {len(set(keys)) for keys in world.keys.values()} == {1}
    assert len({keys[0] for keys in world.keys.values()}) == 5


async def test_a_call_whose_result_was_never_journalled_is_repeated_under_its_key() -> None:
    """The call happened, and its driver lost the store before it could say so: the next one calls under the first key."""
    world, url = World(), f"memory://keys-{next(_names)}"
    plan = {"steps": TWICE["steps"][:1]}
    async with Coordinator.open(url, world.tools) as other:
        lossy = FaultyStore(open_store(url), Faults("append:2:before:raise"))
        async with Coordinator.open(lossy, world.tools) as coordinator:
            with pytest.raises(StoreUnavailable):
                await coordinator.run(plan, saga_id="s")
        outcome = await other.resume("s")
    assert outcome.completed
    (keys,) = world.keys.values()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_the_same_plan_under_the_same_id_elsewhere_has_other_keys() -> None:
    """An id that was purged and submitted again, or that another store has as well, is another saga."""
    world = World()
    for _ in range(2):
        async with Coordinator.open(f"memory://keys-{next(_names)}", world.tools) as coordinator:
            await coordinator.run(TWICE, saga_id="same")
    assert {len(set(keys)) for keys in world.keys.values()} == {2}
