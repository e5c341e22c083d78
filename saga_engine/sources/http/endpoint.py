"""A declared endpoint, and the requests that are made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote_plus

from saga_engine._version import __version__
from saga_engine.errors import ValueNotJson
from saga_engine.plan.jsonpath import Tail
from saga_engine.plan.values import canonical
from saga_engine.sources.http.answers import Statuses
from saga_engine.sources.http.failures import Failure
from saga_engine.sources.http.templates import (
    ABSENT,
    KEY,
    Param,
    Style,
    Text,
    Unfit,
    Values,
    encoded,
    fill_json,
    header_value,
    pairs_of,
    path_piece,
    texts_of,
)
from saga_engine.tools.trace_context import sent_on

Reads = Literal["json", "text", "none"]
KeyPlace = Literal["header", "query", "body", "url"]

_KEY = Text((Param(KEY),))
_ACCEPT: Mapping[Reads, str] = {"json": "application/json", "text": "text/*", "none": "*/*"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The request and answer parts of an ``[http.NAME]`` table.

    ``path``: its segments between slashes. ``query``: names and values. ``body``: a JSON template, ``ABSENT`` if there
    is none; or ``form``. ``styles``: how a field of the query or the form is written. ``key``: the place and name of
    the idempotency key. ``missing``: the params that have a default. ``answer``: how the body of a done answer is
    read. ``absent_output``: the output that means that there is nothing. ``output_headers``: fields of the output, and
    the headers that they hold. ``compares``: it is told what the saga has read, and refuses (412) if that is no more.
    Times are in seconds.
    """

    name: str
    write: bool
    method: str
    scheme: str
    host: str
    port: int
    path: tuple[Text, ...]
    query: tuple[tuple[str, Text], ...] = ()
    headers: tuple[tuple[str, Text], ...] = ()
    body: Any = ABSENT
    form: tuple[tuple[str, Text], ...] | None = None
    styles: Mapping[str, Style] = field(default_factory=dict)
    key: tuple[KeyPlace, str] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    statuses: Statuses = field(default_factory=Statuses)
    answer: Reads = "json"
    any_content_type: bool = False
    wants_output: bool = False
    tail: Tail | None = None
    absent_output: Any = ABSENT
    output_headers: tuple[tuple[str, str], ...] = ()
    compares: bool = False
    failure: Failure | None = None
    follow_redirects: bool = False
    reuse: bool = True
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    max_response_bytes: int = 10_000_000

    @property
    def authority(self) -> str:
        """Host and port in the form of the ``Host`` header (RFC 9110 section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    def texts(self) -> Iterator[Text]:
        """Every text that is filled when a request is made."""
        yield from self.path
        for _, text in (*self.query, *self.headers, *(self.form or ())):
            yield text
        yield from texts_of(self.body)


@dataclass(frozen=True, slots=True)
class Made:
    """One request: the same values make the same bytes, so that a repeat under the same key is the same request."""

    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def make_request(it: Endpoint, values: Values) -> Made:
    """Fill an endpoint's templates. Raises ``Unfit`` and ``SecretMissing``; nothing has been sent then."""
    pairs = list(_pairs(it, it.query, values))
    if it.key is not None and it.key[0] == "query":
        pairs.append((it.key[1], values.text(_KEY)))
    target = "/" + "/".join(path_piece(piece, values) for piece in it.path)
    if pairs:
        target += "?" + "&".join(f"{encoded(name)}={encoded(value)}" for name, value in pairs)
    kind, body = _body(it, values)
    return Made(target, tuple(_headers(it, values, kind, body)), body)


def _pairs(it: Endpoint, templates: tuple[tuple[str, Text], ...], values: Values) -> Iterator[tuple[str, str]]:
    for name, text in templates:
        yield from pairs_of(name, text, values, it.styles.get(name, "repeat"))


def _headers(it: Endpoint, values: Values, kind: str, body: bytes | None) -> Iterator[tuple[str, str]]:
    given: dict[str, str] = {}
    yield "Host", it.authority
    for name, text in it.headers:
        value = header_value(name, text, values)
        if value is not None:
            given[name.lower()] = name
            yield name, value
    if it.key is not None and it.key[0] == "header":
        yield it.key[1], header_value(it.key[1], _KEY, values) or ""
    # The endpoint may want its own media type, so declared headers come first.
    for name, value in (
        ("User-Agent", f"saga-engine/{__version__}"),
        ("Accept", _ACCEPT[it.answer]),
        ("Content-Type", kind),
    ):
        if value and name.lower() not in given:
            yield name, value
    traceparent = sent_on()
    if traceparent and "traceparent" not in given:
        yield "traceparent", traceparent
    yield "Accept-Encoding", "gzip, deflate"
    if body is not None:
        yield "Content-Length", str(len(body))
    if not it.reuse:
        yield "Connection", "close"


def _body(it: Endpoint, values: Values) -> tuple[str, bytes | None]:
    if it.form is not None:
        pairs = list(_pairs(it, it.form, values))
        if it.key is not None and it.key[0] == "body":
            pairs.append((it.key[1], values.text(_KEY)))
        text = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)
        return "application/x-www-form-urlencoded", text.encode("ascii")
    if it.body is ABSENT:
        return "", b"" if it.method in {"POST", "PUT", "PATCH"} else None
    filled = fill_json(it.body, values)
    if filled is ABSENT:
        raise Unfit("the body is a param that has no value")
    if it.key is not None and it.key[0] == "body":
        filled = {**filled, it.key[1]: values.text(_KEY)}
    try:
        return "application/json", canonical(filled)
    except ValueNotJson as error:
        raise Unfit(error.message) from error
