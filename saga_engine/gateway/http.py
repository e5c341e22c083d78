"""The gateway over streamable HTTP: any number of clients, each of whose requests is for one saga."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from saga_engine.errors import QueueFull
from saga_engine.gateway.answers import refusal
from saga_engine.gateway.door import MAX_BODY_BYTES, Door
from saga_engine.gateway.early import Entrance, Opening
from saga_engine.gateway.server import CallHandler, Gateway
from saga_engine.gateway.visit import KEY, visit_of
from saga_engine.listener import Bounds, Listener, address_of, listen
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.gateway")

#: What connections may use.
BOUNDS: Final = Bounds()
#: How many sessions of the older protocol there may be at a time.
MAX_SESSIONS: Final = 1_000
#: How many sagas a process works on at a time.
MAX_SAGAS: Final = 1_000
#: How long the calls in flight are awaited when the gateway is told to stop.
DRAIN_S: Final = 10.0
#: How long the rest of the answers may take after that.
_DRAIN_REST_S: Final = 5.0


class Desks:
    """The gateways of one process, one for each saga; ``make`` makes that of an id."""

    def __init__(self, make: Callable[[str], Gateway], *, most: int = MAX_SAGAS) -> None:
        self._make = make
        self._most = most
        self._open: dict[str, tuple[Gateway, AbstractAsyncContextManager[CallHandler]]] = {}
        self._changing = asyncio.Lock()

    async def call(self, ctx: Any, params: Any) -> Any:
        """Answer a call of a tool, for the saga that its request names."""
        visit = visit_of(ctx)
        assert visit is not None
        found = self._open.get(visit.saga)
        if found is None:
            async with self._changing:
                try:
                    found = self._open.get(visit.saga) or await self._opened(visit.saga)
                except QueueFull as error:
                    return refusal(error)
        else:  # its place in the order is that of its last call
            self._open[visit.saga] = self._open.pop(visit.saga)
        return await found[0].call(ctx, params)

    async def _opened(self, saga: str) -> tuple[Gateway, AbstractAsyncContextManager[CallHandler]]:
        if len(self._open) >= self._most:
            await self._leave_one()
        gateway = self._make(saga)
        block = gateway.opened()
        await block.__aenter__()
        self._open[saga] = made = gateway, block
        return made

    async def _leave_one(self) -> None:
        """Leave the saga without a call for the longest time open, for whoever takes it up next."""
        for saga, (gateway, block) in self._open.items():
            if gateway.may_be_left:
                del self._open[saga]
                await block.__aexit__(None, None, None)
                return
        raise QueueFull(f"the gateway works on {self._most} sagas now", hint="try again later")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[CallHandler]:
        """What answers calls in a block; after it the policy for the end applies to all sagas."""
        try:
            yield self.call
        finally:
            async with self._changing:
                blocks = [block for _, block in self._open.values()]
                self._open.clear()
                await asyncio.gather(*(block.__aexit__(None, None, None) for block in blocks))


class HttpFace:
    """Serves an SDK server over HTTP; ``door`` is made around the application of the protocol."""

    def __init__(self, server: Server, door: Callable[[Callable[..., Awaitable[None]]], Door]) -> None:
        self._manager = StreamableHTTPSessionManager(
            server, max_request_body_size=MAX_BODY_BYTES, max_sessions=MAX_SESSIONS
        )
        self.door = door(self._answered)
        self._posts: set[asyncio.Task[Any]] = set()
        self._requests: set[asyncio.Task[Any]] = set()

    async def _answered(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request that the door let in. A session of the older protocol belongs to one saga."""
        saga = scope[KEY].saga
        user = AuthenticatedUser(AccessToken(token="", client_id=saga, scopes=[]))
        begun = False

        async def sent(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        work = self._manager.handle_request({**scope, "user": user}, receive, sent)
        task = asyncio.create_task(work, name="saga-mcp-request")
        kinds = [self._requests, *([self._posts] if scope["method"] == "POST" else [])]
        for kind in kinds:
            kind.add(task)
            task.add_done_callback(kind.discard)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled():
            if not begun:
                await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            task.result()

    @asynccontextmanager
    async def opened(self, drained: Callable[[], Awaitable[None]], drain_s: float = DRAIN_S) -> AsyncIterator[Door]:
        """The application. At the end it lets nobody in, awaits the calls in flight, and then calls ``drained``."""
        async with self._manager.run():
            try:
                yield self.door
            finally:
                self.door.closed = True
                if self._posts:
                    await asyncio.wait([*self._posts], timeout=drain_s)
                await drained()
                for task in self._requests:
                    task.cancel()
                if self._requests:
                    await asyncio.wait([*self._requests])


def url_of(listening: socket.socket) -> str:
    """The address of the protocol at a socket."""
    return f"{address_of(listening)}/mcp"


async def serve_http(
    server_of: Callable[[CallHandler], Server],
    door: Callable[[Callable[..., Awaitable[None]]], Door],
    opening: Opening,
    listening: socket.socket,
    stopped: asyncio.Event,
    *,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve until ``stopped``, then drain; clients are greeted before the store is open.

    Raises what the opening of the store raises, after the calls in flight have been told.
    """
    entrance = Entrance(opening)
    entrance.work.add_done_callback(lambda _: stopped.set())
    face = HttpFace(server_of(entrance.call), door)
    started: asyncio.Future[Listener] = asyncio.get_running_loop().create_future()
    work = listen(face.door, listening, BOUNDS, on_started=started.set_result, drain_s=_DRAIN_REST_S)
    serving = asyncio.create_task(work, name="saga-mcp-http")
    stopping = asyncio.create_task(stopped.wait(), name="saga-mcp-stop")
    try:
        async with face.opened(entrance.close, drain_s):
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        ready: list[asyncio.Future[Any]] = [serving, started]
        await asyncio.wait(ready, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result().should_exit = True
        await serving
    with suppress(asyncio.CancelledError):  # stopped before the store was open
        entrance.work.result()
