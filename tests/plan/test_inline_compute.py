"""Computations inside of params: values per item of a list, and operations that nothing would evaluate."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.step_options import with_computations
from tests.plan.catalog import TEXT, Catalog, closed, declare

EVENTS = [{"id": "e1", "start": "2026-03-02", "price": "10.00"}, {"id": "e2", "start": "2026-03-31", "price": "7.50"}]
EVENT = closed(["id", "start", "price"], id=TEXT, start=TEXT, price=TEXT)
LIST = closed(["events"], events={"type": "array", "items": EVENT})
TOOLS = Catalog(
    declare("events.list", closed(["week"], week=TEXT), effect="read", output_schema=LIST),
    declare(
        "events.move", closed(["id", "start"], id=TEXT, start=TEXT, number={"type": "integer"}), undo="events.back"
    ),
    declare("events.back", closed(["id"], id=TEXT), tolerates_absence=True),
    declare("search", {"type": "object", "properties": {"query": {"type": "object"}}}, effect="read"),
    declare(
        "filtered",
        closed(["rule"], rule={"type": "object", "properties": {"sum": TEXT}}),
        effect="read",
    ),
)
GET = {"step_id": "get", "tool": "events.list", "params": {"week": "10"}}
LATER = {"date_add": ["$item.start", "P7D"]}


def move(start: Any, **others: Any) -> dict[str, Any]:
    params = {"id": "$item.id", "start": start}
    return {"step_id": "move", "tool": "events.move", "params": params, "each": "$output.step_get.events", **others}


def codes(*steps: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.code, each.path) for each in check_plan(load_plan({"steps": list(steps)}), TOOLS)]


def test_a_computation_in_params_is_checked_as_one_and_as_a_binding() -> None:
    """Its operands bind what there is, its operation exists, and what it gives is not taken for what it binds."""
    assert codes(GET, move({"$compute": LATER})) == []
    assert codes(GET, move({"$compute": {"date_plus": ["$item.start", "P7D"]}}))[0][0] == "compute-invalid"
    assert codes(GET, move({"$compute": {"date_add": ["$output.step_got.day", "P7D"]}}))[0][0] == "binding-unknown-step"
    absent = move({"$compute": {"date_add": ["$output.step_get.day", "P7D"]}})
    assert ("binding-path-absent", "$.steps[1].params.start") in codes(GET, absent)
    assert codes(GET, move({"$compute": LATER, "places": 2}))[0][0] == "compute-invalid"
    assert codes(GET, move({"$compute": {"date_add": ["no date", "P7D"]}}))[0][0] == "compute-invalid"
    secret = codes(GET, move({"$compute": {"join": ["a", "$secret.TOKEN"]}}))
    assert secret[0][0] == "compute-invalid"


def test_a_known_result_is_checked_by_the_schema() -> None:
    """A computation that binds nothing has its value when the plan is checked."""
    assert codes(GET, move({"$compute": {"add": [1, 2]}}))[0][0] == "params-invalid"
    assert codes(GET, move({"$compute": {"date_add": ["2026-03-01", "P1M"]}})) == []


@pytest.mark.parametrize("where", ["params", "rollback"])
def test_an_operation_that_nothing_evaluates_is_a_problem(where: str) -> None:
    """It would be sent as an object; with a field of that name in the tool's schema it is what it says."""
    step = (
        move(LATER)
        if where == "params"
        else move("x", rollback={"tool": "events.back", "params": {"id": {"join": ["$item.id"]}}})
    )
    path = "$.steps[1].params.start" if where == "params" else "$.steps[1].rollback.params.id"
    assert codes(GET, step) == [("compute-misplaced", path)]
    free = {"step_id": "s", "tool": "search", "params": {"query": {"max": 5}}}
    assert codes(free) == [], "a filter of the tool's own binds nothing"
    bound = {"step_id": "s", "tool": "search", "params": {"query": {"add": ["$output.step_get.events[0].price", 1]}}}
    assert codes(GET, bound) == [("compute-misplaced", "$.steps[1].params.query")]
    declared = {"step_id": "s", "tool": "filtered", "params": {"rule": {"sum": "$output.step_get.events[0].id"}}}
    assert codes(GET, declared) == []


def test_a_misplaced_operation_can_be_mended() -> None:
    """For a model: the object is put into its form, wherever it stands, also under the word of a step."""
    spec = TOOLS.spec("events.move")
    assert spec is not None
    for written in (LATER, {"compute": LATER}):
        made, places = with_computations(spec, {"id": "e1", "start": written})
        assert made == {"id": "e1", "start": {"$compute": LATER}}
        assert places == ["$.start"]
    same = {"id": "e1", "start": {"$compute": LATER}}
    assert with_computations(spec, same) == (same, [])


async def test_a_week_of_events_is_moved() -> None:
    """Each item has a value of its own, with its position; a sum over a list inside has items of its own."""
    moved: list[dict[str, Any]] = []

    @tool(effect="read")
    async def events(week: str) -> dict[str, Any]:
        return {"events": EVENTS}

    @tool(undo="back")
    async def shift(id: str, start: str, number: int, of: float, text: str) -> dict[str, Any]:  # noqa: A002
        moved.append({"id": id, "start": start, "number": number, "of": of, "text": text})
        return {"id": id}

    @tool
    async def back(id: str) -> None:  # noqa: A002
        """Move it back."""

    params = {
        "id": "$item.id",
        "start": {"$compute": {"date_add": ["$item.start", "P7D"]}},
        "number": {"$compute": {"add": ["$index", 1]}},
        "of": {"$compute": {"count": "$output.step_get.events"}},
        "text": "{$item.id}",
    }
    plan = {
        "steps": [
            {"step_id": "get", "tool": "events", "params": {"week": "10"}},
            {"step_id": "all", "tool": "shift", "params": params, "each": "$output.step_get.events"},
        ]
    }
    async with Coordinator.open("memory://", [events, shift, back], durability="relaxed") as coordinator:
        assert (await coordinator.simulate(plan)).clean
        done = await coordinator.run(plan)
    assert done.status == "COMPLETED", done.body
    assert [(each["start"], each["number"], each["of"]) for each in moved] == [
        ("2026-03-09", 1, 2),
        ("2026-04-07", 2, 2),
    ]
