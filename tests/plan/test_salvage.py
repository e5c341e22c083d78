"""Faults of a plan's form hide none of its other problems."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_engine.errors import PlanInvalid
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.salvage import load_checked
from tests.plan.catalog import TRAVEL

FLIGHT = {"step_id": 1, "tool": "airline_api", "params": {"flight": 7}}
STEPS: list[dict[str, Any]] = [
    FLIGHT,
    {"step_id": 2, "tool": "nope", "params": {"a": "$output.step_9.x"}},
    {"step_id": 3, "tool": "tweet", "params": {"text": "$input.t"}},
]


def told(plan: Any) -> list[tuple[str, str]]:
    with pytest.raises(PlanInvalid) as caught:
        load_checked(plan, TRAVEL)
    return [(problem.code, problem.path) for problem in caught.value.problems]


@pytest.mark.parametrize("place", ["plan", "step", "retry"])
def test_an_unknown_field_hides_no_other_problem(place: str) -> None:
    """One misspelt field, and all the rest is told with it, exactly as it is told without."""
    without = {"steps": STEPS}
    expected = [(problem.code, problem.path) for problem in check_plan(load_plan(without), TRAVEL)]
    assert len(expected) >= 4
    plan = json.loads(json.dumps(without))
    at = {"plan": plan, "step": plan["steps"][0], "retry": plan["steps"][0].setdefault("retry", {})}[place]
    if place != "retry":
        del plan["steps"][0]["retry"]
    at["nonsense"] = 1
    path = {"plan": "$.nonsense", "step": "$.steps[0].nonsense", "retry": "$.steps[0].retry.nonsense"}[place]
    assert told(plan) == [("field-unknown", path), *expected]


def test_what_follows_only_from_a_fault_of_the_form_is_not_told() -> None:
    """A step without its tool is no unknown step for others, and a rollback of a wrong form is not missing."""
    steps = [
        {"step_id": "a", "params": {}},
        {"step_id": "b", "tool": "airline_api", "params": {"flight": "x"}, "depends_on": ["a"], "rollback": 7},
    ]
    assert told({"steps": steps}) == [("field-missing", "$.steps[0].tool"), ("field-invalid", "$.steps[1].rollback")]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"for_each": "$output.step_1.items"}, "$.steps[0].for_each"),
        ({"loop": "$output.step_1.items"}, "$.steps[0].loop"),
        ({"each": {"of": [], "as": "order"}}, "$.steps[0].each.as"),
        ({"each": {"of": [], "parallel": True}}, "$.steps[0].each.parallel"),
    ],
)
def test_a_misspelt_list_is_told_once(fields: dict[str, Any], path: str) -> None:
    """That its `$item` has no list then follows from it, and a hint names the field that is meant."""
    step = {
        "step_id": 1,
        "tool": "tweet",
        "params": {"text": "{$item.name} {$index}"},
        "kind": "irreversible",
        **fields,
    }
    with pytest.raises(PlanInvalid) as refused:
        load_checked({"steps": [step]}, TRAVEL)
    (problem,) = refused.value.problems
    assert problem.path == path
    if problem.code == "field-unknown":
        assert "$item" in problem.hint


def test_what_cannot_be_read_is_told_alone() -> None:
    """No JSON, no steps: there is no rest to check."""
    assert [code for code, _ in told("{")] == ["plan-not-json"]
    assert [code for code, _ in told({"steps": 3})] == ["field-invalid"]
