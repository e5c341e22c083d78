"""The gateway's stdin and stdout as streams of messages.

Unlike the SDK's own transport it bounds the length of a line, and it ends while nobody writes to stdin: a thread reads
there, which the process does not wait for. What this process or its children print goes to stderr meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from saga_engine.loggers import logger_of, quoted
from saga_engine.plan.values import printable
from saga_engine.sources.mcp.stdio import Lines, id_in

_log = logger_of("saga_engine.gateway")

_CHUNK_BYTES: Final = 64 * 1024
#: A longer request is refused: no tool's params may be as large.
MAX_REQUEST_BYTES: Final = 64 * 2**20


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Any, Any]]:
    """The messages that come in, and those that go out; the first stream ends with stdin."""
    incoming, outgoing = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: ASYNC230, PTH123 - a descriptor for a moment
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    send, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, receive = anyio.create_memory_object_stream[SessionMessage](0)
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(16)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(incoming, loop, chunks, room), name="saga-mcp-stdin", daemon=True).start()
    tasks = [
        asyncio.create_task(_receive(chunks, room, send, write_stream.clone()), name="saga-mcp-receive"),
        asyncio.create_task(_send(outgoing, receive), name="saga-mcp-send"),
    ]
    try:
        yield read_stream, write_stream
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        os.dup2(outgoing, 1)


def _read(
    incoming: int, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes], room: threading.Semaphore
) -> None:
    """Read until the end; an empty chunk is the end."""
    chunk = b"-"
    while chunk:
        room.acquire()
        try:
            chunk = os.read(incoming, _CHUNK_BYTES)
        except OSError as error:
            _log.warning("stdin cannot be read: %s", error)
            chunk = b""
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        except RuntimeError:  # the loop has ended, and with it the gateway
            return


async def _receive(chunks: asyncio.Queue[bytes], room: threading.Semaphore, send: Any, answers: Any) -> None:
    """Pass on the requests; one that cannot be read is answered here, so nobody waits for it."""
    lines = Lines(MAX_REQUEST_BYTES)
    try:
        async with send, answers:
            while chunk := await chunks.get():
                room.release()
                for line, too_long in lines.feed(chunk):
                    if too_long or line.strip():
                        message, is_request = _parsed(line, too_long=too_long)
                        await (send if is_request else answers).send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        _log.debug("the session was closed before stdin")


def _parsed(line: bytes, *, too_long: bool) -> tuple[SessionMessage, bool]:
    """A message and whether it is the client's; if not, it is the answer to one that cannot be read."""
    if too_long:
        _log.warning("a request of more than %d bytes was refused", MAX_REQUEST_BYTES)
        error = ErrorData(code=INVALID_REQUEST, message=f"a request has at most {MAX_REQUEST_BYTES:,} bytes")
    else:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)), True
        except ValueError:
            _log.warning(
                "a line on stdin is no message: %s", quoted(printable(line[:100].decode("utf-8", "replace"), 100))
            )
            error = ErrorData(code=PARSE_ERROR, message="this is no message of the protocol, or nested too deeply")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_in(line), error=error)), False


async def _send(outgoing: int, receive: Any) -> None:
    pipe = _Pipe(outgoing)
    async with receive:
        async for message in receive:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                if pipe.takes(data):
                    os.write(outgoing, data)
                else:  # in a thread: a client that does not read must not stop the calls in flight
                    await asyncio.to_thread(_write, outgoing, data)
            except OSError as error:
                _log.info("the client does not read any more: %s", error)
                return


class _Pipe:
    """Tells what can be written without waiting; of anything but a pipe nobody knows."""

    def __init__(self, descriptor: int) -> None:
        self._poll = None
        if hasattr(select, "poll") and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)

    def takes(self, data: bytes) -> bool:
        """Whether a pipe has room for this: one that is ready takes ``PIPE_BUF`` bytes at once (POSIX)."""
        if self._poll is None or len(data) > select.PIPE_BUF:
            return False
        return [event for _, event in self._poll.poll(0)] == [select.POLLOUT]


def _write(outgoing: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(outgoing, view) :]
