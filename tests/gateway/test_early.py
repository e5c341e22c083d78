"""A client is greeted before the store is open, and its calls wait for the store: on stdio, over HTTP, with --engine."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from saga_engine import Coordinator, tool
from saga_engine.errors import StoreUnavailable
from saga_engine.gateway.door import Door, hosts_for
from saga_engine.gateway.early import Early
from saga_engine.gateway.engine import EngineFace, engine_server
from saga_engine.gateway.http import Desks, serve_http, url_of
from saga_engine.gateway.server import CallHandler, Gateway, Offer
from saga_engine.gateway.visit import Visit, visit_of
from saga_engine.gateway.work import Work
from saga_engine.listener import bound
from saga_engine.tools.registry import ToolRegistry
from tests.gateway.agents import Agent, about, client, legacy_session

ERAS = ["legacy", "2026-07-28"]


texts: list[str] = []


@tool
async def note(text: str) -> dict[str, str]:
    texts.append(text)
    return {"text": text}


class Store:
    """A store that opens when it is told to, or never. ``face``: who answers the calls when it is open."""

    def __init__(self, face: str = "tools") -> None:
        self.go_on = asyncio.Event()
        self.error: Exception | None = None
        self.tools = ToolRegistry([note])
        self.face = face
        self.left = False
        self.visits: dict[str, asyncio.Future[Visit]] = defaultdict(asyncio.get_running_loop().create_future)
        texts.clear()

    def server(self, call: CallHandler) -> Any:
        async def seen(ctx: Any, params: Any) -> Any:
            if (visit := visit_of(ctx)) is not None and not self.visits[visit.saga].done():
                self.visits[visit.saga].set_result(visit)
            return await call(ctx, params)

        return engine_server(seen) if self.face == "engine" else Offer(self.tools).server(seen)

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[CallHandler]:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left = True
            raise
        if self.error is not None:
            raise self.error
        async with (
            Coordinator.open("memory://", self.tools, durability="relaxed") as coordinator,
            self.opened(coordinator) as call,
        ):
            yield call

    def opened(self, coordinator: Coordinator) -> Any:
        def gateway(name: str) -> Gateway:
            return Gateway(coordinator, Work(coordinator, name, kept=True), at_end="complete")

        if self.face == "engine":
            return EngineFace(coordinator, "desk").opened()
        return gateway("desk").opened() if self.face == "tools" else Desks(gateway).opened()


@asynccontextmanager
async def greeted(store: Store, mode: Any) -> AsyncIterator[tuple[Agent, asyncio.Task[None]]]:
    """A client that has been answered, and the server, which has ended after the block."""
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving = asyncio.create_task(Early(store.server, store.opening, tell_s=1200).serve(*server_streams))

        @asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            yield client_streams

        async with Client(transport(), mode=mode, cache=None) as client:
            yield Agent(client), serving
        for stream in client_streams:
            await stream.aclose()
        await asyncio.wait([serving])


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """A gateway at a port of this machine, and its URL; it has ended after the block."""
    stopped = asyncio.Event()
    door = partial(Door, own="desk", hosts=hosts_for("127.0.0.1", ()))
    with bound("127.0.0.1", 0) as socket:
        socket.listen()
        serving = asyncio.create_task(serve_http(store.server, door, store.opening, socket, stopped))
        yield url_of(socket), serving
        stopped.set()
        await asyncio.wait([serving])


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_waits_for_the_store(mode: Any) -> None:
    """The greeting and the list of tools do not; a call that was made before is made when the store is open, once."""
    store = Store()
    async with greeted(store, mode) as (it, serving):
        assert "note" in await it.names()
        asked = asyncio.create_task(it.call("note", text="a"))
        assert "note" in await it.names()  # answered after the call was read
        assert not asked.done()
        store.go_on.set()
        assert about(await asked)["call"] == "1"
    serving.result()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_store_that_cannot_be_opened(mode: Any) -> None:
    """Every call is told why, and the process ends with the same error."""
    store = Store()
    store.error = StoreUnavailable("the store does not answer")
    async with greeted(store, mode) as (it, serving):
        asked = asyncio.create_task(it.refused("note", text="a"))
        await it.names()
        store.go_on.set()
        assert (await asked).startswith("store-unavailable: the store does not answer")
        assert "store-unavailable" in await it.refused("saga_status")
    with pytest.raises(StoreUnavailable):
        serving.result()


async def test_a_client_that_leaves_before_the_store_is_open() -> None:
    """Nobody waits for the store then."""
    store = Store()
    async with greeted(store, "legacy") as (_, serving):
        pass
    serving.result()
    assert store.left


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_over_http_waits_for_the_store(mode: Any) -> None:
    """Several clients are greeted meanwhile; each call is made once, for the saga that its request names."""
    store = Store("desks")
    async with listening(store) as (url, serving), client(f"{url}/kim", mode) as it, client(url, mode) as other:
        assert "note" in await it.names()
        asked = asyncio.create_task(it.call("note", text="a"))
        assert "note" in await other.names()
        assert not asked.done()
        store.go_on.set()
        assert about(await asked)["saga_id"] == "kim"
        assert about(await other.call("note", text="b"))["saga_id"] == "desk"
        assert texts == ["a", "b"]
    serving.result()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_store_that_cannot_be_opened_over_http(mode: Any) -> None:
    """A call that waits is told why, and the process ends with the same error, although no one told it to stop."""
    store = Store("desks")
    store.error = StoreUnavailable("the store does not answer")
    async with listening(store) as (url, serving), client(url, mode) as it:
        asked = asyncio.create_task(it.refused("note", text="a"))
        await it.names()
        store.go_on.set()
        assert (await asked).startswith("store-unavailable: the store does not answer")
        await asyncio.wait([serving])
    with pytest.raises(StoreUnavailable):
        serving.result()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_http_that_leaves_before_the_store_is_open(mode: Any) -> None:
    """Its call is not made: nobody would hear of the outcome. Others' calls are."""
    store = Store("desks")
    async with listening(store) as (url, serving), client(url, mode) as stays:
        async with client(f"{url}/kim", mode) as leaves:
            asked = asyncio.create_task(leaves.call("note", text="cancelled"))
            await leaves.names()
            asked.cancel()
            await asyncio.wait([asked])
        async with legacy_session(f"{url}/lou") as http:
            params = {"name": "note", "arguments": {"text": "connection lost"}}
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            async with http.stream("POST", f"{url}/lou", json=body):
                visit = await store.visits["lou"]
        await visit.gone.wait()
        waits = asyncio.create_task(stays.call("note", text="b"))
        await stays.names()
        store.go_on.set()
        await waits
        assert texts == ["b"]
    serving.result()


async def test_a_stop_before_the_store_is_open() -> None:
    """Nobody waits for the store then."""
    store = Store("desks")
    async with listening(store) as (url, serving), client(url) as it:
        await it.names()
    serving.result()
    assert store.left


@pytest.mark.parametrize("mode", ERAS)
async def test_the_engine_greets_before_its_store_is_open(mode: Any) -> None:
    """``--engine`` does not differ."""
    store = Store("engine")
    async with greeted(store, mode) as (it, serving):
        assert "saga_submit" in await it.names()
        asked = asyncio.create_task(it.done("saga_tools"))
        assert "saga_submit" in await it.names()
        assert not asked.done()
        store.go_on.set()
        assert [each["name"] for each in (await asked)["tools"]] == ["note"]
    serving.result()
