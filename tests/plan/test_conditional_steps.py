"""Steps with conditions, and steps that cannot be undone, through the public API."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool

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
    """The plan of docs/plan-steps.md: one candidate is taken, of several a person takes one, and none is a failure."""
    ORDER.clear()
    page = (Path(__file__).parents[2] / "docs" / "plan-steps.md").read_text(encoding="utf-8")
    (plan,) = re.findall(r"^### Choosing.*?^```json plan\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    async with Coordinator.open("memory://", tools=[search, airline_api, release]) as engine:
        done = await engine.run(plan.replace("flights to Paris", found), saga_id="one")
        if answer:
            assert done.body["questions"][0]["options"] == ["CA1 for 250", "CA3 for 90"]
            done = await engine.resolve("one", "which", answer)
    assert done.status == ("COMPLETED" if booked else "COMPENSATED")
    assert [f"{booked} on 2026-03-01"] * bool(booked) == ORDER


@tool(undo="release")
async def priced(thing: str) -> dict[str, Any]:
    ORDER.append(f"{thing} is priced")
    return {"ref": thing, "price": "many"}


#: A word has no order.
UNDECIDABLE = [{"value": "$output.step_a.price", "op": ">", "to": 100}]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"when": UNDECIDABLE}, "when_undecidable"),
        ({"when": {"not": UNDECIDABLE}}, "when_undecidable"),
        ({"failed_when": [{"value": "$output.step_b.price", "op": ">", "to": 100}]}, "failed_when_undecidable"),
    ],
)
async def test_conditions_that_cannot_be_evaluated_are_failures(second: dict[str, Any], code: str) -> None:
    """Neither a yes nor a no: nothing is called on either side of it, and what happened is undone."""
    ORDER.clear()
    steps = [{"step_id": key, "tool": "priced", "params": {"thing": key}} for key in ("a", "b", "c")]
    steps[1] |= second
    async with Coordinator.open("memory://", tools=[priced, release]) as engine:
        done = await engine.run({"steps": steps})
    called = ["a is priced"] if "when" in second else ["a is priced", "b is priced"]
    undone = [f"undo of {key[0]} {what}" for key in reversed(called) for what in ("begins", "ends")]
    assert (done.status, done.body["steps"][1]["error"]["error_code"], done.report["clean"]) == (
        "COMPENSATED",
        code,
        True,
    )
    assert [*called, *undone] == ORDER


@tool
async def announce(thing: str) -> dict[str, Any]:
    return {"ref": thing}


@tool(undo="release")
async def refused(thing: str) -> dict[str, Any]:
    raise ToolError("sold out", error_code="full", retryable=False)


async def test_what_cannot_be_undone_is_reported_as_left() -> None:
    """An irreversible step in the middle: what is around it is undone, it remains, and no report calls that clean."""
    ORDER.clear()
    said = [{"step_id": key, "tool": "announce", "params": {"thing": key}, "kind": "irreversible"} for key in "xy"]
    steps = [step("a"), said[0], step("b"), said[1]]
    async with Coordinator.open("memory://", tools=[reserve, release, announce, refused]) as engine:
        done = await engine.run({"steps": [*steps, {**step("c"), "tool": "refused"}]})
        whole = await engine.run({"steps": steps})
    assert (done.status, done.report["left_in_place"], done.report["clean"]) == ("WAIVED", ["x", "y"], False)
    assert done.report["compensated"] == ["a", "b"]
    assert [f"undo of {key} {what}" for key in "ba" for what in ("begins", "ends")] == ORDER
    assert (whole.status, whole.report["clean"]) == ("COMPLETED", True)
