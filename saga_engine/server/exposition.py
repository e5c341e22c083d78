"""Serves the metrics and the probes of a process that has no other server: a worker."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from saga_engine.errors import SettingInvalid

if TYPE_CHECKING:
    from saga_engine.listener import Bounds, Listener
    from saga_engine.telemetry.metrics import Metrics

_HINT = "HOST:PORT, such as 127.0.0.1:9464; port 0 is any free one"

Asgi = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


@contextmanager
def exposed(address: str, ready: Callable[[], bool] = lambda: True) -> Iterator[tuple[Metrics, str]]:
    """Metrics, and the URL at which a thread of this process serves them meanwhile. They have no secrets and no auth.

    Beside them, ``/healthz`` answers 200 while the process lives, and ``/readyz`` 200 while ``ready()``, else 503.
    Raises ``SettingInvalid`` for a wrong ``address``, one that is taken, or without the extra.
    """
    if any(importlib.util.find_spec(name) is None for name in ("prometheus_client", "uvicorn", "h11")):
        raise SettingInvalid("metrics need an extra that is not installed", hint="pip install 'saga-engine[metrics]'")
    from prometheus_client import make_asgi_app

    from saga_engine.listener import address_of, bound
    from saga_engine.telemetry.metrics import Metrics

    host, _, port = address.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    if not name or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise SettingInvalid(f"{address[:80]!r} is no address for metrics", hint=_HINT)
    metrics = Metrics()
    try:
        listening = bound(name, int(port))
    except SettingInvalid as error:
        raise SettingInvalid(f"metrics cannot be served at {address[:80]}: {error.message}", hint=_HINT) from None
    with listening, _served(_with_probes(make_asgi_app(metrics.registry), ready), listening):
        yield metrics, f"{address_of(listening)}/metrics"


def bounds() -> Bounds:
    """What connections may use: scrapers are few."""
    from saga_engine.listener import Bounds

    return Bounds(connections=200, connections_each=100, arrive_s=10.0, write_s=10.0)


@contextmanager
def _served(app: Asgi, listening: Any) -> Iterator[None]:
    """Serve in a thread: probes are answered also while the event loop of the process is held up."""
    from saga_engine.listener import listen

    begun, listeners = threading.Event(), list["Listener"]()

    def started(listener: Listener) -> None:
        listeners.append(listener)
        begun.set()

    def serve() -> None:
        try:
            asyncio.run(listen(app, listening, bounds(), on_started=started, drain_s=1.0))
        finally:
            begun.set()

    thread = threading.Thread(target=serve, name="saga-metrics", daemon=True)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        for listener in listeners:
            listener.should_exit = True
        thread.join()


def _with_probes(metrics: Asgi, ready: Callable[[], bool]) -> Asgi:
    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/metrics":
            await metrics(scope, receive, send)
            return
        able = path == "/healthz" or (path == "/readyz" and ready())
        body = b"ok\n" if able else b"takes no sagas\n" if path == "/readyz" else b"/metrics, /healthz, /readyz\n"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        status = 200 if able else 503 if path == "/readyz" else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer
