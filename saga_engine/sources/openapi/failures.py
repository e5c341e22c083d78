"""Answers of status 200 that say inside that nothing was done: the shapes of them that a document shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from saga_engine.sources.openapi.document import Document, mapping
from saga_engine.sources.openapi.schemas import kinds_of

#: Fields whose false says that nothing was done. ``success = false`` itself is understood without a declaration.
_FLAGS: Final = ("ok", "success", "succeeded", "issuccess", "is_success", "issuccessful")
_MESSAGES: Final = ("error", "message", "msg", "error_message", "errorMessage", "reason", "errors")


def failed_field(document: Document, contents: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The ``failed`` table that understands the answers of these contents; ``None`` if they show none of the shapes."""
    for content in contents:
        schema = document.resolved(content.get("schema"))
        fields = {str(name): document.resolved(each) for name, each in mapping(schema.get("properties")).items()}
        shown = list(_shown(document, content, schema))
        for example in shown:
            fields = {**{str(name): {} for name in example}, **fields}
        found = _of_shape(fields, shown)
        if found is not None:
            return found
    return None


def _shown(document: Document, content: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The examples of an answer that are objects."""
    named = [document.resolved(each).get("value") for each in mapping(content.get("examples")).values()]
    for example in (content.get("example"), schema.get("example"), *named):
        if isinstance(example, Mapping):
            yield example


def _of_shape(fields: Mapping[str, Mapping[str, Any]], shown: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    message = next((f"$.{name}" for name in _MESSAGES if name in fields), None)
    told = {"message": message} if message else {}
    for name, each in fields.items():
        values = [*(example[name] for example in shown if name in example), *_listed(each)]
        worded = any(value in ("false", "true") for value in values if isinstance(value, str))
        if name.lower() in _FLAGS and (
            "boolean" in kinds_of(each) or worded or any(isinstance(v, bool) for v in values)
        ):
            return None if name == "success" and not worded else {"path": f"$.{name}", "is": [False, "false"], **told}
        if name == "code" and message and any(value in (0, "0") and value is not False for value in values):
            return {"path": "$.code", "is_not": [0, "0"], "code": "$.code", **told}
    if "jsonrpc" in fields and "error" in fields:
        return {"path": "$.error", "message": "$.error.message", "code": "$.error.code"}
    if {"data", "errors"} <= fields.keys():
        return {"path": "$.errors", "unless": "$.data", "message": "$.errors[0].message"}
    return None


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    enum = schema.get("enum")
    return [
        *(enum if isinstance(enum, list) else ()),
        *(schema[word] for word in ("const", "example") if word in schema),
    ]
