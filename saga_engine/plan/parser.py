"""Reads a plan's source into one plain JSON object, and refuses expensive input before it costs anything.

The text of a plan is checked before it is parsed: its size, the number of its values and the depth of their nesting are
counted on the text, because the behaviour of a parser without stack or memory is undefined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from saga_engine.errors import PlanInvalid, Problem, ValueNotJson
from saga_engine.plan.limits import MAX_PLAN_BYTES, MAX_PLAN_DEPTH, MAX_PLAN_NODES
from saga_engine.plan.problems import Problems
from saga_engine.plan.values import cut, plain

# Possessive, and satisfied by the end of the text: each character is visited once, whatever the text.
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
#: One fence around the whole text. Possessive: each character is visited once.
_FENCED = re.compile(r"\s*+```(?:json|JSON)?[ \t]*+\r?\n(\s*+\{.*\})\s*```\s*", re.DOTALL)
_EXCERPT_CHARS = 40
_FILE_HINT = "pass the path of a JSON file; JSON text begins with '{'"
_BRACKETS = re.compile(r"[\[\]{}]")

#: A plan as a dict, as JSON, or as the path of a file.
Source = Mapping[str, Any] | str | bytes | Path


def read_source(source: Source) -> dict[str, Any]:
    """The plan as a plain JSON object. A ``str`` is JSON if it starts with ``{``, else the path of a file.

    JSON in a fence of Markdown, as models write it, is read as well. Raises ``PlanInvalid``.
    """
    if isinstance(source, Mapping):
        return _from_mapping(source)
    if isinstance(source, str) and (fenced := _FENCED.fullmatch(source)) is not None:
        source = fenced[1]
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("{"):
        return _from_text(source)
    if isinstance(source, str | Path):
        source = _read_file(Path(source))
    if not isinstance(source, bytes | bytearray):
        kind = type(source).__name__
        _refuse("plan-not-json", f"a plan cannot be read from {kind}", "pass a dict, JSON text or a path")
    _check_size(len(source))
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse("plan-not-json", f"the plan is not UTF-8: byte {error.start} is invalid", "save it as UTF-8")
    return _from_text(text)


def _refuse(code: str, message: str, hint: str = "", path: str = "$") -> NoReturn:
    raise PlanInvalid([Problem(code, path, message, hint)])


def _read_file(path: Path) -> bytes:
    shown = cut(str(path), 200)
    try:
        # Only a regular file: reading a pipe would wait for ever.
        if not path.is_file():
            reason = "it is not a regular file" if path.exists() else "there is no such file"
            _refuse("plan-unreadable", f"the plan {shown} cannot be read: {reason}", _FILE_HINT)
        with path.open("rb") as file:
            # Reading one byte more than the limit shows that it is too large, even if it grows meanwhile.
            return file.read(MAX_PLAN_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _refuse("plan-unreadable", f"the plan {shown} cannot be read: {cut(reason, 200)}")


def _check_size(size: int) -> None:
    if size > MAX_PLAN_BYTES:
        _refuse("limit-size", f"the plan is larger than {MAX_PLAN_BYTES} bytes", "move large values out of the plan")


def _check_text(text: str) -> None:
    """Count values and depth in the text itself."""
    # Every value but the first follows a comma, a colon or an opening bracket; commas and brackets bound the count.
    if _count(text) > MAX_PLAN_NODES or text.count("[") + text.count("{") > MAX_PLAN_DEPTH:
        bare = _STRINGS.sub('"', text)
        if _count(bare) > MAX_PLAN_NODES:
            _refuse("limit-nodes", f"the plan has more than {MAX_PLAN_NODES} values", "split it into several sagas")
        depth = 0
        for bracket in _BRACKETS.finditer(bare):
            depth += 1 if bracket.group() in "[{" else -1
            if depth > MAX_PLAN_DEPTH:
                _refuse("limit-depth", f"the plan is nested deeper than {MAX_PLAN_DEPTH} levels")


def _count(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _from_text(text: str) -> dict[str, Any]:
    _check_size(len(text))
    text = text.removeprefix("\ufeff")
    _check_text(text)
    twice: list[tuple[dict[str, Any], str]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items) and len(twice) < 100:
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    twice.append((made, key))
                    break
                seen.add(key)
        return made

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant, parse_int=_parse_int)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        _refuse("plan-not-json", f"the plan is not JSON: {error.msg} at {where}{_excerpt(error)}")
    except RecursionError:
        _refuse("limit-depth", f"the plan is nested deeper than {MAX_PLAN_DEPTH} levels")
    if not isinstance(data, dict):
        _refuse("plan-not-json", "the plan is not a JSON object", "a plan is an object with 'steps'")
    if twice:
        _refuse_twice(data, twice)
    return _checked(data)


def _excerpt(error: json.JSONDecodeError) -> str:
    """The text around the place, with a mark before the unexpected character."""
    before = error.doc[max(error.pos - _EXCERPT_CHARS, 0) : error.pos].rpartition("\n")[2]
    after = error.doc[error.pos : error.pos + _EXCERPT_CHARS].partition("\n")[0]
    return f": {before}>>>{after}" if before or after else ", where it ends"


def _refuse_constant(name: str) -> NoReturn:
    _refuse("plan-not-json", f"the plan contains {name}, which is not JSON", "use null or a text instead")


def _parse_int(digits: str) -> int:
    # 2**64 has 20 digits; a longer number is out of range anyway, and its conversion would be slow.
    return int(digits) if len(digits) <= 21 else 2**64


def _refuse_twice(data: dict[str, Any], twice: list[tuple[dict[str, Any], str]]) -> NoReturn:
    """Name each object with a duplicate key: one of the two values would silently be lost."""
    wanted = {id(made): key for made, key in twice}
    problems = Problems()
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(data, ())]
    while stack:
        value, path = stack.pop()
        if isinstance(value, dict):
            if id(value) in wanted:
                key = wanted.pop(id(value))
                problems.add("plan-not-json", path, f"the key {cut(key, 64)} occurs twice", "keep one of the two")
            stack.extend((item, (*path, key)) for key, item in reversed(value.items()) if isinstance(item, dict | list))
        elif isinstance(value, list):
            items = [(item, (*path, index)) for index, item in enumerate(value) if isinstance(item, dict | list)]
            stack.extend(reversed(items))
    for key in wanted.values():
        # It was in the value that was lost.
        problems.add("plan-not-json", (), f"the key {cut(key, 64)} occurs twice", "keep one of the two")
    problems.refuse()


def _from_mapping(source: Mapping[str, Any]) -> dict[str, Any]:
    data = _checked(source if isinstance(source, dict) else dict(source))
    # A Python object may hold the same text in many places; its JSON repeats the text each time.
    size = 0
    stack: list[Any] = [data]
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind is str:
            size += len(value)
        elif kind is dict:
            size += sum(map(len, value))
            stack += value.values()
        elif kind is list:
            stack += value
    _check_size(size)
    return data


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    try:
        checked: dict[str, Any] = plain(data, max_depth=MAX_PLAN_DEPTH, max_nodes=MAX_PLAN_NODES)
    except ValueNotJson as error:
        reason = str(error.context["reason"])
        code = "limit-depth" if "deeper" in reason else "limit-nodes" if "more than" in reason else "plan-not-json"
        _refuse(code, f"the value cannot be read: {reason}", error.hint or "", str(error.context["path"]))
    return checked
