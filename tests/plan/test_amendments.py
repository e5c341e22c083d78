"""Plans that grow: checked as they then stand, within what their author may use."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.errors import PlanInvalid
from saga_engine.plan.amendments import Addition, Bounds, compile_grown
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from tests.plan.catalog import TRAVEL

HOTEL = {"tool": "hotel_api", "params": {"hotel": "Hilton"}}
PLAN = load_plan({"steps": [{"step_id": "a", "tool": "any"}, {"step_id": "b", **HOTEL}]})
BOUNDS = Bounds(tools=frozenset({"any", "tweet"}), secrets=frozenset({"TOKEN"}), steps=2)


def grow(*additions: Addition, bounds: Bounds | None = None, fresh: bool = True, plan: Any = PLAN) -> CompiledPlan:
    old = compile_plan(plan, TRAVEL)
    return compile_grown(
        plan, TRAVEL, additions, input=None, undos=old.undos, reads=old.reads, fresh=fresh, bounds=bounds
    )


def faults(*additions: Addition, bounds: Bounds | None = None) -> list[tuple[str, str]]:
    with pytest.raises(PlanInvalid) as error:
        grow(*additions, bounds=bounds)
    return [(problem.code, problem.path) for problem in error.value.problems]


def test_added_steps_follow_the_list_and_are_undone_by_their_registered_undo() -> None:
    """An added step is a step like any other: it follows the last one, and its tool's undo is its own."""
    made = grow(Addition([{"step_id": "car", "tool": "any"}]))
    assert made.steps[2].deps == (1,)
    assert made.steps[2].rollback is not None
    assert made.undos["car"] == "undo_any"


def test_the_order_passes_over_what_will_not_run() -> None:
    """After dropped steps an added one follows the last that still counts, and dropped ones keep their own order."""
    made = grow(Addition([{"step_id": "inn", **HOTEL}], dropped=("b",)))
    assert made.steps[2].deps == (0,)
    assert made.steps[1].deps == (0,)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"step_id": "a", "tool": "any"}, ("step-duplicate", "$.steps[0].step_id")),
        ({"step_id": "c", "tool": "nope"}, ("tool-unknown", "$.steps[0].tool")),
        ({"step_id": "c", "tool": "tweet", "params": {"text": "x"}}, ("rollback-missing", "$.steps[0]")),
        ({"step_id": "c", "tol": "any"}, ("field-missing", "$.steps[0].tool")),
        ({"step_id": "c", "tool": "any", "depends_on": ["b"]}, ("depends-on-unknown", "$.steps[0].depends_on[0]")),
        (
            {"step_id": "c", "tool": "any", "params": {"x": "$output.step_b.id"}},
            ("binding-not-before", "$.steps[0].params.x"),
        ),
    ],
)
def test_what_is_added_is_checked_like_a_plan(step: dict[str, Any], expected: tuple[str, str]) -> None:
    """The same checks, with paths that count the added steps; a step that will not run gives nothing."""
    assert expected in faults(Addition([step], dropped=("b",)))


def test_a_fault_of_form_hides_no_other_problem_of_what_is_added() -> None:
    """One misspelt field, and all else is told with it, with what its author may not use: exactly as without it."""
    steps = [
        {"step_id": "a", "tool": "any", "params": {"x": "$secret.OTHER"}},
        {"step_id": "c", "tool": "nope", "params": {"x": "$output.step_9.id"}},
        {"step_id": "d", **HOTEL},
    ]
    without = faults(Addition(steps), bounds=BOUNDS)
    assert {code for code, _ in without} >= {
        "step-duplicate", "secret-not-allowed", "tool-unknown", "binding-unknown-step", "tool-not-allowed", "limit-steps"
    }  # fmt: skip
    misspelt = [steps[0], steps[1], {**steps[2], "parms": {}}]
    assert faults(Addition(misspelt), bounds=BOUNDS) == [("field-unknown", "$.steps[2].parms"), *without]


def test_a_second_addition_builds_on_the_first() -> None:
    """Only the last addition is checked; the earlier ones were accepted, whatever the tools are now."""
    first = Addition([{"step_id": "x", "tool": "gone"}])
    made = grow(first, Addition([{"step_id": "y", "tool": "any"}]))
    assert made.steps[3].deps == (2,)
    assert made.steps[2].spec is None


def test_a_model_may_use_only_what_it_was_given() -> None:
    """Tools, secrets and the number of steps: the check refuses what is not allowed, wherever it stands."""
    steps = [
        {"step_id": 1, "tool": "airline_api", "params": {"flight": "x", "date": "y"}},
        {
            "step_id": 2,
            "tool": "any",
            "params": {"x": "$secret.OTHER", "y": "$secret.TOKEN"},
            "rollback": {"tool": "undo_any", "params": {"z": "{$secret.THIRD}"}},
            "fallback": {"tool": "hotel_api", "params": {"hotel": "$secret.FOURTH"}},
        },
        {"step_id": 3, "tool": "any"},
    ]
    found = faults(Addition(steps), bounds=BOUNDS)
    assert ("tool-not-allowed", "$.steps[0].tool") in found
    assert ("tool-not-allowed", "$.steps[1].rollback.tool") in found
    assert ("tool-not-allowed", "$.steps[1].fallback[0].tool") in found
    assert [code for code, _ in found].count("secret-not-allowed") == 3
    assert ("limit-steps", "$.steps") in found


def test_compensating_steps_wait_only_for_each_other_and_are_never_undone() -> None:
    """Steps that make up for one that stands run on the way back, where nothing forward is waited for."""
    steps = [
        {"step_id": "sorry", "tool": "tweet", "params": {"text": "{$output.step_a.id}"}},
        {"step_id": "refund", "tool": "any"},
    ]
    made = grow(Addition(steps, compensation="a"), bounds=BOUNDS)
    assert [step.kind for step in made.steps[2:]] == ["compensation", "compensation"]
    assert [step.deps for step in made.steps[2:]] == [(), (2,)]
    assert made.steps[3].rollback is None
    assert made.steps[2].compensates == 0


def test_a_compensating_step_has_no_rollback() -> None:
    """A rollback of a compensation is refused: nothing would ever call it."""
    step = {"step_id": "x", "tool": "any", "rollback": {"tool": "any"}}
    assert ("kind-contradiction", "$.steps[0].kind") in faults(Addition([step], compensation="a"))


def test_the_fallback_of_a_compensating_step_has_no_undo() -> None:
    """A compensation is never undone, whichever of its calls happened: none of them has an undo."""
    step = {"step_id": "x", "tool": "tweet", "params": {"text": "sorry"}, "fallback": {"tool": "any"}}
    made = grow(Addition([step], compensation="a"))
    assert [call.rollback for call in (made.steps[2], *made.steps[2].fallbacks)] == [None, None]
    assert "x#1" not in made.undos


def test_a_compensating_step_that_only_reads_is_refused() -> None:
    """A compensation has at least one write: reads change nothing, and the saga would count as compensated."""
    look = {"step_id": "x", "tool": "search"}
    assert faults(Addition([look], compensation="a")) == [("rollback-reads", "$.steps[0]")]
    grow(Addition([look, {"step_id": "y", "tool": "any"}], compensation="a"))
    grow(Addition([look]))


def test_a_saga_does_not_grow_for_ever() -> None:
    """The number of additions has a bound, so a planner cannot keep a saga alive."""
    additions = [Addition([{"step_id": f"n{number}", "tool": "any"}]) for number in range(33)]
    assert faults(*additions) == [("limit-additions", "$.steps")]
