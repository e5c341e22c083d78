"""``/metrics``: gauges of the caller's store, and what this process has measured, in Prometheus' text format."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from saga_engine.errors import RequestInvalid
from saga_engine.server.desk import Desk

if TYPE_CHECKING:
    from saga_engine.telemetry import Metrics


def monitoring(desk: Desk, metrics: Metrics | None) -> list[BaseRoute]:
    """The route of the metrics. Those of this process are about all tenants, so a tenant does not see them."""

    async def scraped(request: Request) -> Response:
        identity = desk.require(request, "read")
        if importlib.util.find_spec("prometheus_client") is None:
            raise RequestInvalid(
                "this server has no metrics", status=501, hint="pip install 'saga-engine[metrics]'", where="path"
            )
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        from saga_engine.telemetry.gauges import gauges_of

        engine = desk.engine(request)
        body = generate_latest(gauges_of(await engine.overview(), await engine.tool_stats()))
        if metrics is not None and not identity.tenant:
            body += generate_latest(metrics.registry)
        return Response(body, media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", scraped, methods=["GET"])]
