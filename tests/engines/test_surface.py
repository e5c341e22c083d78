"""One surface for both runtimes: the methods of ``Engine``, called alike and answering alike."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from saga_engine import Coordinator, Handle, SagaResult, ToolContext, ToolError, tool
from saga_engine.analysis.trace_file import verify
from saga_engine.api import Engine
from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.core import transitions as t
from saga_engine.errors import (
    AmendRefused,
    CancelRefused,
    DecisionRefused,
    Interrupted,
    JournalConflict,
    PlanInvalid,
    RuntimeUnsupported,
    SagaExists,
    SagaNotFound,
)
from tests.engines.conftest import Opening


class World:
    """Tools with a gate, and what they did."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

        @tool(undo="cancel")
        async def book(what: str, ctx: ToolContext) -> dict:
            self.did.append(("book", what))
            return {"ref": what}

        @tool
        async def cancel(ref: str) -> None:
            self.did.append(("cancel", ref))

        @tool(undo="cancel")
        async def full(what: str) -> dict:
            raise ToolError("full", retryable=False)

        @tool(undo="cancel")
        async def lost(what: str) -> dict:
            raise ConnectionError("the line is dead")

        @tool(undo="cancel", timeout_s=60)
        async def wait(what: str) -> dict:
            self.begun.set()
            await self.gate.wait()
            return {"ref": what}

        self.tools = [book, cancel, full, lost, wait]


def plan(*tools: str) -> dict[str, Any]:
    return {"steps": [step(at, name) for at, name in enumerate(tools, 1)]}


def step(at: int, name: str = "book") -> dict[str, Any]:
    rollback = {"tool": "cancel", "params": {"ref": f"r{at}"}}
    return {"step_id": at, "tool": name, "params": {"what": f"w{at}"}, "rollback": rollback}


@pytest.fixture
def world() -> World:
    return World()


METHODS = [name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [Coordinator, TemporalCoordinator])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_same_signature(kind: type, name: str) -> None:
    """Names, kinds and defaults of all parameters are the protocol's, and so is what is returned."""
    said, kept = inspect.signature(getattr(Engine, name)), inspect.signature(getattr(kind, name))
    assert [(each.name, each.kind, each.default) for each in kept.parameters.values()] == [
        (each.name, each.kind, each.default) for each in said.parameters.values()
    ]
    same = {"list[Head]": "Sequence[Head]"}
    assert same.get(kept.return_annotation, kept.return_annotation) == said.return_annotation


@pytest.mark.parametrize("name", ["plan", "plan_and_run"])
def test_plans_of_a_model_are_asked_for_alike(name: str) -> None:
    """Temporal has no planner, and refuses the same arguments that a coordinator of a store accepts."""
    kept = [inspect.signature(getattr(kind, name)).parameters.values() for kind in (Coordinator, TemporalCoordinator)]
    assert [*map(str, kept[0])] == [*map(str, kept[1])]
    with pytest.raises(RuntimeUnsupported, match="no model"):
        asyncio.run(getattr(TemporalCoordinator, name)(object(), "a trip", may_use=["when"]))


async def test_run_ends_in_an_outcome(opened: Opening, world: World, name: str) -> None:
    """A saga completes or is undone in reverse; the outcome, what is shown of it and its history agree."""
    async with opened(world.tools) as engine:
        done = await engine.run(plan("book", "book"), saga_id=name)
        undone = await engine.run(plan("book", "full"), saga_id=f"{name}-u")
        shown, history = await engine.show(name), await engine.history(name)
    assert (type(done), done.status, done.output(2)) == (SagaResult, t.COMPLETED, {"ref": "w2"})
    assert (undone.status, undone.report["clean"]) == (t.COMPENSATED, True)
    assert shown.to_dict() == done.to_dict()
    assert [record["seq"] for record in history] == list(range(len(history)))
    assert (history[0]["k"], history[-1]["k"]) == ("SagaStarted", "SagaCompleted")
    assert world.did == [("book", "w1"), ("book", "w2"), ("book", "w1"), ("cancel", "r1")]


async def test_submit_gives_a_handle(opened: Opening, world: World, name: str) -> None:
    """The saga is under way when it returns; the handle waits for its end, any number of times, and so does the engine."""
    async with opened(world.tools) as engine:
        handle = await engine.submit(plan("wait"), saga_id=name)
        assert (type(handle), handle.saga_id, handle.done()) == (Handle, name, False)
        await world.begun.wait()
        assert (await engine.show(name)).status == t.RUNNING
        waits = [asyncio.create_task(handle.wait()), asyncio.create_task(handle.wait())]
        waits.append(asyncio.create_task(engine.wait(name)))
        waits.append(asyncio.create_task(engine.resume(name)))
        world.gate.set()
        ends = await asyncio.gather(*waits)
        assert handle.done()
        assert [each.to_dict() for each in ends] == [(await engine.show(name)).to_dict()] * 4
        again = await engine.submit(plan("wait"), saga_id=name)
        assert (await again.wait()).completed
        with pytest.raises(SagaExists):
            await engine.submit(plan("book"), saga_id=name)


async def test_a_question_and_its_answer(opened: Opening, world: World, name: str) -> None:
    """Waiting ends with a question; a wrong answer is refused, the right one goes on, and the same again is no conflict."""
    async with opened(world.tools) as engine:
        outcome = await engine.run(plan("book", "lost"), saga_id=name)
        assert (outcome.status, outcome.body["questions"][0]["kind"]) == (t.ESCALATED, "in-doubt")
        assert (await engine.ownership(name)) == (False, 0)
        for step_id, decision in ((2, "undone"), (1, "happened")):
            with pytest.raises(DecisionRefused):
                await engine.resolve(name, step_id, decision)
        outcome = await engine.resolve(name, 2, "happened", output={"ref": "x"}, by="ada")
        assert (outcome.status, outcome.output(2)) == (t.COMPLETED, {"ref": "x"})
        assert (await engine.resolve(name, 2, "happened", output={"ref": "x"}, by="ada")).completed
        with pytest.raises(DecisionRefused):
            await engine.resolve(name, 2, "not-happened")


async def test_cancel_and_amend(opened: Opening, world: World, name: str) -> None:
    """Steps are added to a saga under way and undone with the rest; a cancel awaits the call in flight; both end with it."""
    async with opened(world.tools) as engine:
        await engine.submit(plan("wait"), saga_id=name)
        await world.begun.wait()
        with pytest.raises(PlanInvalid):
            await engine.amend(name, [step(2, "nothing")])
        assert (await engine.amend(name, [step(2)], by="ada", wait=False)).status == t.RUNNING
        assert (await engine.cancel(name, note="off", wait=False)).status in (t.RUNNING, t.COMPENSATING)
        world.gate.set()
        assert (await engine.wait(name)).status == t.COMPENSATED
        with pytest.raises(AmendRefused):
            await engine.amend(name, [step(3)])
        ended = await engine.run(plan("book"), saga_id=f"{name}-e")
        with pytest.raises(CancelRefused):
            await engine.cancel(ended.saga_id)
    assert ("cancel", "r1") in world.did


async def test_what_is_wrong_with_a_plan(opened: Opening, world: World, name: str) -> None:
    """``check`` lists it, ``submit`` raises it, ``simulate`` plays what passes; nothing is begun by any of them."""
    bad = {"oops": 1, "steps": [step(1, "nothing")]}
    async with opened(world.tools) as engine:
        assert {"field-unknown", "tool-unknown"} <= {problem.code for problem in engine.check(bad)}
        assert engine.check(plan("book")) == []
        with pytest.raises(PlanInvalid):
            await engine.submit(bad, saga_id=name)
        assert (await engine.simulate(plan("book", "book"))).scenarios
        for ask in (engine.show, engine.history, engine.wait, engine.resume, engine.cancel, engine.trace):
            with pytest.raises(SagaNotFound):
                await ask(name)
    assert world.did == []


async def test_follow_and_trace(opened: Opening, world: World, name: str) -> None:
    """A saga is followed record by record, as its history has them, and its trace verifies."""
    async with opened(world.tools) as engine:
        await engine.run(plan("book"), saga_id=name)
        followed = [record async for record in engine.follow(name)]
        lines = await engine.trace(name)
        assert followed == await engine.history(name)
        assert followed[1:] == [record async for record in engine.follow(name, since=1)]
        with pytest.raises(JournalConflict):
            await anext(engine.follow(name, since=len(followed) + 1))
    assert verify(line.encode() + b"\n" for line in lines).broken is None


async def test_closing_ends_the_waits(opened: Opening, world: World, name: str) -> None:
    """Whoever waits when the engine is closed gets ``Interrupted``: of the saga, not a cancellation."""
    async with opened(world.tools) as engine:
        handle = await engine.submit(plan("wait", "book"), saga_id=name)
        await world.begun.wait()
        waiting = asyncio.create_task(handle.wait())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(world.gate.set)  # the engine's own runtime awaits the call in flight
        await engine.close()
        with pytest.raises(Interrupted):
            await waiting


async def test_what_a_runtime_cannot_do_is_said(opened: Opening, world: World, name: str) -> None:
    """A saga is listed and all are resumed, or the error says that this runtime does not, and what does it instead."""
    async with opened(world.tools) as engine:
        await engine.run(plan("book"), saga_id=name)
        if engine.drives:
            assert [head.saga_id for head in await engine.list("COMPLETED")] == [name]
            assert await engine.resume_all() == {}
            return
        for ask in (engine.list, engine.resume_all):
            with pytest.raises(RuntimeUnsupported) as refused:
                await ask()
            assert refused.value.hint


REFUSED_THERE: dict[str, dict[str, Any]] = {
    "each": {"tool": "book", "params": {"what": "$item"}, "each": {"of": ["a", "b"]}},
    "saga": {"saga": {"plan": {"steps": [{"step_id": 1, "tool": "book", "params": {"what": "a"}}]}}},
    "wait": {"wait": {"event": "paid", "timeout_s": 60}},
    "before": {"tool": "rename", "params": {"what": "a"}},
}


@pytest.mark.parametrize("kind", REFUSED_THERE)
async def test_a_step_that_a_runtime_cannot_run_is_refused_before_the_saga_exists(
    opened: Opening, world: World, name: str, kind: str
) -> None:
    """A submission and an amendment name what leads on; the other runtime finds no fault in the plan."""

    @tool(effect="read")
    async def name_of(what: str) -> dict:
        return {"what": what}

    @tool(before=name_of, undo="rename")
    async def rename(what: str) -> dict:
        return {"what": what}

    refused = {"step_id": 1, **REFUSED_THERE[kind]}
    async with opened([*world.tools, name_of, rename]) as engine:
        assert engine.check({"steps": [refused]}) == []
        if engine.drives:
            return
        with pytest.raises(RuntimeUnsupported) as told:
            await engine.submit({"steps": [refused]}, saga_id=name)
        assert told.value.hint
        with pytest.raises(SagaNotFound):
            await engine.show(name)
        handle = await engine.submit(plan("wait"), saga_id=name)
        await world.begun.wait()
        with pytest.raises(RuntimeUnsupported):
            await engine.amend(name, [{**refused, "step_id": 2}])
        world.gate.set()
        assert (await handle.wait()).status == t.COMPLETED


async def test_the_limits_of_the_operator_hold_on_both_runtimes(opened: Opening, name: str) -> None:
    """Too many steps are refused at the door and by amend; the smaller limit on calls ends a saga, which is undone."""
    world = World()
    limits = {"max_steps": 3, "max_calls": 2, "max_parallel": 1, "deadline_s": 3600}
    steps = [{"step_id": number, "tool": "book", "params": {"what": str(number)}} for number in range(1, 5)]
    async with opened(world.tools, limits=limits) as engine:
        assert [problem.code for problem in engine.check({"steps": steps})] == ["limit-steps"]
        with pytest.raises(PlanInvalid, match="only 3 are allowed"):
            await engine.run({"steps": steps}, saga_id=f"{name}-wide")
        outcome = await engine.run({"steps": steps[:3], "max_tool_calls": 99}, saga_id=name)
        assert outcome.status == t.COMPENSATED
        assert world.did == [("book", "1"), ("book", "2"), ("cancel", "2"), ("cancel", "1")]
        (started, *_) = await engine.history(name)
        assert started["limits"] == limits
