"""What a program is told of a saga: typed steps, outputs by id, errors with all they know, records as they come."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator

import pytest

from saga_engine import Coordinator, Failure, PlanInvalid, RetryPolicy, StepResult, ToolError, tool
from saga_engine.core.codec import INLINE_LIMIT
from saga_engine.errors import OutputNotFetched, SagaNotFound, StepUnknown

GATE: list[asyncio.Event] = []


@tool(undo="give_back", retry=RetryPolicy(max_attempts=1))
async def take(what: str, idempotency_key: str) -> dict:
    if what == "moon":
        raise ToolError("out of reach", error_code="far", suggestion="take the lamp")
    if what == "slow":
        await GATE[0].wait()
    return {"what": what}


@tool
async def give_back(what: str, idempotency_key: str) -> dict:
    return {"back": what}


@tool(effect="read")
async def library() -> str:
    return "x" * (INLINE_LIMIT + 1)


def plan(*whats: str) -> dict:
    steps = [{"step_id": at, "tool": "take", "params": {"what": what}} for at, what in enumerate(whats, 1)]
    return {"steps": steps}


@pytest.fixture
async def engine() -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", [take, give_back, library]) as coordinator:
        yield coordinator


async def test_the_steps_of_an_outcome_are_typed(engine: Coordinator) -> None:
    """Attributes instead of keys; the undo is the step's compensation; what failed has its error."""
    outcome = await engine.run(plan("lamp", "moon"), saga_id="t")
    first, second = outcome.steps
    assert isinstance(first, StepResult)
    assert (first.step_id, first.status, first.output, first.params) == (
        1,
        "COMPENSATED",
        {"what": "lamp"},
        {"what": "lamp"},
    )
    assert first.compensation is not None
    assert (first.compensation.tool, first.compensation.output) == ("give_back", {"back": "lamp"})
    assert first.idempotency_key is not None
    assert first.idempotency_key != first.compensation.idempotency_key
    assert second.error is not None
    assert (second.status, second.error.error_code, second.error.suggestion) == ("FAILED", "far", "take the lamp")
    assert (second.succeeded, second.compensation) == (False, None)
    assert outcome.error == Failure("step-failed", 2, "far", "out of reach", "take the lamp")
    assert outcome.steps.by_id("1") is outcome.steps.by_id(1) is first
    assert len(outcome.steps) == 2
    assert (await engine.run(plan("lamp"))).error is None


async def test_an_output_is_asked_for_by_id(engine: Coordinator) -> None:
    """By number or text. An unknown id names those that there are; the cut form of a large one is not given out."""
    outcome = await engine.run(plan("lamp"), saga_id="t")
    assert outcome.output(1) == outcome.output("1") == {"what": "lamp"}
    with pytest.raises(StepUnknown, match=r"saga t has no step 'lamp' .*it has 1"):
        outcome.output("lamp")
    with pytest.raises(KeyError):
        outcome.output(2)
    await engine.run({"steps": [{"step_id": "all", "tool": "library"}]}, saga_id="large")
    shown = await engine.show("large")
    assert shown.steps[0].status == "SUCCEEDED"
    with pytest.raises(OutputNotFetched, match="full=True"):
        shown.output("all")
    assert len((await engine.show("large", full=True)).output("all")) == INLINE_LIMIT + 1


async def test_all_problems_of_a_plan_stand_in_the_traceback(engine: Coordinator) -> None:
    """Whoever reads only the traceback can mend the whole plan; a plan of nothing but faults does not flood it."""
    with pytest.raises(PlanInvalid) as refused:
        await engine.run({"steps": [{"step_id": n, "tool": f"nope_{n}"} for n in range(3)]})
    text = "".join(traceback.format_exception(refused.value))
    assert "PlanInvalid: the plan has 3 problems [plan-invalid]" in text
    for at, problem in enumerate(refused.value.problems):
        assert f"  $.steps[{at}].tool: {problem.message} [{problem.code}]" in text
    with pytest.raises(PlanInvalid) as refused:
        await engine.run({"steps": [{"step_id": n, "tool": "nope"} for n in range(90)]})
    assert str(refused.value).endswith("  and 40 more: see error.problems")
    with pytest.raises(PlanInvalid) as refused:
        await engine.run({"steps": [{"step_id": 1, "tool": "nope"}]})
    assert "\n" not in str(refused.value)


async def test_a_saga_is_followed_while_it_goes_on(engine: Coordinator) -> None:
    """Each record once, in order, as soon as it is durable, and the end of the saga ends it; also from the middle."""
    GATE[:] = [asyncio.Event()]
    await engine.submit(plan("lamp", "slow"), saga_id="t")
    seen: list[dict] = []
    async for record in engine.follow("t"):
        seen.append(record)
        if record["k"] == "StepIntended" and record["step"] == "2":
            assert (await engine.show("t")).status == "RUNNING"
            GATE[0].set()
    assert seen == await engine.history("t")
    assert [record["seq"] async for record in engine.follow("t", since=3)] == list(range(3, len(seen)))
    with pytest.raises(SagaNotFound):
        await anext(engine.follow("nobody"))
