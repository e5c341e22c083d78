"""Steps with conditions through the public API: a completed saga with a skipped step is undone in reverse."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool

ORDER: list[str] = []


@tool(undo="release")
async def reserve(thing: str) -> dict[str, Any]:
    return {"ref": thing}


@tool
async def release(ref: str) -> None:
    ORDER.append(f"undo of {ref} begins")
    for _ in range(200):  # another one would begin meanwhile
        await asyncio.sleep(0)
    ORDER.append(f"undo of {ref} ends")


def step(key: str, **more: Any) -> dict[str, Any]:
    return {"step_id": key, "tool": "reserve", "params": {"thing": key}, **more}


async def test_the_undo_of_a_completed_saga_keeps_its_order_through_a_skipped_step() -> None:
    """What follows a skipped step is undone before what precedes it, a day later as well; the skipped step counts as none."""
    ORDER.clear()
    no = [{"value": "$output.step_a.ref", "op": "!=", "to": "a"}]
    plan = {"steps": [step("a"), step("b", when=no), step("c", depends_on=["b"])]}
    async with Coordinator.open("memory://", tools=[reserve, release]) as engine:
        done = await engine.run(plan, saga_id="one")
        assert done.completed
        assert done.body["report"]["skipped"] == ["b"]
        await engine.undo("one")
    assert [f"undo of {key} {what}" for key in "ca" for what in ("begins", "ends")] == ORDER


@tool(effect="read")
def search(query: str) -> dict[str, Any]:
    flights = [{"number": "CA1", "price": 250}, {"number": "CA2", "price": 400}, {"number": "CA3", "price": 90}]
    return {"flights": flights[: int(query)]}


@tool(undo="release")
def airline_api(flight: str, date: str) -> dict[str, str]:
    ORDER.append(f"{flight} on {date}")
    return {"ref": flight}


@pytest.mark.parametrize(("found", "answer", "booked"), [("3", "CA3 for 90", "CA3"), ("2", "", "CA1"), ("0", "", "")])
async def test_a_person_chooses_among_the_items_of_an_earlier_output(found: str, answer: str, booked: str) -> None:
    """The plan of docs/plan-format.md: one candidate is taken, of several a person takes one, and none is a failure."""
    ORDER.clear()
    page = (Path(__file__).parents[1] / "docs" / "plan-format.md").read_text(encoding="utf-8")
    (plan,) = re.findall(r"^### Choosing.*?^```json plan\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    async with Coordinator.open("memory://", tools=[search, airline_api, release]) as engine:
        done = await engine.run(plan.replace("flights to Paris", found), saga_id="one")
        if answer:
            assert done.body["questions"][0]["options"] == ["CA1 for 250", "CA3 for 90"]
            done = await engine.resolve("one", "which", answer)
    assert done.status == ("COMPLETED" if booked else "COMPENSATED")
    assert [f"{booked} on 2026-03-01"] * bool(booked) == ORDER
