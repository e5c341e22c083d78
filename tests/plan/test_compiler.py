"""A compiled plan has the order, the undos and the declarations that the plan, its tools and its journal say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saga_engine.errors import PlanInvalid, ValueNotJson
from saga_engine.plan import graph
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import RetryPolicy
from tests.plan.catalog import TRAVEL, Catalog, declare

ROOT = Path(__file__).parents[2]
ANY = {"tool": "any"}


def build(steps: list[dict[str, Any]], catalog: Catalog | None = TRAVEL, **others: Any) -> CompiledPlan:
    numbered = [{"step_id": index + 1, **step} for index, step in enumerate(steps)]
    return compile_plan(load_plan({"steps": numbered}), catalog, **others)


def deps(plan: CompiledPlan) -> list[tuple[int, ...]]:
    return [step.deps for step in plan.steps]


def test_an_undo_that_says_what_its_registration_would_fill_in_is_the_registered_one() -> None:
    """The same params are not worked out twice for each undo; other params, or another tool, are the author's choice."""

    def undo(tool: str, **params: Any) -> Any:
        rollback = (
            build([{"tool": "hotel_api", "params": {"hotel": "Tivoli"}, "rollback": {"tool": tool, "params": params}}])
            .steps[0]
            .rollback
        )
        assert rollback is not None
        return rollback

    same = undo("hotel_api_cancel", booking_ref="$output.step_1.booking_ref")
    assert same.usual is same.params
    for other in (undo("hotel_api_cancel", booking_ref="$output.step_1.id"), undo("hotel_api_cancel", booking_ref="7")):
        assert other.usual is not None
        assert other.usual is not other.params
    assert undo("airline_api_cancel", order_id="$output.step_1.booking_ref").usual is None


def test_a_plan_knows_the_secrets_of_all_its_calls() -> None:
    """Those of steps, of their fallbacks and of both their undos: they are looked up before anything is journalled."""
    plan = build(
        [
            {
                "tool": "any",
                "params": {"a": "$secret.ONE"},
                "rollback": {"tool": "undo_any", "params": {"b": "$secret.TWO"}},
                "fallback": [
                    {
                        "tool": "any",
                        "params": {"a": "$secret.THREE"},
                        "rollback": {"tool": "undo_any", "params": {"b": "$secret.FOUR"}},
                    }
                ],
            }
        ],
        Catalog(declare("any", undo="undo_any"), declare("undo_any")),
    )
    assert plan.secrets == ("ONE", "TWO", "THREE", "FOUR")


def test_the_plan_of_the_article_compiles() -> None:
    """The travel plan runs as it is: two steps in a row, each undone by its own output."""
    plan = compile_plan(load_plan(ROOT / "examples" / "booking" / "travel_request_001.json"), TRAVEL)
    first, second = plan.steps
    assert (first.key, first.step_id, first.name, first.tool) == ("1", 1, "book_flight", "airline_api")
    assert (first.kind, first.deps, first.dependents) == ("compensatable", (), (1,))
    assert (second.deps, second.data_deps, second.dependents) == ((0,), frozenset(), ())
    assert first.rollback is not None
    assert first.rollback.tool == "airline_api_cancel"
    assert first.rollback.needs_output
    assert first.rollback.params.outputs == {"1"}
    assert plan.by_key == {"1": 0, "2": 1}
    assert plan.undos == {}
    assert plan.reads == frozenset()
    assert set(plan.tool_digests) == {"airline_api", "airline_api_cancel", "hotel_api", "hotel_api_cancel"}
    assert plan.tool_digests["hotel_api"] == "digest of hotel_api"


def test_a_step_follows_the_one_before_it_unless_it_says_otherwise() -> None:
    """List order without ``depends_on``; exactly those, and those of its bindings, with it."""
    plan = build(
        [
            ANY,
            ANY,
            {**ANY, "depends_on": []},
            {**ANY, "depends_on": [1], "params": {"a": "$output.step_3.x"}},
            {**ANY, "params": {"a": "{$output.step_1.x}"}},
        ]
    )
    assert deps(plan) == [(), (0,), (), (0, 2), (0, 3)]
    assert [step.data_deps for step in plan.steps] == [frozenset(), frozenset(), frozenset(), {0, 2}, {0}]
    assert [step.dependents for step in plan.steps] == [(1, 3, 4), (), (3,), (4,), ()]


def test_a_binding_may_point_down_the_list_when_the_step_says_what_it_waits_for() -> None:
    """With ``depends_on`` the list's order means nothing, and a later step may come first."""
    plan = build([{**ANY, "depends_on": [], "params": {"a": "$output.step_2.x"}}, {**ANY, "depends_on": []}])
    assert deps(plan) == [(1,), ()]


def test_bindings_of_a_rollback_make_no_order() -> None:
    """An undo binds what has run anyway; the step does not wait for it, and the undo of itself needs its output."""
    plan = build([ANY, ANY, {**ANY, "rollback": {"tool": "undo_any", "params": {"a": "$output.step_1.x"}}}])
    assert deps(plan)[2] == (1,)
    assert plan.steps[2].data_deps == frozenset()
    rollback = plan.steps[2].rollback
    assert rollback is not None
    assert not rollback.needs_output


def test_a_registered_undo_is_used_and_recorded() -> None:
    """Without a rollback the tool's undo is taken, its params are filled by name, and its name is for the journal."""
    plan = build([{"tool": "airline_api", "params": {"flight": "CA1", "date": "d"}}, {"tool": "search"}])
    rollback = plan.steps[0].rollback
    assert rollback is not None
    assert (rollback.tool, rollback.needs_output) == ("airline_api_cancel", True)
    assert plan.undos == {"1": "airline_api_cancel"}
    assert plan.reads == {"2"}
    assert plan.steps[1].kind == "read"
    assert plan.steps[1].rollback is None


def test_pivot_and_what_follows_have_no_undo() -> None:
    """A pivot and a retriable step keep no registered undo: they are never undone."""
    plan = build([ANY, {**ANY, "kind": "pivot"}, {**ANY, "kind": "retriable"}])
    assert plan.pivot == 1
    assert [step.rollback is None for step in plan.steps] == [False, True, True]
    assert plan.undos == {"1": "undo_any"}
    assert build([ANY]).pivot is None


def test_what_was_journalled_counts_and_not_what_the_tools_say_today() -> None:
    """After an upgrade that changed an undo, an effect and a schema, an accepted plan is undone as it was accepted."""
    today = Catalog(
        declare("any", {"type": "object", "required": ["new"]}, effect="read", undo="other"),
        declare("undo_any"),
        declare("other"),
    )
    plan = build([ANY, ANY], today, undos={"1": "undo_any"}, reads={"2"})
    assert [step.kind for step in plan.steps] == ["compensatable", "read"]
    assert plan.steps[0].rollback is not None
    assert plan.steps[0].rollback.tool == "undo_any"
    assert plan.steps[0].rollback.spec is today.spec("undo_any")
    assert plan.undos == {"1": "undo_any"}
    assert plan.reads == {"2"}
    with pytest.raises(PlanInvalid):
        build([ANY, ANY], today)


def test_a_missing_tool_leaves_an_accepted_plan_standing() -> None:
    """At resume a tool that is gone is an empty declaration, for the runtime to name; the plan is not refused."""
    plan = build([ANY, ANY], Catalog(), undos={"1": "undo_any", "2": "undo_any"}, reads=())
    assert [step.spec for step in plan.steps] == [None, None]
    rollback = plan.steps[0].rollback
    assert rollback is not None
    assert rollback.spec is None
    assert rollback.needs_output
    assert plan.tool_digests == {}


def test_without_a_catalog_the_structure_alone_is_checked() -> None:
    """A saga can be shown where its tools are not loaded; a wrong structure is refused all the same."""
    plan = build([{"tool": "unknown"}, {"tool": "tweet", "kind": "pivot"}, {"tool": "search"}], None)
    assert [step.spec for step in plan.steps] == [None] * 3
    assert plan.steps[0].timeout_s == 30.0
    with pytest.raises(PlanInvalid):
        build([{"tool": "x", "depends_on": [1]}], None)
    with pytest.raises(PlanInvalid):
        build([{"tool": "x", "params": {"a": "$output.step_5"}}], None)


def test_budgets_come_from_the_plan_then_from_the_tool() -> None:
    """Time-outs and retries are the plan's where it says them; an undo has at least eight tries and twice its tool's."""
    catalog = Catalog(
        declare("do", undo="un", timeout_s=5.0, retry=RetryPolicy(max_attempts=2, base_s=0.5)),
        declare("un", timeout_s=7.0, retry=RetryPolicy(max_attempts=6, max_s=9.0)),
    )
    plain, own = build(
        [
            {"tool": "do"},
            {
                "tool": "do",
                "timeout_s": 1,
                "retry": {"max_attempts": 9},
                "rollback": {"tool": "un", "timeout_s": 2, "retry": {"max_attempts": 1}},
            },
        ],
        catalog,
    ).steps
    assert (plain.timeout_s, plain.retry) == (5.0, RetryPolicy(2, 0.5))
    assert (own.timeout_s, own.retry) == (1.0, RetryPolicy(9, 0.5))
    assert plain.rollback is not None
    assert (plain.rollback.timeout_s, plain.rollback.retry) == (7.0, RetryPolicy(12, 1.0, 9.0))
    assert own.rollback is not None
    assert (own.rollback.timeout_s, own.rollback.retry) == (2.0, RetryPolicy(1, 1.0, 9.0))
    hasty = Catalog(declare("any", undo="un"), declare("un", retry=RetryPolicy(max_attempts=1)))
    few = build([ANY], hasty).steps[0].rollback
    assert few is not None
    assert few.retry.max_attempts == 8


def test_what_the_plan_says_of_the_whole_saga_is_kept() -> None:
    """Goal, deadline, number of calls, input and the way of failing are passed on."""
    source = {
        "goal": "go",
        "deadline_s": 60,
        "max_tool_calls": 9,
        "on_failure": "pause",
        "input": {"a": 1},
        "steps": [{"step_id": "s", "tool": "any", "name": "first"}],
    }
    plan = compile_plan(load_plan(source), TRAVEL, input={"b": (2,)})
    assert (plan.goal, plan.deadline_s, plan.max_tool_calls, plan.on_failure) == ("go", 60.0, 9, "pause")
    assert plan.input == {"a": 1, "b": [2]}
    assert (plan.steps[0].key, plan.steps[0].name) == ("s", "first")
    with pytest.raises(ValueNotJson):
        compile_plan(load_plan(source), TRAVEL, input={"b": float("nan")})


def test_the_order_of_a_graph_is_an_order() -> None:
    """Sorting puts every step after those it waits for; ancestors are all steps before it, and reach agrees."""
    edges = [(1, 3), (2,), (), (2,), (0,)]
    ordered = graph.sort(edges)
    assert sorted(ordered) == [0, 1, 2, 3, 4]
    for index, needed in enumerate(edges):
        assert all(ordered.index(before) < ordered.index(index) for before in needed)
    bits = graph.ancestors(edges, ordered)
    for index in range(5):
        assert {other for other in range(5) if bits[index] >> other & 1} == graph.reach(index, edges)
    assert graph.dependents(edges) == [[4], [0], [1, 3], [0], []]


def test_the_room_opens_without_pydantic() -> None:
    """Who needs a tool's declaration, or a compiled plan's types, does not pay for the models."""
    import subprocess
    import sys

    program = (
        "import sys, saga_engine.plan.tool_spec, saga_engine.plan.compiled, saga_engine.plan.compiler;"
        "assert not {'pydantic', 'jsonpath_ng'} & set(sys.modules), 'heavy imports'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
