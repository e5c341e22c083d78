"""The way back of a list plan: whatever keeps the undo of a step from ending keeps those of all earlier steps waiting."""

from __future__ import annotations

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)
#: A price list; what makes the undo of a price fail, by price: an exception, once.
PRICES: dict[str, int] = {}
TROUBLE: dict[int, Exception] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    PRICES.clear()
    PRICES["shirt"] = 5
    TROUBLE.clear()


@tool(undo="set_back", retry=ONCE)
async def set_price(item: str, price: int) -> dict:
    before, PRICES[item] = PRICES[item], price
    return {"item": item, "before": before, "price": price}


@tool(retry=ONCE)
async def set_back(item: str, before: int, price: int) -> dict:
    if price in TROUBLE:
        raise TROUBLE.pop(price)
    PRICES[item] = before
    return {}


@tool(effect="read", retry=ONCE)
async def refuse() -> dict:
    raise ToolError("no")


TOOLS = [set_price, set_back, refuse]


def plan(**second: object) -> dict:
    """The price goes from 5 to 10 to 20; then a step fails."""
    steps = [{"tool": "set_price", "params": {"item": "shirt", "price": price}} for price in (10, 20)]
    steps[1].update(second)
    last = {"tool": "refuse", "depends_on": [1, 2]}
    return {"steps": [{"step_id": number, **step} for number, step in enumerate([*steps, last], 1)]}


@pytest.mark.parametrize(
    ("trouble", "answer"),
    [(ToolError("locked", retryable=False), "retry"), (TimeoutError("sent, and no answer"), "not-happened")],
    ids=["failed", "in-doubt"],
)
async def test_a_failed_undo_holds_back_the_steps_before_it_in_the_list(trouble: Exception, answer: str) -> None:
    """Two steps that nobody said to be independent write one record: the later one is restored first, or none is."""
    TROUBLE[20] = trouble
    async with Coordinator.open("memory://", TOOLS) as engine:
        outcome = await engine.run(plan())
        assert outcome.status == "ESCALATED"
        assert [question["step_id"] for question in outcome.body["questions"]] == [2]
        assert PRICES["shirt"] == 20  # nothing has been put back
        outcome = await engine.resolve(outcome.saga_id, 2, answer)
        assert outcome.status == "COMPENSATED"
        assert outcome.report["clean"]
    assert PRICES["shirt"] == 5


async def test_what_the_plan_declares_independent_is_not_held_back() -> None:
    """With `depends_on` a plan says that a step has nothing to do with those before it: their undos go on."""
    TROUBLE[20] = ToolError("locked", retryable=False)
    PRICES["hat"] = 7
    async with Coordinator.open("memory://", TOOLS) as engine:
        free = plan(depends_on=[], params={"item": "hat", "price": 20})
        outcome = await engine.run(free)
        assert outcome.status == "ESCALATED"
        assert outcome.report["compensated"] == [1]
        assert PRICES == {"shirt": 5, "hat": 20}
