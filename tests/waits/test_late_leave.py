"""The call for a late event has the leave that any call of its kind needs, at every door that takes a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import Channel
from saga_engine.testing.scripted import ScriptedPlanner
from tests.gateway.agents import writer
from tests.support.children import until

PAID: list[int] = []
NEVER = {"rules": [{"name": "no refunds", "tools": ["refund"], "verdict": "deny"}]}
ASKS = {"rules": [{"name": "large", "tools": ["refund"], "verdict": "ask"}]}
LATE = {"tool": "refund", "params": {"amount": 7}}
WAIT = {"step_id": 1, "wait": {"event": "paid", "key": "k", "timeout_s": 3600, "on_late": LATE}}


@tool
async def refund(amount: int, idempotency_key: str) -> None:
    """Give money back. Final."""
    PAID.append(amount)


@tool(undo="cancel")
async def book(what: str) -> dict[str, str]:
    """Book something."""
    if what == "Hilton":
        raise ToolError("full", error_code="full", retryable=False)
    return {"ref": what}


@tool(tolerates_absence=True)
async def cancel(ref: str) -> None:
    """Cancel it."""


TOOLS = (refund, book, cancel)


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


async def waits_no_more(engine: Coordinator) -> None:
    """A saga whose wait is over without its event."""
    await engine.submit({"steps": [WAIT]}, saga_id="s")
    assert (await engine.cancel("s")).status == "COMPENSATED"


@pytest.mark.parametrize(("policy", "kind"), [(NEVER, "step-failed"), (ASKS, "approval")])
async def test_the_policy_decides_when_the_late_call_is_made(policy: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """A rule that came after the plan holds for the call: denied it is not made and a person is told, asked about it waits."""
    url = f"embedded://{tmp_path}/.saga"
    async with Coordinator.open(url, TOOLS, on_escalation=(), settings=None) as engine:
        await waits_no_more(engine)
    async with Coordinator.open(url, TOOLS, on_escalation=(), settings=None, policy=policy) as engine:
        late = await engine.send_event("paid", "k", {})
        ended = await engine.wait(late.late_saga)
        assert ended.status == "ESCALATED"
        assert [each["kind"] for each in (await engine.show(late.late_saga)).body["questions"]] == [kind]
        assert PAID == []
        if kind == "approval":
            assert (await engine.resolve(late.late_saga, "on_late", "approve")).completed
            assert PAID == [7]


@pytest.mark.parametrize("may_use", [("wait",), ("wait", "irreversible")])
async def test_a_model_needs_leave_for_a_late_call_that_nothing_undoes(may_use: tuple[str, ...]) -> None:
    """In another way behind a failed step, as in a new plan (``tests/planner/test_leave.py``)."""
    fails = {"step_id": 1, "tool": "book", "params": {"what": "Hilton"}}
    other = {"steps": [{**WAIT, "step_id": "paid"}]}
    planner = ScriptedPlanner(other, {"impossible": "no"})
    rules = Planning(planner, PlannerSettings(may_use=may_use))
    async with Coordinator.open("memory://", TOOLS, planner=rules, on_escalation=(), settings=None) as engine:
        plan = {"goal": "book a room; give late payments of k back: 7", "steps": [fails], "on_failure": "replan"}
        await engine.submit(plan, saga_id="s")
        if "irreversible" in may_use:
            await armed(engine)
            assert len(planner.asked) == 1
        else:
            assert (await engine.wait("s")).status == "COMPENSATED"
            first, second = planner.asked
            assert "never undone" not in str(first)
            assert "for an event that comes too late, which is never undone" in str(second)


async def armed(engine: Coordinator) -> None:
    async def waits() -> bool:
        return await engine.store.event_store().first(Channel("paid", "k")) is not None

    await until(waits)


@pytest.mark.parametrize("may_use", [("wait",), ("wait", "irreversible")])
async def test_an_agent_of_the_gateway_needs_the_same_leave(may_use: tuple[str, ...]) -> None:
    """A plan that it checks or submits, and steps that it adds to a saga of its own."""
    async with (
        Coordinator.open("memory://", TOOLS, on_escalation=(), settings=None) as engine,
        writer(engine, rules=PlannerSettings(may_use=may_use)) as it,
    ):
        await it.done(
            "saga_submit", plan={"steps": [{"step_id": 7, "wait": {"event": "e", "timeout_s": 3600}}]}, key="a"
        )
        told = await it.call("saga_check", plan={"steps": [WAIT]})
        added = await it.call("saga_amend", saga_id="kim-a", steps=[{**WAIT, "depends_on": []}])
        for each in (told, added):
            refused = "which is never undone" in each.model_dump_json()
            assert refused == ("irreversible" not in may_use), each
