"""Observes an agent: its calls go to the servers as they are, and what it called is written down.

Nothing is journalled, held, refused or undone. It shows which tools a manifest must describe before the gateway takes
the place of the servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequest,
    CallToolRequestParams,
    PaginatedRequestParams,
)

from saga_engine._version import __version__
from saga_engine.errors import ToolInvalid
from saga_engine.gateway.answers import COMPLETE
from saga_engine.loggers import logger_of
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.sources.mcp.call import as_it_is
from saga_engine.sources.mcp.connection import NotConnected
from saga_engine.sources.mcp.pins import PinnedTool
from saga_engine.sources.mcp.server import McpServer

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_log = logger_of("saga_engine.gateway")


class Observer:
    """Serves the tools of servers to one agent. ``tell`` gets a JSON object for each call."""

    def __init__(self, servers: Sequence[McpServer], tell: Callable[[dict[str, Any]], None]) -> None:
        self._servers = servers
        self._tell = tell
        self._tools: dict[str, tuple[McpServer, PinnedTool]] = {}

    async def open(self) -> None:
        """List the tools. A server that cannot be reached is logged, and has none."""
        listed: list[tuple[McpServer, PinnedTool]] = []
        for server in self._servers:
            try:
                listed += [(server, tool) for tool in (await server.listed()).values()]
            except ToolInvalid as error:
                _log.warning("%s", error.message)
        count = Counter(tool.name for _, tool in listed)
        for server, tool in listed:
            name = tool.name if count[tool.name] == 1 else f"{server.name}__{tool.name}"
            self._tools[name] = (server, tool)

    async def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            await server.close()

    async def serve(self, read_stream: Any, write_stream: Any) -> None:
        """Serve a client until it disconnects."""
        server = Server("saga", version=__version__, on_list_tools=self._list, on_call_tool=self._call)
        await server.run(read_stream, write_stream, server.create_initialization_options())

    async def _list(self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> Any:
        return {"tools": [_declared(name, tool) for name, (_, tool) in self._tools.items()], **COMPLETE} | {
            "ttlMs": 0,
            "cacheScope": "private",
        }

    async def _call(self, _: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        found = self._tools.get(params.name)
        if found is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        server, tool = found
        arguments = params.arguments or {}
        began_s, outcome = machine_clock.monotonic(), "no answer"
        try:
            answer = await _forwarded(server, tool.name, arguments)
            outcome = "error" if answer.get("isError") else "ok"
            return {**COMPLETE, **answer}
        except MCPError:
            outcome = "refused"
            raise
        finally:
            took_ms = round((machine_clock.monotonic() - began_s) * 1000)
            at_ms = machine_clock.time_ns() // 1_000_000
            told = {"at_ms": at_ms, "server": server.name, "tool": tool.name, "params": sorted(arguments)}
            self._tell({**told, "outcome": outcome, "took_ms": took_ms, "manifest": _described(server, tool.name)})


async def _forwarded(server: McpServer, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
    try:
        live = await server.connection().live()
    except NotConnected as error:
        raise MCPError(code=INTERNAL_ERROR, message=error.reason) from None
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    answer: Mapping[str, Any] = await live.session.send_request(request, as_it_is())
    return answer


def _described(server: McpServer, tool: str) -> str:
    named = server.config.tools.get(tool)
    return "" if named is None else named.effect


def _declared(name: str, tool: PinnedTool) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "description": tool.description, "inputSchema": tool.input_schema}
    if tool.output_schema is not None:
        made["outputSchema"] = tool.output_schema
    return {**made, "annotations": dict(tool.hints)} if tool.hints else made
