"""Computations and conditions of a plan: exact, three-valued, and blind to what data look like."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.errors import BindingUnresolved, Problem
from saga_engine.plan import dates
from saga_engine.plan.binder import Binder
from saga_engine.plan.compute import OPERATIONS, ComputeReader, Run
from saga_engine.plan.conditions import ConditionReader
from saga_engine.plan.decimals import ROUNDING, NotComputable, Number, divide
from saga_engine.plan.problems import Problems

LINES = [
    {"sku": "A", "price": "19.99", "count": 2, "stock": True},
    {"sku": "B", "price": "5.00", "count": 1, "stock": False},
    {"sku": "C", "price": "7.50", "count": 4, "stock": True},
]
OUTPUTS: dict[str, Any] = {
    "1": {
        "total": 12.5,
        "text": "12.50",
        "lines": LINES,
        "empty": [],
        "day": "2026-01-31",
        "at": "2026-01-31T22:30:00+01:00",
        "vip": False,
        "none": None,
        "trap": {"add": [1, 2]},
        "word": "gold",
    }
}


class World:
    """One step that happened, ``1``, and one that did not, ``2``."""

    saga_id = "s"
    input: ClassVar[dict[str, Any]] = {"rate": 15}
    item: Any = None
    index = 0

    def output(self, step_key: str) -> Any:
        if step_key not in OUTPUTS:
            raise BindingUnresolved(f"step {step_key} has no output", absent=True)
        return OUTPUTS[step_key]

    def params(self, step_key: str) -> Any:
        return {}

    def key(self, step_key: str) -> str:
        return "k"

    def secret(self, name: str) -> str:
        return f"<{name}>"


KEYS = {"1": 0, "2": 1, "3": 2}


def problems(raw: Any) -> list[Problem]:
    found = Problems()
    ComputeReader(Binder(KEYS, found), found, "3").read(raw, ("compute",))
    return found.listed()


def value(raw: Any) -> Any:
    found = Problems()
    get = ComputeReader(Binder(KEYS, found), found, "3").read(raw, ("compute",))
    assert found.listed() == []
    return get(Run(World()))


def evaluated(raw: Any) -> Any:
    found = Problems()
    condition = ConditionReader(Binder(KEYS, found), found, "3").read(raw, ("when",))
    assert found.listed() == []
    return condition.evaluate(World())


ONE = "$output.step_1."


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (7, 7),
        (f"{ONE}total", 12.5),
        ({"value": {"add": [1, 2]}}, {"add": [1, 2]}),
        ([1, {"add": [1, 1]}], [1, 2]),
        ({"add": [0.1, 0.2]}, 0.3),
        ({"add": ["0.10", 0.2]}, "0.30"),
        ({"subtract": [10, f"{ONE}total"]}, -2.5),
        ({"multiply": [f"{ONE}text", 3]}, "37.50"),
        ({"percent": ["$input.rate", f"{ONE}text"]}, "1.8750"),
        ({"round": {"percent": ["$input.rate", f"{ONE}text"]}, "places": 2}, "1.88"),
        ({"round": 2.675, "places": 2}, 2.68),
        ({"round": 2.5, "mode": "half-even"}, 2),
        ({"divide": [10, 3], "places": 2}, 3.33),
        ({"divide": [-1, 8], "places": 2, "mode": "floor"}, -0.13),
        ({"sum": f"{ONE}lines", "of": {"multiply": ["$item.price", "$item.count"]}}, "74.98"),
        ({"sum": []}, 0),
        ({"min": f"{ONE}lines", "of": "$item.price"}, "5.00"),
        ({"max": [3, 9, 4]}, 9),
        ({"count": f"{ONE}lines"}, 3),
        ({"count": f"{ONE}lines", "where": {"value": "$item.stock", "op": "==", "to": True}}, 2),
        ({"map": f"{ONE}lines", "of": ["$index", "$item.sku"]}, [[0, "A"], [1, "B"], [2, "C"]]),
        ({"filter": f"{ONE}lines", "where": [{"value": "$item.count", "op": ">", "to": 1}]}, [LINES[0], LINES[2]]),
        ({"pick": {"sort": f"{ONE}lines", "by": "$item.price"}, "of": "$item.sku"}, "B"),
        ({"pick": {"sort": f"{ONE}lines", "by": "$item.price", "order": "down"}, "of": "$item.sku"}, "A"),
        ({"sort": ["b", "a", "c"]}, ["a", "b", "c"]),
        ({"pick": f"{ONE}empty", "default": None}, None),
        ({"if": {"value": f"{ONE}vip", "op": "==", "to": True}, "then": 1, "else": 2}, 2),
        ({"join": f"{ONE}lines", "of": "$item.sku", "with": ", "}, "A, B, C"),
        ({"date_add": [f"{ONE}day", "P1M"]}, "2026-02-28"),
        ({"date_add": [f"{ONE}at", "-PT90M"]}, "2026-01-31T21:00:00+01:00"),
        ({"date_add": [f"{ONE}at", "PT0.5S"]}, "2026-01-31T22:30:00.500000+01:00"),
        ({"date_add": [f"{ONE}at", "-PT1M0,25S"]}, "2026-01-31T22:28:59.750000+01:00"),
        ({"days_between": [f"{ONE}day", "2026-03-01"]}, 29),
        ({"subtract": ["2026-03-01", f"{ONE}day"]}, 29),
        ({"subtract": [f"{ONE}at", "PT30M"]}, "2026-01-31T22:00:00+01:00"),
        ({"subtract": [f"{ONE}day", "P1M"]}, "2025-12-31"),
        ({"weekday": f"{ONE}day"}, 6),
        ({"$first": ["$output.step_2.x", f"{ONE}nothing", f"{ONE}word"]}, "gold"),
        ({"$first": ["$output.step_2.x", 0]}, 0),
        ({"add": [{"$first": ["$output.step_2.x", 0]}, 1]}, 1),
    ],
)
def test_an_expression_has_its_value(raw: Any, wanted: Any) -> None:
    """Exactly, in the form of its operands."""
    found = value(raw)
    assert found == wanted
    assert type(found) is type(wanted)


def test_nested_lists_keep_their_items_apart() -> None:
    """After an inner list ``$item`` is the outer one's again."""
    raw = {"map": [[1, 2], [3]], "of": {"add": [{"sum": "$item"}, {"count": "$item"}]}}
    assert value({**raw, "map": {"value": [[1, 2], [3]]}}) == [5, 4]


def test_data_are_never_taken_for_an_operation() -> None:
    """A tool may return what looks like an expression or a binding."""
    assert value(f"{ONE}trap") == {"add": [1, 2]}
    assert value([f"{ONE}trap"]) == [{"add": [1, 2]}]
    with pytest.raises(NotComputable):
        value({"add": [f"{ONE}trap", 1]})


def test_several_candidates_are_named() -> None:
    """Whoever reads the failure knows among which items to choose: short texts and numbers, or positions."""
    with pytest.raises(NotComputable, match=r'3 items fit, and one is wanted: "A", "B", "C"$'):
        value({"pick": f"{ONE}lines", "several": "error", "of": "$item.sku"})
    with pytest.raises(NotComputable, match=r"7 items fit, and one is wanted: 10, 11, 12, 13, 14, and 2 more$"):
        value({"pick": {"value": list(range(10, 17))}, "several": "error"})
    stocked = [{"value": "$item.stock", "op": "==", "to": True}]
    with pytest.raises(NotComputable, match=r"2 items fit, and one is wanted: item 0, item 2$"):
        value({"pick": f"{ONE}lines", "several": "error", "where": stocked})


@pytest.mark.parametrize(
    "raw",
    [
        {"add": [f"{ONE}word", 1]},
        {"add": [f"{ONE}vip", 1]},
        {"add": [f"{ONE}none", 1]},
        {"divide": [1, 0]},
        {"sum": f"{ONE}word"},
        {"min": f"{ONE}empty"},
        {"pick": f"{ONE}empty"},
        {"pick": f"{ONE}lines", "several": "error"},
        {"pick": f"{ONE}lines", "where": {"value": "$item.sku", "op": ">", "to": 1}},
        {"if": {"value": f"{ONE}word", "op": ">", "to": 1}, "then": 1, "else": 2},
        {"date_add": [f"{ONE}day", "3 days"]},
        {"date_add": [f"{ONE}day", "PT1H"]},
        {"date_add": ["9999-12-31", "P1D"]},
        {"date_add": ["2026-02-30", "P1D"]},
        {"weekday": f"{ONE}total"},
        {"multiply": ["9" * 40, "9" * 40]},
        {"multiply": [1234567.891, 1234567.891]},
        {"join": f"{ONE}lines"},
        {"map": {"value": list(range(10_001))}, "of": 1},
        {"map": {"value": [list(range(400))] * 400}, "of": {"sum": "$item"}},
    ],
)
def test_what_has_no_value_is_a_failure(raw: Any) -> None:
    """Never a guess, never a silent false, never a rounded number; and no value appears in the reason."""
    with pytest.raises(NotComputable) as failure:
        value(raw)
    assert "gold" not in str(failure.value)


@pytest.mark.parametrize(
    ("day", "said"),
    [
        ("2026-02-30", "there is no day 2026-02-30"),
        ("2025-02-29T09:00:00Z", "there is no day 2025-02-29"),
        ("2026-02-28T24:30:00+01:00", "there is no time 24:30:00+01:00"),
        ("28.2.2026", "a date is written as in ISO 8601: 2026-02-28, or 2026-02-28T09:00:00+01:00"),
    ],
)
def test_a_day_that_does_not_exist_is_told_from_a_wrong_form(day: str, said: str) -> None:
    """Who wrote a date correctly is told that the calendar has no such day, not how dates are written."""
    with pytest.raises(NotComputable) as failure:
        dates.moment(day)
    assert str(failure.value) == said


@pytest.mark.parametrize(
    ("raw", "code", "path"),
    [
        ({"adds": [1, 2]}, "compute-invalid", "$.compute"),
        ({}, "compute-invalid", "$.compute"),
        ({"add": [1], "sum": [1]}, "compute-invalid", "$.compute"),
        ({"add": []}, "compute-invalid", "$.compute.add"),
        ({"add": f"{ONE}lines"}, "compute-invalid", "$.compute.add"),
        ({"subtract": [1, 2, 3]}, "compute-invalid", "$.compute.subtract"),
        ({"round": 1, "places": 2.5}, "compute-invalid", "$.compute.places"),
        ({"round": 1, "mode": "nearest"}, "compute-invalid", "$.compute.mode"),
        ({"round": 1, "digits": 2}, "compute-invalid", "$.compute"),
        ({"map": [1]}, "compute-invalid", "$.compute"),
        ({"add": ["$item.price", 1]}, "binding-malformed", "$.compute.add[0].value"),
        ({"add": ["$output.step_9.x", 1]}, "binding-unknown-step", "$.compute.add[0].value"),
        ({"$first": [1, "$output.step_1.x"]}, "binding-malformed", "$.compute.value"),
        ({"$first": []}, "binding-malformed", "$.compute.value"),
        ({"if": [], "then": 1, "else": 2}, "condition-invalid", "$.compute.if"),
    ],
)
def test_a_wrong_expression_is_a_problem(raw: Any, code: str, path: str) -> None:
    """Before anything runs, with its place."""
    assert [(problem.code, problem.path) for problem in problems(raw)] == [(code, path)]


def test_depth_and_size_are_bounded() -> None:
    """A hostile expression costs no more than a limit."""
    deep: Any = 1
    for _ in range(40):
        deep = {"add": [deep]}
    assert {problem.code for problem in problems(deep)} == {"limit-depth"}
    assert {problem.code for problem in problems([{"add": [1]}] * 300)} == {"limit-nodes"}


@pytest.mark.parametrize("mode", ROUNDING)
@given(
    one=st.decimals(-(10**9), 10**9, allow_nan=False, places=4),
    other=st.decimals(-(10**6), 10**6, allow_nan=False, places=3).filter(bool),
    places=st.integers(0, 8),
)
def test_a_quotient_is_rounded_once(mode: str, one: Decimal, other: Decimal, places: int) -> None:
    """It is as near to the exact quotient as its places allow, on the side that the mode says."""
    exact = Fraction(one) / Fraction(other)
    found = Fraction(divide(Number(one), Number(other), places, mode).value)
    unit = Fraction(1, 10**places)
    error = found - exact
    assert abs(error) < unit
    if mode.startswith("half"):
        assert abs(error) <= unit / 2
    assert {
        "up": abs(found) >= abs(exact),
        "down": abs(found) <= abs(exact),
        "ceiling": error >= 0,
        "floor": error <= 0,
        "half-up": abs(error) < unit / 2 or abs(found) > abs(exact),
        "half-even": abs(error) < unit / 2 or not (found / unit) % 2,
    }[mode]


# --- conditions ----------------------------------------------------------------------------------------------------

TRUE = {"value": f"{ONE}total", "op": ">", "to": 10}
FALSE = {"value": f"{ONE}word", "op": "==", "to": "silver"}
UNKNOWN = {"value": f"{ONE}word", "op": ">", "to": 10}


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (TRUE, True),
        (FALSE, False),
        (UNKNOWN, None),
        ([TRUE, TRUE], True),
        ([TRUE, FALSE], False),
        ([UNKNOWN, FALSE], False),
        ([UNKNOWN, TRUE], None),
        ({"any": [UNKNOWN, TRUE]}, True),
        ({"any": [UNKNOWN, FALSE]}, None),
        ({"any": [FALSE, FALSE]}, False),
        ({"all": [TRUE, {"not": FALSE}]}, True),
        ({"not": UNKNOWN}, None),
        ({"value": f"{ONE}word", "op": "in", "to": ["gold", "silver"]}, True),
        ({"value": f"{ONE}word", "op": "matches", "to": "g*"}, True),
        ({"value": f"{ONE}total", "op": "<", "to": f"{ONE}text"}, False),
        ({"value": f"{ONE}total", "op": "<", "to": f"{ONE}word"}, None),
        ({"value": f"{ONE}none", "op": "exists"}, True),
        ({"value": f"{ONE}nothing", "op": "exists"}, False),
        ({"value": "$output.step_2.ref", "op": "absent"}, True),
        ({"value": "$output.step_2.ref", "op": "==", "to": 1}, None),
        ({"value": {"$first": ["$output.step_2.ref", None]}, "op": "==", "to": None}, True),
        ({"value": f"{ONE}lines[*].sku", "op": "exists"}, None),
        ({"value": f"{ONE}vip", "op": "==", "to": 0}, False),
        ({"value": f"{ONE}trap", "op": "==", "to": {"value": 1}}, False),
    ],
)
def test_a_condition_is_true_false_or_undecidable(raw: Any, wanted: bool | None) -> None:
    """Undecidable only if the whole depends on it, with a reason; data that look like conditions are data."""
    truth = evaluated(raw)
    assert (truth if isinstance(truth, bool) else None) is wanted
    assert isinstance(truth, bool) or truth


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"value": 1, "op": "==="}, "$.when.op"),
        ({"value": 1, "op": ">"}, "$.when"),
        ({"value": 1, "op": ">", "to": 1, "or": 2}, "$.when"),
        ({"value": 1, "op": "exists"}, "$.when.value"),
        ({"value": f"{ONE}x", "op": "exists", "to": 1}, "$.when"),
        ({"value": f"{ONE}x", "op": "in", "to": "gold"}, "$.when.to"),
        ({"value": f"{ONE}x", "op": ">", "to": "many"}, "$.when.to"),
        ({"any": []}, "$.when.any"),
        ({"any": {"value": 1}}, "$.when.any"),
        ("$output.step_1.vip", "$.when"),
        ({"not": "x"}, "$.when.not"),
    ],
)
def test_a_wrong_condition_is_a_problem(raw: Any, path: str) -> None:
    """Before anything runs, with its place."""
    found = Problems()
    ConditionReader(Binder(KEYS, found), found, "3").read(raw, ("when",))
    assert [(problem.code, problem.path) for problem in found.listed()] == [("condition-invalid", path)]


def test_conditions_are_bounded() -> None:
    """In depth and in number."""
    deep: Any = TRUE
    for _ in range(20):
        deep = {"not": deep}
    for raw, code in ((deep, "limit-depth"), ([TRUE] * 200, "limit-nodes")):
        found = Problems()
        ConditionReader(Binder(KEYS, found), found, "3").read(raw, ("when",))
        assert {problem.code for problem in found.listed()} == {code}


def test_every_operation_is_played_here() -> None:
    """A new operation brings its test."""
    text = json.dumps([mark.args[1] for mark in test_an_expression_has_its_value.pytestmark])  # type: ignore[attr-defined]
    assert {name for name in OPERATIONS if f'"{name}":' in text} == set(OPERATIONS)
