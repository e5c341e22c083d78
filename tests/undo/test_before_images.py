"""Calls that change what was there: the value before, the undo that restores it, and what somebody else changed since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from saga_engine import Coordinator, Plan, SagaResult, ToolError, ToolRegistry, tool
from saga_engine.cli.check import runtime_tool_warnings
from saga_engine.errors import PlanInvalid, ToolInvalid
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.tool_spec import RetryPolicy
from saga_engine.settings import Settings

ONCE = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)

BASE = {"step_id": 2, "tool": "read_price", "params": {"item": "tea"}}


class Shop:
    """Prices that tools change, and others as well."""

    def __init__(self) -> None:
        self.prices: dict[str, Any] = {"tea": 10}
        self.calls: list[tuple[Any, ...]] = []
        self.meanwhile: Any = None
        self.reads_fail = 0
        self.lose = ""
        self.options: dict[str, Any] = {}

    def tools(self) -> list[Any]:
        shop = self

        @tool(effect="read", retry=ONCE)
        async def read_price(item: str) -> dict:
            shop.calls.append(("read", item))
            if shop.reads_fail:
                shop.reads_fail -= 1
                raise ToolError("the shop is closed", error_code="closed", retryable=True)
            if item not in shop.prices:
                raise ToolError("no such item", error_code="not_found", retryable=False)
            return {"price": shop.prices[item]}

        @tool(retry=ONCE)
        async def delete_price(item: str) -> dict:
            shop.calls.append(("delete", item))
            del shop.prices[item]
            return {}

        @tool(
            before=read_price,
            undo="set_price",
            absent={"error_code": "not_found"},
            undo_absent=delete_price,
            retry=ONCE,
            **shop.options,
        )
        async def set_price(item: str, price: int) -> dict:
            shop.calls.append(("set", item, price))
            lost, shop.lose = shop.lose, ""
            if lost != "before":
                shop.prices[item] = price
            if lost:
                raise ConnectionError("the line is dead")
            return {"price": price}

        @tool
        async def fail() -> dict:
            if shop.meanwhile is not None:
                shop.meanwhile()
            raise ToolError("no", retryable=False)

        return [read_price, delete_price, set_price, fail]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def coordinator(shop: Shop) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", shop.tools()) as coordinator:
        yield coordinator


def plan(*prices: tuple[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"step_id": item, "tool": "set_price", "params": {"item": item, "price": price}} for item, price in prices
    ]
    return {"steps": [*steps, {"step_id": "fail", "tool": "fail", "kind": "pivot"}]}


async def test_an_update_is_undone_to_the_value_before(coordinator: Coordinator, shop: Shop) -> None:
    """The read comes before the call, after it and before the undo, which restores what was there."""
    outcome = await coordinator.run(plan(("tea", 12)))
    assert (outcome.status, shop.prices) == ("COMPENSATED", {"tea": 10})
    assert shop.calls == [
        *[("read", "tea"), ("set", "tea", 12), ("read", "tea")],
        *[("read", "tea"), ("set", "tea", 10), ("read", "tea")],
    ]
    step = outcome.body["steps"][0]
    assert (step["before"], step["after"]) == ({"value": {"price": 10}}, {"value": {"price": 12}})


async def test_the_image_is_in_the_append_of_the_intent(coordinator: Coordinator, shop: Shop) -> None:
    """The before-image is a field of the intent, the after-image one of the success: no record is theirs alone."""
    outcome = await coordinator.run(plan(("tea", 12)))
    history = await coordinator.history(outcome.saga_id)
    intent = next(record for record in history if record["k"] == "StepIntended")
    success = next(record for record in history if record["k"] == "StepSucceeded")
    assert intent["before"] == {"value": {"price": 10}}
    assert success["after"] == {"value": {"price": 12}}


async def test_each_call_costs_one_more_append(coordinator: Coordinator, shop: Shop) -> None:
    """What has happened is not held back for a read, so the intent has an append of its own; a read costs none."""
    append, appends = coordinator.store.append, [0]

    async def counted(*args: Any, **options: Any) -> Any:
        appends[-1] += 1
        return await append(*args, **options)

    coordinator.store.append = counted  # type: ignore[method-assign]
    read = {"tool": "read_price", "params": {"item": "tea"}}
    write = {"tool": "set_price", "params": {"item": "tea", "price": 12}}
    for step in (read, write):
        steps = [{**step, "step_id": number, "depends_on": [number - 1] * (number > 1)} for number in (1, 2, 3)]
        assert (await coordinator.run({"steps": steps})).completed
        appends.append(0)
    assert appends == [4, 7, 0]


async def test_a_creation_is_undone_by_its_own_undo(coordinator: Coordinator, shop: Shop) -> None:
    """What did not exist before is deleted, and not set to a value that nobody knows."""
    outcome = await coordinator.run(plan(("milk", 5)))
    assert (outcome.status, shop.prices) == ("COMPENSATED", {"tea": 10})
    assert ("delete", "milk") in shop.calls


async def test_drift_is_asked_about(coordinator: Coordinator, shop: Shop) -> None:
    """What somebody else wrote since is not overwritten; the question shows all three values."""
    shop.meanwhile = lambda: shop.prices.update(tea=99)
    outcome = await coordinator.run(plan(("tea", 12)))
    assert (outcome.status, shop.prices["tea"]) == ("ESCALATED", 99)
    question = outcome.body["questions"][0]
    assert (question["kind"], question["options"]) == ("drift", ["undo", "undone", "retry", "accept"])
    images = [question[name]["value"]["price"] for name in ("before", "after", "found")]
    assert images == [10, 12, 99]
    assert outcome.body["report"]["unresolved"] == ["tea"]


@pytest.mark.parametrize(
    ("decision", "status", "price"),
    [("undo", "COMPENSATED", 10), ("accept", "WAIVED", 99), ("undone", "COMPENSATED", 99)],
)
async def test_an_operator_settles_drift(
    coordinator: Coordinator, shop: Shop, decision: str, status: str, price: int
) -> None:
    """Undo anyway, accept, or undone by hand."""
    shop.meanwhile = lambda: shop.prices.update(tea=99)
    outcome = await coordinator.run(plan(("tea", 12)))
    await coordinator.resolve(outcome.saga_id, "tea", decision)
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.prices["tea"]) == (status, price)


async def test_undo_anyway_is_about_the_value_that_was_seen(coordinator: Coordinator, shop: Shop) -> None:
    """If the value changes once more after the question, the answer does not count for the new value."""
    shop.meanwhile = lambda: shop.prices.update(tea=99)
    outcome = await coordinator.run(plan(("tea", 12)))
    shop.prices["tea"] = 100
    await coordinator.resolve(outcome.saga_id, "tea", "undo")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.prices["tea"]) == ("ESCALATED", 100)
    assert outcome.body["questions"][0]["found"] == {"value": {"price": 100}}


async def test_retry_looks_again(coordinator: Coordinator, shop: Shop) -> None:
    """Whoever changed it sets it back; 'retry' then undoes."""
    shop.meanwhile = lambda: shop.prices.update(tea=99)
    outcome = await coordinator.run(plan(("tea", 12)))
    shop.prices["tea"] = 12
    await coordinator.resolve(outcome.saga_id, "tea", "retry")
    outcome = await coordinator.resume(outcome.saga_id)
    assert (outcome.status, shop.prices["tea"]) == ("COMPENSATED", 10)


async def test_nothing_is_left_to_undo(coordinator: Coordinator, shop: Shop) -> None:
    """Somebody has already set it back: the undo is not called, and that is recorded as such."""
    shop.meanwhile = lambda: shop.prices.update(tea=10)
    outcome = await coordinator.run(plan(("tea", 12)))
    assert (outcome.status, shop.calls[-1]) == ("COMPENSATED", ("read", "tea"))
    assert outcome.body["steps"][0]["compensation"]["via"] == "unchanged"
    assert outcome.body["steps"][0]["compensation"]["attempts"] == 0


async def test_a_value_that_cannot_be_read_refuses_the_call(coordinator: Coordinator, shop: Shop) -> None:
    """The read is tried as often as the call; then the step fails, and nothing was called."""
    shop.reads_fail = 2
    outcome = await coordinator.run(plan(("tea", 12)))
    assert (outcome.status, outcome.body["steps"][0]["status"]) == ("COMPENSATED", "FAILED")
    assert outcome.body["steps"][0]["error"]["error_code"] == "image_unread"
    assert shop.calls == [("read", "tea"), ("read", "tea")]
    shop.reads_fail = 1
    assert (await coordinator.run(plan(("tea", 12)))).body["steps"][0]["status"] == "COMPENSATED"


async def test_without_an_after_image_only_the_old_value_is_certain(coordinator: Coordinator, shop: Shop) -> None:
    """The call happened and the read after it failed: whose another value is, nobody can tell, so an operator is asked."""

    def after_it() -> None:
        shop.prices["tea"] = 13

    shop.meanwhile = after_it
    count = 0

    original = shop.prices

    class Closing(dict):  # the read after the call fails, once
        def __setitem__(self, item: str, price: int) -> None:
            nonlocal count
            super().__setitem__(item, price)
            count += 1
            shop.reads_fail = count == 1

    shop.prices = Closing(original)
    outcome = await coordinator.run(plan(("tea", 12)))
    assert (outcome.status, outcome.body["questions"][0]["kind"]) == ("ESCALATED", "drift")
    assert "unread" in outcome.body["steps"][0]["after"]
    assert "its read after the call failed" in outcome.body["questions"][0]["error"]["message"]


@pytest.mark.parametrize("price", [12, 13])
async def test_after_an_operator_s_happened_the_call_s_own_value_is_no_drift(
    coordinator: Coordinator, shop: Shop, price: int
) -> None:
    """There is no after-image: what the params say that the call left is its own, and of another value it is said."""
    shop.lose = "after"
    shop.meanwhile = lambda: shop.prices.update(tea=price)
    outcome = await coordinator.run(plan(("tea", 12)))
    assert outcome.body["questions"][0]["kind"] == "in-doubt"
    outcome = await coordinator.resolve(outcome.saga_id, "tea", "happened", output={"price": 12})
    if price == 12:
        assert (outcome.status, shop.prices["tea"]) == ("COMPENSATED", 10)
        return
    (question,) = outcome.body["questions"]
    assert (question["kind"], question["after"]) == ("drift", None)
    assert "it is not known how the step left it" in question["error"]["message"]
    assert "somebody else" not in question["error"]["message"]


@pytest.mark.parametrize(("lost", "calls"), [("after", 1), ("before", 2)])
async def test_a_sole_writers_read_settles_a_doubt(shop: Shop, lost: str, calls: int) -> None:
    """Nobody else writes: unchanged means not done, changed means done. Without that an operator is asked."""
    shop.options = {"sole_writer": True, "after": "output"}
    shop.lose = lost
    async with Coordinator.open("memory://", shop.tools()) as coordinator:
        outcome = await coordinator.run({"steps": [plan(("tea", 12))["steps"][0]]})
    assert (outcome.status, shop.prices["tea"]) == ("COMPLETED", 12)
    assert outcome.body["steps"][0].get("via") == ("probe" if lost == "after" else None)
    assert [call[0] for call in shop.calls].count("set") == calls


@pytest.mark.parametrize(
    "more",
    [
        {"steps": [{"step_id": 2, "compute": {"value": {"$first": ["$output.step_tea.price", 0]}}}]},
        {"steps": [{"step_id": 2, "compute": {"value": "$output.step_tea.price"}}]},
        {"steps": [{**BASE, "when": {"value": "$output.step_tea.price", "op": "exists"}}]},
        {"own": {"failed_when": {"value": "$output.step_tea.price", "op": "absent"}}},
        {"finally": [{**BASE, "params": {"item": {"$first": ["$output.step_tea.item", "tea"]}}}]},
    ],
    ids=["default", "compute", "when", "failed_when", "finally"],
)
async def test_an_output_that_something_binds_is_never_made_up(shop: Shop, more: dict[str, Any]) -> None:
    """The value says that the call happened, but not what it returned: what binds that does not go on with nothing."""
    shop.options = {"sole_writer": True}
    shop.lose = "after"
    first = {**plan(("tea", 12))["steps"][0], **more.get("own", {})}
    body = {"steps": [first, *more.get("steps", [])], **({"finally": more["finally"]} if "finally" in more else {})}
    async with Coordinator.open("memory://", shop.tools()) as coordinator:
        outcome = await coordinator.run(body)
    assert (outcome.status, shop.prices["tea"]) == ("ESCALATED", 12)


async def test_a_sole_writers_read_settles_a_doubt_in_finally(shop: Shop) -> None:
    """A call of ``finally`` is never undone, but a read may tell whether it happened: the value before is read there."""
    shop.options = {"sole_writer": True}
    shop.lose = "after"
    end = {"step_id": "end", "tool": "set_price", "params": {"item": "milk", "price": 5}}
    read = {"step_id": 1, "tool": "read_price", "params": {"item": "tea"}}
    async with Coordinator.open("memory://", shop.tools()) as coordinator:
        outcome = await coordinator.run({"steps": [read], "finally": [end]})
    assert (outcome.status, shop.prices["milk"], outcome.body["steps"][-1]["via"]) == ("COMPLETED", 5, "probe")
    assert outcome.body["steps"][-1]["before"] == {"absent": True}


async def test_a_session_has_before_images(coordinator: Coordinator, shop: Shop) -> None:
    """An agent's calls are undone to what they overwrote."""
    async with coordinator.session("s") as session:
        await session.call("set_price", item="tea", price=12)
        await session.call("set_price", item="milk", price=3)
        await session.rollback()
    assert shop.prices == {"tea": 10}


async def test_each_item_of_a_list_has_its_own_value(coordinator: Coordinator, shop: Shop) -> None:
    """The read of an item gets its params, its undo binds its own value before, and only a drifted one is asked about."""
    lines = [{"item": "tea", "price": 12}, {"item": "milk", "price": 5}]
    many: dict[str, Any] = {
        "step_id": "all",
        "each": {"of": lines},
        "tool": "set_price",
        "params": {"item": "$item.item", "price": "$item.price"},
        "rollback": {"tool": "set_price", "params": {"item": "$item.item", "price": "$before.price"}},
    }
    steps = [many, {"step_id": "fail", "tool": "fail", "kind": "pivot"}]
    assert (await coordinator.run({"steps": steps})).status == "COMPENSATED"
    assert shop.prices == {"tea": 10}
    shop.meanwhile = lambda: shop.prices.update(tea=99)
    outcome = await coordinator.run({"steps": steps})
    assert [(each["kind"], each["step_id"]) for each in outcome.body["questions"]] == [("drift", "all[0]")]
    assert shop.prices == {"tea": 99}


async def test_the_undo_of_a_completed_saga_restores_the_value_before(coordinator: Coordinator, shop: Shop) -> None:
    """The images go with the effects to the saga that undoes them later: also there, drift is asked about."""
    steps = plan(("tea", 12), ("milk", 5))["steps"][:2]
    await coordinator.run({"steps": steps}, saga_id="one")
    assert (await coordinator.undo("one")).status == "COMPENSATED"
    assert shop.prices == {"tea": 10}
    await coordinator.run({"steps": steps}, saga_id="two")
    shop.prices["tea"] = 99
    undone = await coordinator.undo("two")
    assert (undone.body["questions"][0]["kind"], shop.prices) == ("drift", {"tea": 99})


async def test_a_fork_undoes_to_the_value_before(coordinator: Coordinator, shop: Shop) -> None:
    """A fork that owns an effect knows what was there before it."""
    await coordinator.run({"steps": plan(("tea", 12))["steps"][:1]}, saga_id="one")
    outcome = await coordinator.fork("one", plan=plan(("tea", 12)), new_id="two")
    assert isinstance(outcome, SagaResult)
    assert (outcome.status, shop.prices) == ("COMPENSATED", {"tea": 10})
    assert [call[0] for call in shop.calls].count("set") == 2


def test_a_check_tells_what_temporal_refuses(shop: Shop) -> None:
    """The configured runtime counts: `saga check` warns about steps whose tools it would refuse."""
    steps = [plan(("tea", 12))["steps"][0], {"step_id": 3, "tool": "read_price", "params": {"item": "tea"}}]
    end = {**plan(("tea", 12))["steps"][0], "step_id": 4}
    compiled = compile_plan(Plan.model_validate({"steps": steps, "finally": [end]}), ToolRegistry(shop.tools()))
    found = runtime_tool_warnings(Settings(runtime="temporal://localhost:1/default"), compiled)
    assert [(each.code, each.path) for each in found] == [
        ("runtime-refuses", "$.steps[0]"),
        ("runtime-refuses", "$.finally[0]"),
    ]
    assert runtime_tool_warnings(Settings(), compiled) == []


async def test_an_undo_of_a_session_binds_the_value_before(coordinator: Coordinator, shop: Shop) -> None:
    """``$before`` in the params of an undo that the agent gives."""
    async with coordinator.session("s") as session:
        await session.call(
            "set_price",
            item="tea",
            price=12,
            undo=("set_price", {"item": "tea", "price": "$before.price"}),
        )
        await session.rollback()
    assert shop.prices == {"tea": 10}


async def test_a_rollback_binds_the_value_before(coordinator: Coordinator, shop: Shop) -> None:
    """``$before`` in a plan's rollback, with a path; in the params of a step it binds nothing."""
    steps = plan(("tea", 12))["steps"]
    steps[0]["rollback"] = {"tool": "set_price", "params": {"item": "tea", "price": "$before.price"}}
    assert (await coordinator.run({"steps": steps})).status == "COMPENSATED"
    assert shop.prices == {"tea": 10}
    steps[0]["params"]["item"] = "$before.item"
    with pytest.raises(PlanInvalid) as refused:
        await coordinator.run({"steps": steps})
    assert [problem.code for problem in refused.value.problems] == ["before-misplaced"]


async def test_a_rollback_needs_a_tool_that_reads(coordinator: Coordinator) -> None:
    """``$before`` of a tool without ``before`` is refused before anything runs."""
    steps = [
        {
            "step_id": 1,
            "tool": "delete_price",
            "params": {"item": "tea"},
            "rollback": {"tool": "set_price", "params": {"item": "tea", "price": "$before.price"}},
        }
    ]
    with pytest.raises(PlanInvalid) as refused:
        await coordinator.run(Plan.model_validate({"steps": steps}))
    assert [problem.code for problem in refused.value.problems] == ["before-missing"]


def test_contradictions_are_refused() -> None:
    """Each names the option and what to write instead."""

    def price(item: str) -> None: ...

    with pytest.raises(ToolInvalid, match="has absent but no before"):
        tool(absent={"null": True})(price)
    with pytest.raises(ToolInvalid, match="it reads, so it changes no value"):
        tool(effect="read", before="look")(price)
    with pytest.raises(ToolInvalid, match="belong together"):
        tool(before="look", undo="put", absent={"null": True})(price)
    with pytest.raises(ToolInvalid, match="has no meaning"):
        tool(before="look", undo="put", undo_absent="drop", absent={"gone": True})(price)


async def test_a_read_that_ended_while_the_store_wrote_is_not_made_twice() -> None:
    """A second read of the value, begun before the first one's failure was known, would be the image of a later call.

    What somebody wrote in between would then be overwritten by the undo.
    """
    shop, reads = [10], 0
    first_may_fail, second_may_end, beside_may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def others() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    @tool(effect="read", retry=RetryPolicy(max_attempts=3, base_s=0, jitter=False))
    async def read() -> dict:
        nonlocal reads
        reads += 1
        if reads == 1:
            beside_may_end.set()
            await first_may_fail.wait()
            raise ToolError("the shop is closed", error_code="closed", retryable=True)
        found = shop[0]
        await second_may_end.wait()
        return {"price": found}

    @tool(before=read, undo="change", retry=RetryPolicy(max_attempts=3, base_s=0, jitter=False))
    async def change(price: int) -> dict:
        shop[0] = price
        return {"price": price}

    @tool(effect="read")
    async def beside() -> dict:
        await beside_may_end.wait()
        return {}

    @tool
    async def fail() -> dict:
        raise ToolError("no", retryable=False)

    plan = {
        "steps": [
            {"step_id": 1, "tool": "change", "params": {"price": 15}},
            {"step_id": 2, "tool": "beside", "depends_on": []},
            {"step_id": 3, "tool": "fail", "kind": "pivot", "depends_on": [1, 2]},
        ]
    }
    async with Coordinator.open("memory://", [read, change, beside, fail]) as coordinator:
        append = coordinator.store.append

        async def written(owner: str, entries: Any) -> Any:
            data = b"".join(record for entry in entries for record in entry.records)
            if b"StepSucceeded" in data and reads == 1:
                first_may_fail.set()
                await others()  # the read ends before the store has written
            if b"StepRetryScheduled" in data:
                await others()
                shop[0] = 20
                second_may_end.set()
            return await append(owner, entries)

        coordinator.store.append = written  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            outcome = await coordinator.run(plan)
    assert (outcome.status, shop) == ("COMPENSATED", [20])


async def test_a_whole_value_that_the_call_would_have_left_is_no_drift() -> None:
    """A text is written whole: the param that has it is what the call left, and a created one is known by it as well."""
    notes, lose = {"a": "old"}, ["a", "b"]

    @tool(effect="read", retry=ONCE)
    async def read_note(name: str) -> str:
        if name not in notes:
            raise ToolError("no such note", error_code="not_found", retryable=False)
        return notes[name]

    @tool(retry=ONCE)
    async def drop_note(name: str) -> dict:
        del notes[name]
        return {}

    @tool(
        before=read_note,
        undo="write_note",
        undo_params={"name": "$params.name", "text": "$before"},
        absent={"error_code": "not_found"},
        undo_absent=drop_note,
        retry=ONCE,
    )
    async def write_note(name: str, text: str) -> dict:
        notes[name] = text
        if name in lose:
            lose.remove(name)
            raise ConnectionError("the line is dead")
        return {}

    @tool
    async def fail() -> dict:
        raise ToolError("no", retryable=False)

    steps = [{"step_id": name, "tool": "write_note", "params": {"name": name, "text": "new"}} for name in ("a", "b")]
    async with Coordinator.open("memory://", [read_note, drop_note, write_note, fail], on_escalation=()) as engine:
        await engine.run(
            {"steps": [*steps, {"step_id": "end", "tool": "fail", "kind": "pivot", "depends_on": ["a", "b"]}]},
            saga_id="s",
        )
        for name in ("a", "b"):
            outcome = await engine.resolve("s", name, "happened")
    assert (outcome.status, notes) == ("COMPENSATED", {"a": "old"})
