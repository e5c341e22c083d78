"""The plan's JSON Schema: as a file for editors, and as a page for readers."""

from __future__ import annotations

import json
from typing import Any

from dev.website.reference.markdown import cell, code, head, marked, table, wrapped
from saga_engine.plan.schema import plan_schema

_ABOUT = """Every object of a plan, and every field with its type, its limits and its default, from the JSON Schema
that `saga schema` prints and [plan.schema.json](plan.schema.json) holds. Editors check a plan with it while it is
written. [Plan format](../plan-format.md) explains the fields with examples, and lists what the engine checks beyond
the schema."""


def schema() -> str:
    """The JSON Schema as a file."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def page() -> str:
    """The page."""
    found = plan_schema()
    parts = [head("Plan schema", _ABOUT), "## The plan", _object(found)]
    for name, body in found["$defs"].items():
        parts += [f"## {code(name)}", _object(body)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _object(body: dict[str, Any]) -> str:
    about = wrapped(marked(body.get("description", "")))
    required = body.get("required", ())
    rows = []
    for name, field in body.get("properties", {}).items():
        default = "required" if name in required else code(json.dumps(field["default"])) if "default" in field else ""
        rows.append((code(name), _type(field), default, cell(marked(field.get("description", "")))))
    more = table(("field", "type", "default", "meaning"), rows) if rows else _type(body)
    return f"{about}\n\n{more}".strip()


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return f"[{code(name)}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_type(each) for each in field[several]))
    if "enum" in field or "const" in field:
        return " or ".join(code(json.dumps(each)) for each in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any")
    if kind == "array":
        items = field.get("prefixItems") or field.get("items")
        inside = _type(items) if isinstance(items, dict) else "any"
        return f"list of {inside}{_limits(field)}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_type(field['additionalProperties'])}{_limits(field)}"
    return f"{kind}{_limits(field)}"


def _limits(field: dict[str, Any]) -> str:
    said = []
    for least, most, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", ""),
        ("minProperties", "maxProperties", ""),
    ):
        low, high = field.get(least), field.get(most)
        if field.get("exclusiveMinimum") is not None and least == "minimum":
            said.append(f"over {_number(field['exclusiveMinimum'])}")
        if low is not None and high is not None:
            said.append(f"{_number(low)} to {_number(high)}{unit}")
        elif low is not None or high is not None:
            said.append(f"at {'least' if high is None else 'most'} {_number(low if high is None else high)}{unit}")
    if "pattern" in field:
        said.append(code(field["pattern"]))
    return f" ({', '.join(said)})" if said else ""


def _number(value: Any) -> str:
    return f"{value:,.15g}"
