"""Short descriptions of tools for a model: about forty tokens each, so that a hundred fit a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolSpec

_ABOUT_CHARS: Final = 400
_NAMED_CHARS: Final = 100
_FIELD_CHARS: Final = 160
_DEPTH: Final = 4
_FIELDS: Final = 40
#: Parameters that the engine fills at a call; a model never sees them.
HIDDEN_PARAMS: Final = frozenset({"idempotency_key"})
#: What the short form of a type can say. Any other keyword needs the schema itself.
_SAID: Final = frozenset({"type", "description", "title", "default", "enum", "format", "const"})


def compact_card(spec: ToolSpec) -> dict[str, Any]:
    """A tool with its params and its output as names with types; a name that ends in ``?`` is optional.

    What changes something has an ``undo``, or null there; what reads says so.
    """
    card: dict[str, Any] = {"tool": spec.name} | ({"effect": "read"} if spec.effect == "read" else {})
    words = {"about": spec.description, "use_when": spec.use_when, "not_when": spec.not_when, "returns": spec.returns}
    card |= {name: text[:_ABOUT_CHARS] for name, text in words.items() if text}
    card["params"] = _short(spec.input_schema, HIDDEN_PARAMS)
    if spec.output_schema is not None:
        card["output"] = _short(spec.output_schema, frozenset())
    if spec.effect == "write":
        card["undo"] = spec.undo
    return card


def named_card(spec: ToolSpec) -> dict[str, Any]:
    """A tool that is only named: its name and the beginning of its description."""
    about = " ".join((spec.use_when or spec.description).split())
    return {"tool": spec.name, "about": about[:_NAMED_CHARS]}


def split_undos(specs: Sequence[ToolSpec]) -> tuple[list[ToolSpec], list[ToolSpec]]:
    """The tools, and apart from them those that are the undo of another one in the list."""
    undos = {spec.undo for spec in specs if spec.undo is not None and spec.undo != spec.name}
    return [spec for spec in specs if spec.name not in undos], [spec for spec in specs if spec.name in undos]


def _short(schema: Mapping[str, Any], hidden: frozenset[str]) -> Any:
    """The short form of an object's schema; the trimmed schema if it cannot be said shortly."""
    fields = _object(schema, 0, hidden)
    return trimmed_schema(dict(schema), hidden) if fields is None else fields


def _object(schema: Mapping[str, Any], depth: int, hidden: frozenset[str] = frozenset()) -> Any:
    fields, needed = schema.get("properties"), schema.get("required", ())
    extra = schema.keys() - {"type", "properties", "required", "additionalProperties", "title", "description"}
    if schema.get("type") != "object" or not isinstance(fields, Mapping) or extra or depth > _DEPTH:
        return None
    if len(fields) > _FIELDS or not isinstance(needed, list | tuple):
        return None
    made: dict[str, Any] = {}
    for name, field in fields.items():
        if name in hidden:
            continue
        made[name if name in needed else f"{name}?"] = _field(field, depth + 1)
    return made


def _field(schema: Any, depth: int) -> Any:
    """A field's type with its description, or its schema."""
    if not isinstance(schema, Mapping):
        return {}
    kind = schema.get("type")
    if kind == "object" and (made := _object(schema, depth)) is not None:
        return made
    items = schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and not schema.keys() - {"type", "items", "title", "description"}:
        return [_field(items, depth + 1)]
    if not isinstance(kind, str) or schema.keys() - _SAID or kind in ("object", "array"):
        return _bare(schema)
    said = kind
    if "enum" in schema or "const" in schema:
        choices = schema["enum"] if "enum" in schema else [schema["const"]]
        said = " | ".join(str(choice) for choice in choices) if isinstance(choices, list) else kind
    elif isinstance(schema.get("format"), str):
        said = f"{kind} ({schema['format']})"
    about = schema.get("description")
    return f"{said}: {about}"[:_FIELD_CHARS] if isinstance(about, str) and about else said[:_FIELD_CHARS]


def _bare(schema: Mapping[str, Any]) -> Any:
    return trimmed_schema(dict(schema), frozenset(), 1000)


# --- schemas of tools ----------------------------------------------------------------------------------------------

_KEYS = 40
_KEY_CHARS = 100
#: A schema may come from the network: deeper nesting becomes a schema that accepts anything.
_SCHEMA_DEPTH = 40
#: Keywords that only repeat or explain, in the order in which they are removed from a schema.
_SCHEMA_NOISE = ("title", "$schema", "$id", "examples", "example", "$comment")


def trimmed_schema(schema: dict[str, Any], hidden: frozenset[str], limit_chars: int = 4000) -> dict[str, Any]:
    """A JSON Schema for a model: without noise and ``hidden`` fields, and without descriptions if it is too long."""
    found: dict[str, Any] = _without(schema, _SCHEMA_NOISE)
    properties = found.get("properties")
    if isinstance(properties, dict) and hidden & properties.keys():
        found["properties"] = {name: item for name, item in properties.items() if name not in hidden}
        if isinstance(found.get("required"), list):
            found["required"] = [name for name in found["required"] if name not in hidden]
    if _size(found) <= limit_chars:
        return found
    found = _without(found, ("description", "default"))
    if _size(found) <= limit_chars:
        return found
    fields = found.get("properties")
    outline = {
        str(name)[:_KEY_CHARS]: {"type": item["type"]} if isinstance(item, dict) and "type" in item else {}
        for name, item in list(fields.items() if isinstance(fields, dict) else ())[:_KEYS]
    }
    required = found.get("required")
    needed = [name for name in (required if isinstance(required, list) else ()) if name in outline]
    return {"type": "object", "properties": outline, "required": needed}


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _without(node: Any, names: tuple[str, ...], *, named: bool = False, depth: int = 0) -> Any:
    """A copy without these keywords; a field with such a name (``named``) is not a keyword."""
    if depth > _SCHEMA_DEPTH:
        return {}
    if isinstance(node, dict):
        return {
            key: _without(
                item, names, named=not named and key in ("properties", "$defs", "definitions"), depth=depth + 1
            )
            for key, item in node.items()
            if named or key not in names
        }
    if isinstance(node, list):
        return [_without(item, names, depth=depth + 1) for item in node]
    return node
