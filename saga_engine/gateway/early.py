"""Answers a client before the store is open: some clients give up a server that takes a few seconds to begin.

Nothing that is answered early depends on the store: the client's greeting, and the list of tools, which is that of the
settings. A call waits until the store is open. If it cannot be opened, each call is told why, and the process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from saga_engine.errors import SagaError
from saga_engine.gateway.answers import refusal
from saga_engine.gateway.server import Gateway, Offer

_log = logging.getLogger("saga_engine.gateway")

#: How long a client has to make a call and hear why the store is not open.
TELL_S: Final = 30.0

Opening = Callable[[], AbstractAsyncContextManager[Gateway]]


class Early:
    """Serves one client; ``opening`` opens the store for the duration of a block, and gives the gateway."""

    def __init__(self, offer: Offer, opening: Opening, *, tell_s: float = TELL_S) -> None:
        self._offer = offer
        self._opening = opening
        self._tell_s = tell_s
        self._gateway: asyncio.Future[Gateway] = asyncio.get_running_loop().create_future()
        self._told = asyncio.Event()

    async def serve(self, read_stream: Any, write_stream: Any) -> None:
        """Serve until the client disconnects. Raises what the opening of the store raises."""
        server = self._offer.server(self._call)
        serving = asyncio.create_task(
            server.run(read_stream, write_stream, server.create_initialization_options()), name="saga-mcp-client"
        )
        working = asyncio.create_task(self._work(serving), name="saga-mcp-work")
        try:
            await asyncio.wait([serving, working], return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self._gateway.done():
                working.cancel()  # the client left before the store was open
            await asyncio.wait([working])
            if not working.cancelled():
                working.result()
            if serving.done():
                serving.result()
        finally:
            for task in (working, serving):
                task.cancel()
            await asyncio.gather(working, serving, return_exceptions=True)

    async def _work(self, serving: asyncio.Task[None]) -> None:
        try:
            async with self._opening() as gateway, gateway.opened():
                self._gateway.set_result(gateway)
                await asyncio.wait([serving])
        except SagaError as error:
            if self._gateway.done():
                raise
            _log.error("%s", error)
            self._gateway.set_exception(error)
            self._gateway.exception()  # the client may make no call
            await self._tell(serving)
            raise

    async def _tell(self, serving: asyncio.Task[None]) -> None:
        """Stay for a call; the answer to it is on its way when this ends."""
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait([serving, told], timeout=self._tell_s, return_when=asyncio.FIRST_COMPLETED)
        if told.done():  # the client closes when it has read the answer, or makes another call
            await asyncio.wait([serving], timeout=self._tell_s / 10)
        told.cancel()

    async def _call(self, ctx: Any, params: Any) -> Any:
        try:
            gateway = await asyncio.shield(self._gateway)
        except SagaError as error:
            self._told.set()
            return refusal(error)
        return await gateway.call(ctx, params)
