"""A fault hides no other, and its hint names what the model may do."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.errors import PlannerFailed
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.testing.scripted import ScriptedPlanner
from tests.planner.refunds import GET, REFUND, RESERVE, SHOP, compared
from tests.planner.scenes import step

OTHER = step("other", "bank.refnd", {"amount": 1})


async def problems(*steps: dict[str, Any], may_use: tuple[str, ...] = ()) -> list[dict[str, str]]:
    specs = [spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None]
    planning = Planning(ScriptedPlanner({"steps": list(steps)}), PlannerSettings(rounds=1, may_use=may_use))
    with pytest.raises(PlannerFailed) as failed:
        await planning.plan("Refund order o-7", specs, catalog=SHOP)
    found: list[dict[str, str]] = failed.value.context["problems"]
    return found


@pytest.mark.parametrize(
    "faulty",
    [
        {"step_id": "a", "compute": [1]},
        {"step_id": "a", "compute": {"plus": [1, 2]}},
        {"step_id": "a", "compute": {"add": [1, 2]}, "params": {"a": 1}},
        {"step_id": "a", "ask": {"options": ["a"]}},
        {"step_id": "a", "wait": {"event": "a b", "first": []}},
        {"step_id": "a", "wait": {"event": "a"}, "tool": "orders.get"},
        {**RESERVE, "step_id": "a", "when": "x > 1"},
        {**RESERVE, "step_id": "a", "each": {"list": "$output.step_b"}},
        {"step_id": "a"},
    ],
)
async def test_a_fault_of_form_hides_no_other(faulty: dict[str, Any]) -> None:
    """The unknown tool of another step is told in the same round, and a binding to the faulty step is no fault."""
    bound = {**RESERVE, "step_id": "b", "params": {"sku": "{$output.step_a}"}}
    found = await problems(faulty, bound, OTHER, may_use=("ask", "wait"))
    codes = {(each["code"], each["path"].split(".")[1]) for each in found}
    assert ("tool-unknown", "steps[2]") in codes
    assert any(place == "steps[0]" for _, place in codes)
    assert not any(place == "steps[1]" and code != "binding-needs-default" for code, place in codes)


async def test_a_fault_of_form_hides_no_rule_for_models() -> None:
    """What was not allowed is told beside params that are no object."""
    found = await problems({**RESERVE, "params": "o-7"}, {"step_id": "w", "sleep": 5})
    assert {each["code"] for each in found} == {"field-invalid", "feature-not-allowed"}


CIRCLES = [
    [{**REFUND, "kind": None}, RESERVE],
    [{**REFUND, "kind": "compensatable"}, RESERVE],
    [REFUND, {**REFUND, "step_id": "more"}],
    [{**REFUND, "kind": "retriable"}],
    [GET, {**REFUND, "when": compared("$output.step_get.state", "paid")}],
    [GET, {**REFUND, "params": {"amount": 1}, "each": "$output.step_get.lines"}],
]


@pytest.mark.parametrize("steps", CIRCLES)
async def test_a_hint_leads_in_no_circle(steps: list[dict[str, Any]]) -> None:
    """Without leave no hint gives the kind that is refused; it names what asks for leave. With leave it names the kind."""
    steps = [{key: value for key, value in each.items() if value is not None} for each in steps]
    for each in await problems(*steps):
        assert '"kind": "irreversible"' not in each["hint"], each
        assert "register an undo" not in each["hint"], "a model registers nothing"
    with_leave = await problems(*steps, may_use=("irreversible", "each"))
    assert not any("needs" in each["hint"] for each in with_leave)


async def test_input_that_nobody_gave_is_left_out_with_a_note() -> None:
    """A model does not add to the input: what it binds there is a problem, and what it binds nowhere is gone."""
    specs = [spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None]
    planner = ScriptedPlanner({"steps": [RESERVE], "input": {"sku": "o-8", "given": "mine"}})
    made = await Planning(planner).plan("Reserve o-7", specs, catalog=SHOP, input={"given": "yours"})
    assert made.plan.input == {"given": "yours"}
    assert any("sku" in note for note in made.notes)
