"""One call of a server's tool: the request, its answer, and the outcome.

The rule is that of every source: what was provably not sent, or was refused by the protocol, is *not done*. A lost
connection, a time-out and an answer that cannot be read leave a write in doubt. What ``isError`` means is for the
operator's manifest to say; by default a write is in doubt, because a server reports an exception in the same way.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

from saga_engine.core.effects import FORWARD
from saga_engine.core.scrubbing import scrubber
from saga_engine.errors import OutcomeUnknown, ToolError
from saga_engine.plan.values import printable
from saga_engine.sources.http.answers import NOT_DONE, RETRYABLE
from saga_engine.sources.mcp.cases import When
from saga_engine.sources.mcp.connection import Connection, Live, NotConnected, scrubbed
from saga_engine.sources.mcp.manifest import ServerConfig, ToolManifest
from saga_engine.sources.mcp.messages import fault_in
from saga_engine.sources.mcp.results import Unreadable, error_text, output_of, whole_output
from saga_engine.sources.mcp.templates import Unfillable
from saga_engine.sources.mcp.transport_errors import OWN_CODES, label_of
from saga_engine.tools.context import ToolContext
from saga_engine.tools.error_rules import NeverSent
from saga_engine.tools.schema_check import OutputCheck
from saga_engine.tools.trace_context import sent_on

#: JSON-RPC: the method does not exist, the params are invalid. Both are said before a tool runs.
_REFUSED: Final = frozenset({-32601, -32602})
#: HEADER_MISMATCH of MCP 2026-07-28: the tool's schema is another one now.
_MISMATCH: Final = -32020
_CLOSED: Final = -32000


class Server(Protocol):
    """The server of a tool."""

    @property
    def config(self) -> ServerConfig:
        """Its declaration."""
        ...

    @property
    def whole_answers(self) -> bool:
        """Whether outputs of forward calls hold the whole answer: an agent gets it as the server gave it."""
        ...

    def connection(self) -> Connection:
        """The connection of the running event loop."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class McpCall:
    """The function of an MCP tool. Two are equal if they call the same tool of the same server in the same way."""

    #: The call itself holds answers against the output schema: an output may have more than the answer's own fields.
    checks_output = True

    def __init__(
        self, server: Server, remote: str, digest: str, manifest: ToolManifest, output: dict[str, Any] | None = None
    ) -> None:
        #: The server; it is closed with the process's last coordinator.
        self.source = server
        #: The server's own name of the tool.
        self.remote = remote
        self._digest = digest
        self._it = manifest
        self._fits = None if output is None else OutputCheck(f"{server.config.name}.{manifest.name}", output)
        #: Why every forward call needs an operator's approval; empty if none does.
        self.needs_approval = "" if manifest.listed else f"the manifest of [mcp.{server.config.name}] does not name it"
        #: Whether every forward call needs one because the manifest says so.
        self.is_asked = manifest.listed and bool(manifest.ask)
        #: Whether every forward call of an agent needs one because what it does stays. A plan says it with `pivot`.
        self.is_final = manifest.listed and manifest.is_final
        self.__name__ = f"{server.config.name}.{manifest.name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, McpCall):
            return NotImplemented
        mine, theirs = (self.remote, self._digest, self._it), (other.remote, other._digest, other._it)
        return mine == theirs and self.source.config == other.source.config

    def __hash__(self) -> int:
        return hash((self.source.config.name, self.remote))

    @property
    def is_helper(self) -> bool:
        """Whether it is a helper of the manifest, and no tool for agents."""
        return self._it.helper is not None

    @property
    def when(self) -> When | None:
        """Of a case: which calls of the server's tool are of it."""
        return self._it.when

    @property
    def fills_a_param(self) -> bool:
        """Whether the idempotency key is one of its params."""
        return self._it.key is not None and self._it.key[0] == "param"

    async def __call__(self, /, saga_call: ToolContext, **params: Any) -> Any:
        """Make one call; returns the output, or raises ``ToolError`` (not done) or ``OutcomeUnknown``."""
        connection = self.source.connection()
        live = await self._live(connection)
        connection.in_use += 1
        try:
            answer = await self._answer(connection, live, params, saga_call)
            whole = self.source.whole_answers and saga_call.direction == FORWARD and not self.is_helper
            return _scrubbed(self._read(answer, whole=whole), live.secrets)
        except (ToolError, OutcomeUnknown) as error:
            error.message = _scrubbed(error.message, live.secrets)
            error.args = (error.message,)
            raise
        finally:
            connection.in_use -= 1

    # --- before anything is sent ---------------------------------------------------------------------------------

    async def _live(self, connection: Connection) -> Live:
        """A connection over which the server lists the tool as it was accepted."""
        try:
            live = await connection.live()
            try:
                listing = await live.current(self.source.config.recheck_s)
            except Exception as error:
                connection.lose(live)
                why = f"the tools of MCP server {self.source.config.name!r} cannot be listed: {_said(error)}"
                raise NotConnected(scrubbed(why, live.secrets), retryable=True) from error
        except NotConnected as error:
            raise _not_sent(
                error.reason, "server_unreachable", retryable=error.retryable, retry_after_s=error.retry_after_s
            ) from None
        except asyncio.CancelledError as error:
            why = f"MCP server {self.source.config.name!r} was not ready in time; nothing was sent"
            raise NeverSent(why, error_code="never_sent") from error
        tool = listing.tools.get(self.remote)
        if tool is None or tool.digest != self._digest:
            server, unreadable = self.source.config.name, listing.unreadable.get(self.remote)
            if unreadable:
                what = f"MCP server {server!r} listed a tool that cannot be read: {self.remote}: {unreadable}"
            else:
                change = "is gone" if tool is None else "has changed"
                what = f"the tool {self.remote!r} of MCP server {server!r} {change} since it was accepted"
            raise _not_sent(
                what,
                "tool_changed",
                retryable=False,
                suggestion=f"look at the change and accept it: saga tools accept {server}",
            )
        return live

    # --- the call ------------------------------------------------------------------------------------------------

    async def _answer(
        self, connection: Connection, live: Live, params: dict[str, Any], call: ToolContext
    ) -> Mapping[str, Any]:
        from mcp import MCPError
        from mcp_types import CallToolRequest, CallToolRequestParams
        from pydantic import ValidationError

        arguments, meta = self._filled(params, call)
        request = CallToolRequest(params=CallToolRequestParams(name=self.remote, arguments=arguments, _meta=meta))
        try:
            answer: Mapping[str, Any] = await live.session.send_request(request, as_it_is())
            return answer
        except MCPError as error:
            raise self._refusal(connection, live, error) from None
        except ValidationError as error:
            said = f"its answer is none of the protocol: {printable(fault_in(error), 500)}"
            raise self._unknown(said, "answer_unreadable") from error
        except Exception as error:  # a transport that broke
            raise self._unknown(_said(error), "answer_unreadable") from error

    def _filled(self, params: dict[str, Any], call: ToolContext) -> tuple[dict[str, Any], Any]:
        """The arguments and ``_meta``, with the idempotency key where the manifest wants it."""
        meta: dict[str, Any] = {"traceparent": sent_on() or trace_parent(call)}
        if self._it.helper is not None:
            try:
                params = self._it.helper.arguments(params, call.idempotency_key)
            except Unfillable as error:
                raise _not_sent(f"its params cannot be made: {error}", "params_unfillable", retryable=False) from error
        key = self._it.key
        if key is not None and key[0] == "meta":
            meta[key[1]] = call.idempotency_key
        elif key is not None:
            params = {**params, key[1]: call.idempotency_key}
        return params, meta

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _read(self, answer: Mapping[str, Any], *, whole: bool) -> Any:
        it = self._it
        if answer.get("resultType", "complete") != "complete":
            raise self._unknown("it wants input of a user, which the engine does not have", "input_required")
        if answer.get("isError") is True:
            said = error_text(answer)
            if it.absent_error and it.absent_error in said:
                if whole:
                    raise _not_done(said, "mcp_error")
                return {} if it.effect == "write" else None
            if it.is_error == "not-done" or said.startswith(it.refusals):
                raise _not_done(said, "mcp_error")
            raise self._unknown(said, "mcp_error")
        if self._fits is not None and (found := self._fits(answer.get("structuredContent"))):
            raise self._unknown(f"its answer does not fit its output schema: {found[0][1]}", "answer_unreadable")
        try:
            return whole_output(answer, it) if whole else output_of(answer, it)
        except Unreadable as error:
            raise self._unknown(f"its answer cannot be used: {error}", "answer_unreadable") from error

    def _refusal(self, connection: Connection, live: Live, error: Any) -> ToolError | OutcomeUnknown:
        """What an error of the protocol, or of the transport, means."""
        said, code = printable(error.message, 500), error.code
        if code == _CLOSED:
            connection.lose(live)
            return self._unknown(f"the connection was lost: {said}", "connection_lost")
        label = label_of(error.data)
        if label is not None and label.get("never_sent"):
            return _not_sent(
                f"nothing was sent to MCP server {self.source.config.name!r}: {said}",
                "server_unreachable",
                retryable=True,
            )
        status = None if label is None else label.get("status")
        if status == 404:
            connection.lose(live)  # the server has forgotten the session
        if status in NOT_DONE and status != 503:
            return _not_sent(
                f"it answered HTTP {status}", f"http_{status}", retryable=status in RETRYABLE or status == 404
            )
        if label is not None:
            return self._unknown(f"the answer was lost: {said}", "connection_lost")
        if code == _MISMATCH:
            live.stale = True
            return _not_sent(said, "tool_changed", retryable=True)
        if code in _REFUSED:
            return _not_done(said, "mcp_refused")
        if self._it.is_error == "not-done" and code not in OWN_CODES:
            return _not_done(said, "mcp_error")
        return self._unknown(said, "mcp_error")

    def _unknown(self, said: str, error_code: str) -> ToolError | OutcomeUnknown:
        if self._it.effect == "read":
            return ToolError(said, error_code=error_code, retryable=error_code != "mcp_error", definite=False)
        return OutcomeUnknown(f"{self.__name__}: {said}", error_code=error_code)


@functools.cache
def as_it_is() -> Any:
    """The answer as JSON: the SDK has checked it against the protocol, and its own models would drop fields."""
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, Any])


def trace_parent(call: ToolContext) -> str:
    """The W3C trace context of a call: all calls of a saga in one trace, each attempt a span of its own."""
    trace = hashlib.sha256(call.saga_id.encode()).hexdigest()[:32]
    span = hashlib.sha256(f"{call.idempotency_key} {call.direction} {call.attempt}".encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-00"


def _not_sent(
    message: str,
    error_code: str,
    *,
    retryable: bool,
    retry_after_s: float | None = None,
    suggestion: str | None = None,
) -> ToolError:
    """This attempt was not made; that says nothing about earlier ones."""
    return ToolError(
        message,
        error_code=error_code,
        retryable=retryable,
        retry_after_s=retry_after_s,
        suggestion=suggestion,
        definite=False,
    )


def _not_done(message: str, error_code: str) -> ToolError:
    """The server's refusal of this attempt; an earlier one under the same key may have happened."""
    return ToolError(message, error_code=error_code, retryable=False, definite=False)


def _said(error: BaseException) -> str:
    return printable(str(error) or type(error).__name__, 500)


def _scrubbed(value: Any, secrets: Mapping[str, str]) -> Any:
    found = scrubber(secrets)
    return found.value(value) if found else value
