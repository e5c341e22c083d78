"""An answer that nobody reads is held once, for so long: whatever an application writes, its client sets the pace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine.errors import SettingInvalid
from saga_engine.listener import Bounds, Listener, bound, connection_of, listen
from tests.support.journals import until

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNK = b"x" * 65_536
App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


@asynccontextmanager
async def listening(app: App, bounds: Bounds) -> AsyncIterator[int]:
    made = bound("127.0.0.1", 0)
    started: asyncio.Future[Listener] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(listen(app, made, bounds, on_started=started.set_result))
    listener = await started
    try:
        yield made.getsockname()[1]
    finally:
        listener.should_exit = True
        await task


class Endless:
    """Writes for as long as it may."""

    def __init__(self) -> None:
        self.written = 0
        self.left = asyncio.Event()
        self.scope: dict[str, Any] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scope = scope
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.create_task(self._leaving(receive))
        while not self.left.is_set():
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
            self.written += len(CHUNK)
            await asyncio.sleep(0)
        await leaving

    async def _leaving(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


def slow_client(port: int) -> socket.socket:
    """A client whose system takes in little that it does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.sendall(GET)
    return made


async def test_an_answer_that_is_not_read_is_cut_off() -> None:
    """The application writes no more than the system takes, is told that its client has left, and the place is free."""
    app = Endless()
    async with listening(app, Bounds(write_s=0.05)) as port:
        client = slow_client(port)
        await app.left.wait()
        assert 0 < app.written < 2 * 2**20
        client.close()


async def test_a_client_that_reads_on_is_not_cut_off() -> None:
    """The time is for each part of an answer, not for the whole of it."""
    app = Endless()
    async with listening(app, Bounds(write_s=2.0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        for _ in range(200):
            await reader.readexactly(len(CHUNK))
        assert not app.left.is_set()
        writer.close()
        await app.left.wait()


async def test_an_answer_that_is_written_and_not_read_is_cut_off() -> None:
    """Also one whose application has ended."""
    ended = asyncio.Event()

    async def app(_: dict[str, Any], __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": CHUNK * 100})
        ended.set()

    async with listening(app, Bounds(write_s=0.05, connections=1)) as port:
        client = slow_client(port)
        await ended.wait()
        other = slow_client(port)  # in place of the first one, which waits for its client alone
        client.close()
        other.close()


async def test_who_is_answered_keeps_its_place() -> None:
    """A connection whose client waits for an answer is not cut off for another one, which is told."""
    hold = asyncio.Event()

    async def app(_: dict[str, Any], __: Any, send: Any) -> None:
        await hold.wait()
        await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b""})

    async with listening(app, Bounds(connections=1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        refused, other = await asyncio.open_connection("127.0.0.1", port)
        assert (await refused.read()).startswith(b"HTTP/1.1 503 ")
        hold.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 204 ")
        writer.close()
        other.close()


async def test_an_application_knows_the_connection_of_a_request() -> None:
    """It can cut off a client that is stuck in the middle of an answer."""
    app = Endless()
    async with listening(app, Bounds(write_s=3600)) as port:
        client = slow_client(port)
        await until(lambda: app.written)
        found = connection_of(app.scope)
        assert found is not None
        found.cut("of a test")
        await app.left.wait()
        client.close()
    assert connection_of({}) is None


def test_an_address_that_cannot_be_had() -> None:
    """It is named, with what helps."""
    with bound("127.0.0.1", 0) as taken:
        taken.listen()
        for host, port in (("127.0.0.1", taken.getsockname()[1]), ("nowhere.invalid", 0)):
            with pytest.raises(SettingInvalid, match=f"cannot listen on {host}, port {port}"):
                bound(host, port)
