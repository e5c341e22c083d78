"""Steps whose conditions exclude each other are simulated apart."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.analysis.branches import branches
from saga_engine.analysis.simulation import rehearse
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from tests.plan.catalog import TEXT, Catalog, closed, declare

STATE = {"type": "string", "enum": ["open", "paid", "lost"]}
TOOLS = Catalog(
    declare(
        "look",
        closed([]),
        effect="read",
        output_schema=closed(["state", "total"], state=STATE, total={"type": "number"}),
    ),
    declare("pay", closed(["to"], to=TEXT)),
    declare("mail", closed(["to"], to=TEXT)),
)
LOOK = {"step_id": "look", "tool": "look"}


def final(key: str, tool: str, op: str, to: Any, field: str = "state") -> dict[str, Any]:
    when = [{"value": f"$output.step_look.{field}", "op": op, "to": to}]
    return {"step_id": key, "tool": tool, "params": {"to": "a"}, "kind": "irreversible", "when": when}


def compiled(*steps: dict[str, Any]) -> Any:
    return compile_plan(load_plan({"steps": [LOOK, *steps]}), TOOLS)


@pytest.mark.parametrize(
    ("one", "other", "many"),
    [
        (("==", "paid"), ("!=", "paid"), 2),
        (("==", "paid"), ("==", "open"), 3),
        (("in", ["paid", "open"]), ("not-in", ["paid", "open"]), 2),
        (("==", "paid"), ("in", ["paid", "open"]), 1),
        ((">", 100, "total"), ("<=", 100, "total"), 2),
        ((">", 100, "total"), (">", 200, "total"), 1),
    ],
)
def test_conditions_that_exclude_each_other_make_branches(one: Any, other: Any, many: int) -> None:
    """Two effects that are never both there are never left together; those that can be are simulated in one run."""
    plan = compiled(final("a", "pay", *one), final("b", "mail", *other))
    assert len(branches(plan)) == many
    played = rehearse(plan)
    assert played.goes_well.status == "COMPLETED"
    together = [each for each in played.scenarios if set(each.standing) >= {"a"} and each.step_id == "b"]
    assert bool(together) is (many == 1)
    assert {each.step_id for each in played.scenarios} >= {"a", "b"}, "each branch is played"


def test_a_plan_without_branches_is_itself() -> None:
    """One condition, or conditions on other values, decide nothing of each other."""
    alone = compiled(final("a", "pay", "==", "paid"))
    assert branches(alone) == [alone]
    apart = compiled(final("a", "pay", "==", "paid"), final("b", "mail", ">", 5, "total"))
    assert branches(apart) == [apart]


def test_a_step_between_two_thresholds_is_simulated() -> None:
    """A number between the constants runs it, however near to each other they are."""
    between = {**final("b", "mail", ">", 0.5, "total")}
    between["when"] = [*between["when"], {"value": "$output.step_look.total", "op": "<", "to": 0.7}]
    plan = compiled(final("a", "pay", "<=", 0.5, "total"), between, final("c", "pay", ">=", 0.7, "total"))
    assert {each.step_id for each in rehearse(plan).scenarios} == {"look", "a", "b", "c"}


@pytest.mark.parametrize(("count", "many"), [(12, 13), (20, 1)])
def test_no_step_of_many_ways_is_left_out(count: int, many: int) -> None:
    """More branches than are simulated apart are simulated as one run: never only some of them."""
    ways = [final(f"w{at}", "pay", "==", at, "total") for at in range(count)]
    plan = compiled(*ways)
    assert len(branches(plan)) == many
    assert {each.step_id for each in rehearse(plan).scenarios} >= {each["step_id"] for each in ways}


def test_a_step_that_no_value_lets_run_is_simulated_with_all_others() -> None:
    """What looks impossible may be only unknown to the analysis: its failure is told all the same."""
    never = final("c", "mail", "==", 1, "total")
    never["when"] = [*never["when"], {"value": "$output.step_look.total", "op": "==", "to": 2}]
    plan = compiled(final("a", "pay", "<=", 1, "total"), final("b", "pay", ">", 1, "total"), never)
    assert {each.step_id for each in rehearse(plan).scenarios} == {"look", "a", "b", "c"}
