"""Values that may be journalled: finite JSON, bounded in depth and in number of nodes.

The engine passes every output of a tool and every value of a plan through :func:`plain` before it writes them, because
encoders are not careful enough: NaN silently becomes ``null``, a lone surrogate fails only on encoding, a cycle never
ends.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

import msgspec

from saga_engine.errors import SagaError, ValueNotJson

MAX_DEPTH = 64
MAX_NODES = 1_000_000

_INT_MIN = -(2**63)
_INT_END = 2**64
#: A tree of dicts and lists no wider and no deeper than this is checked in place; other values take the slow path.
_SMALL = 32
_SHALLOW = 8
_FEW = 1_000

_encoder = msgspec.json.Encoder(order="sorted")


class _Refused(Exception):
    """A nested value is refused. ``steps`` collects the path to it, innermost first."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.steps: list[str | int] = []


def plain(value: Any, *, max_depth: int = MAX_DEPTH, max_nodes: int = MAX_NODES) -> Any:
    """The same value as finite JSON: dict, list, str, int, float, bool or None.

    Returns its argument itself if nothing in it needs conversion; otherwise only the containers on the path to a
    converted value are new. It converts tuples, sets (sorted), mappings, enums, dates and times (ISO 8601), UUIDs and
    decimals (as text), dataclasses, msgspec structs and pydantic models.

    ``max_depth`` counts nested containers (at most 256), ``max_nodes`` every value at any depth.

    Raises ``ValueNotJson`` (``path`` and ``reason`` in its context) for NaN and infinities, integers outside [-2**63,
    2**64), lone surrogates, keys that are not text, cycles, too much depth or too many nodes, and other types.
    """
    if (
        (type(value) is dict or type(value) is list)
        and 0 <= _nodes(value, _SHALLOW) < max_nodes
        and max_depth > _SHALLOW
    ):
        return value
    try:
        return _Walk(min(max_depth, 256), max_nodes).visit(value, 0)
    except _Refused as refused:
        path = json_path(reversed(refused.steps))
        raise ValueNotJson(
            f"the value at {path} cannot be journalled: {refused.reason}",
            hint=refused.hint or None,
            path=path,
            reason=refused.reason,
        ) from None


def _nodes(value: dict[Any, Any] | list[Any], below: int) -> int:
    """How many values a small tree holds, none of which needs a closer look; negative: the slow path has to look."""
    if len(value) > _SMALL:
        return -1
    found = len(value)
    if type(value) is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return -1
        items: Iterable[Any] = value.values()
    else:
        items = value
    for item in items:
        kind = type(item)
        if kind is str:
            if not item.isascii():
                return -1
        elif kind is int:
            if not _INT_MIN <= item < _INT_END:
                return -1
        elif kind is float:
            if not isfinite(item):
                return -1
        elif kind is dict or kind is list:
            inner = _nodes(item, below - 1) if below else -1
            if inner < 0:
                return -1
            found += inner
            if found > _FEW:  # the same few lists may stand in each other again and again
                return -1
        elif item is not None and kind is not bool:
            return -1
    return found


class _Walk:
    """One walk through one value; counts nodes and remembers the open containers."""

    __slots__ = ("inside", "left", "max_depth", "max_nodes")

    def __init__(self, max_depth: int, max_nodes: int) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.left = max_nodes - 1
        self.inside: set[int] = set()

    def visit(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else _checked_text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if not _INT_MIN <= value < _INT_END:
                raise _Refused("an integer outside [-2**63, 2**64)", "pass very large numbers as text")
            return value
        if kind is float:
            if not isfinite(value):
                raise _Refused(f"{value} is not a JSON number", "use null or a text instead")
            return value
        if kind is dict:
            return self._enter(value, depth, self._dict)
        if kind is list:
            return self._enter(value, depth, self._list)
        return self._convert(value, depth)

    def _enter(self, value: Any, depth: int, walk: Any) -> Any:
        """Enter a container, unless it is too deep, too large, or already open."""
        mark = id(value)
        if mark in self.inside:
            raise _Refused("it contains itself", "return a tree, not a graph")
        if depth >= self.max_depth:
            raise _Refused(f"it is nested deeper than {self.max_depth} levels")
        self.left -= len(value)
        if self.left < 0:
            raise _Refused(f"it has more than {self.max_nodes} values")
        self.inside.add(mark)
        try:
            return walk(value, depth + 1)
        finally:
            self.inside.discard(mark)

    def _dict(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                # Not even a subclass of str: a converted key could collide with another one.
                raise _Refused(f"the key {cut(key, 60)} is not a text", "JSON objects have text keys only")
            if not key.isascii():
                _checked_text(key)
            try:
                new = self.visit(item, depth)
            except _Refused as refused:
                refused.steps.append(key)
                raise
            if new is not item:
                changed[key] = new
        if type(value) is dict:
            return {**value, **changed} if changed else value
        return {**value, **changed}

    def _list(self, value: Iterable[Any], depth: int) -> list[Any]:
        items: list[Any] = []
        same = type(value) is list
        for index, item in enumerate(value):
            try:
                new = self.visit(item, depth)
            except _Refused as refused:
                refused.steps.append(index)
                raise
            same = same and new is item
            items.append(new)
        return value if same else items  # type: ignore[return-value]

    def _convert(self, value: Any, depth: int) -> Any:
        """The JSON form of a value whose type is not a JSON type."""
        if isinstance(value, Enum):
            return self.visit(value.value, depth)
        # The unbound operators give the exact base type even where a subclass overrides its own conversion.
        if isinstance(value, str):
            return self.visit(str.__str__(value), depth)
        if isinstance(value, int):
            return self.visit(int.__pos__(value), depth)
        if isinstance(value, float):
            return self.visit(float.__pos__(value), depth)
        if isinstance(value, Mapping):
            return self._enter(value, depth, self._dict)
        if isinstance(value, list | tuple):
            return self._enter(value, depth, self._list)
        if isinstance(value, set | frozenset):
            return _sorted(self._enter(value, depth, self._list))
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise _Refused(f"{value} is not a JSON number", "use null or a text instead")
            return str(value)
        kind = type(value)
        # By name, because this package must not import a module that makes random ids.
        if kind.__module__ == "uuid" and kind.__name__ == "UUID":
            return str(value)
        return self._record(value, depth)

    def _record(self, value: Any, depth: int) -> Any:
        """The JSON form of an object with named fields."""
        kind = type(value)
        if isinstance(value, type):
            raise _Refused("a class is not a value", "return an instance")
        mark = id(value)
        if mark in self.inside:
            raise _Refused("it contains itself", "return a tree, not a graph")
        self.inside.add(mark)
        try:
            if isinstance(value, msgspec.Struct):
                return self.visit(_struct_fields(value), depth)
            if dataclasses.is_dataclass(value):
                names = [field.name for field in dataclasses.fields(value)]
                return self.visit({name: getattr(value, name) for name in names}, depth)
            if callable(getattr(kind, "model_dump", None)):
                return self.visit(value.model_dump(mode="json"), depth)
        except _Refused:
            raise
        except SagaError:
            raise
        except Exception as error:
            raise _Refused(f"the {kind.__name__} could not be converted: {cut(str(error), 200)}") from error
        finally:
            self.inside.discard(mark)
        hint = "encode bytes as text" if isinstance(value, bytes | bytearray | memoryview) else ""
        raise _Refused(f"the type {kind.__module__}.{kind.__qualname__} has no JSON form", hint)


def _struct_fields(value: msgspec.Struct) -> dict[str, Any]:
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    fields = {encoded: getattr(value, name) for encoded, name in names}
    config = value.__struct_config__
    if config.tag_field is not None:
        fields = {config.tag_field: config.tag, **fields}
    return fields


def _sorted(items: list[Any]) -> list[Any]:
    """A fixed order for the elements of a set; elements of different types are ordered by their JSON text."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=_encoder.encode)


def _checked_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Refused(f"a lone surrogate (U+{ord(value[error.start]):04X}) is not a character") from None
    return value


def count_values(value: Any, most: int) -> int:
    """The values in a value, itself included; more than ``most`` for what is larger."""
    count, open_ = 0, [value]
    while open_ and count <= most:
        each = open_.pop()
        count += 1
        if isinstance(each, dict):
            open_ += each.values()
        elif isinstance(each, list | tuple):
            open_ += each
    return count


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: keys sorted, no spaces, UTF-8. Raises ``ValueNotJson``."""
    return _encoder.encode(plain(value))


def digest_of_json(data: bytes) -> str:
    """``digest`` of the value that this JSON, which is the engine's own, says."""
    return hashlib.sha256(_encoder.encode(msgspec.json.decode(data))).hexdigest()


def digest(value: Any) -> str:
    """SHA-256 in hex: of bytes as they are, of any other value's canonical JSON. Raises ``ValueNotJson``."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical(value)).hexdigest()


def cut(value: Any, limit_chars: int) -> str:
    """A short printable form, at most ``limit_chars`` long: compact JSON, ended by ``…`` if anything is omitted.

    Never fails: a value that is not JSON is shown by its type. Control characters for terminals are shown escaped.
    """
    if isinstance(value, str) and len(value) > limit_chars:
        value = value[: limit_chars + 1]
    pieces: list[str] = []
    length = 0
    try:
        for piece in _shower.iterencode(value):
            shown = piece[: limit_chars + 1] if len(piece) > limit_chars else piece
            shown = _escaped(shown)
            pieces.append(shown)
            length += len(shown)
            if length > limit_chars:
                break
    except Exception:  # noqa: BLE001
        # A cycle, a depth beyond the interpreter's, a key that is not text, a class that lies: show the part before it.
        pieces.append("…")
        length += 1
    text = "".join(pieces)
    return text if length <= limit_chars else text[: max(limit_chars - 1, 0)] + "…"


def printable(text: str, limit_chars: int) -> str:
    """A foreign message, made safe to print: at most ``limit_chars`` long, control characters escaped."""
    shown = _escaped(text[: limit_chars + 1])
    return shown if len(shown) <= limit_chars else shown[: max(limit_chars - 1, 0)] + "…"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


_shower = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_type_name)


def json_path(steps: Iterable[str | int]) -> str:
    """A JSON path such as ``$.steps[0].params['a b']``; long keys are cut."""
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isascii() and step.isidentifier() and len(step) <= 64:
            parts.append(f".{step}")
        else:
            shown = step if len(step) <= 64 else step[:63] + "…"
            parts.append(f"[{cut(shown, 400)}]" if "'" in shown else f"['{cut(shown, 400)[1:-1]}']")
    return "".join(parts)
