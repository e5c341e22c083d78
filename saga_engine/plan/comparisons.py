"""Comparisons of one JSON value with another: the policy's rules and the conditions of plans use the same ones.

A comparison is true, false, or undecidable with a reason. Nothing is coerced: ``true`` is not 1 and a text is not a
number, except that a text which is certainly a decimal number counts as one where an order is asked for.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from saga_engine.errors import ValueNotJson
from saga_engine.plan.amounts import amount, equal
from saga_engine.plan.values import plain

#: True, False, or the reason why the value is undecidable. No reason repeats the value.
Truth = bool | str
Predicate = Callable[[Any], Truth]

#: The comparisons of a value with another one. ``exists`` and ``absent``, which compare with nothing, are not among
#: them.
COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in", "not-in", "matches")


class ComparisonInvalid(ValueError):
    """A comparison with what it cannot compare with."""


def predicate(op: str, value: Any) -> Predicate:
    """The comparison ``op`` of any value with ``value``. Raises ``ComparisonInvalid``."""
    if op in _ORDER:
        return _ordered(op, value)
    if op == "matches":
        return _matches(texts(value))
    try:
        value = plain(value)
    except ValueNotJson as error:
        raise ComparisonInvalid(error.message) from error
    if op in ("==", "!="):
        return _equals([value], wanted=op == "==")
    if op not in ("in", "not-in"):
        raise ComparisonInvalid(f"{op!r} is none of {', '.join(COMPARISONS)}")
    if not isinstance(value, list) or not value:
        raise ComparisonInvalid(f"{op!r} takes a list of values")
    return _equals(value, wanted=op == "in")


def texts(value: Any) -> list[str]:
    """A text, or some, as a list. Raises ``ComparisonInvalid``."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found or not all(isinstance(text, str) and text for text in found):
        raise ComparisonInvalid("it must be a text, or a list of texts")
    return list(found)


def no_amount(value: Any) -> str:
    """Why a value is not an amount."""
    if isinstance(value, str):
        return "a text that is no plain decimal number"
    kinds = {bool: "true or false", type(None): "null", dict: "an object", list: "a list"}
    return f"{kinds.get(type(value), 'an odd number')} where a number is expected"


_ORDER: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _ordered(op: str, value: Any) -> Predicate:
    limit = amount(value)
    if limit is None:
        raise ComparisonInvalid(f"{op!r} takes a number")
    compare = _ORDER[op]

    def check(found: Any) -> Truth:
        number = amount(found)
        return no_amount(found) if number is None else compare(number, limit)

    return check


def _equals(values: Sequence[Any], *, wanted: bool) -> Predicate:
    nested = any(isinstance(value, dict | list) for value in values)

    def check(found: Any) -> Truth:
        if isinstance(found, float) and not math.isfinite(found):
            return "it is no JSON number"
        if not isinstance(found, str | int | float | Mapping | list | tuple | None):
            return "it is no JSON value"
        if not nested and isinstance(found, Mapping | list | tuple):
            return "a list or an object where one value is expected"
        return any(equal(found, value) for value in values) is wanted

    return check


def _matches(globs: Sequence[str]) -> Predicate:
    patterns = [re.compile(fnmatch.translate(glob)) for glob in globs]

    def check(found: Any) -> Truth:
        if not isinstance(found, str):
            return "it is no text"
        return any(pattern.match(found) for pattern in patterns)

    return check
