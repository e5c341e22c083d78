"""The operator's limits: every saga and session keeps to them, whatever its plan asks for, and after a restart too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.core.fold import started_of
from saga_engine.errors import PlanInvalid, SettingInvalid
from saga_engine.plan.operator_limits import Limits, limits_from
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.stores import open_store
from saga_engine.testing.scripted import ScriptedPlanner


class World:
    """Counts calls, and holds those of ``wait`` until they are let go."""

    def __init__(self) -> None:
        self.inside = self.most = self.calls = 0
        self.arrived = asyncio.Condition()
        self.go = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(undo="unwrite")
        async def write(n: int) -> dict[str, Any]:
            """Write."""
            self.calls += 1
            if n < 0:
                raise ValueError("no")
            return {"n": n}

        @tool
        async def unwrite(n: int) -> None:
            """Undo."""

        @tool(undo="unwrite")
        async def wait(n: int) -> dict[str, Any]:
            """Wait until the test lets go."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            async with self.arrived:
                self.arrived.notify_all()
            await self.go.wait()
            self.inside -= 1
            return {"n": n}

        return [write, unwrite, wait]

    async def holds(self, inside: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.inside >= inside)


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)], **fields}


def writing(n: int, **others: Any) -> dict[str, Any]:
    return {"tool": "write", "params": {"n": n}, **others}


def opened(world: World, store: Any = "memory://", **options: Any) -> Any:
    return Coordinator.open(store, world.tools(), durability="relaxed", **options)


@pytest.mark.parametrize(
    "table",
    [
        {"deadline_s": 0}, {"deadline_s": True}, {"deadline_s": "1"}, {"deadline_s": float("nan")}, {"max_calls": 0},
        {"max_calls": 1.5}, {"max_steps": None}, {"max_steps": 20_001}, {"max_parallel": 0}, {"max_parallel": 65},
        {"max_parallel": True}, {"calls": 3},
        {"max_crashes": 0}, {"max_crashes": 1_001}, {"guard_wait_s": -1}, {"guard_wait_s": None}, {"guard_wait_s": True},
    ],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(table: dict[str, Any]) -> None:
    """A typing error must not disable a limit."""
    with pytest.raises(SettingInvalid):
        limits_from(table)


def test_of_two_files_the_stricter_counts() -> None:
    """A project's file cannot loosen the operator's, limit by limit."""
    one, other = Limits(deadline_s=10, max_steps=5, guard_wait_s=4), Limits(60, 7, max_parallel=2, max_crashes=2)
    assert one.tightened(other) == other.tightened(one) == Limits(10, 7, 5, 2, 2, 4)


async def test_a_plan_with_too_many_steps_is_refused() -> None:
    """At the submission, by ``check``, by ``amend``, and nothing is called."""
    world = World()
    three = plan(*(writing(n) for n in range(3)))
    async with opened(world, limits={"max_steps": 2}) as coordinator:
        assert [problem.code for problem in coordinator.check(three)] == ["limit-steps"]
        with pytest.raises(PlanInvalid, match="only 2 are allowed"):
            await coordinator.run(three)
        handle = await coordinator.submit(plan(writing(1), {"tool": "wait", "params": {"n": 1}}, task_id="two"))
        await world.holds(1)
        with pytest.raises(PlanInvalid, match="it has 2 already"):
            await coordinator.amend("two", [{"step_id": 3, **writing(3)}])
        world.go.set()
        assert (await handle.wait()).status == "COMPLETED"
    assert world.calls == 1


async def test_another_way_keeps_to_the_number_of_steps() -> None:
    """Steps of a model count like those of the plan: too many go back to it."""
    world = World()
    many = {"steps": [{"step_id": f"n{n}", **writing(n)} for n in range(10, 13)]}
    planner = ScriptedPlanner(many, {"steps": many["steps"][:1]})
    async with opened(world, limits={"max_steps": 3}, planner=planner) as coordinator:
        outcome = await coordinator.run(plan(writing(1), writing(-1), on_failure="replan"))
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["limit-steps"]
    assert outcome.status == "COMPLETED"


async def test_a_plan_cannot_loosen_the_limit_on_calls() -> None:
    """The smaller of both counts: the third call is not made, and the two that were are undone."""
    world = World()
    steps = [writing(n) for n in range(3)]
    async with opened(world, limits={"max_calls": 2}) as coordinator:
        outcome = await coordinator.run(plan(*steps, max_tool_calls=100))
        assert (outcome.status, world.calls) == ("COMPENSATED", 2)
        tighter = await coordinator.run(plan(*steps, max_tool_calls=1))
        assert (tighter.status, world.calls) == ("COMPENSATED", 3)


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    """Ten steps that may all run at once, and two that do."""
    world = World()
    steps = [{"tool": "wait", "params": {"n": n}, "depends_on": []} for n in range(10)]
    async with opened(world, limits={"max_parallel": 2}) as coordinator:
        handle = await coordinator.submit(plan(*steps))
        await world.holds(2)
        world.go.set()
        assert (await handle.wait()).status == "COMPLETED"
    assert world.most == 2


async def test_the_deadline_of_the_operator_ends_a_saga_and_is_journalled() -> None:
    """A plan without a deadline has the operator's, also for a process that has no limits of its own."""
    world = World()
    store = open_store("memory://")
    await store.open()
    async with opened(world, store, limits={"deadline_s": 3600}) as coordinator:
        handle = await coordinator.submit(plan(writing(1), deadline_s=1_000_000, task_id="slow"))
        await handle.wait()
        assert started_of(await read_records(store, "slow")).limits == Limits(deadline_s=3600)
    async with opened(world, store) as coordinator:
        state = state_of(await read_records(store, "slow"), coordinator.tools)
        assert state.plan.deadline_s == 3600
    await store.close()


async def test_a_session_keeps_to_the_limits() -> None:
    """Its calls are its steps: the third is refused before anything is recorded, and the agent may go on."""
    world = World()
    async with opened(world, limits={"max_steps": 2, "max_calls": 10}) as coordinator:
        async with coordinator.session("agent", max_tool_calls=100) as session:
            await session.call("write", n=1)
            await session.call("write", n=2)
            with pytest.raises(PlanInvalid, match="only 2 are allowed"):
                await session.call("write", n=3)
        state = state_of(await read_records(coordinator.store, "agent"), coordinator.tools)
    assert (state.status, world.calls) == ("COMPLETED", 2)
    assert state.plan.max_tool_calls == 10


async def test_without_limits_nothing_is_journalled_for_them() -> None:
    """The defaults are the bounds of the plan format and of the engine: a record has no word about them."""
    world = World()
    store = open_store("memory://")
    await store.open()
    async with opened(world, store) as coordinator:
        await coordinator.run(plan(writing(1), task_id="plain"))
        assert started_of(await read_records(store, "plain")).limits is None
    await store.close()
