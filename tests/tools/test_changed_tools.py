"""A tool that changed between the submission of a saga and its call: an operator is asked."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool

LOG: list[Any] = []


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    LOG.clear()


@tool(undo="release")
async def reserve(what: str = "seat") -> dict:
    LOG.append(f"reserve {what}")
    return {"ref": what}


@tool
async def release(ref: str) -> dict:
    LOG.append(f"release {ref}")
    return {}


def plan(params: dict[str, Any]) -> dict[str, Any]:
    """One step with these params."""
    return {"steps": [{"step_id": 1, "tool": "reserve", "params": params}]}


@pytest.fixture
async def engine():
    async with Coordinator.open("memory://", [reserve, release]) as coordinator:
        yield coordinator


async def test_a_tool_that_changed_under_a_saga_is_a_question(engine) -> None:
    """The schema no longer takes what was planned: a person is asked, the step has not failed."""
    handle = await engine.submit(plan({"what": "aisle"}), saga_id="old", detach=True)
    await handle.wait()

    @tool(name="reserve", undo="release")
    async def changed(row: int) -> dict:
        return {"ref": str(row)}

    async with Coordinator.open(engine.store, [changed, release]) as newer:
        outcome = await newer.resume("old")
    assert (outcome.status, outcome.body["questions"][0]["kind"]) == ("ESCALATED", "tool-changed")
    assert LOG == []


@pytest.mark.parametrize("steered", [{}, {"row": 3}])
async def test_a_tool_that_changed_beside_a_secret_is_a_question(engine, monkeypatch, steered: dict) -> None:
    """The names of params are known although a value is secret: one that is missing, or unknown today, is seen."""
    monkeypatch.setenv("DESK_TOKEN", "s3cret")

    @tool(name="reserve", undo="release")
    async def old(token: str, row: int = 1) -> dict:
        return {"ref": "x"}

    @tool(name="reserve", undo="release")
    async def newer(token: str, seat: str = "") -> dict:
        LOG.append("newer")
        return {"ref": seat}

    @tool(name="reserve", undo="release")
    async def newest(token: str, seat: str) -> dict:
        LOG.append("newest")
        return {"ref": seat}

    secrets = {"reserve": ["DESK_TOKEN"]}
    async with Coordinator.open(engine.store, [old, release], secrets=secrets) as first:
        handle = await first.submit(plan({"token": "$secret.DESK_TOKEN", **steered}), saga_id="old", detach=True)
        await handle.wait()
    async with Coordinator.open(engine.store, [newer if steered else newest, release]) as second:
        outcome = await second.resume("old")
    assert (outcome.status, outcome.body["questions"][0]["kind"]) == ("ESCALATED", "tool-changed")
    assert "s3cret" not in str(outcome.to_dict())
    assert LOG == []
