"""Builds the application: ``create_app``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from saga_engine.errors import RequestInvalid, SagaError
from saga_engine.server.console import console
from saga_engine.server.console.links import link_routes
from saga_engine.server.desk import Desk
from saga_engine.server.guard import Guard
from saga_engine.server.jobs import Jobs
from saga_engine.server.monitoring import monitoring
from saga_engine.server.openapi import openapi
from saga_engine.server.operation import Operation
from saga_engine.server.problems import problem_response
from saga_engine.server.routes import operations
from saga_engine.server.settings import ServerSettings
from saga_engine.server.signin import signin_routes

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.telemetry import Metrics


def create_app(
    coordinator: Coordinator,
    settings: ServerSettings | None = None,
    *,
    engines: Mapping[str, Coordinator] | None = None,
    metrics: Metrics | None = None,
) -> Starlette:
    """The server of a coordinator as an ASGI application: the API under ``/v1``, the console, the probes, ``/metrics``.

    ``engines``: the coordinators of the tenants that ``settings`` name, each with its own namespace of a store.
    ``metrics``: what the coordinators measure with. Raises ``SettingInvalid``.
    """
    desk = Desk(coordinator, settings or ServerSettings(), engines)
    jobs, listed = Jobs(desk), operations()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await desk.limit()
        beside = [
            asyncio.create_task(jobs.run(), name="saga-server-jobs"),
            asyncio.create_task(desk.keep_limiting(), name="saga-server-quotas"),
        ]
        try:
            yield
        finally:
            desk.draining.set()
            await desk.goals.close()
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    app = Starlette(
        routes=[
            *_probes(desk),
            *api_routes(desk, listed),
            *signin_routes(desk),
            *monitoring(desk, metrics),
            *link_routes(desk),
            *console(desk),
        ],
        middleware=[Middleware(Guard, desk=desk)],
        exception_handlers={HTTPException: _unrouted, SagaError: _refused},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.desk, app.state.jobs = desk, jobs
    return app


def api_routes(desk: Desk, listed: list[Operation]) -> list[BaseRoute]:
    """The routes of operations, and of the document that describes them."""
    document = msgspec.json.encode(openapi(listed))

    async def described(_: Request) -> Response:
        return Response(document, media_type="application/json")

    paths: dict[str, dict[str, Operation]] = {}
    for operation in listed:
        paths.setdefault(operation.path, {})[operation.method] = operation
    routes: list[BaseRoute] = [Route("/v1/openapi.json", described, methods=["GET"])]
    return routes + [_route(desk, path, found) for path, found in paths.items()]


def _route(desk: Desk, path: str, found: Mapping[str, Operation]) -> Route:
    endpoints = {method: operation.endpoint(desk) for method, operation in found.items()}

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=[*endpoints])


def _probes(desk: Desk) -> list[BaseRoute]:
    async def alive(_: Request) -> Response:
        return _words({"status": "ok"}, 200)

    async def ready(_: Request) -> Response:
        if desk.draining.is_set():
            return _words({"status": "draining"}, 503)
        try:
            await desk.coordinator.store.guard_store().stops()
        except SagaError as error:
            return _words({"status": "not ready", "code": error.code}, 503)
        return _words({"status": "ready"}, 200)

    return [Route("/healthz", alive, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


def _words(body: Mapping[str, Any], status: int) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def _unrouted(request: Request, error: Exception) -> Response:
    """No route, or not with this method."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    headers = error.headers or {}
    allow = {"allow": headers["Allow"]} if "Allow" in headers else {}
    what = f"{request.method} is not possible here" if status == 405 else "there is nothing at this path"
    hint = "GET /v1/openapi.json lists the paths and their methods"
    return problem_response(RequestInvalid(what, hint=hint, status=status, where="path", **allow))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, SagaError)
    return problem_response(error)
