"""What a call costs: amounts by unit, or the fields of its output that say them; and budgets for their sums.

Units are the author's own words: ``usd``, ``tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from saga_engine.plan.jsonpath import Mismatch, follow, scan

#: What a call costs by unit: an amount, or a path into its output.
Costs = Mapping[str, float | str]
MAX_AMOUNT: Final = 1_000_000_000
MAX_UNITS: Final = 16
_UNIT_CHARS: Final = 64
_OUTPUT: Final = "$output"


def is_amount(value: Any) -> bool:
    """Whether a value is an amount: a number from 0 to ``MAX_AMOUNT``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isfinite(value) and 0 <= value <= MAX_AMOUNT


def why_no_costs(value: Any) -> str:
    """Why a value does not say what a call costs; an empty text if it does."""
    return _why_not(value, lambda cost: is_amount(cost) or is_path(cost))


def why_no_budget(value: Any) -> str:
    """Why a value is no budget; an empty text if it is one."""
    return _why_not(value, is_amount)


def is_path(value: Any) -> bool:
    """Whether a value names a field of the output: ``$output.usage.total_tokens``."""
    return isinstance(value, str) and value.startswith(_OUTPUT) and scan(value[len(_OUTPUT) :]) is not None


def amount_in(output: Any, path: str) -> float:
    """The amount that an output says; 0 if it says none."""
    try:
        value = follow(output, scan(path[len(_OUTPUT) :]) or ())
    except Mismatch:
        return 0.0
    return float(value) if is_amount(value) else 0.0


def dearer(one: Costs, other: Costs) -> dict[str, float | str]:
    """What a call costs of which both are said: the higher of two numbers, else what ``one`` says."""
    found = dict(other)
    for unit, cost in one.items():
        before = found.get(unit, cost)
        found[unit] = cost if isinstance(cost, str) or isinstance(before, str) else max(cost, before)
    return found


def smaller(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The smaller of two budgets, unit by unit."""
    return {**one, **{unit: min(amount, one.get(unit, amount)) for unit, amount in other.items()}}


def _why_not(value: Any, fits: Any) -> str:
    if not isinstance(value, Mapping):
        return "it must be a table of amounts by unit"
    if len(value) > MAX_UNITS:
        return f"it has {len(value)} units, and at most {MAX_UNITS} are allowed"
    for unit, amount in value.items():
        if not isinstance(unit, str) or not 0 < len(unit) <= _UNIT_CHARS:
            return f"{str(unit)[:80]!r} is no unit"
        if not fits(amount):
            return f"{unit} = {str(amount)[:80]!r} is no amount"
    return ""
