"""While an operator is asked about the undo of a later call, an earlier one that provably has nothing to do with it goes on."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from saga_engine import Coordinator, NeedsPerson, RetryPolicy, ToolError, tool
from saga_engine.core.codec import decode
from saga_engine.core.fold import state_of
from saga_engine.core.undo_ahead import would_wait

ONCE = RetryPolicy(max_attempts=1)
PRICES: dict[str, int] = {}
BACK = {"item": "$params.item", "price": "$before"}
#: Items whose price cannot be set back.
STUCK: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    PRICES.clear()
    STUCK.clear()
    PRICES.update(tea=10, milk=20, pot=30)


@tool(effect="read")
async def read_price(item: str) -> int:
    return PRICES[item]


@tool(before="read_price", undo="put_price", undo_params=BACK, retry=ONCE)
async def set_price(item: str, price: int, why: str = "") -> str:
    PRICES[item] = price
    return f"changed as {why or 'asked'}: receipt {price}-{len(item)}"


@tool(before="read_price", undo="put_price", undo_params=BACK, retry=ONCE, resource="till:{till}")
async def set_at_till(item: str, price: int, till: str = "one") -> None:
    PRICES[item] = price


@tool(before="read_price", undo="put_price", undo_params=BACK, retry=ONCE, resource=lambda params: "x")
async def set_locked(item: str, price: int) -> None:
    PRICES[item] = price


@tool(effect="read")
async def read_in(shop: str, item: str) -> int:
    return PRICES[item]


@tool(before="read_in", undo="put_price", undo_params=BACK, retry=ONCE)
async def set_in(shop: str, item: str, price: int) -> None:
    PRICES[item] = price


@tool(before="read_price", undo="put_noted", undo_params={**BACK, "note": "$params.note"}, retry=ONCE)
async def set_with_note(item: str, price: int, note: str = "") -> dict[str, str]:
    PRICES[item] = price
    return {"order": f"ord-{price}7"}


@tool(before="read_price", undo="put_noted", undo_params={**BACK, "note": "ord-117"}, retry=ONCE)
async def set_by_order(item: str, price: int) -> None:
    PRICES[item] = price


@tool(retry=ONCE)
async def put_noted(item: str, price: int, note: str) -> None:
    await put_price(item, price)


@tool(before="read_price", undo="put_price", undo_params=BACK, retry=ONCE)
async def set_rows(item: str, rows: list[str]) -> list[str]:
    PRICES[item] = len(rows)
    return rows


@tool(semantic="approve", retry=ONCE)
async def ship(item: str) -> None:
    """Nothing undoes it by itself."""


@tool(undo="unsay", retry=ONCE)
async def say(item: str) -> None:
    PRICES[f"said {item}"] = 1


@tool(retry=ONCE)
async def unsay(item: str) -> None:
    del PRICES[f"said {item}"]


@tool(retry=ONCE)
async def put_price(item: str, price: int) -> None:
    if item in STUCK:
        raise ToolError("no", retryable=False)
    PRICES[item] = price


TOOLS = [read_price, set_price, set_at_till, set_locked, say, unsay, put_price]
TOOLS += [read_in, set_in, set_with_note, set_by_order, put_noted, set_rows, ship]


Call = tuple[Any, dict[str, Any]]
TEA: Call = (set_price, {"item": "tea", "price": 11})
MILK: Call = (set_price, {"item": "milk", "price": 22})


async def rolled_back(coordinator: Coordinator, way: str, *calls: Call) -> None:
    """A session makes these calls, and they are taken back: all, those since a savepoint, or a day later."""
    with suppress(NeedsPerson):
        async with coordinator.session("shop", goal="prices") as s:
            point = s.savepoint()
            for made, params in calls:
                await s.call(made, **params)
            if way == "savepoint":
                await s.rollback(point)
            elif way == "all":
                await s.rollback()
    if way == "later":
        await coordinator.undo("shop")


@pytest.mark.parametrize("way", ["all", "savepoint", "later"])
async def test_what_does_not_depend_on_it_is_undone_while_an_operator_is_asked(way: str) -> None:
    """In every kind of rollback. The report says so, and what the operator answers comes after it."""
    STUCK.add("milk")
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:
        await rolled_back(coordinator, way, TEA, MILK)
        assert (PRICES["tea"], PRICES["milk"]) == (10, 22)
        saga = "shop" if way != "later" else "shop-undo"
        shown = (await coordinator.show(saga)).body
        assert [question["step_id"] for question in shown["questions"]] == [2]
        assert (shown["report"]["compensated"], shown["report"]["clean"]) == ([1], False)
        STUCK.clear()
        await coordinator.resolve(saga, 2, "retry")
        await coordinator.resume(saga)
        assert (PRICES["tea"], PRICES["milk"]) == (10, 20)


async def test_what_follows_in_reverse_waits_for_both() -> None:
    """What comes before an undo that went ahead waits for it, and for the one that an operator is asked about."""
    STUCK.update(("tea", "milk"))
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:
        await rolled_back(coordinator, "all", (say, {"item": "x"}), TEA, MILK)
        assert [each["step_id"] for each in (await coordinator.show("shop")).body["questions"]] == [3, 2]
        STUCK.remove("milk")
        await coordinator.resolve("shop", 3, "retry")
        await coordinator.resume("shop")
        assert (PRICES["milk"], PRICES["said x"]) == (20, 1)
        STUCK.clear()
        await coordinator.resolve("shop", 2, "retry")
        await coordinator.resume("shop")
        assert (PRICES["tea"], "said x" in PRICES) == (10, False)


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (TEA, MILK, False),
        (TEA, (set_price, {"item": "tea", "price": 22}), True),  # one object
        ((say, {"item": "x"}), MILK, True),  # nobody knows what it changes
        # The later one names the object of the first; it has a value that the first returned; or it was given it as well.
        (TEA, (set_price, {"item": "milk", "price": 22, "why": "as Tea costs more"}), True),
        (TEA, (set_price, {"item": "milk", "price": 22, "why": "see receipt 11-3"}), True),
        ((set_price, {"item": "tea", "price": 11, "why": "sale"}), (set_price, {**MILK[1], "why": "sale"}), False),
        # The tools lock the same, or something else, or a function says what.
        ((set_at_till, TEA[1]), (set_at_till, {**MILK[1], "till": "one"}), True),
        ((set_at_till, TEA[1]), (set_at_till, {**MILK[1], "till": "two"}), False),
        ((set_locked, TEA[1]), MILK, True),
        # The undo of the later one names what the first returned.
        ((set_with_note, {**TEA[1], "note": "-"}), (set_by_order, MILK[1]), True),
        ((set_with_note, {**TEA[1], "note": "-"}), (set_with_note, {**MILK[1], "note": "+"}), False),
        # It names a part of what tells the first one's object: more than a number like 1.
        ((set_in, {"shop": "north", **TEA[1]}), (set_price, {**MILK[1], "why": "as in north"}), True),
        ((set_in, {"shop": "north", **TEA[1]}), (set_in, {"shop": "north", **MILK[1]}), True),
        ((set_in, {"shop": "1", **TEA[1]}), (set_in, {"shop": "1", **MILK[1]}), False),
        # One of them says too much to be compared.
        (TEA, (set_price, {**MILK[1], "why": "z" * 20_001}), True),
        ((set_price, {**TEA[1], "why": "z" * 20_001}), MILK, True),
        (TEA, (set_price, {**MILK[1], "why": "z" * 5_000}), False),
    ],
)
async def test_what_is_not_proven_waits(first: Call, second: Call, waits: bool) -> None:
    """Only calls that change objects of their own, and of which neither has a value of the other, are independent."""
    STUCK.add(second[1]["item"])
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:
        await rolled_back(coordinator, "all", first, second)
        shown = (await coordinator.show("shop")).body
        assert (shown["report"]["compensated"], len(shown["questions"])) == ([] if waits else [1], 1)
        assert await foretold(coordinator, 1, asks={1}) == ({0} if waits else set())


async def foretold(coordinator: Coordinator, last: int, asks: set[int]) -> set[int]:
    """What a preview says of the calls up to that one: those which would wait."""
    state = state_of([decode(data) for data in await coordinator.store.read("shop")], coordinator.tools)
    began = time.process_time()
    waits = would_wait(state, range(last, -1, -1), asks)
    assert time.process_time() - began < 0.5
    return waits


async def test_what_a_person_makes_up_for_is_passed_by_nothing() -> None:
    """It has no undo, and has not been asked about: nobody knows what making up for it will touch."""
    STUCK.add("milk")
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:
        await rolled_back(coordinator, "all", TEA, (ship, {"item": "tea"}), MILK)
        assert (await coordinator.show("shop")).body["report"]["compensated"] == []
        assert PRICES["tea"] == 11
        assert await foretold(coordinator, 2, asks={1, 2}) == await foretold(coordinator, 2, asks={2}) == {0}


def rows(item: str) -> Call:
    return set_rows, {"item": item, "rows": [f"{item} {number}" for number in range(3_000)]}


def chain(length: int) -> list[Call]:
    """Calls of which each names the object of the one before it."""
    PRICES.update({f"item {number}.": 1 for number in range(length)})
    return [(set_price, {"item": f"item {n}.", "price": 22, "why": f"after item {n - 1}."}) for n in range(length)]


@pytest.mark.parametrize("many", ["values", "calls"])
async def test_the_work_of_a_comparison_is_bounded(many: str) -> None:
    """Calls of thousands of values, and hundreds of calls that wait, are not compared: nothing passes them."""
    calls = [rows("tea"), rows("milk")] if many == "values" else [TEA, *chain(400)]
    STUCK.add(calls[-1][1]["item"])
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:
        await rolled_back(coordinator, "all", *calls)
        last = len(calls) - 1
        assert await foretold(coordinator, last, asks={last}) == set(range(last))
        assert (await coordinator.show("shop")).body["report"]["compensated"] == []


async def test_one_object_under_two_names_is_drift() -> None:
    """The proof may err about a name; then the undo looks first, and overwrites nothing."""
    STUCK.add("milk")
    async with Coordinator.open("memory://", tools=TOOLS) as coordinator:

        @tool(before="read_price", undo="put_price", undo_params=BACK, retry=ONCE)
        async def set_alias(item: str, price: int) -> None:
            PRICES[item] = PRICES["tea"] = price

        coordinator.register(set_alias)
        await rolled_back(coordinator, "all", TEA, (set_alias, MILK[1]))
        kinds = {each["step_id"]: each["kind"] for each in (await coordinator.show("shop")).body["questions"]}
        assert (kinds, PRICES["tea"]) == ({2: "undo-failed", 1: "drift"}, 22)
