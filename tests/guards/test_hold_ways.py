"""A saga holds what its calls name, whichever way they come: lists, manifests; and what follows from a release."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.api.holds import held, release
from saga_engine.core.states import COMPENSATED, COMPLETED, ESCALATED
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.pins import PinnedTool
from saga_engine.tools.registry import ToolRegistry
from tests.guards.shop import Shop, holders, opened, plan, waiting

pytestmark = pytest.mark.virtual_time


async def test_the_items_of_a_list_are_held() -> None:
    """Each item's resource is the saga's, also when the item is done: until the saga ends."""
    shop = Shop("a", "b")
    gate = shop.shut("note")
    async with opened(shop) as c:
        takes = {"tool": "take", "each": {"of": ["a", "b"], "parallel": 2}, "params": {"item": "$item"}}
        one = asyncio.create_task(c.run(plan(takes, "note"), saga_id="one"))
        await shop.at("note")
        assert await holders(c) == {"item:a": "one", "item:b": "one"}
        two = asyncio.create_task(c.run(plan(("put", "b")), saga_id="two"))
        await waiting(c, "two")
        gate.set()
        assert [(await each).status for each in (one, two)] == [COMPLETED, COMPLETED]
        assert shop.log == [("take", "a"), ("take", "b"), ("put", "b")]
        assert await holders(c) == {}


async def test_two_lists_in_other_orders_are_in_no_circle() -> None:
    """One of the two gives way and is undone; nothing is held on."""
    shop = Shop("a", "b")
    async with opened(shop) as c:

        def takes(*items: str) -> dict[str, Any]:
            return plan({"tool": "take", "each": {"of": [*items], "parallel": 2}, "params": {"item": "$item"}})

        both = (c.run(takes("a", "b"), saga_id="one"), c.run(takes("b", "a"), saga_id="two"))
        ends = [each.status for each in await asyncio.gather(*both)]
        assert {*ends} <= {COMPLETED, COMPENSATED}
        assert COMPLETED in ends
        assert sum(shop.stock.values()) == 2 - 2 * ends.count(COMPLETED)
        assert await holders(c) == {}


def test_a_manifest_says_what_is_held(caplog: pytest.LogCaptureFixture) -> None:
    """The tools of an MCP server have ``hold`` from its table; one that holds nothing is left out, and that is said."""
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}

    def spec(**table: Any) -> Any:
        made = McpServer("inn", command=["inn"], tools={"get": table})
        made._pins = {"get": PinnedTool("get", "Get it.", schema, None)}
        return ToolRegistry(made.tools()).get("inn.get")

    found = spec(resource="room:{id}", hold="saga", hold_max_s=60)
    assert (found.hold, found.hold_max_s, found.resource) == ("saga", 60, "room:{id}")
    assert spec(resource="room:{id}").hold is None
    for wrong in ({"hold": "saga"}, {"resource": "room:{id}", "hold": "call"}, {"resource": "r", "hold_max_s": 5}):
        caplog.clear()
        assert spec(**wrong) is None
        assert "cannot be used" in caplog.text
        assert "hold" in caplog.text


# --- after a release -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [20, 12])
async def test_after_a_release_an_undo_is_checked_for_drift(value: int) -> None:
    """Others wrote it meanwhile, and be it the same value again: the undo asks, and overwrites nothing unseen."""
    prices = {"tea": 10}
    gate, arrived = asyncio.Event(), asyncio.Event()
    once = RetryPolicy(max_attempts=1)

    @tool(effect="read")
    async def price(item: str) -> dict[str, Any]:
        return {"n": prices[item]}

    @tool(before=price, undo="put", resource="item:{item}", hold="saga", retry=once)
    async def put(item: str, n: int) -> None:
        prices[item] = n

    @tool
    async def nothing() -> None: ...

    @tool(undo=nothing, retry=once)
    async def refuse() -> None:
        arrived.set()
        await gate.wait()
        raise ToolError("no", retryable=False)

    def puts(n: int, *more: Any) -> dict[str, Any]:
        return plan({"tool": "put", "params": {"item": "tea", "n": n}}, *more)

    given = dict(durability="relaxed", on_escalation=(), settings=None)
    async with Coordinator.open("memory://", [price, put, refuse, nothing], **given) as c:  # type: ignore[arg-type]
        one = asyncio.create_task(c.run(puts(12, {"tool": "refuse"}), saga_id="one"))
        await arrived.wait()
        assert [each.saga for each in await release(c.store, resource="item:tea")] == ["one"]
        assert (await c.run(puts(value), saga_id="two")).status == COMPLETED
        gate.set()
        result = await one
        assert (result.status, prices) == (ESCALATED, {"tea": value})
        (asked,) = result.body["questions"]
        assert asked["kind"] == "drift"
        assert [each.saga for each in await held(c.store)] == ["one"], "its undo holds it again"


async def test_after_a_release_a_saga_that_holds_nothing_gives_way_to_nobody() -> None:
    """It can be in no circle any more, so it waits for its turn, although it is younger."""
    shop = Shop("a", "b")
    old, young = shop.shut("note"), shop.shut("pause")
    async with opened(shop) as c:
        one = asyncio.create_task(c.run(plan(("take", "b"), "note"), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(c.run(plan(("take", "a"), "pause", ("take", "b")), saga_id="two"))
        await shop.at("pause")
        await release(c.store, saga_id="two")
        young.set()
        await asyncio.sleep(5)
        assert not two.done()
        assert await holders(c) == {"item:b": "one"}
        old.set()
        assert [(await each).status for each in (one, two)] == [COMPLETED, COMPLETED]
        assert await holders(c) == {}
