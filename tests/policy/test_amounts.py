"""Numbers in params, attacked: no way of writing one passes a limit."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.plan.amounts import amount, equal, total
from tests.policy.world import both, pay_default, policy_of, says

ODD_NUMBERS = [
    "1e9",
    "1E9",
    "1_000_000",
    " 5000 ",
    "5000\n",
    "+5000",
    "0x1388",
    "5,000",
    "5000.",
    ".5",
    "--5",
    "",
    "ten",
    "NaN",
    "Infinity",
    "-inf",
    "９９９９",  # full width
    "٥٠٠٠",  # Arabic-Indic
    "5" * 401,
    True,
    False,
    None,
    math.nan,
    math.inf,
    -math.inf,
    [5000],
    [],
    {"value": 5000},
    {},
    b"5000",
    1 << 5000,
]


@pytest.mark.parametrize("value", ODD_NUMBERS, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
async def test_what_is_no_plain_number_passes_no_limit(op, value):
    """A value that readers could take for different numbers holds every denial and no permission."""
    assert await both("amount", op, 1000, params={"amount": value}) == "doubt"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1000, "no"),
        (1000.0, "no"),
        ("1000", "no"),
        ("1000.00", "no"),
        ("0001000", "no"),
        ("-5", "no"),
        (1000.01, "yes"),
        ("1000.0000000000000000000000000001", "yes"),
        (1001, "yes"),
        ("99999999999999999999999999999999999999", "yes"),
        (2**63, "yes"),
        (10**30, "yes"),
        (1e308, "yes"),
        (-1e308, "no"),
    ],
)
async def test_plain_numbers_are_compared_exactly(value, expected):
    """Integers, floats and plain decimal texts are compared as decimals: a text is no way around a limit."""
    assert await both("amount", ">", 1000, params={"amount": value}) == expected


@pytest.mark.parametrize("limit", ["1e3", "ten", True, None, [1], math.nan])
def test_a_limit_is_a_plain_number_too(limit):
    """A rule with an odd limit is refused when it is read."""
    with pytest.raises(Exception, match="takes a number"):
        policy_of(("amount", ">", limit))


async def test_floats_are_the_numbers_that_json_prints():
    """0.1 in a plan is the 0.1 of a rule, and the text 0.1."""
    assert await both("amount", "<=", 0.1, params={"amount": 0.1}) == "yes"
    assert await both("amount", "<=", "0.1", params={"amount": 0.1}) == "yes"
    assert await both("amount", "<=", 0.1, params={"amount": "0.1"}) == "yes"
    assert await both("amount", ">", 0.1, params={"amount": "0.10000000000000001"}) == "yes"


async def test_a_missing_amount_is_nothing_to_check():
    """A param that is not there holds no comparison, on neither side."""
    assert await both("amount", ">", 1000, params={"other": 5}) == "no"
    assert await both("amount", "!=", 1000, params={}) == "no"


async def test_the_default_of_the_tool_is_checked():
    """Leaving a param out is no way around a rule: the value that the tool takes instead counts; a null is none."""
    over = policy_of(("amount", ">", 1000))
    assert await says(over, {}, made=pay_default) == "deny"
    assert await says(over, {"amount": 5}, made=pay_default) == "allow"
    assert await says(policy_of(("note", ">", 1000)), {}, made=pay_default) == "allow"
    assert await says(policy_of(("fee", ">", 8)), {}, made=pay_default) == "deny"
    assert await says(policy_of(("fee", ">", 10)), {}, made=pay_default) == "allow"
    # Whether it was given is asked of the plan.
    assert await says(policy_of(("amount", "exists")), {}, made=pay_default) == "allow"
    assert await says(policy_of(("amount", "absent")), {}, made=pay_default) == "deny"


EQUALITIES = [
    (1, 1, True),
    (1, 1.0, True),
    (1.0, 1, True),
    (0, -0.0, True),
    (True, 1, False),
    (1, True, False),
    (False, 0, False),
    (True, True, True),
    ("1", 1, False),
    (1, "1", False),
    (None, 0, False),
    (None, None, True),
    (None, False, False),
    ("", None, False),
    ("a", "a", True),
    ("a", "A", False),
    ([1, 2], [1.0, 2], True),
    ([1, 2], [2, 1], False),
    ([1], [True], False),
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    (2**53, 2**53 + 1, False),
    (float(2**53), 2**53 + 1, False),
]


@pytest.mark.parametrize(("one", "other", "same"), EQUALITIES)
def test_equal_is_strict(one, other, same):
    """Numbers are equal by value; nothing else is equal to a value of another kind, at any depth."""
    assert equal(one, other) is same
    assert equal(other, one) is same


async def test_equality_where_one_value_is_expected():
    """A list or an object in the place of one value cannot be checked: a tool may take either."""
    assert await both("to", "==", "mallory", params={"to": ["mallory"]}) == "doubt"
    assert await both("to", "in", ["mallory"], params={"to": {"name": "mallory"}}) == "doubt"
    assert await both("to", "not-in", ["alice"], params={"to": ["alice"]}) == "doubt"
    assert await both("to", "==", ["mallory"], params={"to": ["mallory"]}) == "yes"
    assert await both("to", "==", 1, params={"to": math.nan}) == "doubt"


@pytest.mark.parametrize(
    ("op", "value", "given_value", "expected"),
    [
        ("==", 1, True, "no"),
        ("!=", 1, True, "yes"),
        ("==", 1, "1", "no"),
        ("in", [1, "a"], 1.0, "yes"),
        ("in", [1, "a"], "1", "no"),
        ("in", [0], False, "no"),
        ("not-in", ["alice", "bob"], "mallory", "yes"),
        ("not-in", ["alice", "bob"], "bob", "no"),
        ("==", None, None, "yes"),
        ("matches", "acct-*", "acct-1", "yes"),
        ("matches", "acct-*", "ACCT-1", "no"),
        ("matches", ["a?", "b*"], "ab\nc", "no"),
        ("matches", ["a?", "b*"], "b\nc", "yes"),
        ("matches", "a.c", "abc", "no"),
        ("matches", "*", 5, "doubt"),
        ("matches", "*", None, "doubt"),
        ("matches", "*", ["x"], "doubt"),
    ],
)
async def test_texts_and_lists_of_values(op, value, given_value, expected):
    """Values are compared as JSON, texts by globs that know no more than ``*``, ``?`` and ``[…]``."""
    assert await both("p", op, value, params={"p": given_value}) == expected


# --- laws ----------------------------------------------------------------------------------------------------------

decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=6)


@given(st.text(alphabet="0123456789.-+eExX_ ,'\u0665\uff19\n", max_size=12))
def test_a_text_is_a_number_only_if_all_readers_agree(text):
    """Every text that counts is read the same by ``float`` and ``Decimal``, and is written in plain digits."""
    found = amount(text)
    if found is not None:
        assert Decimal(text) == found
        assert float(text) == float(found)
        assert set(text) <= set("0123456789.-")


@given(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_what_they_are(integer, real):
    """No number changes its value on the way to a comparison, and each survives as a text."""
    assert amount(integer) == integer
    assert float(amount(real)) == real
    assert amount(format(amount(real), "f")) == amount(real)


@given(st.lists(decimals, max_size=20))
def test_a_sum_is_never_too_small(numbers):
    """The sum of what is positive, exactly: an amount below zero makes no room for another."""
    assert Fraction(total(numbers)) == sum(Fraction(each) for each in numbers if each > 0)
