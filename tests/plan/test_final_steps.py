"""The steps of a plan's ``finally`` are checked like all others, and by their own rules."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.errors import PlanInvalid
from saga_engine.plan import diagram
from saga_engine.plan.compiler import check_plan, compile_plan
from saga_engine.plan.limits import MAX_FINALLY
from saga_engine.plan.model import load_plan
from saga_engine.plan.schema import plan_schema
from tests.plan.catalog import TRAVEL

ONE = {"step_id": 1, "tool": "any"}


def last(step_id: int | str = "end", **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "tool": "any", **fields}


def problems(*steps: Any) -> list[tuple[str, str]]:
    found = check_plan(load_plan({"steps": [ONE], "finally": list(steps)}), TRAVEL)
    return [(problem.code, problem.path) for problem in found]


def test_they_wait_for_each_other_only() -> None:
    """By list order or ``depends_on``; they stand behind all steps, and are among them only once they run."""
    steps = [last("a", params={"a": "{$end.status}: $end"}), last("b"), last("c", depends_on=["a"])]
    plan = compile_plan(load_plan({"steps": [ONE, {**ONE, "step_id": 2}], "finally": steps}), TRAVEL)
    assert [(step.key, step.deps, step.kind) for step in plan.final] == [
        ("a", (), "finally"),
        ("b", (2,), "finally"),
        ("c", (2,), "finally"),
    ]
    assert plan.final[0].dependents == (3, 4)
    assert len(plan.steps) == 2
    whole = plan.with_final()
    assert [step.index for step in whole.steps] == [0, 1, 2, 3, 4]
    assert whole.by_key["c"] == 4
    assert "e -.-> s2" in diagram.mermaid(plan)
    assert "e -.-> s2" in diagram.mermaid(whole)
    assert "s1 -> e" in diagram.dot(plan)


@pytest.mark.parametrize(
    ("code", "steps", "path"),
    [
        ("finally-invalid", [last(rollback={"tool": "undo_any"})], "$.finally[0].rollback"),
        ("finally-invalid", [last(kind="pivot")], "$.finally[0].kind"),
        ("finally-invalid", [last(fallback={"queue_s": 1})], "$.finally[0].fallback[0].queue_s"),
        ("finally-invalid", [last(params={"a": "$output.step_1.x"})], "$.finally[0].params.a"),
        ("finally-invalid", [{"step_id": "x", "compute": {"add": [1, 2]}}], "$.finally[0].compute"),
        ("step-duplicate", [last(1)], "$.finally[0].step_id"),
        ("step-duplicate", [last("a"), last("a")], "$.finally[1].step_id"),
        ("tool-unknown", [last(tool="nope")], "$.finally[0].tool"),
        ("params-invalid", [last(tool="search", params={"limit": "ten"})], "$.finally[0].params.limit"),
        ("depends-on-unknown", [last(depends_on=[1])], "$.finally[0].depends_on[0]"),
        ("binding-path-absent", [last(params={"a": "$end.state"})], "$.finally[0].params.a"),
        ("binding-malformed", [last(params={"a": "$end status"})], "$.finally[0].params.a"),
        ("binding-not-before", [last("a", params={"a": "$output.step_b.x"}), last("b")], "$.finally[0].params.a"),
        ("graph-cycle", [last("a", depends_on=["b"]), last("b", depends_on=["a"])], "$.finally[0].depends_on"),
    ],
)
def test_each_fault_is_found_where_it_is(code: str, steps: list[dict[str, Any]], path: str) -> None:
    """One fault is one problem, with its code and its path."""
    assert problems(*steps) == [(code, path)]


def test_the_outputs_of_the_plan_have_a_default() -> None:
    """Any step may not have happened when the saga ends."""
    assert problems(last(params={"a": {"$first": ["$output.step_1.x", None]}})) == []


def test_the_end_binds_nowhere_else() -> None:
    """Before the end there is none to bind, and the outputs of ``finally`` come too late for other steps."""
    steps = [{**ONE, "params": {"a": "$end.status", "b": "$output.step_end.x"}}]
    found = check_plan(load_plan({"steps": steps, "finally": [last()]}), TRAVEL)
    assert [problem.code for problem in found] == ["binding-malformed", "binding-unknown-step"]


def test_the_form_is_checked_as_of_other_steps() -> None:
    """A field of the wrong type and one too many are found at their place; the schema knows the field."""
    with pytest.raises(PlanInvalid) as refused:
        load_plan({"steps": [ONE], "finally": [{"step_id": "x", "tol": "any"}]})
    assert {problem.path for problem in refused.value.problems} == {"$.finally[0].tool", "$.finally[0].tol"}
    with pytest.raises(PlanInvalid):
        load_plan({"steps": [ONE], "finally": [last(number) for number in range(MAX_FINALLY + 1)]})
    with pytest.raises(PlanInvalid):
        load_plan({"steps": [ONE], "finally_": []})
    assert plan_schema()["properties"]["finally"]["maxItems"] == MAX_FINALLY
    plan = load_plan({"steps": [ONE], "finally": [last()]})
    assert load_plan(plan.json_bytes).digest == plan.digest
