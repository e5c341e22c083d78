"""A plan in Temporal that takes back itself what it has done: its call is the undo, as in the engine's own runtime."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core.codec import decode
from tests.temporal.conftest import Place
from tests.temporal.outside import facts

FAST = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)


class Bank:
    """A bank that keeps idempotency keys: a repeat under one key acts once. ``trouble``: what the next refund does."""

    def __init__(self, trouble: Exception | None, *, acts: bool) -> None:
        self.refunds: dict[str, str] = {}
        self.calls: list[tuple[str, str | None]] = []
        self._trouble, self._acts = trouble, acts

    def tools(self) -> list[Any]:
        @tool(undo="refund", keyed=True)
        async def pay(amount: int, ctx: ToolContext) -> dict:
            return {"payment": "p1"}

        @tool(keyed=True, retry=FAST)
        async def refund(payment: str, ctx: ToolContext) -> dict:
            self.calls.append((ctx.idempotency_key, ctx.undoes))
            trouble, self._trouble = self._trouble, None
            if trouble is None or self._acts:
                self.refunds.setdefault(ctx.idempotency_key, payment)
            if trouble is not None:
                raise trouble
            return {}

        @tool
        async def fail() -> None:
            raise ToolError("no", retryable=False)

        return [pay, refund, fail]


PLAN = {
    "steps": [
        {"step_id": 1, "tool": "pay", "params": {"amount": 100}},
        {"step_id": 2, "tool": "refund", "params": {"payment": "$output.step_1.payment"}, "kind": "irreversible"},
        {"step_id": 3, "tool": "fail", "kind": "pivot"},
    ]
}
TROUBLES = [
    pytest.param(None, False, 1, id="done"),
    pytest.param(ToolError("not now", retryable=False), False, 2, id="not done"),
    pytest.param(ConnectionError("the line is dead"), True, 2, id="answer lost"),
]


@pytest.mark.parametrize(("trouble", "acts", "calls"), TROUBLES)
async def test_a_step_that_takes_one_back_is_its_undo(
    trouble: Exception | None, acts: bool, calls: int, place: Place
) -> None:
    """One refund under one key, whatever becomes of its answer; the journal is that of the engine's own runtime."""
    bank, saga_id = Bank(trouble, acts=acts), place.saga_id("back")
    async with place.both(bank.tools()) as coordinator:
        result = await coordinator.run(PLAN, saga_id=saga_id)
        there = [decode(data) for data in await coordinator.sagas.journal(saga_id, patience_s=5)]
        await place.replayed(coordinator, saga_id)
    assert (result.status, result.report["clean"], result.report["compensated"]) == ("COMPENSATED", True, [1])
    assert list(bank.refunds.values()) == ["p1"]
    assert len(bank.calls) == calls
    assert len(set(bank.calls)) == 1
    own = Bank(trouble, acts=acts)
    async with Coordinator.open("memory://", own.tools(), durability="relaxed", settings=None) as local:
        here = await local.run(PLAN, saga_id=saga_id)
        records = [decode(data) for data in await local.store.read(saga_id)]
    assert here.status == result.status
    assert facts(there) == facts(records)
    assert len(own.calls) == calls
