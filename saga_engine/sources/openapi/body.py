"""The request of an operation with its body, which has one param for each field where the document names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from saga_engine.sources.openapi.all_of import texts
from saga_engine.sources.openapi.document import Document, Operation, mapping
from saga_engine.sources.openapi.request import (
    NotDeclarable,
    Request,
    is_json,
    properties_of,
    request_without_body,
)
from saga_engine.sources.openapi.schemas import Schemas, kinds_of

_FORM: Final = "application/x-www-form-urlencoded"
_PLAIN_JSON: Final = "application/json"


def request_of(document: Document, operation: Operation, base_url: str | None) -> Request:
    """The request of an operation. Raises ``NotDeclarable`` if a table cannot send what it needs."""
    schemas = Schemas(document)
    made = request_without_body(document, operation, base_url, schemas)
    _add_body(document, operation, made, schemas)
    made.left_out += [("a part of a schema that cannot be read", each) for each in schemas.unread]
    return made


def _add_body(document: Document, operation: Operation, made: Request, schemas: Schemas) -> None:
    declared = operation.body.get("requestBody")
    if unread := document.unread(declared):
        raise NotDeclarable(f"its body is not known: {unread}")
    body = document.resolved(declared)
    content = {
        str(media).split(";", 1)[0].strip().lower(): each for media, each in mapping(body.get("content")).items()
    }
    if not content:
        return
    needed = body.get("required") is True
    if operation.method in ("get", "head"):
        _without(made, f"a body with {operation.method.upper()}", "a table sends none", needed=needed)
        return
    media = next((each for each in (_PLAIN_JSON, *content, _FORM) if each in content and _sent(each)), None)
    if media is None:
        _without(made, f"a body of {', '.join(content)}", "a table sends JSON or a form", needed=needed)
        return
    given = mapping(content[media])
    if media == _FORM:
        _add_form(given, made, schemas, needed=needed)
        return
    if media != _PLAIN_JSON and "*" not in media:
        made.headers["Content-Type"] = media
    schema = schemas.given(given.get("schema"))
    fields = _fields(document, given, schema)
    if fields is None:
        made.body = f"{{{made.add('body', schema, required=needed)}}}"
    else:
        wanted = texts(schema.get("required"))
        made.body = {name: f"{{{made.add(name, each, required=name in wanted)}}}" for name, each in fields.items()}


def _sent(media: str) -> bool:
    return media == _FORM or is_json(media)


def _without(made: Request, what: str, why: str, *, needed: bool) -> None:
    if needed:
        raise NotDeclarable(f"it needs {what}; {why}")
    made.left_out.append((f"{what}, which is optional", why))


def _fields(document: Document, given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schemas of a body's fields; ``None`` if a param for each cannot say what the document says of the whole.

    An object is open where its schema does not close it, so the fields of the document's own examples count as well.
    """
    properties = mapping(schema.get("properties"))
    open_ = isinstance(schema.get("additionalProperties"), Mapping) or schema.get("additionalProperties") is True
    if not properties or open_ or any(word in schema for word in ("oneOf", "anyOf", "allOf")):
        return None
    shown = {str(name) for example in _examples(document, given) for name in mapping(example)}
    shown |= set(texts(schema.get("required")))
    return {
        **{str(name): mapping(each) for name, each in properties.items()},
        **{name: {} for name in sorted(shown) if name not in properties},
    }


def _examples(document: Document, given: Mapping[str, Any]) -> Iterator[Any]:
    schema = document.resolved(given.get("schema"))
    yield from (given.get("example"), schema.get("example"))
    for each in mapping(given.get("examples")).values():
        yield document.resolved(each).get("value")
    listed = schema.get("examples")
    yield from listed if isinstance(listed, list) else ()


def _add_form(given: Mapping[str, Any], made: Request, schemas: Schemas, *, needed: bool) -> None:
    """A form has a field for each property. A value that is not plain is written as the document's encoding says."""
    schema = schemas.given(given.get("schema"))
    fields = properties_of(schema)
    if not fields:
        _without(made, "a form", "the document names no field of it", needed=needed)
        return
    wanted = texts(schema.get("required"))
    made.form = {}
    for name, each in fields.items():
        made.form[str(name)] = f"{{{made.add(str(name), mapping(each), required=name in wanted)}}}"
        style = _style(mapping(mapping(given.get("encoding")).get(name)), mapping(each))
        if style:
            made.styles[str(name)] = style


def _style(encoding: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """How a field is written; empty for a plain value and for a list whose values repeat the field's name."""
    kinds = kinds_of(schema)
    style, explode = encoding.get("style"), encoding.get("explode")
    if not kinds & {"object", "array"} and kinds:
        return ""
    if style == "deepObject":
        return "brackets"
    if "array" in kinds and style in (None, "form", "spaceDelimited", "pipeDelimited"):
        plain = not kinds_of(mapping(schema.get("items"))) & {"object", "array"}
        if not plain:
            return "json"
        if style in (None, "form"):
            return "" if explode is not False else "comma"
        return "space" if style == "spaceDelimited" else "pipe"
    return "json" if kinds else ""
