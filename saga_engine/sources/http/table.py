"""The fields of an ``[http.NAME]`` table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from saga_engine.plan.tool_spec import Effect
from saga_engine.sources.http.endpoint import Reads
from saga_engine.sources.tables import ToolTable

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTable(ToolTable):
    """An HTTP endpoint as a tool. Its templates have ``{name}`` for a param and ``$secret.NAME`` for a secret.

    ``url``: ``http://`` or ``https://``; a template whose host and port are constant. ``method``: that of the request.
    ``query``, ``headers``: tables of templates. ``body``: a JSON template. ``form``: in place of ``body``: a table
    of templates, sent urlencoded. ``styles``: how a list or an object of a field in ``query`` or ``form`` is
    written: ``repeat`` (the default: a list repeats the field), ``comma``, ``space``, ``pipe``, ``brackets``
    (``filter[state]=open``), ``json``. ``params``: a type of JSON for each param, or a table with ``type`` and
    other words of JSON Schema; required without ``default`` and ``optional = true``; ``sensitive = true`` hides its
    values. ``input_schema``: JSON Schema in place of ``params``. ``key``: the place of the idempotency key: ``{
    header = NAME }``, ``{ query = NAME }``, ``{ body = NAME }`` or ``{ url = true }``, and ``ttl_s``: for how long
    the endpoint remembers it.
    ``effect``: by default ``read`` for ``GET`` and ``HEAD``, else ``write``.
    ``done``, ``not_done``, ``unknown``: statuses that mean that the call was done, was not done, or is in doubt; each
    list replaces the default. ``absent``: statuses that mean 'there is nothing', for probes and for undos with
    ``tolerates_absence``. ``retryable``: statuses after which a call that was not done is tried again; the list
    replaces the default. ``settles``: statuses that settle a call in doubt when it is sent again under its key; the
    list replaces the default.
    ``answer``: how the body is read: ``text`` for ``{"text": …}``, ``none`` to ignore it. ``accept_any_content_type``:
    read the body whatever ``Content-Type`` says. ``output``: a path (JSONPath) to the part that is the output; by
    default all of it. ``output_schema``: JSON Schema of the output. ``absent_output``: the output of a probe that
    means 'there is nothing'. ``output_headers``: headers of the response that become fields of the output:
    ``{ etag = "ETag" }``. ``failed``: finds an error in a response: ``path``, and optionally ``is``, ``is_not``,
    ``unless``, ``message``, ``code`` and ``retryable``; ``false`` says that there is none to find.
    ``max_response_bytes``: the size of a response, as sent and as decoded.
    ``connect_timeout_s``: the time to connect, with name resolution and TLS. ``read_timeout_s``: the time of each
    silence after that. ``follow_redirects``: for ``GET`` and ``HEAD`` that read: at most 5, on the same host.
    ``allow_private``: the tool may call addresses that are not public. ``ca_file``: the certificate of the authority to
    trust, relative to ``saga.toml``. ``verify``: ``false`` only for a loopback address.
    """

    url: str
    method: Method = "GET"
    query: Mapping[str, Any] | None = None
    headers: Mapping[str, Any] | None = None
    body: Any = None
    form: Mapping[str, Any] | None = None
    styles: Mapping[str, Any] | None = None
    params: Mapping[str, Any] | None = None
    input_schema: Mapping[str, Any] | None = None
    key: Mapping[str, Any] | None = None
    effect: Effect | None = None
    undo: str | None = None
    probe: str | None = None
    tolerates_absence: bool = False
    done: list[int] | None = None
    not_done: list[int] | None = None
    unknown: list[int] | None = None
    absent: list[int] | None = None
    retryable: list[int] | None = None
    settles: list[int] | None = None
    answer: Reads = "json"
    accept_any_content_type: bool = False
    output: str | None = None
    output_schema: Mapping[str, Any] | None = None
    absent_output: Any = None
    output_headers: Mapping[str, str] | None = None
    failed: Mapping[str, Any] | bool | None = None
    max_response_bytes: int = 10_000_000
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    follow_redirects: bool = False
    allow_private: bool = False
    ca_file: str | None = None
    verify: bool = True
