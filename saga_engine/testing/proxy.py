"""A proxy between a client and a Redis server that cuts connections at chosen moments.

The two relevant cuts look the same to the client, like a connection that broke while it waited for an answer:

``before``  the request never reached the server; ``after``   the server carried out the request, and its answer was
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

from saga_engine.loggers import logger_of

if TYPE_CHECKING:
    from types import TracebackType

_log = logger_of("saga_engine.testing")

Cut = Literal["before", "after"]


class CuttingProxy:
    """Forwards every connection to ``upstream`` (``redis://HOST:PORT`` or ``unix:///PATH``) unchanged by default.

    Use it as an async context manager; ``url`` is where clients connect: a unix socket in a private folder, or with
    ``tcp=True`` a free port of the loopback. Everything runs on the caller's event loop.
    """

    def __init__(self, upstream: str, *, tcp: bool = False) -> None:
        self._upstream = urlsplit(upstream)
        self._tcp = tcp
        self._server: asyncio.Server | None = None
        self._folder: Path | None = None
        self._cuts: list[tuple[Cut, bytes]] = []
        self._refusing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        #: How many connections were cut by ``cut``.
        self.made = 0
        #: How many connections came during an outage.
        self.refused = 0

    def cut(self, when: Cut, *, times: int = 1, matching: bytes = b"EVAL") -> None:
        """Cut the next ``times`` requests whose first bytes contain ``matching`` (default: any script)."""
        self._cuts += [(when, matching)] * times

    def outage(self) -> None:
        """From now on cut everything and accept nothing, until ``restore``."""
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()

    def restore(self) -> None:
        """End the outage."""
        self._refusing = False

    async def __aenter__(self) -> Self:
        """Start to listen."""
        if self._tcp:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="saga-proxy-"))
            self._server = await asyncio.start_unix_server(self._accept, str(self._folder / "s"))
            self.url = f"unix://{self._folder}/s"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut the remaining connections and stop listening."""
        if self._server is not None:
            self._server.close()
        self.outage()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Cancelled only by ``__aexit__``; the stream server would report a cancelled handler as an error.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            self.refused += 1
            writer.transport.abort()
            return
        if self._upstream.scheme == "unix":
            there, onward = await asyncio.open_unix_connection(self._upstream.path)
        else:
            there, onward = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        self._writers |= {writer, onward}
        losing: list[Cut] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, onward, losing, writer))
                group.create_task(self._replies(there, writer, losing))
        except* OSError as gone:
            # One side is gone; the finally clause also closes the other.
            _log.debug("a proxied connection ended: %s", gone.exceptions[0])
        finally:
            self._writers -= {writer, onward}
            writer.transport.abort()
            onward.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter, losing: list[Cut], back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            when = self._chosen(data)
            if when == "before":
                self.made += 1
                back.transport.abort()
                raise ConnectionResetError
            if when == "after":
                losing.append(when)
            onward.write(data)
            await onward.drain()
        raise ConnectionResetError

    async def _replies(self, there: asyncio.StreamReader, back: asyncio.StreamWriter, losing: list[Cut]) -> None:
        while data := await there.read(65536):
            if losing:
                # The server answers only after it has carried out the request.
                self.made += 1
                back.transport.abort()
                raise ConnectionResetError
            back.write(data)
            await back.drain()
        raise ConnectionResetError

    def _chosen(self, data: bytes) -> Cut | None:
        if self._cuts and self._cuts[0][1] in data:
            return self._cuts.pop(0)[0]
        return None
