"""The request of an operation: where each parameter goes, and the params of the tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from saga_engine.sources.openapi.document import Document, Operation, mapping
from saga_engine.sources.openapi.schemas import Schemas, texts

#: Headers that OpenAPI says to ignore as parameters, and those that the engine sets.
_OWN_HEADERS: Final = frozenset(
    {
        *("accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"),
        *("keep-alive", "te", "trailer", "upgrade", "expect", "accept-encoding", "proxy-connection"),
    }
)
_KEY_HEADER: Final = re.compile(r"(?:x-)?idempotency-?key", re.IGNORECASE)
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_FORM: Final = "application/x-www-form-urlencoded"
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PARAM: Final = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_TAKEN: Final = frozenset({"idempotency_key", "saga_call"})
_PARAM_CHARS: Final = 60


class NotDeclarable(Exception):
    """An operation that a table cannot declare; the text says why."""


@dataclass(slots=True)
class Request:
    """The fields of a table that make the request. ``params``: the short form, by name."""

    url: str = ""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    form: dict[str, str] = field(default_factory=dict)
    body: Any = None
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    key_header: str | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, schema: Mapping[str, Any], *, required: bool) -> str:
        """A param for a value of this name; returns what the param is called."""
        base = _PARAM.sub("_", name).strip("-")[:_PARAM_CHARS] or "value"
        base = base if not base[0].isdigit() and base not in _TAKEN else f"_{base}"
        called, number = base, 2
        while called in self.params:
            called, number = f"{base}_{number}", number + 1
        own = {"sensitive": True} if schema.get("format") == "password" else {}
        self.params[called] = {**schema, **({} if required else {"optional": True}), **own}
        return called


def request_of(document: Document, operation: Operation, base_url: str | None) -> Request:
    """The request of an operation. Raises ``NotDeclarable``."""
    base = document.base_url(operation, base_url)
    if not base:
        raise NotDeclarable("the document does not say where the API is: give --server")
    made, schemas = Request(), Schemas(document)
    _credentials(document, operation, made)
    places: dict[str, str] = {}
    for parameter in operation.parameters:
        _parameter(document, parameter, made, schemas, places)
    made.url = _url(base, operation.path, places)
    _body(document, operation, made, schemas)
    return made


def _url(base: str, path: str, places: Mapping[str, str]) -> str:
    split = urlsplit(base)
    start = f"{split.scheme}://{split.netloc}"
    parts = _PLACE.split(split.path + path if path.startswith("/") else f"{split.path}/{path}")
    text = ""
    for at, part in enumerate(parts):
        if at % 2 == 0:
            text += quote(part, safe="/-._~!$&'()*+,;=:@%")
        elif part not in places:
            raise NotDeclarable(f"its path has {{{part}}}, which is no parameter")
        else:
            text += f"{{{places[part]}}}"
    return start + text


def _parameter(
    document: Document, parameter: Mapping[str, Any], made: Request, schemas: Schemas, places: dict[str, str]
) -> None:
    """Give one parameter its param and its place."""
    name, where, required = parameter.get("name"), parameter.get("in"), parameter.get("required") is True
    if not isinstance(name, str) or not name or where not in ("path", "query", "header", "cookie"):
        raise NotDeclarable("it has a parameter without a name or a place")
    if where == "header" and name.lower() in _OWN_HEADERS:
        return
    if where == "header" and _KEY_HEADER.fullmatch(name):
        made.key_header = name
        return
    content = mapping(parameter.get("content"))
    why = (
        "is a cookie"
        if where == "cookie"
        else "is not one plain value"
        if content or not _plain(document, parameter)
        else ""
    )
    if why:
        if required:
            raise NotDeclarable(f"its parameter {name!r} {why}, which a table cannot send")
        made.notes.append(f"The optional parameter {name} is left out: it {why}.")
        return
    schema = schemas.given(parameter.get("schema"))
    if "description" not in schema and isinstance(parameter.get("description"), str):
        schema["description"] = schemas.given({"description": parameter["description"]})["description"]
    called = made.add(name, schema, required=required or where == "path")
    if where == "path":
        places[name] = called
    else:
        (made.query if where == "query" else made.headers)[name] = f"{{{called}}}"


def _plain(document: Document, parameter: Mapping[str, Any]) -> bool:
    """Whether a value is sent as a text, or a list in a query as one text each, which is all that a table can do."""
    schema = document.resolved(parameter.get("schema"))
    kind, style = schema.get("type"), parameter.get("style")
    if kind == "object" or "properties" in schema:
        return False
    if kind == "array":
        return parameter.get("in") == "query" and style in (None, "form") and parameter.get("explode") is not False
    return style in (None, "form", "simple")


def _body(document: Document, operation: Operation, made: Request, schemas: Schemas) -> None:
    body = document.resolved(operation.body.get("requestBody"))
    content = mapping(body.get("content"))
    if not content or operation.method in ("get", "head"):
        return
    by_type = {str(media).split(";", 1)[0].strip().lower(): mapping(each) for media, each in content.items()}
    media = next((each for each in by_type if _JSON.fullmatch(each)), _FORM if _FORM in by_type else None)
    if media is None:
        if body.get("required") is True:
            raise NotDeclarable(f"its body is {', '.join(by_type)}; a table sends JSON or a form")
        made.notes.append(f"The optional body is left out: it is {', '.join(by_type)}.")
        return
    schema = schemas.given(by_type[media].get("schema"))
    properties = mapping(schema.get("properties"))
    whole = not properties or any(word in schema for word in ("oneOf", "anyOf")) or schema.get("additionalProperties")
    required = texts(schema.get("required")) if body.get("required") is True or schema.get("required") else []
    if media == _FORM:
        if whole and not properties:
            raise NotDeclarable("its form has no fields that the document names")
        made.form = {
            name: f"{{{made.add(name, mapping(each), required=name in required)}}}" for name, each in properties.items()
        }
    elif whole:
        made.body = f"{{{made.add('body', schema, required=body.get('required') is True)}}}"
    else:
        made.body = {
            name: f"{{{made.add(name, mapping(each), required=name in required)}}}" for name, each in properties.items()
        }


def _credentials(document: Document, operation: Operation, made: Request) -> None:
    """The first alternative that a table can send."""
    alternatives = document.security(operation)
    for schemes in alternatives:
        headers: dict[str, str] = {}
        query: dict[str, str] = {}
        if all(_credential(name, scheme, headers, query) for name, scheme in schemes.items()):
            made.headers |= headers
            made.query |= query
            return
    if alternatives:
        made.notes.append("The document wants credentials that a table cannot send: complete headers or query.")


def _credential(name: str, scheme: Mapping[str, Any], headers: dict[str, str], query: dict[str, str]) -> bool:
    secret = f"$secret.{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_').upper() or 'TOKEN'}"
    secret = secret if not secret.removeprefix("$secret.")[0].isdigit() else secret.replace("$secret.", "$secret._")
    kind = scheme.get("type")
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and str(scheme.get("scheme")).lower() == "bearer"):
        headers["Authorization"] = f"Bearer {secret}"
    elif kind == "http" and str(scheme.get("scheme")).lower() == "basic":
        headers["Authorization"] = f"Basic {secret}"
    elif kind == "apiKey" and scheme.get("in") in ("header", "query") and isinstance(scheme.get("name"), str):
        (headers if scheme["in"] == "header" else query)[scheme["name"]] = secret
    else:
        return False
    return True
