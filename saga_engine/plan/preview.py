"""The cut form of a value: small enough for a record, a screen or a model's prompt.

Every omission is shown, always in the same form:

- a list that is too long is ``{"items": [the first of them], "total": its length, "has_more": true}``;
- a text that is too long ends in ``… (12345 characters)``, the length of the whole;
- an object that is too wide keeps its first fields, and ``"…": "and 12 more fields"`` stands for the others;
- a value that is too deep is the text ``… (list of 12 items)`` or ``… (object with 12 fields)``.

Real data can look like that too (services page their lists in the same way), so where it matters, the digest and the
size of the whole accompany a cut form. It is for readers and never for a tool's params.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import isfinite
from typing import Any, Final

import msgspec

#: A limit below this many bytes counts as this many: the mark of an omission needs its own space.
MIN_BYTES: Final = 64
#: A field with a longer name is omitted: a name that was cut could equal another field's.
_MAX_KEY_CHARS: Final = 128
_MIN_TEXT_CHARS: Final = 24
_MAX_LEVELS: Final = 64
_MORE: Final = "…"

_encode = msgspec.json.Encoder().encode


def brief(value: Any, *, max_bytes: int = 2048, max_items: int = 5, max_text: int = 200, max_depth: int = 6) -> Any:
    """The cut form of a JSON value, itself JSON; a value within all limits is returned unchanged (as a copy).

    ``max_bytes`` limits the whole, counted as compact UTF-8 JSON (at least 64). ``max_items`` limits each list,
    ``max_text`` (in characters, at least 24) each text; ``max_depth`` counts nested containers. If the whole is still
    too large, texts, lists, objects and depth are cut further, in turns, until it fits. Fields with names of more than
    128 characters are always omitted.

    Never fails, whatever its argument: a value that is not JSON is shown as such. Its running time depends on the
    limits alone, not on the value's size.
    """
    room = max(max_bytes, MIN_BYTES)
    limits = _Limits(
        items=min(max(max_items, 1), room),
        text=min(max(max_text, _MIN_TEXT_CHARS), room),
        depth=min(max(max_depth, 0), _MAX_LEVELS),
        fields=room // 4,
    )
    for rung in limits.ladder():
        try:
            return _Attempt(rung, room).visit(value, rung.depth)
        except _Full:
            continue
    raise AssertionError("the last rung shows one marker, for which there is always room")


class _Limits(msgspec.Struct, frozen=True):
    """The limits on each kind of value."""

    items: int
    text: int
    depth: int
    fields: int

    def ladder(self) -> Iterator[_Limits]:
        """These limits, then narrower ones, down to a single marker."""
        rung = self
        yield rung
        while rung.depth or rung.text > _MIN_TEXT_CHARS:
            narrower = (
                {"text": max(rung.text // 2, _MIN_TEXT_CHARS)},
                {"items": max(rung.items // 2, 1)},
                {"fields": max(rung.fields // 2, 1)},
                {"depth": max(rung.depth - 1, 0)},
            )
            for change in narrower:
                before, rung = rung, msgspec.structs.replace(rung, **change)
                if rung != before:
                    yield rung
        yield _Limits(items=1, text=0, depth=0, fields=1)


class _Full(Exception):
    """The value does not fit with these limits."""


class _Attempt:
    """One walk with one set of limits; it ends as soon as the space is used up, so it never visits more than fits."""

    __slots__ = ("limits", "room")

    def __init__(self, limits: _Limits, room: int) -> None:
        self.limits = limits
        self.room = room

    def visit(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return self._list(value, depth)
        if value is None or isinstance(value, bool):
            return self._plain(value)
        if isinstance(value, int):
            inside = -(2**63) <= value < 2**64
            return self._plain(int(value)) if inside else self._text(f"{_MORE} (integer of {value.bit_length()} bits)")
        if isinstance(value, float):
            return self._plain(float(value)) if isfinite(value) else self._text(f"{_MORE} ({value})")
        return self._text(f"{_MORE} ({type(value).__name__})")

    def _spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise _Full

    def _plain(self, value: Any) -> Any:
        self._spend(len(_encode(value)))
        return value

    def _text(self, value: str) -> str:
        if len(value) > self.limits.text:
            told = f"{_MORE} ({len(value)} characters)"
            value = value[: max(self.limits.text - len(told), 0)] + told
        try:
            self._spend(len(_encode(value)))
        except UnicodeEncodeError:  # a lone surrogate is not a character
            value = value.encode("utf-8", "replace").decode()
            self._spend(len(_encode(value)))
        return value

    def _list(self, value: Sequence[Any], depth: int) -> Any:
        total = len(value)
        if total and depth <= 0:
            return self._text(f"{_MORE} (list of {_count(total, 'item')})")
        if total <= self.limits.items:
            return self._items(value, depth)
        made: dict[str, Any] = {"items": None, "total": total, "has_more": True}
        self._spend(len(_encode(made)) - len("null"))
        made["items"] = self._items(value[: self.limits.items], depth)
        return made

    def _items(self, value: Sequence[Any], depth: int) -> list[Any]:
        self._spend(2 + max(len(value) - 1, 0))  # brackets and commas
        return [self.visit(item, depth - 1) for item in value]

    def _object(self, value: dict[Any, Any], depth: int) -> Any:
        if value and depth <= 0:
            return self._text(f"{_MORE} (object with {_count(len(value), 'field')})")
        self._spend(2)
        made: dict[str, Any] = {}
        for key, item in islice(value.items(), self.limits.fields):
            if self._key(key, first=not made):
                made[key] = self.visit(item, depth - 1)
        if len(made) < len(value):
            made.pop(_MORE, None)  # a field of that very name gives way to the note about omitted fields
            left_out = len(value) - len(made)
            self._key(_MORE, first=not made)
            made[_MORE] = self._text(f"and {_count(left_out, 'more field')}")
        return made

    def _key(self, key: Any, *, first: bool) -> bool:
        """Whether the name can be shown; reserves the space for its quotes, colon and comma if so."""
        if not isinstance(key, str) or len(key) > _MAX_KEY_CHARS:
            return False
        try:
            size = len(_encode(key))
        except UnicodeEncodeError:
            return False
        self._spend(size + (1 if first else 2))
        return True


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
