"""Only finite JSON is journalled, and what can be made JSON is, without touching what already is."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.errors import ValueNotJson
from saga_engine.plan import values
from saga_engine.plan.values import canonical, cut, digest, digest_of_json, json_path, plain, printable

texts = st.text(st.characters(codec="utf-8"), max_size=20)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
trees = st.recursive(leaves, lambda below: st.lists(below) | st.dictionaries(texts, below), max_leaves=30)


def holed(tree: Any, make: Any) -> Any:
    """The tree with tuples for lists and other mappings for dicts."""
    if isinstance(tree, list):
        return tuple(holed(item, make) for item in tree)
    if isinstance(tree, dict):
        return make({key: holed(item, make) for key, item in tree.items()})
    return tree


@given(trees)
def test_json_is_given_back_as_the_same_object(tree: Any) -> None:
    """A value that is JSON already is neither copied nor changed."""
    assert plain(tree) is tree


@given(trees)
def test_what_is_plain_survives_being_written(tree: Any) -> None:
    """Encoding and decoding a plain value gives an equal value with the same types."""
    again = msgspec.json.decode(canonical(plain(tree)))
    assert repr(_typed(again)) == repr(_typed(tree))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _typed(item)) for key, item in value.items())
    return [_typed(item) for item in value] if isinstance(value, list) else value


@given(trees, st.sampled_from([OrderedDict, MappingProxyType]))
def test_other_containers_become_lists_and_dicts(tree: Any, make: Any) -> None:
    """Tuples and mappings are converted at every depth, and only the value's form changes."""
    converted = plain(holed(tree, make))
    assert converted == tree
    assert json.loads(json.dumps(converted)) == tree


@given(trees)
def test_the_digest_does_not_depend_on_the_order_of_keys(tree: Any) -> None:
    """Two values that differ only in the order of their keys have one digest; other values have another."""
    turned = dict(reversed(tree.items())) if isinstance(tree, dict) else tree
    assert digest(turned) == digest(tree)
    assert digest([tree]) != digest(tree)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    day: dt.date


class Ticket(msgspec.Struct, rename="camel"):
    seat_row: int


class Event(msgspec.Struct, tag=True):
    at: int


class Guest(pydantic.BaseModel):
    name: str
    born: dt.date


ID = uuid.UUID(int=5)
DAY = dt.date(2026, 2, 1)


class Point(NamedTuple):
    x: int
    y: int


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "changed"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (DAY, "2026-02-01"),
        (dt.datetime(2026, 2, 1, 8, tzinfo=dt.UTC), "2026-02-01T08:00:00+00:00"),
        (dt.time(8, 30), "08:30:00"),
        (ID, str(ID)),
        (decimal.Decimal("1.10"), "1.10"),
        (Order(ID, DAY), {"id": str(ID), "day": "2026-02-01"}),
        (Ticket(4), {"seatRow": 4}),
        (Event(1), {"type": "Event", "at": 1}),
        (Guest(name="Ada", born=DAY), {"name": "Ada", "born": "2026-02-01"}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", 1, "a"}), ["a", "b", 1]),
        (Point(1, 2), [1, 2]),
        (Shout("a"), "a"),
        ({"a": [{"b": DAY}, 1]}, {"a": [{"b": "2026-02-01"}, 1]}),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
    ],
)
def test_known_types_have_a_json_form(value: Any, expected: Any) -> None:
    """Every type that the docstring names is converted, and to exactly the JSON types."""
    assert plain(value) == expected
    assert repr(plain(value)) == repr(expected)


def test_only_the_way_to_a_converted_value_is_new() -> None:
    """Siblings of a converted value are shared, and the original is left as it was."""
    sibling = {"a": [1]}
    value = {"when": DAY, "other": sibling}
    converted = plain(value)
    assert converted["other"] is sibling
    assert value["when"] is DAY


def cycle() -> Any:
    value: list[Any] = [1]
    value.append({"a": value})
    return value


def bomb() -> Any:
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    return value


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Liar(pydantic.BaseModel):
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")


@dataclasses.dataclass
class Own:
    me: Any = None


def own() -> Own:
    value = Own()
    value.me = value
    return value


@pytest.mark.parametrize(
    ("value", "path", "word"),
    [
        (math.nan, "$", "nan"),
        ({"a": math.inf}, "$.a", "inf"),
        ({"a": [1, {"b c": -math.inf}]}, "$.a[1]['b c']", "inf"),
        (decimal.Decimal("NaN"), "$", "NaN"),
        ([2**64], "$[0]", "integer"),
        ({"n": -(2**63) - 1}, "$.n", "integer"),
        ({"a": "x\ud800"}, "$.a", "surrogate"),
        ({"\udfff": 1}, "$", "surrogate"),
        ({1: 2}, "$", "not a text"),
        ({None: 2}, "$", "not a text"),
        ({"a": {"b": {(): 1}}}, "$.a.b", "not a text"),
        (cycle(), "$[1].a", "contains itself"),
        (own(), "$.me", "contains itself"),
        (deep(65), "$" + "[0]" * 64, "deeper"),
        ({"a": b"x"}, "$.a", "bytes"),
        ([object()], "$[0]", "object"),
        ([int], "$[0]", "class"),
        ({"a": Liar()}, "$.a", "Liar"),
        ({"a": lambda: 1}, "$.a", "function"),
        (1j, "$", "complex"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: Any, path: str, word: str) -> None:
    """The error names the place and the reason, in its message and in its context."""
    with pytest.raises(ValueNotJson) as refused:
        plain(value)
    assert refused.value.context["path"] == path
    assert word in refused.value.context["reason"]
    assert path in refused.value.message


def test_the_number_of_values_is_bounded_even_where_they_are_shared() -> None:
    """A graph that would unfold into 2**60 lists is given up after ``max_nodes`` of them."""
    with pytest.raises(ValueNotJson, match="more than 1000 values"):
        plain(bomb(), max_nodes=1000)
    assert plain([0] * 999, max_nodes=1000) == [0] * 999
    with pytest.raises(ValueNotJson):
        plain([0] * 1000, max_nodes=1000)
    assert plain({"a": 1}, max_nodes=2) == {"a": 1}
    with pytest.raises(ValueNotJson):
        plain({"a": 1}, max_nodes=1)


def test_depth_counts_containers() -> None:
    """``max_depth`` containers may be inside each other, and no more; a scalar has no depth."""
    assert plain(deep(64)) == deep(64)
    assert plain(1, max_depth=0) == 1
    with pytest.raises(ValueNotJson):
        plain({}, max_depth=0)
    with pytest.raises(ValueNotJson):
        plain(deep(2000), max_depth=10**9)


def test_canonical_is_sorted_and_compact_and_refuses_what_plain_refuses() -> None:
    """NaN does not become null on its way into a digest."""
    assert canonical({"b": 1, "a": [1.0, None, "é"]}) == '{"a":[1.0,null,"é"],"b":1}'.encode()
    with pytest.raises(ValueNotJson):
        canonical({"a": math.nan})
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest({}) == digest(b"{}")


@given(trees | st.just(cycle()) | st.just(object()) | st.just({1: b"x"}) | st.just("\ud800"), st.integers(1, 50))
def test_cut_never_fails_and_never_exceeds_its_limit(value: Any, limit: int) -> None:
    """Any value has a short form, of printable characters only."""
    shown = cut(value, limit)
    assert len(shown) <= limit
    assert shown.isprintable()


def test_cut_shows_json_and_escapes_what_a_terminal_would_obey() -> None:
    """A short value is shown whole; control characters of either set and text direction marks are not sent on."""
    assert cut({"a": [1, None, "é"]}, 80) == '{"a":[1,null,"é"]}'
    assert cut("x" * 100, 10) == '"xxxxxxxx…'
    assert "\x9b" not in cut("\x9b31m", 80)
    assert "\u202e" not in printable("a\u202eb", 80)
    assert printable("abcdef", 4) == "abc…"


def test_a_path_is_readable_and_bounded() -> None:
    """Plain names stand with a dot, others in quotes, long ones are cut."""
    assert json_path(["steps", 0, "a b", "it's"]) == "$.steps[0]['a b'][\"it's\"]"
    assert len(json_path(["k" * 10_000])) < 100


def test_lists_that_stand_in_each_other_again_and_again_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same few containers may hold each other: no more of them are looked at than a value may have."""
    value: Any = ["x"] * 30
    for _ in range(6):
        value = [value] * 30
    looks = []
    genuine = values._nodes
    monkeypatch.setattr(values, "_nodes", lambda each, below: looks.append(1) or genuine(each, below))
    with pytest.raises(ValueNotJson, match="more than"):
        plain({"v": value})
    assert 5 < len(looks) < 100


@given(given_=st.dictionaries(texts, st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=10)))
def test_the_digest_of_json_is_that_of_its_value(given_: dict[str, Any]) -> None:
    """A plan is digested from its own text."""
    assert digest_of_json(msgspec.json.encode(given_)) == digest(given_)
