"""``[http.NAME]`` tables of ``saga.toml`` as tools."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, get_args
from urllib.parse import unquote, urlsplit

from saga_engine.errors import SettingInvalid, ToolInvalid
from saga_engine.plan.jsonpath import Tail, TailFault, parse
from saga_engine.policy.hosts import Addresses, host_of
from saga_engine.sources.http.answers import DONE, NOT_DONE, RETRYABLE, SETTLES, Statuses
from saga_engine.sources.http.call import HttpCall
from saga_engine.sources.http.endpoint import Endpoint, KeyPlace, Reads
from saga_engine.sources.http.failures import failure_of
from saga_engine.sources.http.table import HttpTable, Method
from saga_engine.sources.http.templates import ABSENT, KEY, Style, Text, parse_json, parse_text, texts_of
from saga_engine.sources.tables import COMPOSED, Fields, image_options, shared_options
from saga_engine.tools.decorator import AnyTool, Tool
from saga_engine.tools.limits import template_fields

_METHODS: Final = get_args(Method)
_READING: Final = ("GET", "HEAD")
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
#: The parameter that receives the call's context.
_CONTEXT: Final = "saga_call"
_MAX_BYTES: Final = 1 << 30
_MAX_S: Final = 86_400.0

_PARAM = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LITERAL = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
#: Headers that belong to the connection or to the engine (RFC 9110 section 7.6.1).
_RESERVED: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "accept-encoding", "proxy-connection"),
    }
)


def http_tools(
    table: Mapping[str, Any], *, base: Path, source: str, allow_private: Sequence[str] = ()
) -> list[AnyTool]:
    """The tools that the ``[http.NAME]`` tables of ``source`` declare; the page ``docs/http-tools.md`` explains them.

    ``base``: the folder of relative paths. ``allow_private``: addresses and networks that may be called although they
    are not public, as in ``[policy]``. This function connects to nothing, resolves nothing, and reads no secret.

    Raises ``SettingInvalid`` for a field, and ``ToolInvalid`` for a contradictory declaration or if httpx2 is not
    installed.
    """
    if table and find_spec("httpx2") is None:
        raise ToolInvalid("HTTP tools need httpx2", hint="pip install 'saga-engine[http]'", source=source)
    try:
        Addresses(allow_private)
    except ValueError as error:
        raise SettingInvalid(f"allow_private in {source}: {error}", hint="addresses and networks") from error
    made = [
        _tool(Fields(name, fields, source, of=HttpTable), base, tuple(allow_private)) for name, fields in table.items()
    ]
    effects = {tool.name: tool.effect for tool in made}
    for tool in made:
        if isinstance(tool.probe, str) and effects.get(tool.probe, "read") != "read":
            raise ToolInvalid(
                f"the probe {tool.probe!r} of [http.{tool.name}] in {source} writes",
                hint=f'add effect = "read" to [http.{tool.probe}]',
                tool=tool.name,
            )
    return made


def _tool(it: Fields, base: Path, allow_private: tuple[str, ...]) -> AnyTool:
    method = it.one_of("method", _METHODS)
    effect = it.one_of("effect", ("read", "write"), "read" if method in _READING else "write")
    url = _url(it)
    schema, hidden = _input_schema(it)
    key, key_ttl_s = _key(it)
    undo, probe = it.text("undo") or None, it.text("probe") or None
    tolerates_absence = it.flag("tolerates_absence")
    output_schema = it.table("output_schema")
    tail, absent_output = _output(it, effect)
    templates = _templates(it, method, key)
    changes = image_options(it)
    endpoint = Endpoint(
        name=it.name,
        write=effect == "write",
        method=method,
        scheme=url.scheme,
        host=url.host,
        port=url.port,
        path=url.path,
        query=url.query + templates.query,
        headers=templates.headers,
        body=templates.body,
        form=templates.form,
        styles=_styles(it, {name for name, _ in (*url.query, *templates.query, *(templates.form or ()))}),
        key=key,
        defaults=_defaults(schema),
        statuses=_statuses(
            it, effect, tolerates_absence, keyed=key is not None, probed=probe is not None, body=templates.body
        ),
        answer=cast("Reads", it.one_of("answer", get_args(Reads))),
        any_content_type=it.flag("accept_any_content_type"),
        wants_output=output_schema is not None or tail is not None,
        tail=tail,
        absent_output=absent_output,
        output_headers=_output_headers(it),
        compares=isinstance(changes["expect"], dict),
        failure=failure_of(it),
        follow_redirects=_follows(it, effect, method),
        # A reused connection may be closed at that moment: only a tool that can settle that doubt by itself reuses one.
        reuse=effect == "read" or key is not None,
        connect_timeout_s=it.number("connect_timeout_s", at_most=_MAX_S),
        read_timeout_s=it.number("read_timeout_s", at_most=_MAX_S),
        max_response_bytes=int(it.number("max_response_bytes", at_most=_MAX_BYTES)),
    )
    private = it.flag("allow_private")
    verify = it.flag("verify")
    if not verify and not _loopback(endpoint.host):
        it.refuse("verify", "can only be false for a loopback host", "name the authority's certificate: ca_file = …")
    ca_file = _ca_file(it, base)
    options = shared_options(it, hidden) | changes
    _check_places(it, endpoint, schema, options.get("resource"))
    _check_secrets(it, endpoint, private=private)
    call = HttpCall(endpoint, ca_file=ca_file, verify=verify, allow_private=_EVERYWHERE if private else allow_private)
    it.end()
    return Tool(
        call,
        name=it.name,
        effect=cast("Any", effect),
        keyed=key is not None,
        key_ttl_s=key_ttl_s,
        undo=undo,
        probe=probe,
        tolerates_absence=tolerates_absence,
        raised="unknown" if effect == "write" else None,  # its statuses say what is a refusal
        input_schema=schema,
        output_schema=output_schema,
        **options,
    )


_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")


# --- URL -----------------------------------------------------------------------------------------------------------


class _Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: tuple[Text, ...]
    query: tuple[tuple[str, Text], ...]


def _url(it: Fields) -> _Url:
    """The parts of the URL template. The part that decides the destination of the request is constant."""
    text = it.text("url")
    if not text:
        it.refuse("url", "is missing", 'url = "https://api.example.com/v1/orders/{order}"')
    if any(not "!" <= char <= "~" for char in text) or "\\" in text:
        it.refuse("url", "has a character that stands in no URL", "percent-encode it")
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError as error:
        it.refuse("url", f"is no URL: {error}")
    if split.scheme not in ("http", "https"):
        it.refuse("url", f"has the scheme {split.scheme!r}", "write http:// or https://")
    if any(char in split.netloc for char in "{}$%"):
        it.refuse("url", "has a param or a secret in its host", "the host is part of the declaration")
    if "@" in split.netloc:
        it.refuse("url", "holds credentials", 'use headers = { Authorization = "Basic $secret.NAME" }')
    if split.fragment or "#" in text:
        it.refuse("url", "has a fragment, which is never sent")
    try:
        host = host_of(f"{split.scheme}://{split.netloc}")
    except ValueError as error:
        it.refuse("url", f"has no usable host: {error}")
    pieces = split.path.removeprefix("/").split("/")
    query = [pair.partition("=") for pair in split.query.split("&") if pair]
    return _Url(
        split.scheme,
        host,
        port or {"http": 80, "https": 443}[split.scheme],
        tuple(_piece(it, piece) for piece in pieces),
        # Encoded characters in the URL are decoded here, and encoded again together with the values.
        tuple((unquote(_piece_text(it, name)), _decoded(_piece(it, value))) for name, _, value in query),
    )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _piece(it: Fields, piece: str) -> Text:
    text = _text(it, "url", piece)
    for part in text.parts:
        if isinstance(part, str):
            _piece_text(it, part)
    return text


def _piece_text(it: Fields, literal: str) -> str:
    if not _LITERAL.fullmatch(literal):
        it.refuse("url", f"has {literal!r}, which must be percent-encoded there")
    return literal


def _decoded(text: Text) -> Text:
    return Text(tuple(unquote(part) if isinstance(part, str) else part for part in text.parts))


# --- request -------------------------------------------------------------------------------------------------------


class _Templates(NamedTuple):
    query: tuple[tuple[str, Text], ...]
    headers: tuple[tuple[str, Text], ...]
    body: Any
    form: tuple[tuple[str, Text], ...] | None


def _templates(it: Fields, method: str, key: tuple[KeyPlace, str] | None) -> _Templates:
    query, headers, form = _pairs(it, "query") or (), _pairs(it, "headers") or (), _pairs(it, "form")
    names = [name.lower() for name, _ in headers]
    if key is not None and key[0] == "header":
        names.append(key[1].lower())
    for name in names:
        if not _HEADER.fullmatch(name) or name in _RESERVED:
            it.refuse("headers", f"cannot set {name!r}")
        if names.count(name) > 1:
            it.refuse("headers", f"set {name!r} twice")
    body = it.any("body", ABSENT)
    if body is not ABSENT:
        if form is not None:
            it.refuse("form", "stands beside body", "a request has one of them")
        try:
            body = parse_json(body)
        except ValueError as error:
            it.refuse("body", f"is no template: {error}")
    in_body = key is not None and key[0] == "body"
    if in_body and form is None:
        body = {} if body is ABSENT else body
        if not isinstance(body, dict):
            it.refuse("key", "goes into the body, which is no object", "write body = { … }")
        if key is not None and key[1] in body:
            it.refuse("key", f"goes into the body as {key[1]!r}, which is there already")
    if method in _READING and (body is not ABSENT or form is not None):
        it.refuse("body" if form is None else "form", f"cannot be sent with {method}", "use query, or another method")
    return _Templates(query, headers, body, form)


def _pairs(it: Fields, field: str) -> tuple[tuple[str, Text], ...] | None:
    table = it.table(field)
    if table is None:
        return None
    found: list[tuple[str, Text]] = []
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            it.refuse(field, f"has {name!r}, which must be a text")
        found.append((name, _text(it, field, str(value))))
    return tuple(found)


def _styles(it: Fields, fields: set[str]) -> dict[str, Style]:
    table = it.table("styles") or {}
    for name, style in table.items():
        if name not in fields:
            it.refuse("styles", f"name {name!r}, which is no field of query or form")
        if style not in get_args(Style):
            it.refuse("styles", f"have {name} = {style!r}", f"one of: {', '.join(get_args(Style))}")
    return table


def _text(it: Fields, field: str, source: str) -> Text:
    try:
        return parse_text(source)
    except ValueError as error:
        it.refuse(field, f"is no template: {error}", "a param is {name}, a brace is {{ or }}")


def _key(it: Fields) -> tuple[tuple[KeyPlace, str] | None, float | None]:
    """The place of the idempotency key in a request, and for how long the endpoint remembers it."""
    table = it.table("key")
    if table is None:
        return None, None
    rest = dict(table)
    ttl_s = rest.pop("ttl_s", None)
    hint = 'key = { header = "Idempotency-Key", ttl_s = 86400 }'
    if len(rest) != 1 or next(iter(rest)) not in ("header", "query", "body", "url"):
        it.refuse("key", "must say one of header, query, body and url", hint)
    place, name = next(iter(rest.items()))
    if place == "url":
        if name is not True:
            it.refuse("key", "must say url = true", f"and the url has {{{KEY}}}")
        return ("url", ""), ttl_s
    if not isinstance(name, str) or not name:
        it.refuse("key", f"must name the {place}", hint)
    return (cast("KeyPlace", place), name), ttl_s


def _input_schema(it: Fields) -> tuple[dict[str, Any], list[str]]:
    """The schema of the params: as given, or from the short form, where all without a default are required.

    The short form may also declare ``sensitive`` params.
    """
    schema, short = it.table("input_schema"), it.table("params")
    if schema is not None:
        if short is not None:
            it.refuse("params", "stands beside input_schema", "one of them says it all")
        given = dict(schema)
        if not COMPOSED & given.keys():
            given.setdefault("additionalProperties", False)
        _check_names(it, "input_schema", given.get("properties", {}))
        return given, []
    _check_names(it, "params", short or {})
    properties: dict[str, Any] = {}
    for name, value in (short or {}).items():
        prop = {"type": value} if isinstance(value, str) else value
        kinds = prop.get("type", "string") if isinstance(prop, dict) else None
        if not isinstance(prop, dict) or not all(
            kind in _TYPES for kind in (kinds if isinstance(kinds, list) else [kinds])
        ):
            it.refuse("params", f"has {name!r} without a type of JSON", f"one of: {', '.join(_TYPES)}")
        properties[name] = prop
    optional = {name for name, prop in properties.items() if "default" in prop or prop.get("optional") is True}
    own = ("optional", "sensitive")
    schema = {
        "type": "object",
        "properties": {name: {k: v for k, v in prop.items() if k not in own} for name, prop in properties.items()},
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return schema, [name for name, prop in properties.items() if prop.get("sensitive") is True]


def _check_names(it: Fields, field: str, names: Any) -> None:
    if not isinstance(names, dict):
        it.refuse(field, "has properties that are no table")
    for name in names:
        if not _PARAM.fullmatch(name) or name in (KEY, _CONTEXT):
            it.refuse(
                field, f"cannot have a param {name!r}", "letters, digits, '_' and '-'; the engine's own are taken"
            )


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: p["default"] for name, p in properties.items() if isinstance(p, dict) and "default" in p}


# --- answer --------------------------------------------------------------------------------------------------------


def _statuses(it: Fields, effect: str, tolerates_absence: bool, *, keyed: bool, probed: bool, body: Any) -> Statuses:
    given = {field: it.statuses(field) for field in ("done", "not_done", "unknown", "absent")}
    named = {field: codes for field, codes in given.items() if codes}
    for field, codes in named.items():
        for other, others in named.items():
            if field < other and codes & others:
                it.refuse(field, f"and {other} both have {min(codes & others)}")
    absent = given["absent"] or frozenset()
    if absent and effect == "write" and not tolerates_absence:
        it.refuse(
            "absent",
            "has no meaning for this tool",
            'it is for probes (effect = "read") and for an undo with tolerates_absence = true',
        )
    retryable, settles = it.statuses("retryable"), it.statuses("settles")
    if settles is None:
        # With a secret in the body a repeat may differ from the first request, and be refused only for that reason.
        stable = keyed and not any(text.secrets for text in texts_of(body))
        settles = SETTLES if stable else frozenset()
    elif not keyed:
        it.refuse("settles", "has no meaning without a key", 'key = { header = "Idempotency-Key" }')
    explicit = frozenset().union(*named.values())
    done, not_done = given["done"], given["not_done"]
    # A second call of a bare write could cause a second effect, so a status that may be wrong is not trusted unless the
    # declaration says so: a proxy answers 503 for a server that was working on the request.
    bare = effect == "write" and not (keyed or probed or tolerates_absence)
    return Statuses(
        done=DONE - explicit if done is None else done,
        not_done=(NOT_DONE - {503} if bare else NOT_DONE) - explicit if not_done is None else not_done,
        absent=absent,
        retryable=RETRYABLE if retryable is None else retryable,
        once=frozenset(range(400, 600)) - (not_done or frozenset()) - (retryable or frozenset())
        if bare
        else frozenset(),
        settles=settles,
    )


def _output(it: Fields, effect: str) -> tuple[Tail | None, Any]:
    text = it.text("output")
    absent_output = it.any("absent_output", ABSENT)
    if absent_output is not ABSENT and effect == "write":
        it.refuse("absent_output", "is for probes", 'effect = "read"')
    if not text:
        return None, absent_output
    if not text.startswith("$"):
        it.refuse("output", f"is no path: {text!r}", 'output = "$.data"')
    found = parse(text[1:])
    if isinstance(found, TailFault):
        it.refuse("output", f"is no path: {found.message}", found.hint)
    return found, absent_output


def _output_headers(it: Fields) -> tuple[tuple[str, str], ...]:
    given = it.table("output_headers") or {}
    for name, header in given.items():
        if not _PARAM.fullmatch(name) or not isinstance(header, str) or not _HEADER.fullmatch(header):
            it.refuse(
                "output_headers", f"has {name!r} = {header!r}, which is no field and no header", '{ etag = "ETag" }'
            )
    return tuple((name, header.lower()) for name, header in given.items())


def _follows(it: Fields, effect: str, method: str) -> bool:
    follows = it.flag("follow_redirects")
    if follows and (effect == "write" or method not in _READING):
        it.refuse("follow_redirects", "is for reading by GET or HEAD", "a write is never sent to another place")
    return follows


def _ca_file(it: Fields, base: Path) -> Path | None:
    text = it.text("ca_file")
    if not text:
        return None
    path = base / text
    import ssl

    try:
        ssl.create_default_context(cafile=str(path))
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        it.refuse("ca_file", f"cannot be used: {error}", str(path))
    return path


# --- the whole declaration -----------------------------------------------------------------------------------------


def _check_places(it: Fields, endpoint: Endpoint, schema: Mapping[str, Any], resource: Any) -> None:
    """Check that every placeholder has a param, and every param a placeholder: an unused param would be lost."""
    properties = schema.get("properties", {})
    open_schema = bool(COMPOSED & schema.keys()) or schema.get("additionalProperties") is not False
    always = {*schema.get("required", ()), *endpoint.defaults, KEY}
    used: set[str] = set()
    for text in endpoint.texts():
        used |= text.params
        for name in sorted(text.params):
            if name not in properties and name != KEY and not open_schema:
                it.refuse("params", f"do not have {name!r}, which a template uses", f'params = {{ {name} = "string" }}')
    for text in _must_be_filled(endpoint):
        for name in sorted(text.params - always):
            it.refuse(
                "params",
                f"have {name!r}, which may be left out, where something must stand",
                "make it required, or give it a default",
            )
    listed = [resource] if isinstance(resource, str) else resource if isinstance(resource, list) else []
    for each in listed:
        try:
            used |= set(template_fields(each))
        except (TypeError, ValueError) as error:
            it.refuse("resource", f"is no template: {error}")
    for name in properties:
        if name not in used:
            it.refuse(
                "params",
                f"have {name!r}, which is sent nowhere",
                "use {" + name + "} in url, query, headers, body or form",
            )
    if endpoint.key is not None and endpoint.key[0] == "url" and not any(KEY in t.params for t in _url_texts(endpoint)):
        it.refuse("key", f"says url = true, and the url has no {{{KEY}}}")


def _url_texts(endpoint: Endpoint) -> Iterator[Text]:
    yield from endpoint.path
    for _, text in endpoint.query:
        yield text


def _must_be_filled(endpoint: Endpoint) -> Iterator[Text]:
    """Texts that cannot be omitted: all of the path, and every text that is more than one param."""
    yield from endpoint.path
    for text in endpoint.texts():
        if text.whole is None:
            yield text


def _check_secrets(it: Fields, endpoint: Endpoint, *, private: bool) -> None:
    """Refuse a secret in a place where intermediaries could read it."""
    if endpoint.scheme == "https" or private or _loopback(endpoint.host):
        return
    for text in endpoint.texts():
        for name in text.secrets:
            it.refuse("url", f"is not encrypted, and $secret.{name} is sent there", "use https://")
