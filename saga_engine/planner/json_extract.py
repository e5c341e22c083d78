"""Finds the one JSON object in a model's answer.

Models wrap JSON in fences, introduce it, explain it afterwards and comment on it; some think aloud first. All of that
is accepted from a model, never from a file. A truncated object is not completed: half a plan is no plan.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MAX_ANSWER_CHARS = 256 * 1024
#: How often the length of the text may be read in search of the end of an object.
_MAX_PASSES = 4

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
# Possessive, and satisfied by the end of the text: each character is visited once, whatever the text.
_TOKEN = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|[{}\[\]]|,(?=\s*[}\]])', re.DOTALL
)


def find_object(text: str) -> str:
    """The JSON text of the answer's object, empty if there is none.

    Of several objects with steps, or with a reason for none, the last one counts: models correct themselves.
    """
    if len(text) > MAX_ANSWER_CHARS:
        return ""
    whole = text.strip()
    if _loads(whole) is not None:
        return whole
    spoken = _THINKING.sub("", text)
    found = ""
    at, left = 0, _MAX_PASSES * len(spoken)
    while left > 0 and (at := spoken.find("{", at)) >= 0:
        end = _end(spoken, at)
        left -= (end if end > 0 else len(spoken)) - at
        if end < 0:
            at += 1
            continue
        span = spoken[at:end]
        read = span if _loads(span) is not None else _cleaned(span)
        value = _loads(read)
        if value is None:
            at += 1
            continue
        found = read if _is_answer(value) else found
        at = end
    return found


def _is_answer(value: dict[str, Any]) -> bool:
    """Whether an object is a plan or the reason for none, and not a part of a truncated plan."""
    inner = value.get("plan")
    return (
        any(isinstance(value.get(name), list) for name in ("steps", "questions", "tools", "reads"))
        or isinstance(value.get("impossible"), str)
        or (isinstance(inner, dict) and isinstance(inner.get("steps"), list))
    )


def is_cut(text: str) -> bool:
    """Whether an object begins in the text and does not end: the answer was too long for its limit."""
    spoken = _THINKING.sub("", text[:MAX_ANSWER_CHARS])
    at = spoken.find("{")
    return at >= 0 and _end(spoken, at) < 0


def broken_at(text: str) -> str:
    """Where and why the object in a text is no JSON, in words; empty if the text has no object."""
    spoken = _THINKING.sub("", text[:MAX_ANSWER_CHARS])
    at = spoken.find("{")
    end = _end(spoken, at) if at >= 0 else -1
    # A brace in prose is no object.
    if end < 0 or not re.match(r'\{\s*"', spoken[at:end]):
        return ""
    try:
        json.loads(_cleaned(spoken[at:end]), parse_constant=_refuse, parse_int=len)
    except json.JSONDecodeError as error:
        around = error.doc[max(0, error.pos - 30) : error.pos + 30]
        return f"the JSON is broken: {error.msg} at line {error.lineno} column {error.colno}, near {around!r}"
    except (ValueError, RecursionError) as error:
        return f"the JSON is broken: {error}"
    return "the JSON object has none of: steps, questions, tools, reads, impossible"


def _end(text: str, start: int) -> int:
    """The end of the object that begins at ``start``, -1 if it has none."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        found = match.group()
        if found in "{[":
            depth += 1
        elif found in "}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


def _cleaned(span: str) -> str:
    """The text without comments, and without commas before a closing bracket."""

    def kept(match: re.Match[str]) -> str:
        return " " if match.group().startswith("/") else match.group()

    return _TOKEN.sub(lambda match: "" if match.group() == "," else match.group(), _TOKEN.sub(kept, span))


def _loads(text: str) -> dict[str, Any] | None:
    """The object, or ``None``. A first look: the plan's parser checks depth, size, doubled keys and numbers again.

    Integers are not converted (slow for a very long one): their length stands for them.
    """
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=len)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
