"""JSON, parsed strictly, at every door: what two readers could understand differently is refused."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from saga_engine.errors import ValueNotJson
from saga_engine.plan.values import plain


def strict_json(text: str) -> Any:
    """One JSON value.

    Raises ``json.JSONDecodeError`` for invalid JSON, and ``ValueNotJson`` for a value that cannot be journalled: a
    duplicate key, NaN, an infinity, an integer out of range, too much depth.
    """
    try:
        return plain(json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant, parse_int=_integer))
    except RecursionError as error:
        raise ValueNotJson("the value is nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for twice, _ in pairs:  # (a count of each key would take hours)
            if twice in seen:
                break
            seen.add(twice)
        raise ValueNotJson(f"the key {twice[:64]!r} occurs twice", hint="keep one of the two")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueNotJson(f"{name} is not a JSON number", hint="use null or a text instead")


def _integer(digits: str) -> int:
    # A number longer than 2**64 is out of range anyway, and its conversion would be slow.
    return int(digits) if len(digits) <= 21 else 2**64


def require_unique(data: str | bytes) -> None:
    """Raises ``ValueNotJson`` if an object in this JSON has a member twice; what is no JSON is another's to refuse."""
    try:
        json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return
