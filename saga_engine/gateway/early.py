"""Answers a client before the store is open: some clients give up a server that takes a few seconds to begin.

Nothing that is answered early depends on the store: the client's greeting, and the list of tools, which is that of the
settings. A call waits until the store is open. If it cannot be opened, each call is told why, and the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

from mcp.server.lowlevel import Server

from saga_engine.errors import Interrupted, SagaError
from saga_engine.gateway.answers import refusal
from saga_engine.gateway.server import CallHandler
from saga_engine.gateway.visit import is_gone
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.gateway")

#: How long a client has to make a call and hear why the store is not open.
TELL_S: Final = 30.0

#: Opens the store for the duration of a block, and gives what answers the calls.
Opening = Callable[[], AbstractAsyncContextManager[CallHandler]]


class Entrance:
    """Opens the store in the background, and holds calls until it is open. Made in a running loop."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._handler: asyncio.Future[CallHandler] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.told = asyncio.Event()
        self.work = asyncio.create_task(self._work(), name="saga-mcp-work")

    @property
    def has_failed(self) -> bool:
        """Whether the store could not be opened."""
        return self._handler.done() and self._handler.exception() is not None

    async def call(self, ctx: Any, params: Any) -> Any:
        """Answer a call as soon as the store is open."""
        try:
            handler = await asyncio.shield(self._handler)
        except SagaError as error:
            self.told.set()
            return refusal(error)
        if is_gone(ctx):
            return refusal(Interrupted("the client left before the store was open; nothing was called"))
        return await handler(ctx, params)

    async def close(self) -> None:
        """Close the store, or give up opening it. The error of either is in ``work``."""
        self._over.set()
        if not self._handler.done():
            self.work.cancel()
        await asyncio.wait([self.work])

    async def _work(self) -> None:
        try:
            async with self._opening() as handler:
                self._handler.set_result(handler)
                await self._over.wait()
        except Exception as error:
            if not self._handler.done():
                _log.error("%s", error)
                self._handler.set_exception(error)
                self._handler.exception()  # the client may make no call
            raise


class Early:
    """Serves one client on a pair of streams; ``server_of`` makes the SDK's server from what answers its calls."""

    def __init__(self, server_of: Callable[[CallHandler], Server], opening: Opening, *, tell_s: float = TELL_S) -> None:
        self._server_of = server_of
        self._opening = opening
        self._tell_s = tell_s

    async def serve(self, read_stream: Any, write_stream: Any) -> None:
        """Serve until the client disconnects. Raises what the opening of the store raises."""
        entrance = Entrance(self._opening)
        server = self._server_of(entrance.call)
        serving = asyncio.create_task(
            server.run(read_stream, write_stream, server.create_initialization_options()), name="saga-mcp-client"
        )
        try:
            await asyncio.wait([serving, entrance.work], return_when=asyncio.FIRST_COMPLETED)
            if entrance.has_failed:
                await self._tell(entrance, serving)
            await entrance.close()
            with suppress(asyncio.CancelledError):  # the client left before the store was open
                entrance.work.result()
            if serving.done():
                serving.result()
        finally:
            for task in (entrance.work, serving):
                task.cancel()
            await asyncio.gather(entrance.work, serving, return_exceptions=True)

    async def _tell(self, entrance: Entrance, serving: asyncio.Task[None]) -> None:
        """Stay for a call; the answer to it is on its way when this ends."""
        told = asyncio.create_task(entrance.told.wait())
        await asyncio.wait([serving, told], timeout=self._tell_s, return_when=asyncio.FIRST_COMPLETED)
        if told.done():  # the client closes when it has read the answer, or makes another call
            await asyncio.wait([serving], timeout=self._tell_s / 10)
        told.cancel()
