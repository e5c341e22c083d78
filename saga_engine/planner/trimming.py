"""A tool's schemas cut to a readable size for a model, as valid schemas."""

from __future__ import annotations

import json
from typing import Any

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
