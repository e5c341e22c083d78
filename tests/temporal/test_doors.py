"""What the matrix of ``tests/doors`` asks of each way, asked of sagas in Temporal: the same files of settings hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from saga_engine import ToolError, tool
from saga_engine.errors import SagaError
from tests.doors import shop
from tests.support.bombs import BOMB
from tests.temporal.conftest import Place

CARD = "4000-1234-5678"
HUSH = "4000-hush"
PARAMS = {"amount": 5, "card": CARD}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of client, worker and tools."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARD", HUSH)
    return tmp_path


async def told(place: Place, step: Mapping[str, Any]) -> str:
    """What the caller is shown of a plan with this step, be it an error."""
    async with place.both(shop.TOOLS) as coordinator:
        try:
            plan = {"steps": [{"step_id": 7, **step}]}
            return json.dumps((await coordinator.run(plan, saga_id=place.saga_id("door"))).to_dict())
        except SagaError as error:
            return f"{error} {json.dumps(error.to_dict())}"


def pay(params: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool": "pay", "params": dict(params)}


async def test_the_policy_of_the_folder_holds(place: Place, folder: Path) -> None:
    """A denied call is not made, and the caller learns why."""
    (folder / "saga.toml").write_text('[[policy.rules]]\nname = "nobody pays"\ntools = ["pay"]\nverdict = "deny"\n')
    assert "nobody pays" in await told(place, pay(PARAMS))
    assert shop.ledger() == []


async def test_a_secret_that_is_not_allowed_reaches_no_tool(place: Place, folder: Path) -> None:
    """A plan that binds it is refused."""
    (folder / "saga.toml").write_text("[secrets]\nallow = {}\n")
    assert HUSH not in await told(place, pay({"amount": 5, "card": "$secret.CARD"}))
    assert HUSH not in json.dumps(shop.ledger())


async def test_a_saga_costs_no_more_than_its_budget(place: Place, folder: Path) -> None:
    """A call beyond it is not made, and the caller learns what is spent."""
    (folder / "saga.toml").write_text("[limits]\nmax_cost = { usd = 0.5 }\n\n[agents.costs]\npay = { usd = 1.0 }\n")
    assert "0 of 0.5 usd of this saga are spent" in await told(place, pay(PARAMS))
    assert shop.ledger() == []


async def test_a_value_that_the_schema_refuses_reaches_no_tool(place: Place, folder: Path) -> None:
    """The caller learns which param it is."""
    assert "amount" in await told(place, pay({"amount": "five", "card": CARD}))
    assert shop.ledger() == []


async def test_a_schema_that_takes_exponential_time_is_refused(place: Place, folder: Path) -> None:
    """Where the plan is read, before there is a saga."""
    assert "references written out" in await told(place, {"ask": {"question": "How much?", "schema": BOMB}})


async def test_an_undo_that_only_says_so_is_found_out(place: Place, folder: Path) -> None:
    """The undo's own probe is asked in the workflow, and nothing counts as undone."""
    (folder / shop.LIES).touch()
    async with place.both(shop.TOOLS) as coordinator:
        fails = {"step_id": 8, "tool": "wire", "params": {"amount": 1, "card": CARD}}
        plan = {"steps": [{"step_id": 7, **pay(PARAMS)}, fails]}
        result = await coordinator.run(plan, saga_id=place.saga_id("lies"))
    assert (result.status, result.report["failed"]) == ("ESCALATED", [7])
    assert [each["kind"] for each in result.body["questions"]] == ["undo-unverified"]


ORDERS: dict[str, str] = {}


@tool(effect="read")
async def find_order(name: str) -> str | None:
    return ORDERS.get(name)


@tool(
    undo="cancel_order", undo_check={"tool": "find_order", "params": {"name": "$output.name"}, "shows": {"null": True}}
)
async def place_order(name: str) -> dict[str, str]:
    ORDERS[name] = "open"
    return {"name": name}


@tool
async def cancel_order(name: str) -> None:
    if name != "lie":
        del ORDERS[name]


@tool(undo=cancel_order)
async def refuse_order(name: str) -> None:
    raise ToolError("no", retryable=False)


@pytest.mark.parametrize("name", ["truth", "lie"])
async def test_an_undo_is_checked_by_its_read(place: Place, name: str) -> None:
    """``undo_check`` is read in the workflow: what it shows is verified, what it does not show is asked about."""
    ORDERS.clear()
    async with place.both([find_order, place_order, cancel_order, refuse_order]) as coordinator:
        steps = [
            {"step_id": 7, "tool": "place_order", "params": {"name": name}},
            {"step_id": 8, "tool": "refuse_order", "params": {"name": name}, "depends_on": [7]},
        ]
        result = await coordinator.run({"steps": steps}, saga_id=place.saga_id(f"checked-{name}"))
    if name == "truth":
        assert (result.status, result.report["verified"], ORDERS) == ("COMPENSATED", [7], {})
    else:
        assert [each["kind"] for each in result.body["questions"]] == ["undo-unverified"]
        assert (result.status, result.report["compensated"]) == ("ESCALATED", [])


async def test_an_undo_is_the_registered_one(place: Place, folder: Path) -> None:
    """With what the call returned, once, under a key of the undo's own; nothing sensitive is shown."""
    async with place.both(shop.TOOLS) as coordinator:
        fails = {"step_id": 8, "tool": "wire", "params": {"amount": 1, "card": CARD}}
        plan = {"steps": [{"step_id": 7, **pay(PARAMS)}, fails]}
        result = await coordinator.run(plan, saga_id=place.saga_id("undone"))
        shown = json.dumps([result.to_dict(), await coordinator.history(result.saga_id)])
    assert (result.status, result.report["clean"]) == ("COMPENSATED", True)
    paid, refunded = shop.ledger()
    assert (paid["card"], refunded["payment"]) == (CARD, "P5")
    assert refunded["key"] not in {"", paid["key"]}
    assert CARD not in shown
