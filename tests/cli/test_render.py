"""How a saga reads when a model had to make up for a step."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.cli.render import known_by, whole_lines
from saga_engine.core.interpret import Advice
from saga_engine.core.records import Written
from saga_engine.settings import Settings

ONCE = RetryPolicy(max_attempts=1)


@tool(undo="give_back", retry=ONCE)
async def buy_ticket(seat: str) -> dict:
    return {"ticket": f"T-{seat}"}


@tool(retry=ONCE)
async def give_back(ticket: str) -> dict:
    raise ToolError("tickets are not taken back", error_code="final_sale", retryable=False)


@tool(undo="give_back", retry=ONCE)
async def rent_car(days: int) -> dict:
    raise ToolError("no cars", error_code="sold_out")


@tool(compensates=True, retry=ONCE)
async def send_voucher(why: str) -> dict:
    return {"voucher": why}


class Scripted:
    """Proposes what it was given, as a model that was asked would."""

    async def advise(self, request: Any, check: Any) -> Advice:
        steps = [{"step_id": "v", "tool": "send_voucher", "params": {"why": "no car\u202e"}}]
        assert not check(steps)
        return Advice(steps, Written(model="scripted"))


PLAN = {
    "steps": [
        {"step_id": 1, "tool": "buy_ticket", "params": {"seat": "12A"}, "rollback": {
            "tool": "give_back", "params": {"ticket": "$output.step_1.ticket"}, "retry": {"max_attempts": 1},
        }},
        {"step_id": 2, "tool": "rent_car", "params": {"days": 2}},
    ]
}  # fmt: skip


async def test_a_compensation_is_shown_before_it_runs_and_afterwards() -> None:
    """Who is asked sees the exact steps with the lines that answer; then what was made up for is told and is not clean."""
    tools = [buy_ticket, give_back, rent_car, send_voucher]
    async with Coordinator.open(
        store="memory://", tools=tools, durability="relaxed", advisor=Scripted()
    ) as coordinator:
        asked = await coordinator.run(PLAN, saga_id="trip")
        before = whole_lines(asked.body, Settings())
        done = await coordinator.resolve("trip", 1, "approve", by="kim")
        after = whole_lines(done.body, Settings())

    assert asked.body["questions"][0]["kind"] == "compensation"
    proposed = next(line for line in before if "send_voucher" in line)
    assert proposed == '    step v send_voucher: {"why": "no car\\u202e"}', (
        "what a model wrote cannot play with the terminal"
    )
    assert any(line.strip().startswith("saga resolve trip 1 approve") for line in before)
    assert any(line.startswith("  denied unless answered before") for line in before)
    assert done.status == "COMPENSATED"
    assert "report: not clean" in after
    assert "  compensated by other steps: 1" in after
    assert "  step 1: compensated by step v" in after
    assert "  step v: added to compensate for step 1" in after


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("deduplicated", "a:1:f:00ff", 1500), "the result of an identical call by saga a, step 1, 1.5 s old"),
        (("cache", "", 0), "the last good result, 0 ms old"),
        (("fork", "trip/2", None), "reused from trip/2: its effect belongs to this saga"),
        (("decision", "", None), "happened, according to an operator"),
        (("probe", "", None), "happened, according to its probe"),
        (("computed", "", None), "computed"),
    ],
)
def test_how_a_result_is_known(given, words) -> None:
    """Every way but the call's own answer has its words, with its age where there is one."""
    assert known_by(*given) == words
