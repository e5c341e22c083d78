"""The cut form: always JSON, never larger than its limit, and the value itself where that is small."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saga_engine.plan.preview import MIN_BYTES, brief

TEXTS = st.text(max_size=300) | st.text(alphabet='\x00"é😀\u202e', max_size=300)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(TEXTS | st.just("…"), inner, max_size=12),
    max_leaves=60,
)


def size(value: Any) -> int:
    return len(msgspec.json.encode(value))


@given(VALUES, st.integers(-5, 4000), st.integers(-1, 20), st.integers(-1, 400), st.integers(-1, 80))
@example("é" * 10_000, 64, 5, 64, 0)
@example("\x00" * 24, 64, 5, 24, 6)
@example({"x" * 200: {"…": 1}}, 64, 1, 24, 9)
def test_it_is_json_within_its_limit(value: Any, room: int, items: int, text: int, depth: int) -> None:
    """Whatever the value and the limits are, the cut form is JSON of at most so many bytes."""
    made = brief(value, max_bytes=room, max_items=items, max_text=text, max_depth=depth)

    assert size(made) <= max(room, MIN_BYTES)
    assert msgspec.json.decode(msgspec.json.encode(made)) == made


@given(VALUES)
def test_a_value_within_all_limits_comes_back_as_it_is(value: Any) -> None:
    """Nothing is cut that need not be: with room for its lists, texts, names and depth, a value is its own cut form."""
    longest = max((len(name) for name in _names(value)), default=0)
    made = brief(value, max_bytes=max(size(value), MIN_BYTES), max_items=12, max_text=300, max_depth=64)

    assert (made == value) is (longest <= 128)


def _names(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(name for item in value.values() for name in _names(item))]
    return [name for item in value for name in _names(item)] if isinstance(value, list) else []


@given(VALUES)
def test_the_cut_form_of_the_stored_value_is_that_of_the_value(value: Any) -> None:
    """What is shown does not depend on whether the value comes from memory or from the store."""
    assert brief(msgspec.json.decode(msgspec.json.encode(value))) == brief(value)


@given(st.lists(SCALARS, min_size=6, max_size=50))
def test_a_long_list_tells_its_length(value: list[Any]) -> None:
    """A list over the limit shows its first items, in order, the total, and that there is more."""
    assert brief(value) == {"items": value[:5], "total": len(value), "has_more": True}


@given(st.text(min_size=201, max_size=3000))
def test_a_long_text_tells_its_length(value: str) -> None:
    """A text over the limit is no longer than the limit, begins as the whole does, and tells the length of the whole."""
    made = brief(value)
    told = f"… ({len(value)} characters)"

    assert len(made) <= 200
    assert made.endswith(told)
    assert value.startswith(made.removesuffix(told))


def test_a_wide_object_keeps_its_first_fields() -> None:
    """Fields are kept in order as far as there is room, and the number of the others is told."""
    made = brief({f"field_{at}": at for at in range(1000)})

    told = made.pop("…")
    assert list(made.items()) == [(f"field_{at}", at) for at in range(len(made))]
    assert len(made) >= 50
    assert told == f"and {1000 - len(made)} more fields"


def test_a_field_named_like_the_marker_gives_way_to_it() -> None:
    """The marker of a cut object is never a value of the object itself."""
    made = brief({"…": "and 3 more fields", "a": 1, "x" * 200: 2})

    assert made == {"a": 1, "…": "and 2 more fields"}


def test_what_lies_too_deep_is_told() -> None:
    """Depth is bounded, and what is there is named; what is empty can be shown as it is."""
    deep: Any = {"a": [1, 2], "b": [], "c": {"d": 1}, "e": {}}
    assert brief(deep, max_depth=1) == {"a": "… (list of 2 items)", "b": [], "c": "… (object with 1 field)", "e": {}}


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (float("nan"), "… (nan)"),
        (float("-inf"), "… (-inf)"),
        (2**64, "… (integer of 65 bits)"),
        (10**5000, "… (integer of 16610 bits)"),
        ("a\ud800", "a?"),
        ({"a\ud800": 1, "b": 2}, {"b": 2, "…": "and 1 more field"}),
        ({1: 1}, {"…": "and 1 more field"}),
        ((1, 2), [1, 2]),
        (object(), "… (object)"),
        (b"x", "… (bytes)"),
    ],
    ids=lambda value: "",
)
def test_what_is_no_json_is_told(value: Any, made: Any) -> None:
    """It never fails, also on what cannot be journalled."""
    assert brief(value) == made


def test_a_cycle_ends() -> None:
    """A value that contains itself is cut like any deep one."""
    loop: list[Any] = []
    loop.append(loop)
    assert size(brief(loop)) <= 2048


class _Counted(dict[str, Any]):
    """An object that counts how many of its fields were looked at."""

    seen = 0

    def items(self) -> Any:
        for pair in super().items():
            _Counted.seen += 1
            yield pair


def test_a_huge_value_is_not_walked() -> None:
    """The work depends on the limits, not on the value: no more is looked at than could be shown."""
    _Counted.seen = 0
    wide = _Counted({f"field_{at}": {"text": "x" * 1000} for at in range(100_000)})
    nested: Any = 1
    for _ in range(60):
        nested = [nested, nested]  # 2**60 leaves: whoever walks it never comes back

    assert size(brief({"wide": wide, "nested": nested, "long": ["x" * 10_000_000] * 100_000})) <= 2048
    assert _Counted.seen < 5_000
