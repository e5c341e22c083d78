"""The fields of ``[mcp.NAME]`` tables, and of the tables of tools and helpers in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from saga_engine.plan.tool_spec import Effect
from saga_engine.sources.tables import ToolTable

Protocol = Literal["auto", "2025-11-25", "2026-07-28"]
Answer = Literal["auto", "json", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTable:
    """An MCP server: how to reach it, and what its tools do.

    ``command``: the program and its arguments. ``env``: its variables, with ``$secret.NAME`` for secrets. ``cwd``: its
    folder; by default that of ``saga.toml``. ``url``: in place of ``command``: streamable HTTP. ``headers``: those of
    each request to ``url``, with ``$secret.NAME`` for secrets. ``protocol``: a version: no negotiation.
    ``start_timeout_s``: how long the server may take until it has listed its tools. ``timeout_s``: the time-out of
    tools that have none of their own. ``recheck_s``: the maximum age of the server's list of tools at a call.
    ``max_result_bytes``: a larger answer is not read into memory. ``manifest``: one that comes with the package
    (``builtin:NAME``), or a file. ``lock``: the file with the accepted tools; by default ``saga.mcp.json``.
    ``tools``, ``helpers``: tables of their own, below.
    """

    command: list[str] = field(default_factory=list)
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    protocol: Protocol = "auto"
    start_timeout_s: float = 30.0
    timeout_s: float = 30.0
    recheck_s: float = 60.0
    max_result_bytes: int = 10_000_000
    manifest: str | None = None
    lock: str | None = None
    tools: Mapping[str, Any] | None = None
    helpers: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCallTable(ToolTable):
    """What a tool of a server and a helper have in common.

    ``effect``: ``read``: it changes nothing.
    ``undo``, ``probe``: tools of this server by their short names, or any other tool.
    ``key``: the place of the idempotency key: ``{ meta = "PREFIX/NAME" }`` or ``{ param = "NAME" }``, and ``ttl_s``:
    for how long the server remembers it.
    ``idempotent``: a repeat of a call changes nothing more, so a call in doubt is made again.
    ``is_error``: what an answer with ``isError`` means: ``not-done`` (the default of a read), ``unknown`` (that of a
    write), or ``{ not-done = [TEXTS] }``: not done if its text begins like one of them.
    ``absent_error``: a part of such an answer's text that means 'there is nothing'.
    ``absent_output``: the output of a probe that means 'there is nothing'.
    ``answer``: how the answer is read: ``json``: its text is JSON; ``none``: the output is empty.
    """

    effect: Effect = "write"
    undo: str | None = None
    probe: str | None = None
    key: Mapping[str, Any] | None = None
    idempotent: bool = False
    is_error: Literal["not-done", "unknown"] | Mapping[str, list[str]] | None = None
    absent_error: str | None = None
    absent_output: Any = None
    answer: Answer = "auto"
    tolerates_absence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolTable(McpCallTable):
    """What the operator says of one tool of a server.

    ``name``: its name in plans, after that of the server and a dot; by default the server's name of it.
    ``ask``: whether an operator must approve each forward call; by default an agent's calls of a write without an undo.
    ``cases``: tables of its own, below.
    """

    name: str | None = None
    ask: bool | None = None
    cases: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCaseTable(McpCallTable):
    """What the operator says of some calls of a tool, by the values of its params.

    ``when``: the values of params with which a call is of this case, each a value or a list of values; of a param that
    a call leaves out, the default in the tool's schema counts. ``without``: params that no call of the case has.
    ``ask``: as for the tool. Nothing of the tool's own table holds for a case.
    """

    when: Mapping[str, Any] | None = None
    without: list[str] = field(default_factory=list)
    ask: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHelperTable(McpCallTable):
    """A tool of the engine that calls a tool of the server with other params, or reads its answer in another form.

    ``tool``: the server's tool. ``params``: its params: a template with ``{name}`` for a param of the helper.
    ``takes``: params that the helper gets and does not send. ``fields``: a regular expression over the text of the
    answer; its named groups are the output. ``output``: a template over the fields of the answer. ``unordered``: the
    order of lists in the output means nothing. ``by_hand``: in place of ``tool``: no tool makes this undo; the text
    says what an operator is to do.
    """

    tool: str | None = None
    params: Mapping[str, Any] | None = None
    takes: list[str] = field(default_factory=list)
    fields: str | None = None
    output: Mapping[str, Any] | None = None
    unordered: bool = False
    by_hand: str | None = None
