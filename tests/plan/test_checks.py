"""Every way in which a plan can be wrong is found before anything runs, all at once, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.errors import PlanInvalid
from saga_engine.plan.compiler import check_plan, compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.problems import CODES
from saga_engine.plan.salvage import load_checked
from tests.plan.catalog import NUMBER, TEXT, TRAVEL, Catalog, closed, codes, declare, places, problems

ANY = {"tool": "any"}
FLIGHT = {"tool": "airline_api", "params": {"flight": "CA1234", "date": "2026-02-01"}}
PIVOT = {"tool": "tweet", "params": {"text": "x"}, "kind": "pivot"}


def bound(text: Any) -> dict[str, Any]:
    return {"tool": "any", "params": {"a": text}}


def undo(text: Any) -> dict[str, Any]:
    return {"rollback": {"tool": "undo_any", "params": {"a": text}}}


def nested(levels: int, children: int = 1) -> dict[str, Any]:
    """A step with so many levels of children, the lowest of which have so many of their own kind."""
    inner: list[dict[str, Any]] = [{"tool": "search", "params": {"query": "q"}}]
    for level in range(levels):
        steps = [{"step_id": number, **step} for number, step in enumerate(inner)]
        inner = [{"saga": {"plan": {"steps": steps}}}] * (1 if level else children)
    return (
        inner[0]
        if len(inner) == 1
        else {"saga": {"plan": {"steps": [{"step_id": at, **step} for at, step in enumerate(inner)]}}}
    )


YES = {"value": 1, "op": "==", "to": 1}
OWN = {"value": "$output.step_1.x", "op": "==", "to": 1}
LINES = {"compute": {"count": "$output.step_1.lines", "where": [{"value": "$item.n", "op": "=~", "to": 1}]}}
ASK = {"question": "?", "options": ["a", "b"], "expires_s": 60}
#: code, steps, path; every code that a check can give stands here at least once.
CASES: list[tuple[str, list[dict[str, Any]], str]] = [
    ("tool-unknown", [{"tool": "airline_apy", "rollback": {"tool": "undo_any"}}], "$.steps[0].tool"),
    ("tool-unknown", [{**ANY, "rollback": {"tool": "nope"}}], "$.steps[0].rollback.tool"),
    ("tool-unknown", [{"tool": "lost"}], "$.steps[0].tool"),
    ("params-invalid", [{"tool": "search", "params": {"limit": "ten"}}], "$.steps[0].params.limit"),
    ("params-invalid", [{"tool": "search", "params": {"made_up": 1}}], "$.steps[0].params"),
    ("params-invalid", [{**ANY, "rollback": {"tool": "hotel_api_cancel"}}], "$.steps[0].rollback.params"),
    ("binding-malformed", [bound("$output")], "$.steps[0].params.a"),
    ("binding-malformed", [bound({"$first": ["$saga.id"]})], "$.steps[0].params.a"),
    ("binding-malformed", [bound("$item.a")], "$.steps[0].params.a"),
    ("condition-invalid", [{**ANY, "when": {"value": 1, "op": "exists"}}], "$.steps[0].when.value"),
    ("condition-invalid", [{**ANY, "when": [{"value": "$secret.PIN", "op": "==", "to": 1}]}], "$.steps[0].when[0]"),
    ("binding-not-before", [{**ANY, "when": [OWN]}], "$.steps[0].when[0].value"),
    ("binding-needs-default", [{**ANY, "when": [YES]}, bound("$output.step_1.x")], "$.steps[1].params.a"),
    ("binding-needs-default", [{**ANY, "on_error": "continue"}, {**ANY, "when": [OWN]}], "$.steps[1].when[0].value"),
    (
        "binding-needs-default",
        [{**ANY, "when": [YES]}, {**ANY, **undo("$output.step_1.x")}],
        "$.steps[1].rollback.params.a",
    ),
    (
        "kind-contradiction",
        [{"tool": "tweet", "params": {"text": "x"}, "kind": "pivot", "when": [YES]}],
        "$.steps[0].when",
    ),
    (
        "kind-contradiction",
        [{"tool": "tweet", "params": {"text": "x"}, "kind": "pivot", "on_error": "continue"}],
        "$.steps[0].on_error",
    ),
    ("kind-contradiction", [{**ANY, "kind": "irreversible", "failed_when": [OWN]}], "$.steps[0].failed_when"),
    ("kind-contradiction", [{**ANY, "on_error": "continue", "failed_when": [OWN]}], "$.steps[0].failed_when"),
    ("compute-invalid", [{"compute": {"plus": [1, 2]}}], "$.steps[0].compute"),
    ("compute-invalid", [{"compute": {"add": [1, "$secret.PIN"]}}], "$.steps[0].compute.add[1]"),
    (
        "compute-misplaced",
        [{"tool": "tweet", "params": {"text": {"join": ["a", "b"]}}, "kind": "pivot"}],
        "$.steps[0].params.text",
    ),
    ("condition-invalid", [ANY, LINES], "$.steps[1].compute.where[0].op"),
    ("binding-not-before", [{"compute": {"add": ["$output.step_2.n", 1]}}, ANY], "$.steps[0].compute.add[0]"),
    ("binding-path-absent", [FLIGHT, {"compute": {"add": [1, "$output.step_1.id"]}}], "$.steps[1].compute.add[1]"),
    ("binding-input-missing", [{"compute": {"round": "$input.x"}}], "$.steps[0].compute.round"),
    ("binding-malformed", [{**ANY, **undo("$key.x")}], "$.steps[0].rollback.params.a"),
    ("before-misplaced", [bound("$before.a")], "$.steps[0].params.a"),
    ("before-missing", [{**ANY, **undo("$before.a")}], "$.steps[0].rollback.params.a"),
    ("binding-filter", [ANY, bound("$output.step_1[?(@.a)]")], "$.steps[1].params.a"),
    ("binding-unknown-step", [bound("$output.step_7.x")], "$.steps[0].params.a"),
    ("binding-input-missing", [bound("$input.x")], "$.steps[0].params.a"),
    ("binding-input-missing", [{**ANY, **undo("{$input.x}")}], "$.steps[0].rollback.params.a"),
    ("binding-not-before", [bound("$output.step_1.x")], "$.steps[0].params.a"),
    ("binding-not-before", [bound("$output.step_2.x"), ANY], "$.steps[0].params.a"),
    ("binding-not-before", [{**bound("$output.step_1.x"), "depends_on": []}], "$.steps[0].params.a"),
    ("binding-path-absent", [FLIGHT, bound("$output.step_1.id")], "$.steps[1].params.a"),
    ("binding-path-absent", [FLIGHT, bound("$output.step_1.order_id.x")], "$.steps[1].params.a"),
    ("binding-path-absent", [FLIGHT, bound("{$output.step_1[0]}")], "$.steps[1].params.a"),
    (
        "binding-type",
        [FLIGHT, {"tool": "search", "params": {"limit": "$output.step_1.order_id"}}],
        "$.steps[1].params.limit",
    ),
    ("binding-type", [{"tool": "search", "params": {"limit": "$key"}}], "$.steps[0].params.limit"),
    ("binding-type", [{"tool": "search", "params": {"limit": "{$saga.id}"}}], "$.steps[0].params.limit"),
    ("rollback-needs-output", [{**ANY, **undo("$output.step_2.x")}, ANY], "$.steps[0].rollback.params.a"),
    (
        "rollback-needs-output",
        [ANY, {**ANY, "depends_on": [], **undo("$output.step_1.x")}],
        "$.steps[1].rollback.params.a",
    ),
    ("rollback-missing", [{"tool": "tweet", "params": {"text": "x"}}], "$.steps[0]"),
    ("rollback-on-read", [{"tool": "search", **undo(1)}], "$.steps[0].rollback"),
    ("rollback-reads", [{**ANY, "rollback": {"tool": "search"}}], "$.steps[0].rollback.tool"),
    (
        "rollback-reads",
        [{**ANY, "fallback": {"tool": "any", "rollback": {"tool": "search"}}}],
        "$.steps[0].fallback[0].rollback.tool",
    ),
    ("rollback-reads", [{"tool": "peeking"}], "$.steps[0].tool"),
    ("undo-unfillable", [{"tool": "narrow"}], "$.steps[0].tool"),
    ("undo-unfillable", [{"tool": "hidden"}], "$.steps[0].tool"),
    ("binding-redacted", [{"tool": "redacting"}, bound("$output.step_1.card.number")], "$.steps[1].params.a"),
    ("undo-unfillable", [{"tool": "apart"}], "$.steps[0].tool"),
    ("graph-cycle", [{**ANY, "depends_on": [2]}, ANY], "$.steps[0].depends_on"),
    ("graph-cycle", [{**ANY, "depends_on": [1]}], "$.steps[0].depends_on"),
    ("graph-cycle", [{**bound("$output.step_2.x"), "depends_on": []}, ANY], "$.steps[0].depends_on"),
    ("depends-on-unknown", [{**ANY, "depends_on": ["x"]}], "$.steps[0].depends_on[0]"),
    ("step-duplicate", [ANY, {**ANY, "step_id": "1"}], "$.steps[1].step_id"),
    ("pivot-not-last", [PIVOT, ANY], "$.steps[1]"),
    ("pivot-not-last", [ANY, {**PIVOT, "depends_on": []}], "$.steps[0]"),
    ("pivot-second", [PIVOT, PIVOT], "$.steps[1].kind"),
    ("kind-retriable-before-pivot", [{**ANY, "kind": "retriable"}, PIVOT], "$.steps[0].kind"),
    ("kind-retriable-before-pivot", [{**ANY, "kind": "retriable"}], "$.steps[0].kind"),
    ("kind-contradiction", [{**ANY, "kind": "read"}], "$.steps[0].kind"),
    ("kind-contradiction", [{"tool": "search", "kind": "compensatable"}], "$.steps[0].kind"),
    (
        "kind-contradiction",
        [{"tool": "tweet", "params": {"text": "x"}, "kind": "compensatable"}],
        "$.steps[0].kind",
    ),
    ("kind-contradiction", [{**PIVOT, **undo(1)}], "$.steps[0].kind"),
    ("kind-contradiction", [PIVOT, {**ANY, "kind": "retriable", **undo(1)}], "$.steps[1].kind"),
    ("builtin-invalid", [{"sleep": "tomorrow"}], "$.steps[0].sleep"),
    ("builtin-invalid", [{"sleep": {"until": "2026-12-01"}}], "$.steps[0].sleep"),
    ("wait-invalid", [{"wait": {"event": "paid", "schema": {"type": "txt"}}}], "$.steps[0].wait.schema"),
    (
        "binding-needs-default",
        [{"ask": {**ASK, "on_timeout": "continue"}}, {**ANY, "params": {"x": "$output.step_1.answer"}}],
        "$.steps[1].params.x",
    ),
    ("tool-unknown", [{"wait": {"event": "a"}, "rollback": {"tool": "none"}}], "$.steps[0].rollback.tool"),
    ("saga-invalid", [{"saga": {"input": {}}}], "$.steps[0].saga"),
    ("saga-template", [{"saga": {"template": "trip"}}], "$.steps[0].saga.template"),
    ("saga-depth", [nested(4)], "$.steps[0]" + ".saga.plan.steps[0]" * 3 + ".saga.plan"),
    ("saga-children", [nested(1, 101)], "$.steps"),
    (
        "saga-input",
        [{"saga": {**nested(1)["saga"], "input_schema": {"required": ["n"]}}}],
        "$.steps[0].saga.input",
    ),
    ("ask-invalid", [{"ask": {"question": " "}}], "$.steps[0].ask.question"),
    ("ask-invalid", [{"ask": {"question": "?", "options": []}}], "$.steps[0].ask.options"),
    ("ask-invalid", [{"ask": {"question": "?", "options": ["a", "A"]}}], "$.steps[0].ask.options"),
    ("ask-invalid", [{"ask": {"question": "?", "options": ["red\x1b[31m"]}}], "$.steps[0].ask.options"),
    ("ask-invalid", [{"ask": {"question": "?", "options": ["a"], "schema": {}}}], "$.steps[0].ask.schema"),
    ("ask-invalid", [{"ask": {"question": "?", "schema": {"type": "texts"}}}], "$.steps[0].ask.schema"),
    ("ask-invalid", [{"ask": {"question": "{$secret.K}?"}}], "$.steps[0].ask.question"),
    ("ask-invalid", [{"ask": {"question": "?", "on_timeout": "fail"}}], "$.steps[0].ask.on_timeout"),
    ("ask-invalid", [{"ask": {**ASK, "on_timeout": {"value": "c"}}}], "$.steps[0].ask.on_timeout.value"),
    ("ask-invalid", [{"ask": {**ASK, "on_timeout": {"value": "$saga.id"}}}], "$.steps[0].ask.on_timeout"),
    ("binding-path-absent", [{"ask": ASK}, {**ANY, "params": {"x": "$output.step_1.say"}}], "$.steps[1].params.x"),
    ("each-invalid", [{**ANY, "each": "orders"}], "$.steps[0].each"),
    ("each-invalid", [{**ANY, "each": {"of": {"a": []}}}], "$.steps[0].each.of"),
    ("each-invalid", [{**ANY, "each": "$saga.id"}], "$.steps[0].each"),
    ("each-invalid", [{**ANY, "each": "$orders.items"}], "$.steps[0].each"),
    ("each-invalid", [ANY, {**ANY, "step_id": "e", "each": "{$output.step_1.items}"}], "$.steps[1].each"),
    ("each-invalid", [{**ANY, "each": {"of": list(range(10_001))}}], "$.steps[0].each.of"),
    ("each-invalid", [{**ANY, "each": {"of": []}, "on_error": "continue"}], "$.steps[0].each"),
    (
        "each-invalid",
        [{"tool": "tweet", "params": {"text": "x"}, "kind": "pivot", "each": {"of": []}}],
        "$.steps[0].each",
    ),
    ("binding-malformed", [{**ANY, "each": "$item.lines"}], "$.steps[0].each"),
    (
        "binding-malformed",
        [{**ANY, "each": {"of": []}, "when": [{**YES, "value": "$item"}]}],
        "$.steps[0].when[0].value",
    ),
    ("binding-path-absent", [{**ANY, "each": {"of": []}}, bound("$output.step_1.x")], "$.steps[1].params.a"),
    ("fallback-invalid", [{**ANY, "fallback": {}}], "$.steps[0].fallback[0]"),
    ("fallback-invalid", [{**ANY, "fallback": {"tool": "any", "cached_s": 1}}], "$.steps[0].fallback[0]"),
    ("fallback-invalid", [{**ANY, "fallback": {"queue_s": 1}}], "$.steps[0].fallback[0]"),
    ("fallback-invalid", [{**ANY, "fallback": {"cached_s": 1}}], "$.steps[0].fallback[0]"),
    ("fallback-invalid", [{"tool": "search", "fallback": {"cached_s": 1}}], "$.steps[0].fallback[0]"),
    ("fallback-invalid", [{"tool": "search", "fallback": {"tool": "any"}}], "$.steps[0].fallback[0]"),
    (
        "fallback-invalid",
        [{"tool": "weather", "fallback": {"cached_s": 1, "params": {}}}],
        "$.steps[0].fallback[0].params",
    ),
    (
        "fallback-invalid",
        [PIVOT, {**ANY, "kind": "retriable", "fallback": [{"queue_s": 1}, {"tool": "any"}]}],
        "$.steps[1].fallback[0]",
    ),
    ("tool-unknown", [{**ANY, "fallback": {"tool": "nope"}}], "$.steps[0].fallback[0].tool"),
    ("params-invalid", [{**ANY, "fallback": {"tool": "hotel_api", "params": {}}}], "$.steps[0].fallback[0].params"),
    ("rollback-missing", [{**ANY, "fallback": {"tool": "tweet", "params": {"text": "x"}}}], "$.steps[0].fallback[0]"),
    (
        "kind-contradiction",
        [{**PIVOT, "fallback": {"tool": "any", **undo(1)}}],
        "$.steps[0].fallback[0].rollback",
    ),
    (
        "binding-not-before",
        [{**ANY, "fallback": [{"tool": "any", "params": {"a": "$output.step_1.x"}}]}],
        "$.steps[0].fallback[0].params.a",
    ),
    (
        "rollback-needs-output",
        [{**ANY, "fallback": {"tool": "any", **undo("$output.step_2.x")}}, ANY],
        "$.steps[0].fallback[0].rollback.params.a",
    ),
    ("binding-not-before", [{**ANY, "resource": "user:{$output.step_1.x}"}], "$.steps[0].resource"),
    ("binding-input-missing", [{**ANY, "resource": "user:{$input.user}"}], "$.steps[0].resource"),
    # Whichever tool is called in the end must bring what others bind.
    (
        "binding-path-absent",
        [{**ANY, "fallback": {**FLIGHT}}, bound("$output.step_1.seat")],
        "$.steps[1].params.a",
    ),
]


@pytest.mark.parametrize(("code", "steps", "path"), CASES)
def test_each_fault_is_found_where_it_is(code: str, steps: list[dict[str, Any]], path: str) -> None:
    """One fault is one problem, with its code, its path, a message and a hint."""
    listed = problems(steps)
    assert [(problem.code, problem.path) for problem in listed] == [(code, path)]
    assert listed[0].message
    assert listed[0].hint


def test_no_code_is_without_a_test() -> None:
    """The codes of the program are those of the cases here and of the tests of loading and of bindings."""
    loading = {
        "builtin-invalid",
        "field-invalid",
        "field-missing",
        "field-unknown",
        "limit-bindings",
        "limit-depth",
        "limit-nodes",
        "limit-size",
        "limit-steps",
        "limit-tails",
        "more-problems",
        "plan-not-json",
        "plan-unreadable",
    }
    growing = {"limit-additions", "secret-not-allowed", "tool-not-allowed"}
    elsewhere = {"finally-invalid", "saga-cycle", "template-input", "template-task-id", "expect-unread"}
    assert {code for code, _, _ in CASES} | loading | growing | elsewhere == CODES


def test_all_faults_come_at_once() -> None:
    """Faults of many kinds in many steps stand in one list, and compiling refuses with the same list."""
    steps = [
        {"tool": "airline_api", "params": {"flight": 7}},
        {"tool": "nope", "params": {"a": "$output.step_9.x"}},
        {**ANY, "depends_on": ["x"]},
        {"tool": "tweet", "params": {"text": "$input.t"}},
    ]
    listed = problems(steps)
    assert {problem.code for problem in listed} == {
        "params-invalid",
        "tool-unknown",
        "binding-unknown-step",
        "depends-on-unknown",
        "binding-input-missing",
        "rollback-missing",
    }
    plan = load_plan({"steps": [{"step_id": index + 1, **step} for index, step in enumerate(steps)]})
    with pytest.raises(PlanInvalid) as refused:
        compile_plan(plan, TRAVEL)
    assert refused.value.problems == listed


def test_an_unknown_tool_hides_no_fault_of_its_undo() -> None:
    """The undo of a call is checked although the call's own tool is unknown, for a step as for a fallback."""
    wrong = {"tool": "nope", "rollback": {"tool": "search"}}
    assert places([wrong, {**ANY, "fallback": wrong}]) == [
        ("tool-unknown", "$.steps[0].tool"),
        ("rollback-reads", "$.steps[0].rollback.tool"),
        ("tool-unknown", "$.steps[1].fallback[0].tool"),
        ("rollback-reads", "$.steps[1].fallback[0].rollback.tool"),
    ]


def test_a_near_name_is_offered() -> None:
    """A mistyped tool or step gets a 'did you mean'."""
    assert "airline_api" in problems([{"tool": "airline_apy", **undo(1)}])[0].hint
    assert "hotel" in problems([{**ANY, "step_id": "hotel"}, {**ANY, "depends_on": ["hotels"]}])[0].hint


@pytest.mark.parametrize(
    "steps",
    [
        [FLIGHT, {"tool": "hotel_api", "params": {"hotel": "Hilton", "nights": 1}}],
        [FLIGHT, {"tool": "hotel_api", "params": {"hotel": "H", "nights": "$output.step_1.price"}}],
        [FLIGHT, {"tool": "hotel_api", "params": {"hotel": "$output.step_1.legs[0]"}}],
        [FLIGHT, {"tool": "hotel_api", "params": {"hotel": "H", "note": "paid {$output.step_1.price}"}}],
        [ANY, {"tool": "search", "params": {"limit": "$output.step_1.anything"}}],
        [{**ANY, **undo("$output.step_1.x")}, {**ANY, **undo("$output.step_1.x")}],
        [{**ANY, "depends_on": []}, {**ANY, "depends_on": []}, {**ANY, "depends_on": [1, 2]}],
        [{**bound("$output.step_2.x"), "depends_on": []}, {**ANY, "depends_on": []}],
        [{**ANY, "depends_on": []}, {**ANY, "depends_on": []}, bound("$output.step_1.x")],
        [ANY, PIVOT],
        [ANY, PIVOT, {"tool": "search"}, {**ANY, "kind": "retriable"}],
        [{**ANY, "depends_on": []}, {**ANY, "depends_on": []}, {**PIVOT, "depends_on": [1, 2]}],
        [{**ANY, "kind": "compensatable"}, {"tool": "search", "kind": "read"}],
        [{"tool": "any", "params": {"a": "$key"}, **undo("$key")}],
        [bound("$$output.step_9")],
        [bound("$secret.X")],
    ],
)
def test_what_is_right_passes(steps: list[dict[str, Any]]) -> None:
    """Legal orders, kinds, bindings and literals are no problems."""
    assert codes(steps) == []


def test_the_input_is_checked_as_the_value_it_is() -> None:
    """A param bound to the plan's input is checked with the value that stands there, also when it is given later."""
    steps = [{"tool": "search", "params": {"limit": "$input.n"}}]
    assert codes(steps, input={"n": 3}) == []
    assert places(steps, input={"n": "x"}) == [("params-invalid", "$.steps[0].params.limit")]
    plan = load_plan({"steps": [{"step_id": 1, **steps[0]}], "input": {"n": "x", "m": 1}})
    assert check_plan(plan, TRAVEL, input={"n": 3}) == []
    assert compile_plan(plan, TRAVEL, input={"n": 3}).input == {"n": 3, "m": 1}


OPTIONAL = {"anyOf": [{"$ref": "#/$defs/Guest"}, {"type": "null"}]}
GUESTS = {
    **closed(
        [],
        guest=OPTIONAL,
        sure={"$ref": "#/$defs/Guest"},
        many={"type": "array", "items": NUMBER, "uniqueItems": True},
        either={"anyOf": [TEXT, NUMBER]},
    ),
    "$defs": {"Guest": closed(["name"], name=TEXT, age=NUMBER)},
}
FUSSY = Catalog(
    declare(
        "src",
        effect="read",
        output_schema=closed([], text=TEXT, n=NUMBER, guest=OPTIONAL, x={"type": "number"}, list={"type": "array"})
        | {"$defs": GUESTS["$defs"]},
    ),
    declare("guests", GUESTS, effect="read"),
    declare(
        "either",
        {"anyOf": [closed(["card"], card={"type": "object", "required": ["number"]}), closed(["cash"], cash=NUMBER)]},
        effect="read",
    ),
)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"guest": {"name": "$output.step_1.text", "age": "$output.step_1.n"}}, []),
        # 'anyOf' hides which branch is meant: what may be the fault of a bound value waits for the call's own check.
        ({"guest": {"age": "$output.step_1.n"}}, []),
        ({"guest": {"age": 3}}, ["params-invalid"]),
        ({"sure": {"name": "x", "age": "$output.step_1.n"}}, []),
        ({"sure": {"age": "$output.step_1.n"}}, ["params-invalid"]),
        ({"sure": {"name": "x", "nick": "$output.step_1.text"}}, ["params-invalid"]),
        ({"sure": {"name": "$output.step_1.list"}}, ["binding-type"]),
        ({"guest": {"name": "$output.step_1.n"}}, ["binding-type"]),
        ({"guest": {"name": "x", "nick": "$output.step_1.text"}}, []),
        ({"guest": "$output.step_1.guest"}, []),
        ({"guest": "$output.step_1.list"}, ["binding-type"]),
        ({"guest": {"name": "$output.step_1.guest.name"}}, []),
        ({"guest": {"name": "$output.step_1.guest.nick"}}, ["binding-path-absent"]),
        ({"many": ["$output.step_1.n", "$output.step_1.n"]}, []),
        ({"many": ["$output.step_1.n", "x"]}, ["params-invalid"]),
        ({"many": ["$output.step_1.text"]}, ["binding-type"]),
        ({"many": ["$output.step_1.x"]}, []),
        ({"either": "$output.step_1.list"}, ["binding-type"]),
        ({"either": "$output.step_1.n"}, []),
    ],
)
def test_bound_values_are_checked_by_their_types_alone(params: dict[str, Any], expected: list[str]) -> None:
    """Through references and optional values, a bound place is neither refused for its text nor passed with a wrong type."""
    assert codes([{"tool": "src"}, {"tool": "guests", "params": params}], FUSSY) == expected


def test_alternatives_are_not_refused_for_a_value_that_is_not_known_yet() -> None:
    """Where a schema offers alternatives and a binding may decide between them, the check waits for the value."""
    src = {"tool": "src"}
    assert codes([src, {"tool": "either", "params": {"card": "$output.step_1.guest"}}], FUSSY) == []
    assert codes([{"tool": "either", "params": {"card": 1}}], FUSSY) == ["params-invalid"]


def test_a_cycle_names_its_steps_and_each_group_is_named() -> None:
    """The message walks along the cycle; two separate cycles are two problems; what merely waits for one is none."""
    steps = [{**ANY, "step_id": name, "depends_on": [wait]} for name, wait in ["ab", "bc", "ca", "de", "ed", "fa"]]
    listed = problems(steps)
    assert [problem.code for problem in listed] == ["graph-cycle", "graph-cycle"]
    assert "a → b → c → a" in listed[0].message
    assert "d → e → d" in listed[1].message


LARGE = 10_000


@pytest.mark.parametrize(
    "steps",
    [
        [{**ANY} for _ in range(LARGE)],
        [{**ANY, "depends_on": []} for _ in range(LARGE)],
        [bound(f"$output.step_{index}.x") if index else ANY for index in range(LARGE)],
        [{**ANY, "depends_on": [index] if index else [], **undo("$output.step_1.x")} for index in range(LARGE)],
        [*({**ANY, "depends_on": []} for _ in range(LARGE - 1)), {**PIVOT, "depends_on": list(range(1, LARGE))}],
    ],
    ids=["chain", "wide", "bound chain", "undo bound to the first", "join"],
)
def test_the_largest_plans_are_checked(steps: list[dict[str, Any]]) -> None:
    """10,000 steps in a row, side by side, or bound to each other are no problem: nothing recurses, nothing is quadratic."""
    assert codes(steps) == []


def test_a_large_cycle_is_one_problem() -> None:
    """A cycle of 10,000 steps is found without recursion, and its message stays readable."""
    listed = problems([{**ANY, "depends_on": [(index + 1) % LARGE + 1]} for index in range(LARGE)])
    assert [problem.code for problem in listed] == ["graph-cycle"]
    assert len(listed[0].message) < 200


def test_countless_faults_are_counted() -> None:
    """Three faults in each of 10,000 steps are a hundred problems and the number of the rest."""
    steps = [
        {"tool": "x" * 60 + str(i), "params": {"a": f"$output.step_z{i}"}, "depends_on": [f"q{i}"]}
        for i in range(LARGE)
    ]
    listed = problems(steps)
    assert len(listed) == 101
    assert listed[-1].code == "more-problems"
    assert listed[-1].message.startswith("29900 ")


def test_hostile_words_are_cut_and_escaped() -> None:
    """A tool's name or a param's key cannot flood or steer a terminal."""
    evil = "\x1b[2J" + "x" * 100
    for problem in problems([{"tool": evil, "params": {evil: "$output.step_1\x1b"}}]):
        assert (problem.message + problem.path + problem.hint).isprintable()
        assert len(problem.message) < 600


@pytest.mark.parametrize(
    ("code", "steps"),
    [("pivot-second", [PIVOT, PIVOT]), ("kind-retriable-before-pivot", [{**ANY, "kind": "retriable"}, PIVOT])],
)
def test_hints_about_kinds_name_each_way_out(code: str, steps: list[dict]) -> None:
    """A step of the wrong kind gets an undo, follows the pivot, or is irreversible; no hint leads back to its problem."""
    (hint,) = [problem.hint for problem in problems(steps) if problem.code == code]
    assert "give it a rollback" in hint
    assert "pivot" in hint or "step 1" in hint
    assert '"kind": "irreversible"' in hint


@pytest.mark.parametrize(
    ("field", "meant"), [("id", "step_id"), ("args", "params"), ("needs", "depends_on"), ("function", "tool")]
)
def test_a_field_of_another_format_has_its_name_here(field, meant):
    """A name that no likeness leads to is answered with the field that is meant, and the step's tool is checked."""
    step = {"tool": "bok", "params": {}, field: "a"}
    with pytest.raises(PlanInvalid) as refused:
        load_checked({"goal": "g", "steps": [step]}, TRAVEL)
    hints = {problem.path: problem.hint for problem in refused.value.problems}
    assert hints[f"$.steps[0].{field}"] == f"did you mean '{meant}'?"
    assert "tool-unknown" in {problem.code for problem in refused.value.problems}
