"""The HTTP API: its operations, and the fields of a saga, as the server declares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dev.website.reference.markdown import cell, code, head, table
from saga_engine.server.operation import Operation
from saga_engine.server.routes import operations
from saga_engine.server.schemas import COMPONENTS

_ABOUT = """Every operation of `saga serve`, with the scope of the token that it needs, its query parameters, the
fields of its body and its own [errors](errors.md); `GET /v1/openapi.json` has their types. Below are the fields of a
saga, as the API and `--json` give it. [Server](../server.md) is the guide."""
#: The components that have a section, and its heading.
_SHOWN = {"Saga": "A saga", "Step": "A step", "OpenQuestion": "An open question", "Answered": "An answer"}


def page() -> str:
    """The page."""
    parts = [head("HTTP API", _ABOUT), "## Operations", table(_COLUMNS, map(_row, operations()))]
    for name, heading in _SHOWN.items():
        parts += [f"## {heading}", COMPONENTS[name].get("description", ""), _fields(COMPONENTS[name])]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


_COLUMNS = ("request", "scope", "does", "query", "body", "errors")


def _row(operation: Operation) -> tuple[str, ...]:
    does = ". ".join(each.strip().rstrip(".") for each in (operation.summary, operation.about) if each)
    body = (operation.body or {}).get("properties", {})
    return (
        code(f"{operation.method} {operation.path}"),
        code(operation.scope) or "none: signed",
        cell(does),
        ", ".join(map(code, operation.query)),
        ", ".join(map(code, body)),
        ", ".join(map(code, operation.does.errors)),
    )


def _fields(schema: Mapping[str, Any]) -> str:
    rows = [(code(name), code(_type(each)), cell(each.get("description", ""))) for name, each in _each(schema)]
    return table(("field", "type", "meaning"), rows)


def _each(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(schema["properties"].items())


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in a word: that of the type, or of the component."""
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
