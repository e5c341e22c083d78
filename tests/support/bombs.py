"""Schemas of a few lines that take exponential time, one of each shape.

They are as small as they may be: without the gate a test of one of them takes seconds and fails, and does not hang.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]


def chain(count: int, link: Callable[[Schema], Schema], last: Schema | None = None) -> Schema:
    """Definitions, each of which refers to the next one."""
    links = {f"d{at}": link({"$ref": f"#/$defs/d{at + 1}"}) for at in range(count)}
    return {"$defs": {**links, f"d{count}": last or {"type": ["string", "object"]}}, "$ref": "#/$defs/d0"}


def _nested(count: int, word: str, beside: Schema) -> Schema:
    made: Schema = {"properties": {"a": True}}
    for _ in range(count):
        made = {**beside, word: [made]}
    return made


def _dynamic(count: int) -> Schema:
    links = {
        f"d{at}": {"$dynamicAnchor": f"a{at}", "anyOf": [{"$dynamicRef": f"#a{at + 1}"}] * 2} for at in range(count)
    }
    return {"$defs": {**links, "z": {"$dynamicAnchor": f"a{count}"}}, "$ref": "#/$defs/d0"}


def _by_id(count: int) -> Schema:
    links = {f"d{at}": {"$id": f"d{at}", "allOf": [{"$ref": f"d{at + 1}"}] * 2} for at in range(count)}
    return {"$id": "http://example.org/", "$defs": {**links, "z": {"$id": f"d{count}"}}, "$ref": "d0"}


def _by_anchor(count: int) -> Schema:
    links = {f"d{at}": {"$anchor": f"a{at}", "oneOf": [{"$ref": f"#a{at + 1}"}] * 2} for at in range(count)}
    return {"$defs": {**links, "z": {"$anchor": f"a{count}"}}, "$ref": "#a0"}


def _elsewhere(count: int) -> Schema:
    """In a place that is no schema until a reference leads there, with a name that must be decoded."""
    links = {f"d/{at}": {"allOf": [{"$ref": f"#/parts%20of/d~1{at + 1}"}] * 2} for at in range(count)}
    return {"parts of": {**links, f"d/{count}": {}}, "$ref": "#/parts%20of/d~10"}


REFUSED: dict[str, Schema] = {
    "allOf": chain(24, lambda to: {"allOf": [to, to]}),
    "anyOf": chain(24, lambda to: {"anyOf": [to, to]}),
    "if": chain(24, lambda to: {"if": to, "then": to, "else": to}),
    "dependentSchemas": chain(24, lambda to: {"dependentSchemas": {"a": to, "b": to}}),
    "deeper at each step": chain(24, lambda to: {"allOf": [{"items": to}, {"items": to}]}),
    "two words for an item": chain(24, lambda to: {"items": to, "contains": to}),
    "two words for a member": chain(24, lambda to: {"additionalProperties": to, "patternProperties": {"a": to}}),
    "ids": _by_id(24),
    "anchors": _by_anchor(24),
    "dynamic references": _dynamic(24),
    "a place that is no schema": _elsewhere(24),
    "unevaluatedProperties": _nested(12, "allOf", {"unevaluatedProperties": False}),
    "unevaluatedItems": _nested(12, "anyOf", {"unevaluatedItems": False}),
    "a circle in place": {
        "$defs": {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{(at + 1) % 9}"}] * 2} for at in range(9)},
        "$ref": "#/$defs/d0",
    },
    "itself": {"$ref": "#"},
    "a long row": chain(2_000, lambda to: to),
    "patterns": {"allOf": [{"pattern": "(a{1,100}){1,100}" + "x" * at} for at in range(12)]},
    "names by patterns": {"patternProperties": {"(a{1,100}){1,100}" + "x" * at: True for at in range(12)}},
    "in a part that a circle leads to": chain(24, lambda to: {"allOf": [to, to]}, {"items": {"$ref": "#"}}),
}
#: What every door is tried with.
BOMB: Schema = REFUSED["allOf"]
