"""Random sagas that write few records at once, with few values: what one has written no other overwrites unseen."""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core.states import COMPLETED, ESCALATED, SAGA_FINAL

SOON = RetryPolicy(max_attempts=3, base_s=0.001, max_s=0.002)
LOCKED: dict[str, Any] = {"resource": "item:{item}", "retry": SOON, "keyed": True}


class Write(NamedTuple):
    """What reached an item: the saga whose write it is or undoes, the step, whether it undoes, and the value."""

    saga: str
    step: str
    undo: bool
    value: int


class World:
    """Items with one of three values, so most of what is written is there already, or was a moment ago."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.writes: dict[str, list[Write]] = {item: [] for item in "ab"}
        self.values = dict.fromkeys(self.writes, 0)
        self.keys: set[str] = set()
        #: Up to which write of its item an operator has let the undo of a step overwrite.
        self.permitted: dict[tuple[str, str], int] = {}
        self.same_again = 0

    async def pause(self) -> None:
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    def tools(self) -> list[Any]:
        world = self

        @tool(effect="read", retry=SOON)
        async def look(item: str) -> dict[str, int]:
            return {"value": world.values[item]}

        @tool(before=look, undo="put", **LOCKED)
        async def put(item: str, value: int, ctx: ToolContext) -> None:
            await world.pause()
            if world.dice.random() < 0.05:
                raise ToolError("not now", retryable=True)
            if ctx.idempotency_key not in world.keys:
                world.keys.add(ctx.idempotency_key)
                saga, step, way, _ = ctx.idempotency_key.split(":")
                world.values[item] = value
                world.writes[item].append(Write(saga.removesuffix("-undo"), step, way == "c", value))
            if world.dice.random() < 0.05:
                raise ConnectionError("the line is dead")

        @tool
        async def fail() -> None:
            await world.pause()
            raise ToolError("no", retryable=False)

        return [look, put, fail]

    def plan(self) -> dict[str, Any]:
        """A few writes, and perhaps a failure at the end."""
        steps: list[dict[str, Any]] = []
        for number in range(1, self.dice.randint(1, 3) + 1):
            params = {"item": self.dice.choice("ab"), "value": self.dice.randrange(3)}
            steps.append({"step_id": number, "tool": "put", "params": params, "depends_on": [number - 1][: number - 1]})
        if self.dice.random() < 0.4:
            steps.append({"step_id": "fail", "tool": "fail", "kind": "pivot", "depends_on": [len(steps)]})
        return {"steps": steps}

    def overwritten(self, gone: set[tuple[str, str]]) -> list[str]:
        """The undos that wrote over what another saga had written since, and had not taken back.

        ``gone``: the steps whose undo has found that nothing is left of them.
        """
        found = []
        for item, writes in self.writes.items():
            for at, undo in enumerate(writes):
                if undo.undo:
                    own = writes.index(next(each for each in writes if each[:3] == (undo.saga, undo.step, False)))
                    seen = self.permitted.get((undo.saga, undo.step), 0)
                    others = [each for each in enumerate(writes) if own < each[0] < at and each[1].saga != undo.saga]
                    both = {way: {each[:2] for _, each in others if each.undo is way} for way in (False, True)}
                    new = {each[:2] for nth, each in others if nth >= seen and each[:2] not in both[not each.undo]}
                    found += [f"{undo} of {item} over {each}" for each in sorted(new - gone)]
        return found


async def answered(world: World, c: Coordinator, saga_id: str) -> str:
    """What becomes of a saga about which an operator is asked."""
    while (shown := await c.show(saga_id)).status == ESCALATED:
        question = shown.body["questions"][0]
        step = question["step_id"]
        answer = world.dice.choice([each for each in question["options"] if each in ("undo", "accept")])
        if answer == "undo":
            item = next(each for each in shown.body["steps"] if each["step_id"] == step)["params"]["item"]
            world.permitted[saga_id.removesuffix("-undo"), str(step)] = len(world.writes[item])
        world.same_again += "as the step left it, but" in question["error"]["message"]
        await c.resolve(saga_id, step, answer)
    return shown.status


async def lived(world: World, c: Coordinator, saga_id: str) -> None:
    """A saga from its beginning to its end, and perhaps to the end of its undo."""
    await world.pause()
    await c.run(world.plan(), saga_id=saga_id)
    ended = await answered(world, c, saga_id)
    assert ended in SAGA_FINAL
    if ended == COMPLETED and world.dice.random() < 0.6:
        await world.pause()
        await c.undo(saga_id)
        assert await answered(world, c, f"{saga_id}-undo") in SAGA_FINAL


async def nothing_left(c: Coordinator) -> set[tuple[str, str]]:
    """The steps whose value was as before them when their undo looked."""
    found = set()
    for head in await c.list(limit=100_000):
        for record in await c.history(head.saga_id):
            if record["k"] == "StepSucceeded" and record.get("via") in ("unchanged", "probe"):
                found.add((head.saga_id.removesuffix("-undo"), record["step"]))
    return found


@pytest.mark.parametrize("count", [40, pytest.param(3_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])])
async def test_no_undo_overwrites_unseen_what_a_rival_wrote(count: int) -> None:
    """Law: also if the value is the same again. What is permitted is asked once, and every saga ends."""
    seed = random.SystemRandom().randrange(2**32)
    world = World(seed)
    async with Coordinator.open("memory://", world.tools(), durability="relaxed", on_escalation=()) as c:
        for first in range(0, count, 10):
            await asyncio.gather(*(lived(world, c, f"s{number}") for number in range(first, first + 10)))
        gone = await nothing_left(c)
    assert world.overwritten(gone) == [], seed
    assert world.same_again, seed
