"""A real server on a real socket, and a client that holds each of its answers against its OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import jsonschema_rs

from saga_engine import Coordinator, ToolError, tool
from saga_engine.listener import Listener, address_of, bound
from saga_engine.operations.table import EVERY, OPERATIONS
from saga_engine.ports import PlannerAnswer, PlannerRequest, PlannerUsage
from saga_engine.server.app import create_app
from saga_engine.server.desk import Desk
from saga_engine.server.listen import serve
from saga_engine.server.problems import OF_SERVER
from saga_engine.server.settings import ServerSettings

JSON = {"content-type": "application/json"}


@tool(undo="cancel")
async def book(item: str) -> dict[str, str]:
    return {"ref": f"ref-{item}"}


@tool(tolerates_absence=True)
async def cancel(item: str) -> None:
    """Nothing is left of a booking."""


@tool(effect="read")
async def fail() -> None:
    raise ToolError("it is full", error_code="full", retryable=False)


TOOLS = [book, cancel, fail]
BOOK = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "room"}}]}
ASK = {"steps": [{"step_id": 1, "ask": {"question": "Shall we?", "options": ["yes", "no"]}}]}
WAIT = {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "17", "timeout_s": 3600}}]}


class Planner:
    """Has one plan for every goal."""

    model = "fixed"

    async def ask(self, request: PlannerRequest) -> PlannerAnswer:
        text = json.dumps(BOOK)
        return PlannerAnswer(text, text, self.model, "propose@1", "0" * 64, PlannerUsage(requests=1))


class Api:
    """A client with one token. Each answer must be one that the document declares."""

    def __init__(self, client: httpx2.AsyncClient, document: Mapping[str, Any], token: str = "") -> None:
        self.client = client
        self.document = document
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    async def __call__(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> httpx2.Response:
        data = None if body is None else json.dumps(body)
        sent = {**self.headers, **(JSON if body is not None else {}), **(headers or {})}
        found = await self.client.request(method, path, content=data, headers=sent, params=query)
        self.check(method, path, found)
        return found

    async def get(self, path: str, **query: Any) -> Any:
        """The body of an answer that is well."""
        found = await self("GET", path, **query)
        assert found.status_code == 200, found.text
        return found.json()

    async def post(self, path: str, body: Any, *, status: int = 202, **options: Any) -> Any:
        """The body of an answer with this status."""
        found = await self("POST", path, body, **options)
        assert found.status_code == status, found.text
        return found.json()

    def check(self, method: str, path: str, found: httpx2.Response) -> None:
        """The status, the media type and the body are declared."""
        shapes = [shape for shape in self.document["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", shape), path)]
        operation = self.document["paths"][shapes[0]].get(method.lower()) if shapes else None
        if operation is None:
            assert found.status_code in (403, 404, 405), found.text
            return
        declared = operation["responses"][str(found.status_code)].get("content")
        if declared is None:
            assert found.content == b""
            return
        (media,) = declared
        assert found.headers["content-type"].partition(";")[0] == media
        if found.status_code >= 400:
            known = {*OPERATIONS[operation["operationId"]].errors, *EVERY, *OF_SERVER}
            assert found.json()["code"] in known, (operation["operationId"], found.text)
        if "json" in media:
            schema = {**declared[media]["schema"], "components": self.document["components"]}
            jsonschema_rs.Draft202012Validator(schema).validate(found.json())


class Server:
    """A running server."""

    def __init__(self, url: str, desk: Desk, client: httpx2.AsyncClient, listener: Listener) -> None:
        self.url, self.desk, self.client, self.listener = url, desk, client, listener
        self.document: Mapping[str, Any] = {}

    async def api(self, *scopes: str, name: str = "Ada", tenant: str = "") -> Api:
        """A client with a new token."""
        _, text = await self.desk.tokens.create(name, scopes or ("admin",), tenant=tenant)
        return Api(self.client, self.document, text)

    def stop(self) -> None:
        """As SIGTERM does."""
        self.desk.draining.set()
        self.listener.should_exit = True


@asynccontextmanager
async def serving(
    coordinator: Coordinator, settings: ServerSettings | None = None, engines: Mapping[str, Coordinator] | None = None
) -> AsyncIterator[Server]:
    """A server of a coordinator on a free port."""
    chosen = settings or ServerSettings(port=0, requests_per_s=1e6, burst=1_000_000)
    app = create_app(coordinator, chosen, engines=engines)
    listening = bound(chosen.host, chosen.port)
    started: asyncio.Future[Listener] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, listening, on_started=started.set_result))
    await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    url = address_of(listening)
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:
            server = Server(url, app.state.desk, client, started.result())
            server.document = (await client.get("/v1/openapi.json")).json()
            yield server
    finally:
        app.state.desk.draining.set()
        started.result().should_exit = True
        await task


@asynccontextmanager
async def worked(**options: Any) -> AsyncIterator[tuple[Server, Coordinator]]:
    """A server whose coordinator also works, on a store of its own in memory."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator:
        working = asyncio.create_task(coordinator.work())
        try:
            async with serving(coordinator, **options) as server:
                yield server, coordinator
        finally:
            working.cancel()
            await asyncio.wait([working])


async def events(api: Api, path: str, after: int | None = None) -> AsyncIterator[tuple[str, int | None, Any]]:
    """The events of a stream: name, id and data."""
    headers = {**api.headers, **({} if after is None else {"last-event-id": str(after)})}
    async with api.client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        found: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif "event" in found:
                number = int(found["id"]) if "id" in found else None
                yield found["event"], number, json.loads(found["data"])
                found = {}


async def ended(api: Api, body: dict[str, object]) -> dict[str, object]:
    """The report of a job, once it has ended."""
    made = await api("POST", "/v1/jobs", body)
    assert made.status_code == 202, made.text
    return await over(api, made.headers["location"])


async def over(api: Api, path: str) -> dict[str, object]:
    """The report at this path, once its job has ended."""
    while True:
        found = await api.get(path)
        if found["status"] == "ended":
            return found
