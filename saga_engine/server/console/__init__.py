"""The console: pages that the server draws."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.server.desk import Desk


def console(desk: Desk) -> list[BaseRoute]:  # noqa: ARG001 - the pages ask it
    """The routes of the pages."""

    async def first(_: Request) -> Response:
        return RedirectResponse("/v1/openapi.json", 303)

    return [Route("/", first, methods=["GET"])]
