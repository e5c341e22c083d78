"""What a person may do with an undo, and is warned about; and that the usual plans give no warning."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.warnings import warnings_of
from tests.plan.catalog import TEXT, TRAVEL, Catalog, closed, declare

OPEN = declare(
    "ticket", closed(["seat"], seat=TEXT), undo="void", output_schema={"type": "object", "properties": {"code": TEXT}}
)
TOOLS = Catalog(
    *(spec for name in TRAVEL.names() if (spec := TRAVEL.spec(name)) is not None),
    OPEN,
    declare("void", closed(["code"], code=TEXT)),
    declare("shout", closed(["text"], text=TEXT), semantic="approve", output_schema=closed(["id"], id=TEXT)),
)
FLIGHT = {"tool": "airline_api", "params": {"flight": "CA1", "date": "2026-02-01"}}
HOTEL = {"tool": "hotel_api", "params": {"hotel": "Hilton"}}


def warned(*steps: dict[str, Any]) -> list[tuple[str, str]]:
    plan = load_plan({"steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)]})
    assert check_plan(plan, TOOLS) == []
    return [(each.code, each.path) for each in warnings_of(plan, TOOLS)]


def undone(tool: str, **params: Any) -> dict[str, Any]:
    return {"rollback": {"tool": tool, "params": params}}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{**FLIGHT, **undone("hotel_api_cancel", booking_ref="x")}], ("undo-replaced", "$.steps[0].rollback.tool")),
        (
            [{**FLIGHT, **undone("airline_api_cancel", order_id="A-1")}],
            ("undo-redirected", "$.steps[0].rollback.params.order_id"),
        ),
        (
            [FLIGHT, {**FLIGHT, **undone("airline_api_cancel", order_id="$output.step_1.order_id")}],
            ("undo-redirected", "$.steps[1].rollback.params.order_id"),
        ),
        ([{"tool": "tweet", "params": {"text": "hi"}, **undone("tweet", text="no")}], ("undo-unrelated", "$.steps[0].rollback.params")),
        ([{**HOTEL, "kind": "pivot"}], ("undo-switched-off", "$.steps[0].kind")),
        ([{"tool": "shout", "params": {"text": "hi"}}, FLIGHT], ("irreversible-early", "$.steps[0]")),
        (
            [{"tool": "ticket", "params": {"seat": "1A"}}, {**HOTEL, "params": {"hotel": "$output.step_1.seat"}}],
            ("binding-undeclared", "$.steps[1].params.hotel"),
        ),
    ],
)  # fmt: skip
def test_a_weaker_undo_is_told(steps: list[dict[str, Any]], expected: tuple[str, str]) -> None:
    """Replaced, aimed at another object, unrelated, switched off, too late: each has a code and a place."""
    assert warned(*steps) == [expected]


@pytest.mark.parametrize(
    "steps",
    [
        [FLIGHT, HOTEL],
        [{**FLIGHT, **undone("airline_api_cancel", order_id="$output.step_1.order_id")}],
        [{**FLIGHT, **undone("airline_api_cancel", order_id="$output.step_1['order_id']", date="2026-02-01")}],
        [{**HOTEL, **undone("hotel_api_cancel", booking_ref="$output.step_1.ref")}],
        [{**HOTEL, **undone("hotel_api_cancel", booking_ref="$key")}],
        [{"tool": "tweet", "params": {"text": "hi"}, **undone("tweet", text="$output.step_1.id")}],
        [FLIGHT, {"tool": "tweet", "params": {"text": "hi"}, "kind": "pivot"}],
        [FLIGHT, {"tool": "shout", "params": {"text": "hi"}}],
        [{"tool": "shout", "params": {"text": "hi"}}, {**HOTEL, "params": {"hotel": "$output.step_1.id"}}],
        [{"tool": "ticket", "params": {"seat": "1A"}}, {**HOTEL, "params": {"hotel": "$output.step_1.code"}}],
    ],
)  # fmt: skip
def test_the_usual_plans_give_no_warning(steps: list[dict[str, Any]]) -> None:
    """The registered undo in any spelling, a binding to the step's own output, and what must be irreversible last."""
    assert warned(*steps) == []
