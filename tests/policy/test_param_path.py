"""Paths into params: everything that they mean is found, and where that is not certain it is said."""

import pytest

from saga_engine.policy.param_path import MAX_VISITS, Reach
from tests.policy.world import both

NESTED = {"items": [{"sku": "a", "price": 5}, {"sku": "b", "price": 5000}], "to": {"name": "bob", "iban": "X1"}}


@pytest.mark.parametrize(
    ("path", "values", "gaps", "strange"),
    [
        ("items[0].price", [5], False, False),
        ("items[-1].price", [5000], False, False),
        ("items[*].price", [5, 5000], False, False),
        ("$.items[*].price", [5, 5000], False, False),
        ("items[0:1].price", [5], False, False),
        ("items[*].tax", [], True, False),
        ("items[7].price", [], True, False),
        ("items.price", [], False, True),
        ("to[*]", ["bob", "X1"], False, False),
        ("to[0]", [], False, True),
        ("to.name.first", [], False, True),
        ("['to']['name']", ["bob"], False, False),
        ("..price", [5, 5000], False, False),
        ("..nothing", [], False, False),
        ("none", [], True, False),
    ],
)
def test_what_a_path_finds(path, values, gaps, strange):
    """All values at the path, and whether something was missing or was built otherwise."""
    found = Reach(path).find(NESTED)
    assert sorted(map(str, found.values)) == sorted(map(str, values))
    assert (found.gaps, found.strange) == (gaps, strange)


@pytest.mark.parametrize("path", ["", None, 5, "a b", "items[?(@.price>5)]", "a[", "x" * 300, "..*..*..*"])
def test_paths_that_make_no_sense_are_refused(path):
    """Filters, prose and overlong paths are refused when the rule is read."""
    with pytest.raises(ValueError):
        Reach(path)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"items": [{"price": 5}, {"price": 5000}]}, "doubt"),  # one does: a denial holds, a permission does not
        ({"items": [{"price": 2000}, {"price": 5000}]}, "yes"),
        ({"items": [{"price": 5}]}, "no"),
        ({"items": []}, "no"),
        ({"items": None}, "no"),
        ({"items": [{"price": 2000}, {}]}, "doubt"),
        ({"items": {"first": {"price": 2000}}}, "yes"),
        ({"items": "5000"}, "doubt"),
        ({"items": [[{"price": 5}]]}, "doubt"),
        ({"items": [{"price": 5}, "5000"]}, "doubt"),
        ({"items": [{"price": [5000]}]}, "doubt"),
        ({}, "no"),
    ],
)
async def test_wildcards_are_held_on_the_safe_side(params, expected):
    """One value is enough to deny, all are needed to allow, and params of another build pass no rule."""
    assert await both("items[*].price", ">", 1000, params=params) == expected


@pytest.mark.parametrize(
    ("op", "params", "expected"),
    [
        ("exists", {"to": {"iban": None}}, "yes"),
        ("exists", {"to": {}}, "no"),
        ("exists", {"to": "X1"}, "doubt"),
        ("absent", {"to": {"iban": None}}, "no"),
        ("absent", {"to": {}}, "yes"),
        ("absent", {}, "yes"),
        ("absent", {"to": ["X1"]}, "doubt"),
    ],
)
async def test_presence(op, params, expected):
    """A null is there; where the params are built otherwise nobody can tell."""
    assert await both("to.iban", op, params=params) == expected


async def test_presence_in_each_item():
    """One item without the field is enough to deny for its absence, and too much to allow for its presence."""
    params = {"items": [{"by": "bob"}, {}]}
    assert await both("items[*].by", "absent", params=params) == "doubt"
    assert await both("items[*].by", "exists", params=params) == "doubt"


async def test_a_search_has_an_end():
    """Params that are too large to look through are not taken for looked through."""
    huge = {"items": [{"price": 1}] * (MAX_VISITS + 1)}
    assert await both("items[*].price", "<", 10, params=huge) == "doubt"
