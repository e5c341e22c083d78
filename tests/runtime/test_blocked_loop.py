"""A tool that blocks the event loop: the lease lives on, whoever looks at the log is told, and nothing else is harmed."""

import asyncio
import logging
import time

import pytest

from saga_engine import Coordinator, Question, RetryPolicy, ToolContext, tool
from saga_engine.core import machine
from saga_engine.core.decide import decide
from saga_engine.policy.rules import Policy, PolicyRequest
from saga_engine.ports.machine_clock import machine_clock
from tests.support.servers import until


@tool(undo="back", retry=RetryPolicy(max_attempts=1))
async def bare(item: str) -> dict:
    """Neither key nor probe: a lost lease would leave it to a person."""
    await asyncio.sleep(0.05)
    return {"item": item}


@tool
async def back(item: str) -> dict:
    return {"item": item}


def plan(*names: str) -> dict:
    return {"steps": [{"step_id": n, "tool": name, "params": {"item": "x"}} for n, name in enumerate(names)]}


@pytest.mark.parametrize("url", ["memory://", "embedded://{}"])
async def test_the_lease_outlives_a_blocked_loop_and_the_tool_is_named(url, tmp_path, caplog) -> None:
    """It blocks for longer than the lease: every saga goes on under the same epoch, and no call is in doubt."""
    box: list[Coordinator] = []

    @tool(undo="back")
    async def blocker(item: str, ctx: ToolContext) -> dict:
        ends = (await box[0].supervisor.lease()).valid_until_s
        time.sleep(ends + 0.5 - machine_clock.boottime())  # noqa: ASYNC251 - what no async tool must do
        return {"item": item}

    caplog.set_level(logging.WARNING, "saga_engine")
    async with Coordinator.open(url.format(tmp_path), [bare, back, blocker], lease_s=5.0) as coordinator:
        box.append(coordinator)
        await coordinator.run(plan("bare"))
        outcomes = await asyncio.gather(
            *(coordinator.run(plan("bare", "bare"), saga_id=f"beside-{n}") for n in range(5)),
            coordinator.run(plan("blocker", "bare"), saga_id="blocks"),
        )
        kinds = [record["k"] for record in await coordinator.history("blocks")]
    assert {outcome.status for outcome in outcomes} == {"COMPLETED"}
    assert "SagaResumed" not in kinds
    assert "lease lost" not in caplog.text
    assert "tool 'blocker' (saga blocks, step 0)" in caplog.text


async def test_a_question_about_a_lost_call_says_why() -> None:
    """Whoever is asked reads what is known: the process that made the call is gone."""
    begun = asyncio.Event()

    @tool(undo="back", retry=RetryPolicy(max_attempts=1))
    async def hangs(item: str) -> dict:
        begun.set()
        await asyncio.Event().wait()
        return {}

    async with Coordinator.open("memory://", [hangs, back]) as coordinator:
        handle = await coordinator.submit(plan("hangs"), saga_id="s1")
        await begun.wait()
        lease = await coordinator.supervisor.lease()
        await coordinator.store.close_lease(lease.owner)
        lease.why = "the event loop was blocked for 99.0 s by tool 'x'"
        lease.lose()
        outcome = await handle.wait()
    (question,) = outcome.body["questions"]
    assert question["error"]["error_code"] == "answer_lost"
    assert "blocked for 99.0 s by tool 'x'" in question["error"]["message"]


def block(until_logged: list[str], caplog, words: str) -> None:
    """Block the loop until the log says ``words``."""
    until(lambda: words in caplog.text, f"the log to say {words!r}")
    until_logged.append(words)


async def test_a_hook_that_blocks_is_named(caplog) -> None:
    """An ``async def`` channel, a policy's check and a resource function that block the loop: the log says which."""
    caplog.set_level(logging.WARNING, "saga_engine")
    blocked: list[str] = []
    told = asyncio.Event()

    async def page_somebody(question: Question) -> None:
        block(blocked, caplog, f"the escalation hook page_somebody (saga {question.saga_id})")
        told.set()

    async def check(request: PolicyRequest) -> str:
        block(blocked, caplog, f"the policy's check check (tool 'careful', saga {request.saga_id}, step 0)")
        return "allow"

    def room_of(params: dict) -> str:
        block(blocked, caplog, "the resource function of tool 'careful' (saga guarded, step 0)")
        return "room"

    @tool(undo="back", resource=room_of)
    async def careful(item: str) -> dict:
        return {"item": item}

    @tool(undo="back", retry=RetryPolicy(max_attempts=1))
    async def lost(item: str) -> dict:
        raise TimeoutError

    policy = Policy(check=check)
    async with Coordinator.open(
        "memory://", [careful, lost, back], policy=policy, on_escalation=page_somebody, lease_s=1.0
    ) as coordinator:
        assert (await coordinator.run(plan("careful"), saga_id="guarded")).status == "COMPLETED"
    assert len(blocked) == 2
    async with Coordinator.open("memory://", [lost, back], on_escalation=page_somebody, lease_s=1.0) as coordinator:
        assert (await coordinator.run(plan("lost"), saga_id="asks")).status == "ESCALATED"
        await told.wait()
    assert len(blocked) == 3
    assert "make it a plain def" in caplog.text
    assert "where nothing may block" in caplog.text


async def test_work_of_the_engine_is_not_blamed_on_the_tool_that_answered_before(caplog, monkeypatch) -> None:
    """A list of many items, say: whoever reads the log must not look for the fault in their tool."""
    caplog.set_level(logging.WARNING, "saga_engine")
    blocked: list[str] = []

    def slowly(*args):
        if args[0].steps[0].settled and not blocked:
            block(blocked, caplog, "the event loop is blocked by the engine's work for saga large at ")
        return decide(*args)

    monkeypatch.setattr(machine, "decide", slowly)
    async with Coordinator.open("memory://", [bare, back], lease_s=1.0) as coordinator:
        assert (await coordinator.run(plan("bare", "bare"), saga_id="large")).status == "COMPLETED"
    assert blocked
    assert "tool 'bare'" not in caplog.text
    assert "use smaller ones" in caplog.text
