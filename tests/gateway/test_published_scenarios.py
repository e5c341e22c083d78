"""The scenarios that other undo layers for agents publish, through the gateway: a toy CRM, drift, an unknown in the middle.

The duplicate entity of a real memory server is in ``tests/mcp/test_real_servers.py``.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, OutcomeUnknown, RetryPolicy, ToolContext, ToolError, tool
from tests.gateway.agents import Agent, agent

CUSTOMERS = {
    "c_001": {"id": "c_001", "plan": "pro", "notes": "her own"},
    "c_002": {"id": "c_002", "plan": "team", "notes": ""},
    "c_003": {"id": "c_003", "plan": "free", "notes": ""},
}
FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.001)


class Crm:
    """Its customers; ``lost``: the number of the write whose answer is lost."""

    def __init__(self, *, lost: int = 0, keyed: bool = False) -> None:
        self.customers = copy.deepcopy(CUSTOMERS)
        self.writes = 0
        self._lost = lost
        self._keyed = keyed
        self._seen: set[str] = set()

    def _write(self, customer: str, value: dict[str, Any] | None, key: str) -> None:
        if not (self._keyed and key in self._seen):
            self.customers.pop(customer, None)
            if value is not None:
                self.customers[customer] = value
        self._seen.add(key)
        self.writes += 1
        if self.writes == self._lost:
            raise OutcomeUnknown("the connection was lost", error_code="connection_lost")

    def tools(self) -> list[Any]:
        @tool(effect="read")
        async def get_customer(id: str) -> dict[str, Any]:  # noqa: A002
            if id not in self.customers:
                raise ToolError("no such customer", error_code="not_found", retryable=False)
            return dict(self.customers[id])

        @tool(before=get_customer, undo="update_customer", keyed=self._keyed, retry=FAST)
        async def update_customer(id: str, plan: str, notes: str, ctx: ToolContext) -> dict[str, Any]:  # noqa: A002
            self._write(id, {"id": id, "plan": plan, "notes": notes}, ctx.idempotency_key)
            return {"updated": id}

        @tool(keyed=True)
        async def restore_customer(id: str, plan: str, notes: str) -> dict[str, Any]:  # noqa: A002
            self.customers[id] = {"id": id, "plan": plan, "notes": notes}
            return {"restored": id}

        @tool(before=get_customer, undo=restore_customer, absent={"error_code": "not_found"}, undo_absent="nothing")
        async def delete_customer(id: str, ctx: ToolContext) -> dict[str, Any]:  # noqa: A002
            self._write(id, None, ctx.idempotency_key)
            return {"deleted": id}

        @tool
        async def nothing(id: str) -> dict[str, Any]:  # noqa: A002
            return {"id": id}

        return [get_customer, update_customer, restore_customer, delete_customer, nothing]


@asynccontextmanager
async def agent_of(crm: Crm) -> AsyncIterator[tuple[Agent, Coordinator]]:
    async with Coordinator.open("memory://", crm.tools()) as coordinator, agent(coordinator) as it:
        yield it, coordinator


async def test_a_wrong_edit_and_a_deletion_are_undone() -> None:
    """The damage of an agent that misread a step: both customers are as before."""
    crm = Crm()
    async with agent_of(crm) as (it, _):
        await it.done("update_customer", id="c_001", plan="free", notes="wrong edit")
        await it.done("delete_customer", id="c_002")
        told = await it.done("saga_rollback")
    assert (told["clean"], crm.customers) == (True, CUSTOMERS)


@pytest.mark.parametrize(("word", "left"), [("accept", "a person wrote this"), ("undo", "her own")])
async def test_drift_is_asked_about_and_the_rest_is_undone(word: str, left: str) -> None:
    """All but the drifted record is undone before the answer: each call read a customer of its own."""
    crm = Crm()
    async with agent_of(crm) as (it, coordinator):
        await it.done("update_customer", id="c_003", plan="team", notes="wrong edit")
        await it.done("update_customer", id="c_001", plan="free", notes="wrong edit")
        await it.done("delete_customer", id="c_002")
        crm.customers["c_001"]["notes"] = "a person wrote this"
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        assert ([each["call"] for each in told["undone"]], told["questions"][0]["kind"]) == (["3", "1"], "drift")
        assert [crm.customers[each] for each in ("c_002", "c_003")] == [CUSTOMERS[each] for each in ("c_002", "c_003")]
        await coordinator.resolve("desk", 2, word, by="operator")
        await coordinator.resume("desk")
    assert (crm.customers["c_001"]["notes"], crm.customers["c_003"]) == (left, CUSTOMERS["c_003"])


async def test_an_unknown_in_the_middle_is_settled_by_the_key() -> None:
    """The second of three calls has no answer: it is made again under its key, and all three are undone unasked."""
    crm = Crm(lost=2, keyed=True)
    async with agent_of(crm) as (it, _):
        for customer in CUSTOMERS:
            await it.done("update_customer", id=customer, plan="free", notes="wrong edit")
        told = await it.done("saga_rollback")
    assert (told["clean"], len(told["undone"]), crm.customers) == (True, 3, CUSTOMERS)


async def test_the_preview_says_what_waits_for_a_call_in_doubt() -> None:
    """A call that an operator is asked about holds up what was done before it to the same customer, and nothing else."""
    crm = Crm(lost=3)
    async with agent_of(crm) as (it, coordinator):
        for customer in ("c_001", "c_003"):
            await it.done("update_customer", id=customer, plan=f"plan-{customer}", notes="")
        await it.refused("update_customer", id="c_001", plan="free", notes="wrong edit")
        preview = await it.done("saga_preview")
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        assert [each["call"] for each in preview["would_wait"]] == ["1"]
        assert [each["call"] for each in preview["would_undo"]] == [each["call"] for each in told["undone"]] == ["2"]
        await coordinator.resolve("desk", 3, "not-happened", by="operator")
        await coordinator.resume("desk")
    assert crm.customers["c_003"] == CUSTOMERS["c_003"]


async def test_an_unknown_in_the_middle_without_a_key_is_asked_about() -> None:
    """Nothing can settle it: an operator is asked, and after the answer everything is undone, the unknown included."""
    crm = Crm(lost=2)
    async with agent_of(crm) as (it, coordinator):
        await it.done("update_customer", id="c_001", plan="free", notes="wrong edit")
        assert "pending" in await it.refused("update_customer", id="c_002", plan="free", notes="wrong edit")
        await coordinator.resolve("desk", 2, "happened", output={"updated": "c_002"}, by="operator")
        await it.done("update_customer", id="c_002", plan="free", notes="wrong edit")  # its result, not made again
        assert crm.writes == 2
        await it.done("update_customer", id="c_003", plan="free", notes="wrong edit")
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        for _ in told["questions"]:  # nobody saw the value after the lost answer, so its undo is asked about once
            await coordinator.resolve("desk", 2, "undo", by="operator")
        await coordinator.resume("desk")
    assert crm.customers == CUSTOMERS
