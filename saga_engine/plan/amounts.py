"""Amounts and equal values, compared exactly: no spelling of a number may evade a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from math import isfinite
from typing import Any, Final

_PLAIN: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?")
_MAX_BITS: Final = 4096
#: Sums are exact within 1500 digits, and beyond that never too small.
_SUMS: Final = Context(prec=1500, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN)


def amount(value: Any) -> Decimal | None:
    """The number that a value certainly is; None if readers of it could differ.

    Numbers count as JSON prints them. A text counts if it is an optional minus, ASCII digits, and optionally a dot and
    more digits: not ``1e9``, ``1_000``, ``0x10``, ``" 5 "`` or ``５``. Booleans are no numbers.
    """
    if type(value) is int:
        return Decimal(value) if value.bit_length() <= _MAX_BITS else None
    if type(value) is float:
        return Decimal(repr(value)) if isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return Decimal(value)
    return None


def total(amounts: Iterable[Decimal]) -> Decimal:
    """The sum; never less than the true one. A negative amount counts as zero: no call makes room for another."""
    found = Decimal(0)
    for each in amounts:
        if each > 0:
            found = _SUMS.add(found, each)
    return found


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same: 1 is 1.0, but neither ``true`` nor ``"1"`` is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return one == other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and bool(one == other)
