"""Serves the metrics of a process that has no other server: a worker."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from saga_engine.errors import SettingInvalid

if TYPE_CHECKING:
    from saga_engine.telemetry.metrics import Metrics

_HINT = "HOST:PORT, such as 127.0.0.1:9464; port 0 is any free one"


@contextmanager
def exposed(address: str) -> Iterator[tuple[Metrics, str]]:
    """Metrics, and the URL at which a thread of this process serves them meanwhile. They have no secrets and no auth.

    Raises ``SettingInvalid`` for a wrong ``address``, one that is taken, or without the extra.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise SettingInvalid("metrics need an extra that is not installed", hint="pip install 'saga-engine[metrics]'")
    from prometheus_client import start_http_server

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
    try:
        yield metrics, f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
