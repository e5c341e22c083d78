"""The check of params: invented ones are refused, and no schema or text can hang the process."""

import datetime as dt
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from saga_engine.errors import ToolInvalid
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.schema_check import SchemaCheck


class Passenger(BaseModel, extra="forbid"):
    name: str
    born: dt.date


@tool
def book(flight: str, seats: int = 1, day: dt.date | None = None, who: list[Passenger] = []): ...  # noqa: B006


check = ToolRegistry(book).spec("book").check_params


def test_good_params_have_no_findings():
    """What the signature asks for passes."""
    assert not check({"flight": "X1", "day": "2026-03-01", "who": [{"name": "A", "born": "1990-01-01"}]})


def test_invented_parameters_are_named_with_what_was_meant():
    """Requirement B7: a parameter that the tool does not have is found, with the nearest name and the known ones."""
    [(path, message)] = check({"flight": "X1", "seat": 2})
    assert path == ("seat",)
    assert "did you mean 'seats'?" in message
    assert "known: day, flight, seats, who" in message


def test_a_tool_without_parameters_says_so():
    """There is nothing to suggest where nothing is known."""

    @tool
    def ping(): ...

    [(path, message)] = ToolRegistry(ping).spec("ping").check_params({"x": 1})
    assert (path, message) == (("x",), "unknown parameter 'x'; the tool takes no parameters")


def test_all_findings_come_at_once_with_their_places():
    """Missing, wrong and misspelt are all reported, each with its path inside the params."""
    found = check({"seats": "two", "who": [{"name": 1}, {"name": "A", "born": "1990-01-01", "pet": 1}], "flght": "X"})
    assert {path for path, _ in found} == {
        (),
        ("seats",),
        ("who", 0),
        ("who", 0, "name"),
        ("who", 1, "pet"),
        ("flght",),
    }
    assert any(message == "the parameter 'flight' is missing" for _, message in found)


def test_what_a_schema_cannot_say_is_found_too():
    """A text that is no date is found before anything runs, with a path that exists in the params."""
    found = check({"flight": "X", "day": "tomorrow", "who": [{"name": "A", "born": "never"}]})
    assert {path for path, _ in found} == {("day",), ("who", 0, "born")}


def test_formats_of_a_schema_written_by_hand_are_checked():
    """Who writes a format means it."""

    @tool(input_schema={"properties": {"day": {"type": "string", "format": "date"}}})
    def act(day: str): ...

    assert ToolRegistry(act).spec("act").check_params({"day": "tomorrow"})


@pytest.mark.parametrize("params", [None, [], "x", {"flight": {1, 2}}, {1: 2}, {"flight": object()}])
def test_params_that_are_no_json_object_are_a_finding_not_a_crash(params):
    """Hostile values are answered like any others."""
    assert check(params)


def test_a_hostile_pattern_gives_up_instead_of_hanging():
    """A pattern with catastrophic backtracking stops at a bound on its work and is reported, never waited for.

    Unbounded, this text costs 2**60 steps; that the answer is 'too much backtracking' shows that the bound ended it.
    """
    pattern = {"properties": {"x": {"type": "string", "pattern": r"(x*)*\1y"}}}
    found = SchemaCheck("evil", pattern)({"x": "x" * 60 + "!"})
    assert found == [(("x",), "cannot be checked: the schema's pattern needs too much backtracking for this text")]
    linear = {"properties": {"x": {"type": "string", "pattern": r"^(a+)+$"}}}
    [(path, message)] = SchemaCheck("evil", linear)({"x": "a" * 100_000 + "!"})
    assert path == ("x",)
    assert len(message) <= 400


def test_a_pattern_that_would_need_too_much_memory_is_refused():
    """A compiled pattern has a bounded size."""
    with pytest.raises(ToolInvalid):
        SchemaCheck("evil", {"properties": {"x": {"pattern": "(?:a{1000}){1000}"}}}).compile()


@pytest.mark.parametrize("uri", ["http://192.0.2.1/s.json", "file:///etc/hostname", "https://json-schema.org/x"])
def test_no_schema_is_ever_fetched(uri):
    """A remote reference is refused when the schema is compiled: nothing is opened, nothing is sent."""
    with pytest.raises(ToolInvalid, match="must not refer to another document"):
        SchemaCheck("remote", {"$ref": uri}).compile()


def test_a_schema_of_extreme_depth_is_refused():
    """Depth is bounded where a schema is compiled."""
    schema: dict = {"type": "object"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ToolInvalid):
        SchemaCheck("deep", schema).compile()


def test_the_number_of_findings_is_bounded():
    """A thousand mistakes make fifty findings."""
    assert len(check({"flight": "X"} | {f"x{i}": i for i in range(1000)})) == 50


def test_constraints_of_annotations_are_checked():
    """``Annotated`` constraints are part of the schema."""

    @tool
    def act(n: Annotated[int, Field(ge=1, le=9)]): ...

    check_n = ToolRegistry(act).spec("act").check_params
    assert check_n({"n": 0})
    assert check_n({"n": True})
    assert not check_n({"n": 9})
