"""What the tests of the gateway share: an agent's MCP client, connected to a gateway of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import CallToolResult

from saga_engine import Coordinator
from saga_engine.gateway.answers import META
from saga_engine.gateway.door import Door, Token, hosts_for
from saga_engine.gateway.early import Early
from saga_engine.gateway.engine import EngineFace, engine_server
from saga_engine.gateway.http import Desks, serve_http, url_of
from saga_engine.gateway.server import Gateway, Offer
from saga_engine.gateway.work import Work
from saga_engine.listener import bound
from saga_engine.sources.mcp import McpServer

#: A manifest for the world server of tests/mcp; it does not name ``wipe``.
MANIFEST: dict[str, dict[str, Any]] = {
    "book": {"undo": "cancel", "probe": "find", "key": {"meta": "example.com/key"}},
    "cancel": {"tolerates_absence": True, "ask": False},
    "find": {"effect": "read", "absent_error": "no such guest"},
    "media": {"effect": "read"},
    "large": {"effect": "read"},
    "silent": {"timeout_s": 600, "ask": False},
    "broken": {"ask": False},
    "env": {"effect": "read"},
}


class Agent:
    """An MCP client without any knowledge of the engine."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def done(self, tool: str, /, **arguments: Any) -> Any:
        """The structured content of a call that was done."""
        answer = await self.call(tool, **arguments)
        assert not answer.is_error, answer
        return answer.structured_content

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """What the model reads of a call that was not done."""
        answer = await self.call(tool, **arguments)
        assert answer.is_error, answer
        return "\n".join(block.text for block in answer.content if block.type == "text")

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]


def about(answer: CallToolResult) -> dict[str, Any]:
    """What the gateway says of an answer."""
    found: dict[str, Any] = (answer.meta or {})[META]
    return found


@asynccontextmanager
async def engine(*servers: McpServer, **options: Any) -> AsyncIterator[Coordinator]:
    options = {"store": "memory://", "durability": "relaxed", **options}
    async with Coordinator.open(options.pop("store"), sources=servers, **options) as coordinator:
        yield coordinator


@asynccontextmanager
async def agent(
    coordinator: Coordinator,
    name: str = "desk",
    *,
    mode: Any = "auto",
    hold_s: float = 0.0,
    user: Any = None,
    **options: Any,
) -> AsyncIterator[Agent]:
    """An agent for the duration of the block; the gateway has ended after it. ``user`` answers what its client asks."""
    options.setdefault("offer", Offer(coordinator.tools, undos=True))  # most of these tests are about all tools
    gateway = Gateway(coordinator, Work(coordinator, name, kept=True, hold_s=hold_s), **options)
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving = asyncio.create_task(gateway.serve(*server_streams))

        @asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            yield client_streams

        try:
            async with Client(transport(), mode=mode, cache=None, elicitation_callback=user) as client:
                yield Agent(client)
        finally:
            for stream in client_streams:
                await stream.aclose()
            await serving


@asynccontextmanager
async def writer(
    coordinator: Coordinator, name: str = "kim", mode: Any = "auto", rules: Any = None
) -> AsyncIterator[Agent]:
    """An agent that writes plans (``saga mcp --engine``)."""
    early = Early(engine_server, EngineFace(coordinator, name, rules).opened)
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving = asyncio.create_task(early.serve(*server_streams))

        @asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            yield client_streams

        try:
            async with Client(transport(), mode=mode, cache=None) as client:
                yield Agent(client)
        finally:
            for stream in client_streams:
                await stream.aclose()
            await serving


@asynccontextmanager
async def served(
    coordinator: Coordinator, *, tokens: tuple[Token, ...] = (), most: int = 100, **options: Any
) -> AsyncIterator[str]:
    """A gateway that listens in this process; its URL. The requests that name no saga are for ``desk``."""
    offer = Offer(coordinator.tools)

    def made(saga: str) -> Gateway:
        return Gateway(coordinator, Work(coordinator, saga, kept=True), offer=offer, **options)

    desks = Desks(made, most=most)
    door = partial(Door, own="desk", tokens=tokens, hosts=hosts_for("127.0.0.1", ()))
    stopped = asyncio.Event()
    with bound("127.0.0.1", 0) as listening:
        listening.listen()
        serving = asyncio.create_task(serve_http(offer.server, door, desks.opened, listening, stopped))
        try:
            yield url_of(listening)
        finally:
            stopped.set()
            await serving


@asynccontextmanager
async def engine_served(coordinator: Coordinator, name: str = "kim") -> AsyncIterator[str]:
    """The engine's own tools over HTTP (``saga mcp --engine --http``); the URL."""
    door = partial(Door, own=name, hosts=hosts_for("127.0.0.1", ()))
    stopped = asyncio.Event()
    with bound("127.0.0.1", 0) as listening:
        listening.listen()
        face = EngineFace(coordinator, name)
        serving = asyncio.create_task(serve_http(engine_server, door, face.opened, listening, stopped))
        try:
            yield url_of(listening)
        finally:
            stopped.set()
            await serving


@asynccontextmanager
async def client(url: str, mode: Any = "auto", token: str = "") -> AsyncIterator[Agent]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=300) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as made,
    ):
        yield Agent(made)


@asynccontextmanager
async def legacy_session(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A session of the older protocol, without an SDK."""
    who = {"name": "agent", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with httpx2.AsyncClient(headers={"accept": "application/json, text/event-stream"}) as http:
        session = (await http.post(url, json=begin)).headers["mcp-session-id"]
        http.headers.update({"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"})
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield http
