"""A write that expects what its saga last read: what somebody else wrote in between is never overwritten unseen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, ToolRegistry, tool
from saga_engine.errors import CallFailed, PlanInvalid, ToolInvalid
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.warnings import warnings_of

ONCE = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)
READ = {"step_id": "read", "tool": "read_price", "params": {"item": "tea"}}


class Shop:
    """Prices, which others change as well."""

    def __init__(self) -> None:
        self.prices: dict[str, Any] = {"tea": 10}
        self.calls: list[str] = []
        self.meanwhile: Any = None  # what somebody else does right after the saga has read
        self.lose = ""
        self.options: dict[str, Any] = {"expect": "$before"}

    def tools(self) -> list[Any]:
        shop = self

        @tool(effect="read", retry=ONCE)
        async def read_price(item: str) -> dict:
            shop.calls.append(f"read {item}")
            if item not in shop.prices:
                raise ToolError("no such item", error_code="not_found", retryable=False)
            return {"price": shop.prices[item]}

        @tool
        async def delete_price(item: str) -> dict:
            del shop.prices[item]
            return {}

        @tool(
            before=read_price,
            undo="put_back",
            absent={"error_code": "not_found"},
            undo_absent=delete_price,
            retry=ONCE,
            **shop.options,
        )
        async def set_price(item: str, price: int, idempotency_key: str) -> dict:
            shop.calls.append(f"set {item} {price}")
            lost, shop.lose = shop.lose, ""
            if lost != "before":
                shop.prices[item] = price
            if lost:
                raise ConnectionError("the line is dead")
            return {"price": price}

        @tool
        async def put_back(item: str, price: int) -> dict:
            shop.prices[item] = price
            return {}

        @tool(before=read_price, undo="put_back")
        async def set_too(item: str, price: int) -> dict:
            shop.calls.append(f"too {item} {price}")
            shop.prices[item] = price
            return {}

        @tool(undo="put_back")
        async def blind(item: str, price: int) -> dict:
            shop.prices[item] = price
            return {}

        @tool(effect="read")
        async def others_write() -> dict:
            if shop.meanwhile is not None:
                shop.meanwhile()
            return {}

        @tool
        async def fail() -> None:
            raise ToolError("no", retryable=False)

        return [read_price, delete_price, set_price, put_back, set_too, blind, others_write, fail]

    def writes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("read")]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def coordinator(shop: Shop) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed") as coordinator:
        yield coordinator


def plan(*last: dict[str, Any], tool: str = "set_price", **more: Any) -> dict[str, Any]:
    write = {"step_id": "write", "tool": tool, "params": {"item": "tea", "price": 12}, **more}
    return {"steps": [READ, {"step_id": "others", "tool": "others_write"}, write, *last]}


def rival(shop: Shop, price: int = 11) -> None:
    shop.meanwhile = lambda: shop.prices.update(tea=price)


# --- by a plan -----------------------------------------------------------------------------------------------------


async def test_a_value_that_changed_is_not_overwritten(coordinator: Coordinator, shop: Shop) -> None:
    """The call is not made; both values are told; what the saga did before is undone."""
    rival(shop)
    outcome = await coordinator.run(plan())
    assert (outcome.status, shop.prices, shop.writes()) == ("COMPENSATED", {"tea": 11}, [])
    error = outcome.body["steps"][2]["error"]
    assert error["error_code"] == "changed_meanwhile"
    assert '{"price":10}' in error["message"]
    assert '{"price":11}' in error["message"]
    assert error["retryable"] is False


async def test_a_value_that_is_the_same_is_written(coordinator: Coordinator, shop: Shop) -> None:
    """The read of the saga is the before-image, so one read is made before the call and one after it, as without."""
    outcome = await coordinator.run(plan())
    assert (outcome.status, shop.prices) == ("COMPLETED", {"tea": 12})
    assert shop.calls == ["read tea", "read tea", "set tea 12", "read tea"]
    intents = [record for record in await coordinator.history(outcome.saga_id) if record["k"] == "StepIntended"]
    assert intents[-1]["before"] == {"value": {"price": 10}}


async def test_its_undo_brings_back_what_was_read(coordinator: Coordinator, shop: Shop) -> None:
    """The before-image is what the saga knew, and what was there."""
    outcome = await coordinator.run(plan({"step_id": "fail", "tool": "fail", "kind": "pivot"}))
    assert (outcome.status, shop.prices) == ("COMPENSATED", {"tea": 10})


async def test_what_was_absent_is_expected_to_be_absent(coordinator: Coordinator, shop: Shop) -> None:
    """An item that the saga did not find is created only while nobody else has created it."""
    read = {"step_id": 1, "tool": "read_price", "params": {"item": "milk"}, "on_error": "continue"}
    others = {"step_id": 2, "tool": "others_write"}
    write = {"step_id": 3, "tool": "set_price", "params": {"item": "milk", "price": 5}}
    assert (await coordinator.run({"steps": [read, others, write]})).completed
    del shop.prices["milk"]
    shop.meanwhile = lambda: shop.prices.update(milk=7)
    outcome = await coordinator.run({"steps": [read, others, write]})
    assert (outcome.status, shop.prices["milk"]) == ("COMPENSATED", 7)
    assert "it was absent" in outcome.body["steps"][2]["error"]["message"]


async def test_its_own_write_is_what_the_saga_knows(coordinator: Coordinator, shop: Shop) -> None:
    """After a write of its own it knows what that left, and not what it read before."""
    second = {"step_id": "again", "tool": "set_price", "params": {"item": "tea", "price": 13}}
    others = {"step_id": "more", "tool": "others_write"}
    outcome = await coordinator.run(plan(others, second))
    assert (outcome.status, shop.prices) == ("COMPLETED", {"tea": 13})


async def test_a_step_says_it_for_a_tool_that_does_not(coordinator: Coordinator, shop: Shop) -> None:
    """``expect`` of a step; without it the tool overwrites what it finds."""
    rival(shop)
    assert (await coordinator.run(plan(tool="set_too", expect="$before"))).status == "COMPENSATED"
    assert shop.prices == {"tea": 11}
    assert (await coordinator.run(plan(tool="set_too"))).completed
    assert shop.prices == {"tea": 12}


async def test_a_fallback_is_held_to_it_as_well(coordinator: Coordinator, shop: Shop) -> None:
    """What the step expects holds for the tool that takes its tool's place."""
    rival(shop)
    outcome = await coordinator.run(plan(fallback={"tool": "set_too"}, expect="$before"))
    assert (outcome.status, shop.prices, shop.writes()) == ("COMPENSATED", {"tea": 11}, [])


async def test_each_item_expects_what_was_read_of_it(coordinator: Coordinator, shop: Shop) -> None:
    """Two items are read and written; one of them has changed."""
    shop.prices = {"tea": 10, "oil": 20}
    reads = {"step_id": 1, "tool": "read_price", "each": "$input.items", "params": {"item": "$item"}}
    writes = {
        "step_id": 3,
        "tool": "set_price",
        "each": {"of": "$input.items", "on_error": "collect"},
        "params": {"item": "$item", "price": 1},
    }
    shop.meanwhile = lambda: shop.prices.update(oil=21)
    others = {"step_id": 2, "tool": "others_write"}
    outcome = await coordinator.run({"input": {"items": ["tea", "oil"]}, "steps": [reads, others, writes]})
    assert (outcome.status, shop.prices) == ("COMPLETED", {"tea": 1, "oil": 21})


async def test_a_child_expects_what_it_has_read_itself(coordinator: Coordinator, shop: Shop) -> None:
    """A child is a saga of its own: it knows what it has read."""
    rival(shop)
    outcome = await coordinator.run({"steps": [{"step_id": 1, "saga": {"plan": plan()}}]})
    assert (outcome.status, shop.prices) == ("COMPENSATED", {"tea": 11})


@pytest.mark.parametrize("kind", ["irreversible", "pivot", "retriable"])
async def test_what_cannot_be_undone_expects_as_well(kind: str, coordinator: Coordinator, shop: Shop) -> None:
    """No undo needs the value, and the call does."""
    rival(shop)
    made = plan(kind=kind)
    if kind == "retriable":
        made["steps"].insert(2, {"step_id": "pivot", "tool": "others_write", "kind": "pivot"})
    outcome = await asyncio.wait_for(_end(coordinator, made), 30)
    assert (outcome, shop.prices, shop.writes()) == (outcome, {"tea": 11}, [])


async def _end(coordinator: Coordinator, made: dict[str, Any]) -> str:
    saga_id = (await coordinator.submit(made)).saga_id
    while True:
        seen = await coordinator.show(saga_id)
        if seen.status in ("COMPENSATED", "ESCALATED", "COMPLETED", "FAILED") or seen.body["questions"]:
            return seen.status
        await asyncio.sleep(0)


async def test_a_step_of_finally_expects_as_well(coordinator: Coordinator, shop: Shop) -> None:
    """It is not made either, and the end is what it was."""
    rival(shop)
    made = plan()
    outcome = await coordinator.run({"steps": made["steps"][:2], "finally": [made["steps"][2]]})
    assert (outcome.status, shop.prices, shop.writes()) == ("COMPLETED", {"tea": 11}, [])


# --- by an agent -----------------------------------------------------------------------------------------------------


async def test_an_agent_reads_again_and_decides_anew(coordinator: Coordinator, shop: Shop) -> None:
    """The error tells its model what to do; the second write is made."""
    async with coordinator.session("desk") as session:
        assert await session.call("read_price", item="tea") == {"price": 10}
        shop.prices["tea"] = 11
        with pytest.raises(CallFailed) as caught:
            await session.call("set_price", item="tea", price=12)
        assert caught.value.error_code == "changed_meanwhile"
        assert "read it again" in (caught.value.hint or "")
        assert await session.call("read_price", item="tea") == {"price": 11}
        await session.call("set_price", item="tea", price=12)
        await session.call("set_price", item="tea", price=13)
    assert (shop.prices, shop.writes()) == ({"tea": 13}, ["set tea 12", "set tea 13"])


async def test_an_agent_that_has_read_nothing_writes_nothing(coordinator: Coordinator, shop: Shop) -> None:
    """Not even if it has read another item."""
    async with coordinator.session("desk") as session:
        shop.prices["oil"] = 5
        await session.call("read_price", item="oil")
        with pytest.raises(CallFailed) as caught:
            await session.call("set_price", item="tea", price=12)
        assert caught.value.error_code == "expect_unread"
    assert (shop.prices["tea"], shop.writes()) == (10, [])


async def test_one_call_of_a_session_says_it(coordinator: Coordinator, shop: Shop) -> None:
    """``expect`` of a call; it is recorded with the call, so that its next life expects the same."""
    async with coordinator.session("desk") as session:
        await session.call("read_price", item="tea")
        shop.prices["tea"] = 11
        with pytest.raises(CallFailed):
            await session.call("set_too", item="tea", price=12, expect="$before")
        await session.call("set_too", item="tea", price=12)
        for wrong in ({"expect": "$after"}, {"expect": {"price": "$before.price"}}):
            with pytest.raises(PlanInvalid):
                await session.call("set_too", item="tea", price=12, **wrong)
        with pytest.raises(PlanInvalid) as caught:
            await session.call("blind", item="tea", price=12, expect="$before")
        assert [each.code for each in caught.value.problems] == ["before-missing"]
    assert shop.prices == {"tea": 12}
    added = [record for record in await coordinator.history("desk") if record["k"] == "CallAdded"]
    assert [record.get("expect", "") for record in added] == ["", "$before", ""]


async def test_what_a_rollback_brought_back_is_known(coordinator: Coordinator, shop: Shop) -> None:
    """After the undo of its own write the saga knows the value from before it."""
    async with coordinator.session("desk") as session:
        await session.call("read_price", item="tea")
        place = session.savepoint()
        await session.call("set_price", item="tea", price=12)
        await session.call("read_price", item="tea")
        await session.rollback(place)
        assert shop.prices == {"tea": 10}
        await session.call("set_price", item="tea", price=13)
    assert shop.prices == {"tea": 13}


async def test_no_sale_is_lost(shop: Shop) -> None:
    """Many agents count one number up, each from what it read: the number is the count of those that were let."""
    stock = {"n": 0}

    @tool(effect="read", resource="stock")
    async def get() -> dict:
        await asyncio.sleep(0)
        return {"n": stock["n"]}

    @tool(before=get, undo="take", resource="stock", expect="$before")
    async def put(n: int) -> dict:
        await asyncio.sleep(0)
        stock["n"] = n
        return {}

    @tool(resource="stock")
    async def take(n: int) -> dict:
        stock["n"] = n
        return {}

    dice = random.Random(7)
    counted = [0]

    async def agent(coordinator: Coordinator, name: str) -> None:
        async with coordinator.session(name) as session:
            for _ in range(3):
                seen = (await session.call(get))["n"]
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
                with contextlib.suppress(CallFailed):
                    await session.call(put, n=seen + 1)
                    counted[0] += 1

    async with Coordinator.open("memory://", [get, put, take], durability="relaxed") as coordinator:
        await asyncio.gather(*(agent(coordinator, f"a{number}") for number in range(12)))
    assert stock["n"] == counted[0]
    assert 0 < counted[0] < 36


# --- in doubt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lose", "others", "found"),
    [
        ("before", False, (["set tea 12", "set tea 12"], 12, "COMPLETED")),  # as it was: it is made again
        ("after", False, (["set tea 12"], 12, "COMPLETED")),  # as the call would leave it: it happened
        ("before", True, (["set tea 12"], 11, "RUNNING")),  # another value: nobody knows, an operator is asked
        ("after", True, (["set tea 12"], 11, "RUNNING")),
    ],
)
async def test_a_call_in_doubt_is_looked_at_before_it_is_repeated(
    lose: str, others: bool, found: tuple[list[str], int, str], coordinator: Coordinator, shop: Shop
) -> None:
    """Whatever became of the first attempt, nobody's value is overwritten, and none is called undone."""
    shop.lose = lose
    saga_id = (await coordinator.submit(plan())).saga_id
    for _ in range(2000):
        if shop.writes() and others and shop.prices["tea"] != 11 and not shop.lose:
            shop.prices["tea"] = 11
        seen = await coordinator.show(saga_id)
        if seen.status == "COMPLETED" or seen.body["questions"]:
            break
        await asyncio.sleep(0)
    writes, price, status = found
    assert (shop.writes(), shop.prices["tea"]) == (writes, price)
    if status != "COMPLETED":
        (asked,) = seen.body["questions"]
        assert asked["kind"] == "in-doubt"
        assert asked["error"]["error_code"] == "changed_meanwhile"
    else:
        assert seen.status == status


# --- the other side compares -------------------------------------------------------------------------------------------


class Versions:
    """A record with a version, which its service compares."""

    def __init__(self) -> None:
        self.record = {"text": "a", "version": 1}
        self.calls: list[str] = []
        self.lose = ""

    def tools(self) -> list[Any]:
        own = self

        @tool(effect="read")
        async def get() -> dict:
            own.calls.append("get")
            return dict(own.record)

        @tool(before=get, undo="back", expect={"version": "$before.version"}, retry=ONCE)
        async def put(text: str, version: int, idempotency_key: str) -> dict:
            own.calls.append(f"put {text} {version}")
            lost, own.lose = own.lose, ""
            if version != own.record["version"]:
                raise ToolError("it has another version", error_code="changed_meanwhile", retryable=False)
            if lost != "before":
                own.record = {"text": text, "version": version + 1}
            if lost:
                raise ConnectionError("the line is dead")
            return {}

        @tool
        async def back(text: str) -> dict:
            own.record = {"text": text, "version": own.record["version"] + 1}
            return {}

        return [get, put, back]


async def test_the_other_side_is_told_what_was_read() -> None:
    """No second read is made, no model sees the param, and a refusal names both values."""
    own = Versions()
    async with Coordinator.open("memory://", own.tools(), durability="relaxed") as coordinator:
        spec = ToolRegistry(*own.tools()).spec("put")
        assert spec is not None
        assert set(spec.input_schema["properties"]) == {"text"}
        async with coordinator.session("desk") as session:
            await session.call("get")
            await session.call("put", text="b")
            assert own.calls == ["get", "put b 1", "get"]
            own.record = {"text": "c", "version": 9}
            with pytest.raises(CallFailed) as caught:
                await session.call("put", text="d")
            assert caught.value.error_code == "changed_meanwhile"
            assert '"version":2' in caught.value.message
            assert '"version":9' in caught.value.message
        assert own.record == {"text": "c", "version": 9}
        with pytest.raises(PlanInvalid):
            await coordinator.run(
                {
                    "steps": [
                        {"step_id": 1, "tool": "get"},
                        {"step_id": 2, "tool": "put", "params": {"text": "x", "version": 9}},
                    ]
                }
            )


async def test_a_tool_that_is_its_own_undo_is_told_nothing_by_it() -> None:
    """The engine has compared before the undo: what tells the other side what was read is null there."""
    page = {"text": "a", "version": 1}
    told: list[int | None] = []

    @tool(effect="read")
    async def get() -> dict:
        return dict(page)

    @tool(before=get, undo="put", expect={"version": "$before.version"})
    async def put(text: str, version: int | None) -> dict:
        told.append(version)
        page.update(text=text, version=page["version"] + 1)
        return {}

    @tool
    async def fail() -> None:
        raise ToolError("no", retryable=False)

    steps = [
        {"step_id": 1, "tool": "get"},
        {"step_id": 2, "tool": "put", "params": {"text": "b"}},
        {"step_id": 3, "tool": "fail", "kind": "pivot"},
    ]
    async with Coordinator.open("memory://", [get, put, fail], durability="relaxed") as coordinator:
        outcome = await coordinator.run({"steps": steps})
    assert (outcome.status, page["text"], told) == ("COMPENSATED", "a", [1, None])


@pytest.mark.parametrize("lose", ["before", "after"])
async def test_a_refusal_of_a_repeat_is_no_refusal_of_the_call(lose: str) -> None:
    """A repeat is refused because the first attempt changed the version: the value tells that it happened."""
    own = Versions()
    own.lose = lose
    async with Coordinator.open("memory://", own.tools(), durability="relaxed") as coordinator:
        steps = [{"step_id": 1, "tool": "get"}, {"step_id": 2, "tool": "put", "params": {"text": "b"}}]
        saga_id = (await coordinator.submit({"steps": steps})).saga_id
        for _ in range(3000):
            seen = await coordinator.show(saga_id)
            if seen.status == "COMPLETED" or seen.body["questions"]:
                break
            await asyncio.sleep(0)
    assert own.record["version"] == 2
    assert own.record["text"] == "b"
    assert [call for call in own.calls if call.startswith("put")] == ["put b 1"] * (1 + (lose == "before"))


# --- what is refused, and what is warned of --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expect": "$before"}, "no before"),
        ({"expect": "yes", "before": "get"}, "has no meaning"),
        ({"expect": {}, "before": "get"}, "has no meaning"),
        ({"expect": {"text": "$output.x"}, "before": "get"}, "nothing of the value"),
        ({"expect": {"text": 1}, "before": "get"}, "binds nothing"),
        ({"expect": {"text": "$before.["}, "before": "get"}, "no path"),
        ({"expect": {"other": "$before.x"}, "before": "get"}, "no parameter"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    """With what is wrong about it."""

    @tool(effect="read")
    async def get() -> dict:
        return {}

    async def put(text: str) -> dict:
        return {}

    with pytest.raises(ToolInvalid, match=words):
        ToolRegistry(get, tool(put, semantic="auto", **options)).spec("put")


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([{"step_id": 1, "tool": "set_price", "params": {"item": "tea", "price": 1}}], ["expect-unread"]),
        ([READ, {"step_id": 1, "tool": "set_price", "params": {"item": "tea", "price": 1}}], []),
        (
            [READ, {"step_id": 1, "tool": "blind", "params": {"item": "tea", "price": 1}, "expect": "$before"}],
            ["before-missing"],
        ),
        (
            [
                READ,
                {
                    "step_id": 1,
                    "tool": "set_too",
                    "params": {"item": "tea", "price": 1},
                    "expect": "$before",
                    "fallback": {"tool": "blind"},
                },
            ],
            ["before-missing"],
        ),
        ([READ, {"step_id": 1, "sleep": 1, "expect": "$before"}], ["builtin-invalid"]),
        (
            [READ, {"step_id": 1, "tool": "set_too", "params": {"item": "tea", "price": 1}, "expect": "$output"}],
            ["field-invalid"],
        ),
    ],
)
async def test_a_plan_that_cannot_expect_is_refused(
    steps: list[dict[str, Any]], found: list[str], coordinator: Coordinator
) -> None:
    """Before anything runs, with what is missing."""
    assert [problem.code for problem in coordinator.check({"steps": steps})] == found


async def test_a_step_of_finally_that_cannot_expect_is_refused(coordinator: Coordinator) -> None:
    """Like any other: nothing reads what its tool changes, or no step has read it."""
    for name, code in (("blind", "before-missing"), ("set_too", "expect-unread")):
        last = {"step_id": "last", "tool": name, "params": {"item": "tea", "price": 1}, "expect": "$before"}
        found = coordinator.check({"steps": [{"step_id": 1, "tool": "others_write"}], "finally": [last]})
        assert [(problem.code, problem.path.partition("[0]")[0]) for problem in found] == [(code, "$.finally")]


def test_a_lost_update_is_warned_of(shop: Shop) -> None:
    """A write whose params come from a read of the same value, and which expects nothing of it."""
    registry = ToolRegistry(*shop.tools())

    def warned(**more: Any) -> list[str]:
        params = {"item": "tea", "price": "$output.step_read.price"}
        write = {"step_id": "write", "tool": "set_too", "params": params, **more}
        return [each.code for each in warnings_of(load_plan({"steps": [READ, write]}), registry)]

    assert "lost-update" in warned()
    assert "lost-update" not in warned(expect="$before")


async def test_a_sensitive_value_is_not_told(shop: Shop) -> None:
    """The error names both values, with a mark in place of what is sensitive."""
    shop.options = {"expect": "$before", "sensitive": ["price"]}
    shop.prices = {"tea": "4711-secret"}
    shop.meanwhile = lambda: shop.prices.update(tea="4712-secret")
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan())
    assert "changed_meanwhile" in json.dumps(outcome.body["steps"][2]["error"])
    assert "secret" not in json.dumps(outcome.body["steps"][2]["error"])
    assert shop.prices == {"tea": "4712-secret"}


def test_a_plan_of_today_says_nothing_of_it(shop: Shop) -> None:
    """A tool that expects nothing is compiled as before."""
    made = compile_plan(load_plan(plan(tool="set_too")), ToolRegistry(*shop.tools()))
    read = made.steps[2].before
    assert read is not None
    assert read.expect is None
