"""A completed saga is undone a day later, by another process, on a real server whose clock has gone on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, SagaResult, ToolContext, ToolError, tool
from saga_engine.testing.ledger import OutsideLedger
from tests.support.servers import EmbeddedFolder
from tests.support.wait_races import SHIFT, movable_clock

DAY_MS = 24 * 3600 * 1000
PRICES = {"tea": 12, "rum": 12}
PLAN = {
    "steps": [
        {"step_id": 1, "tool": "book", "params": {"item": "flight"}},
        {"step_id": 2, "tool": "set_price", "params": {"item": "tea", "price": 20}},
        {"step_id": 3, "tool": "set_price", "params": {"item": "rum", "price": 30}},
        {"step_id": 4, "tool": "book", "params": {"item": "hotel"}},
    ]
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedFolder]:
    with movable_clock(tmp_path), EmbeddedFolder(tmp_path / "saga") as server:
        yield server


def tools_of(ledger: OutsideLedger, prices: dict[str, int]) -> list[Any]:
    @tool(keyed=True, undo="cancel")
    async def book(item: str, ctx: ToolContext) -> dict[str, str]:
        ledger.sent(ctx, "book")
        return ledger.apply(ctx, "book", {"item": item})  # type: ignore[no-any-return]

    @tool(keyed=True)
    async def cancel(item: str, ctx: ToolContext) -> dict[str, str]:
        ledger.sent(ctx, "cancel")
        return ledger.apply(ctx, "cancel", {"item": item})  # type: ignore[no-any-return]

    @tool(effect="read")
    async def read_price(item: str) -> dict[str, int]:
        if item not in prices:
            raise ToolError("there is none", error_code="not_found", retryable=False)
        return {"price": prices[item]}

    @tool(before=read_price, undo="set_price")
    async def set_price(item: str, price: int) -> dict[str, int]:
        prices[item] = price
        return {}

    return [book, cancel, read_price, set_price]


async def test_a_completed_trip_is_undone_a_day_later(server: EmbeddedFolder, tmp_path: Path) -> None:
    """Each effect once and in reverse; a price that somebody set meanwhile is asked about, and stays unless permitted."""
    ledger, prices = OutsideLedger(tmp_path / "world.db"), dict(PRICES)
    async with Coordinator.open(server.url, tools_of(ledger, prices), on_escalation=()) as engine:
        assert (await engine.run(PLAN, saga_id="trip")).status == "COMPLETED"
        ended_ms = (await engine.history("trip"))[-1]["at"]
        assert prices == {"tea": 20, "rum": 30}
        await engine.store._plain("SET", SHIFT, str(DAY_MS))  # type: ignore[attr-defined]
    prices["rum"] = 99  # somebody else
    async with Coordinator.open(server.url, tools_of(ledger, prices), on_escalation=()) as engine:
        asked = await engine.undo("trip", by="eve")
        assert isinstance(asked, SagaResult)
        assert [question["kind"] for question in asked.body["questions"]] == ["drift"]
        assert prices["rum"] == 99
        outcome = await engine.resolve("trip-undo", 3, "accept", by="ada")
        assert (outcome.status, prices) == ("WAIVED", {"tea": 12, "rum": 99})
        assert outcome.body["report"]["left_in_place"] == [3]
        assert (await engine.history("trip-undo"))[0]["at"] >= ended_ms + DAY_MS
        again = await engine.undo("trip")
        assert isinstance(again, SagaResult)
        assert (again.saga_id, again.status) == ("trip-undo", "WAIVED")
    done = [(line.tool, line.output["item"]) for line in ledger.lines(what="applied")]
    assert done == [("book", "flight"), ("book", "hotel"), ("cancel", "hotel"), ("cancel", "flight")]
