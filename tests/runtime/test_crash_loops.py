"""A call that ends its process is set aside after three of them, with a question, and harms no others."""

import asyncio

import pytest

from saga_engine import Coordinator, RetryPolicy, tool
from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities, decide
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.report import report
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.tools.registry import ToolRegistry
from tests.runtime.threads import in_a_process_of_its_own

PROBED: list[int] = []
CALLS: list[str] = []


@tool(effect="read")
async def ask(item: str) -> dict | None:
    """The probe that ends every process which asks it."""
    PROBED.append(1)
    await asyncio.sleep(0)
    raise KeyboardInterrupt


@tool(undo="back", probe="ask")
async def poison(item: str) -> dict:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


@tool(undo="back", keyed=True, retry=RetryPolicy(max_attempts=10))
async def innocent(item: str) -> dict:
    """Still in flight when the process ends, unless nothing ends it."""
    CALLS.append(item)
    for _ in range(20):
        await asyncio.sleep(0.01)
    return {"item": item}


@tool
async def back(item: str) -> dict:
    return {"item": item}


@tool(undo="back", keyed=True)
async def fatal(item: str) -> dict:
    """It ends each process that begins it."""
    CALLS.append(item)
    await asyncio.sleep(0)
    raise KeyboardInterrupt


TOOLS = [ask, poison, innocent, back, fatal]


@pytest.fixture(autouse=True)
def nothing_was_called() -> None:
    PROBED.clear()
    CALLS.clear()


async def test_a_probe_that_ends_its_process_is_asked_three_times_at_most() -> None:
    """The saga is a person's after three owners; sagas that were in flight beside it complete."""
    ids = [f"beside-{n}" for n in range(4)]

    async def submit() -> None:
        async with Coordinator.open("memory://loops", TOOLS) as coordinator:
            for saga_id in ("poison", *ids):
                step = {
                    "step_id": 1,
                    "tool": saga_id if saga_id == "poison" else "innocent",
                    "params": {"item": saga_id},
                }
                await coordinator.submit({"steps": [step]}, saga_id=saga_id, detach=True)

    async def worker() -> None:
        async with Coordinator.open("memory://loops", TOOLS) as coordinator:
            working = asyncio.create_task(coordinator.work())
            async with asyncio.timeout(60):
                for saga_id in ("poison", *ids):
                    await coordinator.wait(saga_id)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    await submit()
    ended = 0
    while await asyncio.to_thread(in_a_process_of_its_own, worker) is not None:
        ended += 1
        assert ended < 10
    async with Coordinator.open("memory://loops", TOOLS) as coordinator:
        shown = await coordinator.show("poison")
        beside = [(await coordinator.show(saga_id)).status for saga_id in ids]
    assert beside == ["COMPLETED"] * 4
    assert shown.status == "ESCALATED"
    (question,) = shown.body["questions"]
    assert question["error"]["error_code"] == "takeovers_without_progress"
    assert ended == 3
    assert len(PROBED) == 2


async def test_each_owner_that_begins_a_suspect_says_so_first() -> None:
    """The journal of a call that ends its processes shows that three began it, and the question says so."""

    async def submit() -> None:
        async with Coordinator.open("memory://begun", TOOLS) as coordinator:
            step = {"step_id": 1, "tool": "fatal", "params": {"item": "x"}}
            await coordinator.submit({"steps": [step]}, saga_id="fatal", detach=True)

    async def worker() -> None:
        async with Coordinator.open("memory://begun", TOOLS) as coordinator:
            working = asyncio.create_task(coordinator.work())
            async with asyncio.timeout(60):
                await coordinator.wait("fatal")
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    await submit()
    while await asyncio.to_thread(in_a_process_of_its_own, worker) is not None:
        assert len(CALLS) < 10
    async with Coordinator.open("memory://begun", TOOLS) as coordinator:
        (question,) = (await coordinator.show("fatal")).body["questions"]
        kinds = [record["k"] for record in await coordinator.history("fatal")]
    assert CALLS == ["x"] * 3
    assert '3 of them had begun to call the tool "fatal"' in question["error"]["message"]
    first, *others = [at for at, kind in enumerate(kinds) if kind == "StepIntended"]
    assert kinds[first + 1] == "SagaResumed"
    assert [kinds[at + 1] for at in others] == ["StepBegun"] * 2


def one_step():
    plan = load_plan({"steps": [{"step_id": 1, "tool": "innocent", "params": {"item": "x"}}]})
    return compile_plan(plan, ToolRegistry(TOOLS))


@pytest.mark.parametrize(("counted", "left"), [(True, 0), (False, 2)])
def test_an_answer_begins_the_count_anew(counted: bool, left: int) -> None:
    """A call that is answered between two ends of a process is no crash loop; one that a guard gave back was not made."""
    state = begin(r.SagaStarted(at=0, saga_id="s", plan=None, digest="d", seed="x"), one_step())
    for epoch in (2, 3):
        evolve(state, r.StepIntended(at=1, step="1"))
        if epoch == 3:
            evolve(state, r.StepBegun(at=1, step="1"))
        evolve(state, r.SagaResumed(at=1, owner="o", epoch=epoch))
    assert state.steps[0].forward.crashes == 2
    evolve(state, r.StepIntended(at=1, step="1", attempt=3))
    evolve(state, r.StepInDoubt(at=1, step="1", error=ErrorInfo("lost", "no answer"), counted=counted))
    assert (state.steps[0].forward.crashes, state.steps[0].forward.takeovers) == (left, left)


def crashed(state, times: int, make) -> list:
    """The kinds of records that are decided on after each of so many take-overs; ``make`` is evolved first."""
    found = []
    for epoch in range(2, 2 + times):
        for record in make():
            evolve(state, record)
        evolve(state, r.SagaResumed(at=9, owner="o", epoch=epoch))
        found.append([type(record).__name__ for record in decide(state, 9, Capabilities(alerting=True, planner=True))])
    return found


def test_an_alert_that_ends_its_owners_is_given_up_after_three() -> None:
    """People are not told by a hook that ends the process; the question stays open."""
    state = begin(r.SagaStarted(at=0, saga_id="s", plan=None, digest="d", seed="x"), one_step())
    evolve(state, r.StepIntended(at=1, step="1"))
    evolve(state, r.StepInDoubt(at=1, step="1", error=ErrorInfo("lost", "no answer")))
    options = ["happened", "not-happened"]
    evolve(state, r.StepEscalated(at=1, step="1", question="q", kind="in-doubt", options=options))
    found = crashed(state, 3, lambda: [r.AlertIntended(at=2, question="q")])
    assert found == [["AlertIntended"], ["AlertIntended"], ["AlertFailed"]]
    (failed,) = decide(state, 9, Capabilities(alerting=True))
    assert failed.error.error_code == "takeovers_without_progress"
    evolve(state, failed)
    assert "q" in state.questions
    assert not state.alerts


def test_a_model_whose_answer_ends_its_owners_is_asked_three_times() -> None:
    """Then a person is asked about what cannot be undone."""
    state = begin(r.SagaStarted(at=0, saga_id="s", plan=None, digest="d", seed="x"), one_step())
    evolve(state, r.StepIntended(at=1, step="1"))
    evolve(state, r.StepSucceeded(at=1, step="1", output={"item": "x"}))
    evolve(state, r.CancelRequested(at=1))
    evolve(state, r.CompensationStarted(at=1, reason="cancelled"))
    evolve(state, r.StepIntended(at=1, step="1", direction="compensate"))
    evolve(state, r.StepFailed(at=1, step="1", direction="compensate", error=ErrorInfo("no", "no")))
    found = crashed(state, 3, lambda: [r.PlannerAsked(at=2, step="1", purpose="compensate")])
    assert found == [["PlannerAsked"], ["PlannerAsked"], ["StepEscalated"]]


def test_a_call_of_finally_that_ends_its_owners_leaves_no_saga_that_is_clean() -> None:
    """Nobody is asked about it, so the report says that something is left to look at."""
    body = {
        "steps": [{"step_id": 1, "tool": "innocent", "params": {"item": "x"}}],
        "finally": [{"step_id": "last", "tool": "innocent", "params": {"item": "y"}}],
    }
    plan = compile_plan(load_plan(body), ToolRegistry(TOOLS))
    state = begin(r.SagaStarted(at=0, saga_id="s", plan=None, digest="d", seed="x"), plan)
    evolve(state, r.StepIntended(at=1, step="1"))
    evolve(state, r.StepSucceeded(at=1, step="1", output={"item": "x"}))
    for record in decide(state, 2):
        evolve(state, record)
    for epoch in range(2, 5):
        for record in decide(state, epoch):
            evolve(state, record)
        if epoch > 2:
            evolve(state, r.StepBegun(at=epoch, step="last"))
        evolve(state, r.SagaResumed(at=epoch, owner="o", epoch=epoch))
    while decided := decide(state, 9):
        for record in decided:
            evolve(state, record)
            if isinstance(record, r.AlertIntended):
                evolve(state, r.AlertSent(at=9, question=record.question))
    assert state.status == "COMPLETED"
    assert report(state).plain()["finally"] == [{"step_id": "last", "status": "IN_DOUBT"}]
    assert report(state).clean is False
