"""Every door to the network has the same listener: what it cuts off at `saga serve`, it cuts off elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from saga_engine import Coordinator
from saga_engine.gateway import http
from saga_engine.listener import Bounds
from saga_engine.server import exposition, listen
from saga_engine.server.settings import ServerSettings
from tests.gateway.agents import served
from tests.server.harness import TOOLS, serving

#: A door with some bounds; its port, and a path that answers anybody there.
Door = Callable[[Bounds], AbstractAsyncContextManager[tuple[int, str]]]


@asynccontextmanager
async def server(bounds: Bounds) -> AsyncIterator[tuple[int, str]]:
    """`saga serve`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listen, "bounds_of", lambda _: bounds)
        async with Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator:
            settings = ServerSettings(port=0, requests_per_s=1e6, burst=1_000_000)
            async with serving(coordinator, settings) as found:
                await found.client.aclose()
                yield int(found.url.rpartition(":")[2]), "/healthz"


@asynccontextmanager
async def gateway(bounds: Bounds) -> AsyncIterator[tuple[int, str]]:
    """`saga mcp --http`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(http, "BOUNDS", bounds)
        async with (
            Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator,
            served(coordinator) as url,
        ):
            yield int(url.removesuffix("/mcp").rpartition(":")[2]), "/nothing"


@asynccontextmanager
async def worker(bounds: Bounds) -> AsyncIterator[tuple[int, str]]:
    """`saga worker --metrics`: a thread of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exposition, "bounds", lambda: bounds)
        with exposition.exposed("127.0.0.1:0") as (_, url):
            yield int(url.removesuffix("/metrics").rpartition(":")[2]), "/metrics"


@pytest.fixture(params=[server, gateway, worker], ids=["serve", "mcp", "worker"])
def door(request: pytest.FixtureRequest) -> Door:
    found: Door = request.param
    return found


async def sent(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, which it does."""
    with contextlib.suppress(ConnectionResetError):
        return await reader.read()
    return b""


def head(path: str, *more: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more, "", ""]).encode()


async def answered(port: int, path: str) -> bool:
    """A client that comes now gets an answer; one that was too slow itself comes again."""
    said = b""
    while not said:
        reader, writer = await sent(port, head(path, "Connection: close"))
        said = await rest(reader)
        writer.close()
    return said.startswith((b"HTTP/1.1 200", b"HTTP/1.1 404"))


UNFINISHED = [
    b"",
    b"G",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
]


@pytest.mark.parametrize("begun", UNFINISHED, ids=["nothing", "a byte", "a head", "a body"])
async def test_a_request_that_does_not_arrive_is_cut_off(door: Door, begun: bytes) -> None:
    """Nothing, half a head or half a body keeps a connection for so long, and no token is needed to find that out."""
    async with door(Bounds(arrive_s=0.05)) as (port, path):
        reader, writer = await sent(port, begun)
        await rest(reader)
        writer.close()
        assert await answered(port, path)


async def test_a_head_that_drips_is_cut_off(door: Door) -> None:
    """A byte now and then does not make it last."""
    async with door(Bounds(arrive_s=1.0)) as (port, _):
        reader, writer = await sent(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await reader.read()
        writer.close()


async def test_a_connection_that_is_idle_is_closed(door: Door) -> None:
    """After an answer a client has a while to send its next request."""
    async with door(Bounds(idle_s=0.05, arrive_s=3600)) as (port, path):
        reader, writer = await sent(port, head(path))
        assert (await rest(reader)).startswith(b"HTTP/1.1 ")
        writer.close()


async def test_a_large_head_is_refused(door: Door) -> None:
    """It is not kept to the end."""
    async with door(Bounds(head_bytes=1024)) as (port, path):
        reader, writer = await sent(port, head(path)[:-2] + b"X: " + b"x" * 2_000)
        assert (await rest(reader)).startswith(b"HTTP/1.1 400")
        writer.close()
        assert await answered(port, path)


@pytest.mark.parametrize("bounds", [Bounds(connections=3), Bounds(connections_each=3)], ids=["in all", "each"])
async def test_connections_that_wait_make_room(door: Door, bounds: Bounds) -> None:
    """Clients that send nothing shut nobody out: the one that has waited longest is cut off for the next that comes."""
    async with door(bounds) as (port, path):
        silent = [await sent(port, head(path)[:-2]) for _ in range(3)]
        for _ in range(5):
            assert await answered(port, path)
        assert await rest(silent[0][0]) == b""
        for _, writer in silent:
            writer.close()


async def test_what_comes_ahead_of_its_turn_is_bounded(door: Door) -> None:
    """Requests that are sent before the answers to earlier ones are answered up to a bound; then the connection ends."""
    async with door(Bounds(ahead_bytes=1024)) as (port, path):
        many = 2_000
        reader, writer = await sent(port, head(path) * many)
        said = await rest(reader)
        writer.close()
        assert 0 < said.count(b"HTTP/1.1 ") < many
        assert b"connection: close" in said
        reader, writer = await sent(port, head(path) * 3 + head(path, "Connection: close"))
        assert (await rest(reader)).count(b"HTTP/1.1 ") == 4
        writer.close()


async def test_a_request_of_two_lengths_is_the_last(door: Door) -> None:
    """With a length and chunks a proxy may see another request behind it: the connection ends with the answer."""
    async with door(Bounds()) as (port, path):
        both = head(path, "Content-Length: 5", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n"
        reader, writer = await sent(port, both + head(path))
        said = await rest(reader)
        writer.close()
        assert said.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in said.lower()


async def test_who_leaves_in_the_middle_of_a_request_is_worth_no_line(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a body, or no request at all: anybody can send it as often as he likes, and nothing has failed."""
    async with door(Bounds()) as (port, path):
        half = ["Content-Type: application/json", "Accept: application/json, text/event-stream", "Content-Length: 100"]
        for data in (head("/mcp", *half, method="POST") + b"{", "GET /schlüssel HTTP/1.1\r\n\r\n".encode()):
            for _ in range(5):
                _, writer = await sent(port, data)
                writer.close()
                await writer.wait_closed()
        assert await answered(port, path)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
