"""The records of a journal: their fields and meaning, as the structs have them."""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from dev.website.reference.markdown import code, head, prose, table
from saga_engine.core import records
from saga_engine.core.record_base import Record

_ABOUT = """Every kind of record that a journal can hold, with its fields. In JSON (`saga history --json`, a
[trace](../trace.md)) a record has its kind as `k`, its time `at` (Unix milliseconds on the store's clock) and, if its
meaning has changed since its first version, `v`. A field that has its default is left out. Fields are added, and never
renamed or redefined ([versions](../versions.md)). [Concepts](../concepts.md) says how a saga makes its records, and
[semantics](../semantics.md) shows journals."""


def page() -> str:
    """The page."""
    kinds = typing.get_args(records.AnyRecord)
    parts = [head("Records", _ABOUT)]
    parts += [_section(kind) for kind in kinds]
    within = _within(kinds)
    parts.append("## What records contain\n\nThe objects within the fields above.")
    parts += [_section(kind, "###") for kind in within]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _within(kinds: tuple[type, ...]) -> list[type]:
    found: dict[type, None] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop(0)
        for field in msgspec.structs.fields(kind):
            for each in _structs(field.type):
                if each not in found and each not in kinds:
                    found[each] = None
                    waiting.append(each)
    return sorted(found, key=lambda kind: kind.__name__)


def _structs(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [each for part in typing.get_args(annotation) for each in _structs(part)]


def _section(kind: type, level: str = "##") -> str:
    shared = {field.name for field in msgspec.structs.fields(Record)}
    rows = [
        (code(field.encode_name), code(named(field.type)), code(_default(field)))
        for field in msgspec.structs.fields(kind)
        if not (issubclass(kind, Record) and field.name in shared)
    ]
    fields = "\n\n" + table(("field", "type", "default"), rows) if rows else ""
    return f"{level} `{kind.__name__}`\n\n{prose(kind.__doc__)}{fields}"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    return repr(field.default_factory()) if field.default_factory is not msgspec.NODEFAULT else ""


def named(annotation: Any) -> str:
    """A type as a reader of the journal knows it."""
    if annotation is type(None):
        return "null"
    if annotation is Any:
        return "any"
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(repr(each) for each in inside)
    if origin is list:
        return f"list of {named(inside[0])}"
    if origin is dict:
        return f"object of {named(inside[1])}"
    if inside and origin is not typing.Annotated:
        return " or ".join(named(each) for each in inside)
    plain = {str: "text", int: "integer", float: "number", bool: "boolean"}
    return plain.get(annotation, getattr(annotation, "__name__", str(annotation)))
