"""The request of an operation: where each parameter goes, and the params of the tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from saga_engine.sources.openapi.document import Document, Operation, mapping
from saga_engine.sources.openapi.schemas import Schemas, kinds_of, sentence

#: Headers that OpenAPI says to ignore as parameters, and those that the engine sets.
_OWN_HEADERS: Final = frozenset(
    {
        *("accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"),
        *("keep-alive", "te", "trailer", "upgrade", "expect", "accept-encoding", "proxy-connection"),
    }
)
_KEY_HEADER: Final = re.compile(r"(?:x-)?idempotency-?key", re.IGNORECASE)
_JSON: Final = re.compile(r"(?:application|text)/(?:[\w.+-]+\+)?json|application/\*|\*/\*", re.IGNORECASE)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PARAM: Final = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_TAKEN: Final = frozenset({"idempotency_key", "saga_call"})
_PARAM_CHARS: Final = 60
_PATH: Final = "/-._~!$&'()*+,;=:@%"


class NotDeclarable(Exception):
    """An operation that a table cannot declare; the text says why."""


@dataclass(slots=True)
class Request:
    """The fields of a table that make the request. ``params``: the short form, by name.

    ``styles``: how a param of the query or the form that is no plain value is written, by its name there. ``left_out``:
    what is optional in the document and cannot be sent, each with the reason. ``notes``: what else an operator reads.
    """

    url: str = ""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    form: dict[str, str] | None = None
    body: Any = None
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)
    key_header: str | None = None
    left_out: list[tuple[str, str]] = field(default_factory=list)
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


def is_json(media: str) -> bool:
    """Whether a media type is JSON, or any that JSON is one of."""
    return _JSON.fullmatch(media.split(";", 1)[0].strip()) is not None


def request_without_body(document: Document, operation: Operation, base_url: str | None, schemas: Schemas) -> Request:
    """The address, parameters and credentials of an operation. Raises ``NotDeclarable``."""
    if operation.unread:
        raise NotDeclarable(operation.unread)
    base = document.base_url(operation, base_url)
    if not base:
        raise NotDeclarable("the document does not say where the API is: give --server")
    if unsaid := _PLACE.search(urlsplit(base).netloc):
        raise NotDeclarable(
            f"the host of its server has {unsaid[0]}, for which the document has no value: give --server"
        )
    made = Request()
    if base_url is None and (host := document.elsewhere(operation)):
        made.notes.append(f"It is served by {host}, which is not the document's own server; credentials go there.")
    _credentials(document, operation, made)
    places: dict[str, str] = {}
    spread: list[Mapping[str, Any]] = []
    for parameter in operation.parameters:
        _parameter(parameter, made, schemas, places, spread)
    for parameter in spread:  # a parameter with a name of its own comes before a property of that name
        _spread(parameter, made, schemas, required=parameter.get("required") is True)
    if made.cookies:
        made.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in made.cookies.items())
    made.url = _url(base, operation.path, places)
    return made


def _url(base: str, path: str, places: Mapping[str, str]) -> str:
    """The template of the URL. A path of a document may have a query; what follows a ``#`` in it is never sent."""
    split = urlsplit(base)
    start = f"{split.scheme}://{split.netloc}"
    path, _, query = path.partition("#")[0].partition("?")
    text = _filled(split.path + path if path.startswith("/") else f"{split.path}/{path}", places, _PATH)
    return f"{start}{text}?{_filled(query, places, _PATH)}" if query else start + text


def _filled(template: str, places: Mapping[str, str], safe: str) -> str:
    text = ""
    for at, part in enumerate(_PLACE.split(template)):
        if at % 2 == 0:
            text += quote(part, safe=safe)
        elif part not in places:
            raise NotDeclarable(f"its path has {{{part}}}, which is no parameter")
        else:
            text += places[part]
    return text


def _parameter(
    parameter: Mapping[str, Any],
    made: Request,
    schemas: Schemas,
    places: dict[str, str],
    spread: list[Mapping[str, Any]],
) -> None:
    """Give one parameter its param and its place."""
    if parameter.get("unread"):
        raise NotDeclarable(f"a parameter of it is not known: {parameter['unread']}")
    name, where, required = parameter.get("name"), parameter.get("in"), parameter.get("required") is True
    if not isinstance(name, str) or not name or where not in ("path", "query", "header", "cookie"):
        raise NotDeclarable("it has a parameter without a name or a place")
    if where == "header" and name.lower() in _OWN_HEADERS:
        return
    if where == "header" and _KEY_HEADER.fullmatch(name):
        made.key_header = name
        return
    if where == "header" and not _HEADER.fullmatch(name):
        if required:
            raise NotDeclarable(f"its header {name[:100]!r} cannot be sent")
        made.left_out.append(("an optional header that cannot be sent", name))
        return
    held: dict[str, str] = {"query": made.query, "header": made.headers, "cookie": made.cookies}.get(where, places)
    if name in held or (where == "header" and name.lower() in map(str.lower, held)):
        return  # it is a credential as well, or was declared before
    style = _style(parameter, schemas, required=required)
    if style is None:
        what = "a cookie" if where == "cookie" else "not one plain value"
        if required:
            raise NotDeclarable(f"its parameter {name!r} is {what}, which a table cannot send")
        made.left_out.append((f"an optional parameter that is {what}", name))
        return
    if style == "properties":
        spread.append(parameter)
        return
    schema = schemas.given(_schema(parameter))
    if "description" not in schema and isinstance(parameter.get("description"), str):
        schema["description"] = sentence(parameter["description"])
    called = made.add(name, schema, required=required or where == "path")
    place = f"{{{called}}}"
    if where == "path":
        places[name] = {"matrix": f";{quote(name, safe='')}={place}", "label": f".{place}"}.get(
            str(parameter.get("style")), place
        )
        return
    held[name] = place
    if style:
        made.styles[name] = style


def _schema(parameter: Mapping[str, Any]) -> Any:
    """The schema of a parameter; one with a media type has it there."""
    content = mapping(parameter.get("content"))
    return mapping(next(iter(content.values()), None)).get("schema") if content else parameter.get("schema")


def _style(parameter: Mapping[str, Any], schemas: Schemas, *, required: bool) -> str | None:
    """How a value is written (see ``styles`` of a table): empty for a plain one; ``None`` if a table cannot.

    ``properties``: as one parameter for each property of an object, which is what a query does without a style.
    """
    where, style, explode = parameter.get("in"), parameter.get("style"), parameter.get("explode")
    content = mapping(parameter.get("content"))
    schema = schemas.whole(_schema(parameter))
    kinds = kinds_of(schema)
    nested = bool(kinds & {"object", "array"}) or "properties" in schema
    if where == "cookie":
        return None if nested or not required else ""
    if content:
        return ("json" if nested else "") if where == "query" and is_json(next(iter(content))) else None
    if not nested:
        return ""
    if where != "query":
        return None
    if style == "deepObject":
        return "brackets"
    if "array" in kinds:
        joined = {"form": "comma", "spaceDelimited": "space", "pipeDelimited": "pipe"}.get(style or "form")
        return "" if style in (None, "form") and explode is not False else joined
    return "properties" if style in (None, "form") and explode is not False and properties_of(schema) else None


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The properties of an object, those of its alternatives included."""
    found = {str(name): mapping(each) for name, each in mapping(schema.get("properties")).items()}
    for word in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(word)
        for branch in branches if isinstance(branches, list) else ():
            found = {**properties_of(mapping(branch)), **found}
    return found


def _spread(parameter: Mapping[str, Any], made: Request, schemas: Schemas, *, required: bool) -> None:
    """An object of the query as one parameter for each of its properties."""
    schema = schemas.given(_schema(parameter))
    wanted = schema.get("required", ()) if required else ()
    for name, each in properties_of(schema).items():
        if name in made.query:
            if name in wanted:
                raise NotDeclarable(f"two of its parameters are called {name!r}")
            made.left_out.append(("an optional parameter whose name another one has", name))
            continue
        made.query[name] = f"{{{made.add(name, each, required=name in wanted)}}}"
        if kinds_of(each) & {"object", "array"}:
            made.styles[name] = "json" if "object" in kinds_of(each) else "comma"


def _credentials(document: Document, operation: Operation, made: Request) -> None:
    """The first alternative that a table can send; one with a cookie only if there is no other."""
    alternatives = document.security(operation)
    found: list[dict[str, dict[str, str]]] = []
    for schemes in alternatives:
        places: dict[str, dict[str, str]] = {"header": {}, "query": {}, "cookie": {}}
        if all(_credential(name, scheme, places) for name, scheme in schemes.items()):
            found.append(places)
    if found:
        first = min(found, key=lambda places: bool(places["cookie"]))
        made.headers |= first["header"]
        made.query |= first["query"]
        made.cookies |= first["cookie"]
    elif alternatives:
        made.notes.append("The document wants credentials that a table cannot send: complete headers or query.")


def _credential(name: str, scheme: Mapping[str, Any], places: Mapping[str, dict[str, str]]) -> bool:
    secret = f"$secret.{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_').upper() or 'TOKEN'}"
    secret = secret if not secret.removeprefix("$secret.")[0].isdigit() else secret.replace("$secret.", "$secret._")
    kind = scheme.get("type")
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and str(scheme.get("scheme")).lower() == "bearer"):
        places["header"]["Authorization"] = f"Bearer {secret}"
    elif kind == "http" and str(scheme.get("scheme")).lower() == "basic":
        places["header"]["Authorization"] = f"Basic {secret}"
    elif kind == "apiKey" and scheme.get("in") in list(places) and isinstance(scheme.get("name"), str):
        places[scheme["in"]][scheme["name"]] = secret
    else:
        return False
    return True
