"""Typed values: JSON, parsed strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import typer

from saga_engine.errors import ValueNotJson
from saga_engine.plan.strict_json import strict_json
from saga_engine.plan.values import plain

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan

#: A binding to the input, and the first name in it; empty for the input as a whole.
_INPUT: Final = re.compile(r"\$input(?:\.([^\W\d]\w*))?")


def input_values(pairs: list[str], option: str = "--input") -> dict[str, Any]:
    """``--input K=V``: V is JSON if it is JSON, else a text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not K=V", param_hint=option)
        if key in values:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint=option)
        values[key] = _json_or_text(key, text)
    return values


def require_used(values: Mapping[str, Any], plan: Plan) -> None:
    """Refuse a value that nothing in the plan uses: its name is probably misspelt."""
    text = plan.model_dump_json(exclude={"input"})
    names = set(_INPUT.findall(text))
    if "" in names:
        return  # it uses the input as a whole
    known = sorted(names | set(plan.input))
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            asks = f"did you mean {near[0]}?" if near else f"it asks for {', '.join(known) or 'no input'}"
            raise typer.BadParameter(f"the plan has no $input.{key[:64]}; {asks}", param_hint="--input")


def _json_or_text(key: str, text: str) -> Any:
    if text.strip() in ("NaN", "Infinity", "-Infinity"):
        return plain(text)  # not JSON, whatever Python's parser says
    try:
        return strict_json(text)
    except json.JSONDecodeError:
        return plain(text)
    except ValueNotJson as error:
        raise typer.BadParameter(f"the value of {key!r}: {error.message}", param_hint="--input") from error


def output_value(text: str | None) -> Any:
    """``--output JSON``."""
    if text is None:
        return None
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{error.msg} at column {error.colno}", param_hint="--output") from error
    except ValueNotJson as error:
        raise typer.BadParameter(error.message, param_hint="--output") from error
