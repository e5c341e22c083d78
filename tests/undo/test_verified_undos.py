"""An undo that says that it was done is looked at: what it left is never called undone by its word alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, ToolRegistry, tool
from saga_engine.errors import NeedsPerson, ToolInvalid
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

ONCE = RetryPolicy(max_attempts=1)
PIVOT = {"step_id": "fail", "tool": "fail", "kind": "pivot"}


class Shop:
    """Prices and orders. Its undos do what they say, unless they lie; a change may show late."""

    def __init__(self) -> None:
        self.prices: dict[str, Any] = {"tea": {"price": 10, "version": 1}}
        self.orders: dict[str, str] = {}
        self.calls: list[str] = []
        self.lies = 0
        self.stale = 0
        self.unread = False
        self.honest = False  # of orders
        self.after_undo: Any = None
        self.told = asyncio.Event()
        self.options: dict[str, Any] = {}

    def _set(self, item: str, price: int) -> None:
        old = self.prices[item]
        self.prices[item] = {"price": price, **({"version": old["version"] + 1} if "version" in old else {})}

    def _lies(self) -> bool:
        self.lies -= 1
        return self.lies >= 0

    def tools(self) -> list[Any]:
        shop = self

        @tool(effect="read", retry=ONCE)
        async def read_price(item: str) -> dict:
            shop.calls.append("read")
            if shop.unread and "restore" in shop.calls:
                raise ToolError("the shop is closed", error_code="closed", retryable=True)
            return dict(shop.prices[item])

        @tool(before=read_price, undo="restore", **shop.options)
        async def set_price(item: str, price: int) -> dict:
            shop._set(item, price)
            return {}

        @tool
        async def restore(item: str, price: int) -> dict:
            shop.calls.append("restore")
            if not shop._lies():
                shop._set(item, price)
            if shop.after_undo is not None:
                shop.after_undo()
            return {"ok": True}

        @tool(effect="read")
        async def find_order(id: str) -> str | None:  # noqa: A002 - the outside system calls it so
            shop.calls.append("find")
            if shop.stale:
                shop.stale -= 1
                return "open"
            return shop.orders.get(id)

        check = {"tool": "find_order", "params": {"id": "$output.id"}, "shows": {"null": True}}

        @tool(undo="cancel", undo_check=check, verify_within_s=30 if shop.stale else 0)
        async def order(item: str) -> dict:
            shop.orders[f"order-{item}"] = "open"
            return {"id": f"order-{item}"}

        @tool
        async def cancel(id: str) -> dict:  # noqa: A002
            shop.calls.append("cancel")
            if shop.honest or not shop._lies():
                del shop.orders[id]
            return {"ok": True}

        @tool(effect="read")
        async def booked(item: str) -> dict | None:
            return None if item in shop.orders else {"ok": True}

        @tool(undo="free")
        async def book(item: str) -> dict:
            shop.orders[item] = "booked"
            return {"item": item}

        @tool(probe=booked)
        async def free(item: str) -> dict:
            shop.calls.append("free")
            if not shop._lies():
                del shop.orders[item]
            return {"ok": True}

        @tool
        async def fail() -> dict:
            raise ToolError("no", retryable=False)

        return [read_price, set_price, restore, find_order, order, cancel, booked, book, free, fail]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def coordinator(shop: Shop) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed", on_escalation=()) as opened:
        yield opened


SET = {"step_id": "x", "tool": "set_price", "params": {"item": "tea", "price": 12}}
ORDER = {"step_id": "x", "tool": "order", "params": {"item": "tea"}}
BOOK = {"step_id": "x", "tool": "book", "params": {"item": "tea"}}
#: What is undone, by what tells of its undo.
KINDS = {"before": SET, "check": ORDER, "probe": BOOK}


def stands(shop: Shop) -> bool:
    return shop.prices["tea"]["price"] == 12 or bool(shop.orders)


def of_undo(body: Any, step: str = "x") -> Any:
    return next(each for each in body["steps"] if str(each["step_id"]) == step)["compensation"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_undo_that_did_what_it_says_is_verified(coordinator: Coordinator, shop: Shop, kind: str) -> None:
    """Every view says so: the step, the report, and the line of the list."""
    outcome = await coordinator.run({"steps": [KINDS[kind], PIVOT]})
    assert (outcome.status, stands(shop)) == ("COMPENSATED", False)
    assert of_undo(outcome.body)["verified"] is True
    assert outcome.report["verified"] == ["x"]
    assert [json.loads(head.summary)["verified"] for head in await coordinator.list()] == [True]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_undo_that_only_says_so_is_asked_about(coordinator: Coordinator, shop: Shop, kind: str) -> None:
    """With what is there; 'retry' makes it again, and looks again."""
    shop.lies = 1
    outcome = await coordinator.run({"steps": [KINDS[kind], PIVOT]})
    assert (outcome.status, outcome.report["failed"], stands(shop)) == ("ESCALATED", ["x"], True)
    (question,) = outcome.body["questions"]
    assert (question["kind"], question["options"]) == ("undo-unverified", ["retry", "undone", "accept"])
    assert question["outlooks"]["retry"]["calls"][0]["direction"] == "compensate"
    if kind == "before":
        assert [question[name]["value"]["price"] for name in ("before", "after", "found")] == [10, 12, 12]
    await coordinator.resolve(outcome.saga_id, "x", "retry")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, outcome.report["verified"], stands(shop)) == ("COMPENSATED", ["x"], False)


@pytest.mark.parametrize(("decision", "status"), [("undone", "COMPENSATED"), ("accept", "WAIVED")])
async def test_what_an_operator_decides_is_not_looked_at_again(
    coordinator: Coordinator, shop: Shop, decision: str, status: str
) -> None:
    """'undone' counts it as done, although it stands; nothing calls it verified."""
    shop.lies = 9
    outcome = await coordinator.run({"steps": [SET, PIVOT]})
    await coordinator.resolve(outcome.saga_id, "x", decision)
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, stands(shop), "verified" in outcome.report) == (status, True, False)


async def test_a_value_that_somebody_else_wrote_after_the_undo_is_drift(coordinator: Coordinator, shop: Shop) -> None:
    """It is neither as before nor as the step left it; the operator has seen it then."""
    shop.after_undo = lambda: shop.prices["tea"].update(price=77)
    outcome = await coordinator.run({"steps": [SET, PIVOT]})
    (question,) = outcome.body["questions"]
    assert (question["kind"], question["found"]["value"]["price"]) == ("drift", 77)
    await coordinator.resolve(outcome.saga_id, "x", "undone")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, of_undo(outcome.body)["verified"]) == ("COMPENSATED", False)


async def test_a_look_that_fails_repeats_nothing(coordinator: Coordinator, shop: Shop) -> None:
    """The undo counts as its tool says, and the step says why."""
    shop.unread = True
    outcome = await coordinator.run({"steps": [SET, PIVOT]})
    undo = of_undo(outcome.body)
    assert (outcome.status, shop.calls.count("restore"), undo["verified"]) == ("COMPENSATED", 1, False)
    assert "the shop is closed" in undo["unverified_because"]


async def test_what_an_operator_undid_by_hand_is_looked_at(coordinator: Coordinator, shop: Shop) -> None:
    """A value that is still there is asked about; one that is gone is verified."""
    shop.lies = 9
    shop.after_undo = lambda: (_ for _ in ()).throw(ToolError("no", retryable=False))
    outcome = await coordinator.run({"steps": [SET, PIVOT]})
    assert [each["kind"] for each in outcome.body["questions"]] == ["undo-failed"]
    await coordinator.resolve(outcome.saga_id, "x", "undone")
    outcome = await coordinator.resume(outcome.saga_id)
    assert [each["kind"] for each in outcome.body["questions"]] == ["undo-unverified"]
    shop.prices["tea"]["price"] = 10
    await coordinator.resolve(outcome.saga_id, "x", "retry")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.calls.count("restore")) == ("ESCALATED", 1)  # (the version differs: it looks first)


async def test_a_value_that_shows_late_is_looked_at_again() -> None:
    """For ``verify_within_s``; the undo is made once."""
    shop = Shop()
    shop.stale = 2
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed", on_escalation=()) as coordinator:
        outcome = await coordinator.run({"steps": [ORDER, PIVOT]})
    assert (outcome.status, outcome.report["verified"]) == ("COMPENSATED", ["x"])
    assert (shop.calls.count("cancel"), shop.calls.count("find")) == (1, 3)


async def test_a_tool_may_switch_it_off() -> None:
    """``verify=False``: the undo counts as its tool says, as before."""
    shop = Shop()
    shop.options, shop.lies = {"verify": False}, 1
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed", on_escalation=()) as coordinator:
        outcome = await coordinator.run({"steps": [SET, PIVOT]})
    assert (outcome.status, outcome.report["clean"], of_undo(outcome.body)["verified"]) == ("COMPENSATED", True, False)


async def _session(coordinator: Coordinator) -> str:
    with pytest.raises(NeedsPerson):
        async with coordinator.session("s") as session:
            start = session.savepoint()
            await session.call("set_price", item="tea", price=12)
            await session.rollback(start)
    return "s"


async def _fallback(coordinator: Coordinator) -> str:
    undo = {"tool": "restore", "params": {"item": "milk", "price": 0}}
    step = {
        "step_id": "x",
        "tool": "fail",
        "rollback": undo,
        "fallback": {"tool": "set_price", "params": SET["params"]},
    }
    return (await coordinator.run({"steps": [step, PIVOT]})).saga_id


async def _list(coordinator: Coordinator) -> str:
    step = {"step_id": "x", "tool": "set_price", "each": "$input.items", "params": {"item": "$item", "price": 12}}
    return (await coordinator.run({"input": {"items": ["tea"]}, "steps": [step, PIVOT]})).saga_id


async def _computing(coordinator: Coordinator) -> str:
    price = {"step_id": "p", "compute": {"add": [10, 2]}}
    steps = [price, {**SET, "params": {"item": "tea", "price": "$output.step_p"}}, PIVOT]
    return (await coordinator.run({"steps": steps})).saga_id


async def _undo(coordinator: Coordinator) -> str:
    done = await coordinator.run({"steps": [SET]})
    return (await coordinator.undo(done.saga_id)).saga_id


@pytest.mark.parametrize("door", [_session, _fallback, _list, _computing, _undo])
async def test_every_kind_of_call_is_looked_at(coordinator: Coordinator, shop: Shop, door: Any) -> None:
    """Of a session, a fallback, an item of a list, a plan that computes, a completed saga that is undone."""
    shop.lies = 1
    saga_id = await door(coordinator)
    found = await coordinator.show(saga_id)
    assert [each["kind"] for each in found.body["questions"]] == ["undo-unverified"]


async def test_an_undo_of_several_calls_is_looked_at_after_the_last(coordinator: Coordinator, shop: Shop) -> None:
    """And made again with all of them."""
    shop.lies = 2
    again = {"tool": "restore", "params": {"item": "tea", "price": "$before.price"}}
    step = {**SET, "rollback": {**again, "then": [again]}}
    outcome = await coordinator.run({"steps": [step, PIVOT]})
    assert [each["kind"] for each in outcome.body["questions"]] == ["undo-unverified"]
    await coordinator.resolve(outcome.saga_id, "x", "retry")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.calls.count("restore"), outcome.report["verified"]) == ("COMPENSATED", 4, ["x"])


async def test_an_undo_of_the_same_value_waits_for_the_look(coordinator: Coordinator, shop: Shop) -> None:
    """Another one does not: the order is undone although a price is asked about."""
    shop.lies, shop.honest, shop.prices = 1, True, {"tea": {"price": 10}}
    first = {**SET, "step_id": "a", "params": {"item": "tea", "price": 11}}
    other, last = {**ORDER, "step_id": "o", "depends_on": []}, {**PIVOT, "depends_on": ["x", "o"]}
    outcome = await coordinator.run({"steps": [first, other, {**SET, "depends_on": ["a"]}, last]})
    statuses = {str(step["step_id"]): step["status"] for step in outcome.body["steps"]}
    assert (statuses["a"], statuses["o"], statuses["x"]) == ("SUCCEEDED", "COMPENSATED", "ESCALATED")
    await coordinator.resolve(outcome.saga_id, "x", "retry")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.prices["tea"]["price"]) == ("COMPENSATED", 10)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"tool": "nowhere", "shows": {"null": True}}, "is no tool here"),
        ({"tool": "put", "shows": {"null": True}}, "writes"),
        ({"tool": "look"}, "undo_check.shows"),
        ({"tool": "look", "shows": {"nothing": 1}}, "undo_check.shows"),
        ({"shows": {"null": True}}, "undo_check="),
        ({"tool": "look", "params": {"id": "$input.x"}, "shows": {"null": True}}, "undo_check.params"),
    ],
)
def test_a_check_that_cannot_look_is_refused(check: Any, said: str) -> None:
    @tool(effect="read")
    async def look(id: str) -> dict:  # noqa: A002
        return {}

    @tool
    async def put(id: str) -> dict:  # noqa: A002
        return {}

    with pytest.raises(ToolInvalid) as refused:
        ToolRegistry(look, put, tool(put.function, name="order", undo="put", undo_check=check))
    assert said in str(refused.value)


def test_a_plan_calls_the_read_of_a_check() -> None:
    """So the policy is asked about it, and its declaration is among those of the saga."""
    shop = Shop()
    compiled = compile_plan(load_plan({"steps": [ORDER]}), ToolRegistry(*shop.tools()))
    assert "find_order" in compiled.tool_digests
