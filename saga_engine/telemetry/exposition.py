"""Serves the metrics and the probes of a process that has no other server: a worker."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from saga_engine.errors import SettingInvalid

if TYPE_CHECKING:
    from saga_engine.telemetry.metrics import Metrics

_HINT = "HOST:PORT, such as 127.0.0.1:9464; port 0 is any free one"


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def exposed(address: str, ready: Callable[[], bool] = lambda: True) -> Iterator[tuple[Metrics, str]]:
    """Metrics, and the URL at which a thread of this process serves them meanwhile. They have no secrets and no auth.

    Beside them, ``/healthz`` answers 200 while the process lives, and ``/readyz`` 200 while ``ready()``, else 503.
    Raises ``SettingInvalid`` for a wrong ``address``, one that is taken, or without the extra.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise SettingInvalid("metrics need an extra that is not installed", hint="pip install 'saga-engine[metrics]'")
    from prometheus_client import make_wsgi_app, start_http_server

    from saga_engine.telemetry.metrics import Metrics

    host, _, port = address.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    if not name or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise SettingInvalid(f"{address[:80]!r} is no address for metrics", hint=_HINT)
    metrics = Metrics()
    try:
        server, thread = start_http_server(int(port), name, metrics.registry)
    except OSError as error:
        raise SettingInvalid(
            f"metrics cannot be served at {address[:80]}: {error.strerror or error}", hint=_HINT
        ) from None
    server.set_app(_with_probes(make_wsgi_app(metrics.registry), ready))
    try:
        yield metrics, f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_probes(metrics: Wsgi, ready: Callable[[], bool]) -> Wsgi:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start_response)
        able = path == "/healthz" or (path == "/readyz" and ready())
        status = "200 OK" if able else "503 Service Unavailable" if path == "/readyz" else "404 Not Found"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [b"ok\n" if able else b"takes no sagas\n" if path == "/readyz" else b"/metrics, /healthz, /readyz\n"]

    return answer
