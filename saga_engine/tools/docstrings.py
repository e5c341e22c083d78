"""Splits a docstring into the texts about the tool, its parameters and its return value.

It reads sections in Google's form (``Args:`` and ``Returns:``, Google Python Style Guide, 3.8.3) and the field lists of
Sphinx (``:param x:``, ``:returns:``, the Python domain's info fields).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

_ARGS: Final = re.compile(r"(?:args|arguments|parameters|params|keyword args|keyword arguments)\s*:", re.IGNORECASE)
_RETURNS: Final = re.compile(r"returns?\s*:", re.IGNORECASE)
#: ``name: text`` or ``name (type): text``; stars mark ``**kwargs``.
_ENTRY: Final = re.compile(r"\*{0,2}([A-Za-z_]\w*)\s*(?:\([^)]*\))?\s*:(?:\s+|$)(.*)")
_FIELD: Final = re.compile(r":([a-z]+)((?:\s+[^:\n]+)?):(?:\s+|$)(.*)")
_PARAM_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_TYPE_FIELDS: Final = frozenset({"type", "rtype"})


@dataclass(frozen=True, slots=True)
class Docstring:
    """``description``: the text without the parts about parameters and return value. ``params``: texts by name."""

    description: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    returns: str = ""


def read_docstring(text: str, names: Collection[str]) -> Docstring:
    """Split a docstring of a function with the parameters ``names``.

    A part about anything else than these parameters stays in the description: nothing is lost.
    """
    lines = inspect.cleandoc(text).splitlines()
    kept: list[str] = []
    params: dict[str, str] = {}
    returns = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if _ARGS.fullmatch(line):
            end = _section_end(lines, at)
            found, whole = _entries(lines[at + 1 : end], names)
            params = found | params
            if not whole:
                kept += lines[at:end]
        elif _RETURNS.fullmatch(line) and _section_end(lines, at) > at + 1:
            end = _section_end(lines, at)
            returns = returns or _joined(lines[at + 1 : end])
        elif (match := _FIELD.fullmatch(line)) is not None:
            end = _section_end(lines, at, tight=True)
            body = _joined([match[3], *lines[at + 1 : end]])
            kind, name = match[1], (match[2].split() or [""])[-1].lstrip("*")
            if kind in _PARAM_FIELDS and name in names:
                params.setdefault(name, body)
            elif kind in ("return", "returns"):
                returns = returns or body
            elif kind not in _TYPE_FIELDS:
                kept += lines[at:end]
        else:
            kept.append(line)
        at = end
    return Docstring(_tidy(kept), {name: body for name, body in params.items() if body}, returns)


def _section_end(lines: list[str], start: int, *, tight: bool = False) -> int:
    """The end of the indented lines below ``start``. ``tight``: an empty line also ends them."""
    end = start + 1
    while end < len(lines) and (lines[end][:1] == " " or (not lines[end] and not tight)):
        end += 1
    while end > start + 1 and not lines[end - 1]:
        end -= 1  # The empty line below belongs to the next section.
    return end


def _entries(lines: list[str], names: Collection[str]) -> tuple[dict[str, str], bool]:
    """The descriptions in an ``Args:`` section, and whether the whole section was parsed."""
    found: dict[str, list[str]] = {}
    body = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    current: list[str] | None = None
    whole = bool(body)
    for line in body:
        match = None if line[:1] == " " else _ENTRY.fullmatch(line)
        if match is not None and match[1] in names:
            current = found.setdefault(match[1], [])
            current.append(match[2])
        elif line and (line[:1] != " " or current is None):
            current, whole = None, False
        elif current is not None:
            current.append(line)
    return {name: _joined(parts) for name, parts in found.items()}, whole


def _joined(lines: list[str]) -> str:
    """Lines that were wrapped, as running text; paragraphs stay separate."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(line.strip() for line in lines).strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph)


def _tidy(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
