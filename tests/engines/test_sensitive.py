"""The values of sensitive params are in no view of a saga, on whatever runtime it runs."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import msgspec
import pytest

from saga_engine import RetryPolicy, Sensitive, ToolError, tool
from tests.engines.conftest import Opening

CARD = "4111-2222-3333-4444"
CODE = "sesame-open"
CALLS: list[Any] = []


@tool(undo="refund")
async def pay(card: Annotated[str, Sensitive], amount: int) -> dict:
    CALLS.append(("pay", card))
    return {"payment": "P1", "echo": f"charged {card}"}


@tool(sensitive=["code"])
async def refund(payment: str, code: str) -> dict:
    CALLS.append(("refund", code))
    return {"note": f"paid back with {code}"}


@tool(undo="refund", retry=RetryPolicy(max_attempts=1))
async def fail(why: str) -> dict:
    raise ToolError(f"refused: {why}", error_code="refused", retryable=False)


@tool(undo="refund", retry=RetryPolicy(max_attempts=1))
async def breaks(why: str) -> dict:
    raise KeyError(why)


def plan(last: str) -> dict[str, Any]:
    rollback = {"tool": "refund", "params": {"payment": "P1", "code": CODE}}
    return {
        "goal": f"pay with {CARD}",
        "input": {"card": CARD},
        "steps": [
            {"step_id": 1, "tool": "pay", "params": {"card": "$input.card", "amount": 7}, "rollback": rollback},
            {"step_id": 2, "tool": last, "params": {"why": CARD}, "rollback": rollback},
        ],
    }


@pytest.mark.parametrize("last", ["fail", "breaks"])
async def test_every_view_has_a_mark_in_its_place(
    opened: Opening, name: str, last: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bound, literal, in an undo, echoed in outputs and errors: the tool gets the value, and nobody is shown it."""
    CALLS.clear()
    caplog.set_level(logging.DEBUG, logger="saga_engine")
    caplog.set_level(logging.INFO)
    heard: list[Any] = []
    told: list[Any] = []

    def hear(saga_id: str, record: Any) -> None:
        heard.append(msgspec.json.encode(record).decode())

    tools = [pay, refund, fail, breaks]
    async with opened(tools, observers=[hear], on_escalation=told.append) as engine:
        outcome = await engine.run(plan(last), saga_id=name)
        views = [
            outcome.to_dict(),
            (await engine.show(name)).to_dict(),
            (await engine.show(name, full=True)).to_dict(),
            await engine.history(name),
            await engine.history(name, full=True),
            await engine.trace(name, full=True),
        ]
        if outcome.ended:
            views.append([record async for record in engine.follow(name)])
    assert outcome.status == ("COMPENSATED" if last == "fail" else "ESCALATED")
    assert ("pay", CARD) in CALLS
    assert (("refund", CODE) in CALLS) == (last == "fail")
    assert heard
    assert bool(told) == (last == "breaks")
    for shown in (*(json.dumps(view, default=str) for view in views), *heard, repr(told), caplog.text):
        assert CARD not in shown
        assert CODE not in shown
