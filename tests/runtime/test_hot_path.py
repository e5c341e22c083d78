"""What a step may cost, counted and not timed: round trips, and work that must not grow with the saga."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.core import records as r
from saga_engine.core.decide import decide
from saga_engine.core.effects import CallTool, Done
from saga_engine.core.evolve import begin, evolve
from saga_engine.core.judge import judge
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tooling import ToolSpec
from saga_engine.ports import AppendReply, Entry
from saga_engine.stores import open_store


@tool(undo="back")
async def forth(idempotency_key: str) -> dict:
    return {"ref": idempotency_key}


@tool
async def back(ref: str) -> dict:
    return {"gone": ref}


@tool(undo="back")
async def refuse() -> dict:
    raise ToolError("no")


class Counting:
    """A store that counts its group commits and their entries."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.commits: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        self.commits.append(len(entries))
        return await self._store.append(owner, entries)


@pytest.fixture
async def counting():
    store = Counting(open_store("memory://"))
    await store.open()
    yield store
    await store.close()


def chain(*names: str) -> dict[str, Any]:
    return {"steps": [{"step_id": number, "tool": name} for number, name in enumerate(names)]}


async def test_n_steps_cost_n_plus_one_durable_writes(counting) -> None:
    """The result of a step and the intent of the next share an append; creation shares the first intent's."""
    async with Coordinator.open(counting, [forth, back]) as coordinator:
        await coordinator.run(chain("forth", "forth", "forth"))
    assert len(counting.commits) == 4


async def test_a_compensation_costs_one_write_a_call(counting) -> None:
    """Two steps happen, the third fails, two are undone: five calls, six writes."""
    async with Coordinator.open(counting, [forth, back, refuse]) as coordinator:
        await coordinator.run(chain("forth", "forth", "refuse"))
    assert len(counting.commits) == 6


async def test_sagas_that_wait_together_share_a_commit(counting) -> None:
    """A hundred sagas at once need far fewer round trips than appends, and never more than 512 entries in one."""
    async with Coordinator.open(counting, [forth, back]) as coordinator:
        await asyncio.gather(*(coordinator.run(chain("forth", "forth")) for _ in range(100)))
    assert sum(counting.commits) == 300
    assert len(counting.commits) < 100


async def test_a_sequential_saga_needs_no_task_for_a_call(counting) -> None:
    """One task drives the saga; its calls run in that task."""
    tasks: set[int] = set()

    @tool(undo="back")
    async def note() -> dict:
        tasks.add(id(asyncio.current_task()))
        return {"ref": "x"}

    async with Coordinator.open(counting, [note, back]) as coordinator:
        await coordinator.run(chain("note", "note", "note"))
    assert len(tasks) == 1


class Catalog:
    def spec(self, name: str) -> ToolSpec | None:
        return ToolSpec(name=name, keyed=True)

    def names(self) -> list[str]:
        return []


def work_per_step(length: int, *, wide: bool) -> float:
    """Python calls that decide, evolve and judge make for each step of a saga that fails at its end and is undone."""
    steps = [
        {"step_id": number, "tool": "t", "rollback": {"tool": "u", "params": {"ref": f"$output.step_{number}.ref"}}}
        for number in range(length)
    ]
    if wide:
        steps = [{**step, "depends_on": []} for step in steps]
    plan = load_plan({"steps": steps})
    compiled = compile_plan(plan, Catalog())
    state = begin(r.SagaStarted(at=1, saga_id="s", plan={}, digest="d", seed="e"), compiled)
    evolve(state, r.CancelRequested(at=1)) if length == 0 else None
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def follow() -> None:
        queue = []
        while True:
            found = decide(state, 1)
            for record in found:
                evolve(state, record)
                if isinstance(record, r.StepIntended):
                    queue.append(CallTool(state.plan.by_key[record.step], record.direction, record.attempt))
            if found:
                continue
            if not queue:
                return
            evolve(state, judge(state, queue.pop(), Done({"ref": 1}), 1, 0.5))
            if state.remaining == 1 and state.failing is None:
                evolve(state, r.CancelRequested(at=1))

    sys.setprofile(count)
    try:
        follow()
    finally:
        sys.setprofile(None)
    assert state.status == "COMPENSATED"
    return calls / length


@pytest.mark.parametrize("wide", [False, True])
def test_the_cost_of_a_step_does_not_grow_with_the_saga(wide: bool) -> None:
    """Ten times as many steps, the same work for each, forward and backward."""
    assert work_per_step(2000, wide=wide) < 1.2 * work_per_step(200, wide=wide)


async def test_ten_thousand_steps_in_one_saga() -> None:
    """The largest plan there may be runs through."""
    async with Coordinator.open("memory://", [forth, back]) as coordinator:
        outcome = await coordinator.run(chain(*["forth"] * 10_000))
    assert outcome.completed
