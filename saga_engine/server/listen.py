"""Serves the application of a server: its settings, as the bounds of the listener that all doors have."""

from __future__ import annotations

from collections.abc import Callable
from socket import socket

from starlette.applications import Starlette

from saga_engine.listener import Bounds, Listener, listen
from saga_engine.server.settings import ServerSettings

#: Beyond the time for a request, after which a silent connection is closed without an answer.
_GRACE_S = 5.0


def bounds_of(settings: ServerSettings) -> Bounds:
    """What connections may use."""
    return Bounds(
        connections=settings.max_connections,
        connections_each=settings.max_connections_each,
        arrive_s=settings.request_timeout_s + _GRACE_S,
        write_s=settings.write_timeout_s,
    )


async def serve(app: Starlette, listening: socket, *, on_started: Callable[[Listener], None] = lambda _: None) -> None:
    """Serve until ``Listener.should_exit`` is set; then answers in progress end first, and streams at once."""
    settings: ServerSettings = app.state.desk.settings
    await listen(app, listening, bounds_of(settings), on_started=on_started, lifespan=True)
