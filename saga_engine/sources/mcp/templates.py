"""JSON with placeholders: the params of a helper's call, and its output.

``"{name}"`` alone is the value itself, inside a text it becomes text. ``"{name.field}"`` follows fields, and ``*`` goes
through a list: an element of a list that has such a placeholder stands for one element for each item.
``{idempotency_key}`` is the key of the call. ``{{`` and ``}}`` are braces. A field that is ``"{name?}"`` is left out if
there is no value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from saga_engine.plan.values import canonical

KEY: Final = "idempotency_key"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
_OPTIONAL: Final = re.compile(rf"\{{({_NAME})\?\}}")
_PART: Final = re.compile(rf"\{{\{{|\}}\}}|\{{({_NAME}(?:\.(?:{_NAME}|\*))*)\}}|[{{}}]")
_WHOLE: Final = re.compile(rf"\{{({_NAME}(?:\.(?:{_NAME}|\*))*)\}}")
_Path = tuple[str, ...]


class Unfillable(Exception):
    """A placeholder has no value; the message says which."""


class Template:
    """A JSON value with placeholders. Raises ``ValueError`` for one that is written wrongly."""

    __slots__ = ("_written", "names", "optional")

    def __init__(self, written: Any) -> None:
        self._written = written
        #: The values that it needs.
        self.names = frozenset(path[0] for path in _paths(written, listed=False)) - {KEY}
        #: Those that it uses if there are any.
        self.optional = frozenset(_optional(written)) - self.names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and canonical(self._written) == canonical(other._written)

    def __hash__(self) -> int:
        return hash(self.names)

    def fill(self, values: Mapping[str, Any]) -> Any:
        """The value. Raises ``Unfillable``."""
        return _fill(self._written, values, ())


def _paths(written: Any, *, listed: bool) -> Iterator[_Path]:
    """The placeholders; ``listed``: they stand in a list, so they may go through one."""
    if isinstance(written, str):
        for found in _PART.finditer(written):
            if found[0] in ("{", "}"):
                raise ValueError(f"has a brace that closes or opens nothing: {written[:100]!r}; write {{{{ or }}}}")
            if found[1] is not None:
                path = tuple(found[1].split("."))
                if path.count("*") > (1 if listed else 0):
                    raise ValueError(f"goes through a list outside of one, or through two: {written[:100]!r}")
                yield path
    elif isinstance(written, Mapping):
        for value in written.values():
            if not _is_optional(value):
                yield from _paths(value, listed=listed)
    elif isinstance(written, list):
        for value in written:
            paths = list(_paths(value, listed=True))
            if len({_list_of(path) for path in paths if "*" in path}) > 1:
                raise ValueError(f"goes through two lists in one element: {json.dumps(value)[:100]}")
            yield from paths


def _is_optional(written: Any) -> re.Match[str] | None:
    return _OPTIONAL.fullmatch(written) if isinstance(written, str) else None


def _optional(written: Any) -> Iterator[str]:
    for value in written.values() if isinstance(written, Mapping) else written if isinstance(written, list) else ():
        if isinstance(written, Mapping) and (found := _is_optional(value)):
            yield found[1]
        else:
            yield from _optional(value)


def _list_of(path: _Path) -> _Path:
    return path[: path.index("*")]


def _fill(written: Any, values: Mapping[str, Any], item: tuple[Any, ...]) -> Any:
    """``item``: the item of the list that the placeholders with ``*`` go through, if there is one."""
    if isinstance(written, str):
        whole = _WHOLE.fullmatch(written)
        if whole is not None:
            return _found(tuple(whole[1].split(".")), values, item)
        return _PART.sub(lambda part: _text(part, values, item), written)
    if isinstance(written, Mapping):
        kept = {name: value for name, value in written.items() if not _is_left_out(value, values)}
        return {
            name: values[found[1]] if (found := _is_optional(value)) else _fill(value, values, item)
            for name, value in kept.items()
        }
    if not isinstance(written, list):
        return written
    made: list[Any] = []
    for value in written:
        through = next((path for path in _paths(value, listed=True) if "*" in path), None)
        if through is None:
            made.append(_fill(value, values, item))
            continue
        items = _found(_list_of(through), values, ())
        if not isinstance(items, list):
            raise Unfillable(f"{'.'.join(_list_of(through))} is no list")
        made += [_fill(value, values, (each,)) for each in items]
    return made


def _is_left_out(written: Any, values: Mapping[str, Any]) -> bool:
    found = _is_optional(written)
    return found is not None and found[1] not in values


def _text(part: re.Match[str], values: Mapping[str, Any], item: tuple[Any, ...]) -> str:
    if part[1] is None:
        return part[0][0]
    value = _found(tuple(part[1].split(".")), values, item)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _found(path: _Path, values: Any, item: tuple[Any, ...]) -> Any:
    value = values
    for place, name in enumerate(path):
        if name == "*":
            value = item[0]
            continue
        if not isinstance(value, Mapping) or name not in value:
            raise Unfillable(f"there is no {'.'.join(path[: place + 1])}")
        value = value[name]
    return value
