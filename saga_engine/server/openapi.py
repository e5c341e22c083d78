"""The OpenAPI 3.1 document of the API, made from its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from saga_engine._version import __version__
from saga_engine.server.keys import KEY_CHARS
from saga_engine.server.operation import Operation
from saga_engine.server.problems import MEDIA_TYPE, STATUS, TITLES
from saga_engine.server.schemas import COMPONENTS, ref

#: What any operation can answer: malformed, unknown caller, forbidden, too slow, too many, a defect, no store.
_COMMON: Final = (400, 401, 403, 408, 429, 500, 503)
#: And one with a body.
_OF_BODIES: Final = (413, 415, 422)
_KEY: Final = {
    "Idempotency-Key": {
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_CHARS,
        "pattern": "^[!-~]+$",
        "description": "The request acts once under its key, which is kept for a day.",
    }
}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "saga_engine",
            "version": __version__,
            "description": "Submit, show, answer and undo sagas. docs/server.md explains it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(COMPONENTS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `saga token create`."}
            },
        },
        "security": [{"bearer": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": operation.does.params[name]}
        for name in operation.parts
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in operation.query.items()
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, "schema": schema}
        for name, schema in {**(_KEY if operation.keyed else {}), **operation.headers}.items()
    ]
    needs = f"Needs the scope `{operation.scope}`." if operation.scope else "Needs no token: it is signed."
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.about} {needs}".strip(),
        "parameters": parameters,
        "responses": _responses(operation),
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": not operation.may_lack_body,
            "content": {"application/json": {"schema": {**operation.body, **operation.does.rules}}},
        }
    if operation.takes_any:
        found["requestBody"] = {"required": False, "content": {"application/json": {"schema": {}}}}
    if not operation.scope:
        found["security"] = []
    return found


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, about in operation.answers.items():
        found[str(status)] = {"description": about}
        schema = operation.answer(status)
        if operation.streams:
            found[str(status)]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        elif schema is not None:
            found[str(status)]["content"] = {"application/json": {"schema": schema}}
        if status in (201, 202):
            found[str(status)]["headers"] = {"Location": {"schema": {"type": "string"}}}
    codes: dict[int, list[str]] = {}
    for code in operation.does.errors:
        codes.setdefault(STATUS[code], []).append(code)
    refused = {
        *_COMMON,
        *operation.refusals,
        *codes,
        *((409,) if operation.keyed else ()),
        *((410,) if "{saga_id}" in operation.path else ()),  # any saga may have been erased
        *(_OF_BODIES if operation.body is not None or operation.takes_any else ()),
    }
    for status in sorted(refused):
        found[str(status)] = {
            "description": ": ".join(each for each in (TITLES[status], ", ".join(codes.get(status, ()))) if each),
            "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
        }
    return found
