"""Listens: the application on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from saga_engine.errors import SettingInvalid
from saga_engine.server.settings import ServerSettings

#: How long answers in progress may take once the server stops.
_DRAIN_S = 10
#: Beyond the time for a request, after which a silent connection is closed without an answer.
_GRACE_S = 5.0


class _Protocol(H11Protocol):
    """Closes a connection whose request does not arrive in time, however slowly it sends."""

    timeout_s = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not arriving:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.timeout_s, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            self.transport.abort()


class Listener(uvicorn.Server):
    """A uvicorn server that leaves the signals to its caller, and says when it listens."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[Listener], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started:
            self._on_started(self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Keep the port open while requests that came before are answered, so that probes are told; then close."""
        begun_s = time.monotonic()
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=_DRAIN_S)
        spent_s = time.monotonic() - begun_s
        self.config.timeout_graceful_shutdown = max(1, math.ceil(_DRAIN_S - spent_s))
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Its caller has handlers of its own."""
        yield


def bound(settings: ServerSettings) -> socket.socket:
    """A socket for the address. Raises ``SettingInvalid`` if it cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, proto)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise SettingInvalid(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}",
            hint="choose another --host or --port; port 0 is any free one",
        ) from error
    return made


def address_of(listening: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    app: Starlette, listening: socket.socket, *, on_started: Callable[[Listener], None] = lambda _: None
) -> None:
    """Serve until ``Listener.should_exit`` is set; then answers in progress end first, and streams at once."""
    desk = app.state.desk
    settings: ServerSettings = desk.settings
    timeout_s = settings.request_timeout_s + _GRACE_S
    options: dict[str, Any] = {
        "http": type("_Timed", (_Protocol,), {"timeout_s": timeout_s}),
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": settings.max_connections,
        "timeout_graceful_shutdown": _DRAIN_S,
    }
    await Listener(uvicorn.Config(app, **options), on_started).serve(sockets=[listening])
