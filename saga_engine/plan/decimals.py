"""Exact arithmetic on amounts. No binary floats: ``0.1 + 0.2`` is ``0.3``.

A result is a text if an operand was one (many interfaces write money as text), else a JSON number. A number that a
reader of JSON could not keep exactly is refused rather than rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    ROUND_UP,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from functools import reduce
from typing import Any, Final, NamedTuple

from saga_engine.plan.amounts import amount
from saga_engine.plan.comparisons import no_amount

#: Digits of an amount, before and after the point together.
MAX_DIGITS: Final = 60
#: Places after the point that may be asked for.
MAX_PLACES: Final = 20
#: How ``round`` and ``divide`` may round, by the names that plans use.
ROUNDING: Final[Mapping[str, str]] = {
    "half-up": ROUND_HALF_UP,
    "half-even": ROUND_HALF_EVEN,
    "up": ROUND_UP,
    "down": ROUND_DOWN,
    "ceiling": ROUND_CEILING,
    "floor": ROUND_FLOOR,
}
#: A JSON reader that knows only doubles keeps this many digits, and whole numbers below this one.
_DOUBLE_DIGITS: Final = 15
_DOUBLE_WHOLE: Final = 2**53
_TRAPS: Final = [Inexact, InvalidOperation, DivisionByZero, Overflow, Clamped]
_EXACT: Final = Context(prec=MAX_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=_TRAPS)


class NotComputable(ValueError):
    """These operands have no result; the text says why, without their values."""


class Number(NamedTuple):
    """An operand or a result. ``text``: it is written as a text."""

    value: Decimal
    text: bool = False

    def plain(self) -> Any:
        """As JSON. Raises ``NotComputable`` for a number that readers of JSON might not keep."""
        value = self.value
        if self.text:
            return f"{value:f}"
        if value == value.to_integral_value():
            whole = int(value)
            if abs(whole) > _DOUBLE_WHOLE:
                raise NotComputable("the result has too many digits for a JSON number; give an operand as text")
            return whole
        if len(value.normalize(_EXACT).as_tuple().digits) > _DOUBLE_DIGITS:
            raise NotComputable("the result has more than 15 digits; round it, or give an operand as text")
        return float(value)


def number(value: Any) -> Number:
    """The amount that a JSON value is. Raises ``NotComputable``."""
    found = amount(value)
    if found is None:
        raise NotComputable(no_amount(value))
    if len(found.as_tuple().digits) > MAX_DIGITS:
        raise NotComputable(f"an amount has more than {MAX_DIGITS} digits")
    return Number(found, isinstance(value, str))


def add(operands: Iterable[Number]) -> Number:
    """The sum; 0 of nothing."""
    return reduce(lambda one, other: _made(_EXACT.add, one, other), operands, Number(Decimal(0)))


def subtract(one: Number, other: Number) -> Number:
    """The difference."""
    return _made(_EXACT.subtract, one, other)


def multiply(operands: Iterable[Number]) -> Number:
    """The product; 1 of nothing."""
    return reduce(lambda one, other: _made(_EXACT.multiply, one, other), operands, Number(Decimal(1)))


def percent(rate: Number, base: Number) -> Number:
    """So many per cent of an amount, exactly."""
    made = multiply([rate, base])
    return Number(_guarded(_EXACT.scaleb, made.value, Decimal(-2)), made.text)


def divide(one: Number, other: Number, places: int, mode: str) -> Number:
    """The quotient, rounded once to so many places. Raises ``NotComputable`` for a division by zero."""
    if not other.value:
        raise NotComputable("a division by zero")
    text = one.text or other.text
    # Rounding twice would be wrong: the first rounding keeps enough digits, and marks what it cut off (ROUND_05UP).
    whole = one.value.adjusted() - other.value.adjusted() + places + 3
    wide = Context(prec=max(whole, 1) + 2, rounding="ROUND_05UP", Emax=MAX_EMAX, Emin=MIN_EMIN, traps=_TRAPS[1:])
    return _rounded(Number(_guarded(wide.divide, one.value, other.value), text), places, mode)


def rounded(one: Number, places: int, mode: str) -> Number:
    """The amount with so many places after the point."""
    return _rounded(one, places, mode)


def _rounded(one: Number, places: int, mode: str) -> Number:
    context = Context(prec=2 * MAX_DIGITS, rounding=ROUNDING[mode], Emax=MAX_EMAX, Emin=MIN_EMIN, traps=_TRAPS[1:])
    return Number(_guarded(context.quantize, one.value, Decimal(1).scaleb(-places)), one.text)


def _made(operation: Any, one: Number, other: Number) -> Number:
    return Number(_guarded(operation, one.value, other.value), one.text or other.text)


def _guarded(operation: Any, *operands: Decimal) -> Decimal:
    try:
        made: Decimal = operation(*operands)
    except ArithmeticError as error:
        raise NotComputable(f"the result has more than {MAX_DIGITS} digits") from error
    return made
