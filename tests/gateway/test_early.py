"""A client is greeted before the store is open, and its calls wait for the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from saga_engine import Coordinator, tool
from saga_engine.errors import StoreUnavailable
from saga_engine.gateway.early import Early
from saga_engine.gateway.server import Gateway, Offer
from saga_engine.gateway.work import Work
from saga_engine.tools.registry import ToolRegistry
from tests.gateway.agents import Agent, about

ERAS = ["legacy", "2026-07-28"]


@tool
async def note(text: str) -> dict[str, str]:
    return {"text": text}


class Store:
    """A store that opens when it is told to, or never."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.error: Exception | None = None
        self.tools = ToolRegistry([note])
        self.left = False

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[Gateway]:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left = True
            raise
        if self.error is not None:
            raise self.error
        async with Coordinator.open("memory://", self.tools, durability="relaxed") as coordinator:
            yield Gateway(coordinator, Work(coordinator, "desk", kept=True), at_end="complete")


@asynccontextmanager
async def greeted(store: Store, mode: Any) -> AsyncIterator[tuple[Agent, asyncio.Task[None]]]:
    """A client that has been answered, and the server, which has ended after the block."""
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving = asyncio.create_task(Early(Offer(store.tools), store.opening, tell_s=1200).serve(*server_streams))

        @asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            yield client_streams

        async with Client(transport(), mode=mode, cache=None) as client:
            yield Agent(client), serving
        for stream in client_streams:
            await stream.aclose()
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
