"""Listens: an application on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from saga_engine.errors import SettingInvalid
from saga_engine.listener.bounds import Bounds
from saga_engine.listener.connection import Connection
from saga_engine.listener.crowd import Crowd
from saga_engine.ports.machine_clock import machine_clock

#: How long answers in progress may take once the listener stops.
DRAIN_S: Final = 10.0
_BACKLOG: Final = 2_048
#: What the kernel holds of an answer that is not read.
_SENT_BYTES: Final = 128 * 1024


class Listener(uvicorn.Server):
    """A uvicorn server that leaves the signals to its caller, and says when it listens."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[Listener], None], drain_s: float) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started:
            self._on_started(self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Keep the port open while requests that came before are answered, so that probes are told; then close."""
        begun_s = machine_clock.monotonic()
        if tasks := set(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=self._drain_s)
        spent_s = machine_clock.monotonic() - begun_s
        self.config.timeout_graceful_shutdown = max(1, math.ceil(self._drain_s - spent_s))
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Its caller has handlers of its own."""
        yield


def bound(host: str, port: int) -> socket.socket:
    """A socket for the address, which does not listen yet. Raises ``SettingInvalid`` if it cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, proto)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)  # its connections have the same
            made.bind(address)
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as error:
        said = getattr(error, "strerror", None) or error
        raise SettingInvalid(
            f"cannot listen on {host}, port {port}: {said}",
            hint="choose another address or port; port 0 is any free one",
        ) from error
    return made


def address_of(listening: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def listen(
    app: Any,
    listening: socket.socket,
    bounds: Bounds,
    *,
    on_started: Callable[[Listener], None] = lambda _: None,
    lifespan: bool = False,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve an ASGI application until ``Listener.should_exit`` is set; then answers in progress end first."""
    config = uvicorn.Config(
        app,
        http=type("_Bounded", (Connection,), {"bounds": bounds, "crowd": Crowd(bounds)}),
        ws="none",
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=bounds.head_bytes,
        timeout_keep_alive=bounds.idle_s,  # type: ignore[arg-type]  # a timer takes a fraction as well
        timeout_graceful_shutdown=math.ceil(drain_s),
    )
    await Listener(config, on_started, drain_s).serve(sockets=[listening])
