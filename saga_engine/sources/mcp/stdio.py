"""A server as a child process: JSON-RPC messages as lines on its stdin and stdout.

Unlike the SDK's own transport it bounds the length of a line, so a server cannot fill this process's memory, and it
keeps the end of stderr for error messages. The process gets only the environment that is declared, and a few harmless
variables. It runs in a session of its own: a Ctrl-C in this terminal does not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

from saga_engine.loggers import logger_of, quoted
from saga_engine.plan.values import printable
from saga_engine.sources.mcp.messages import read_once
from saga_engine.sources.mcp.transport_errors import TOO_LARGE, UNREADABLE

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_log = logger_of("saga_engine.sources.mcp")

#: Variables that a program needs to start at all (as in the SDK).
_INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")
_CHUNK_BYTES: Final = 64 * 1024
_STDERR_LINES: Final = 5
_STDERR_CHARS: Final = 300
#: How long a server may take to end by itself after its stdin is closed, and then after SIGTERM.
_GRACE_S: Final = 2.0
#: How much is kept of both ends of a line that is too long.
_END_BYTES: Final = 1024
#: The id of a message that begins or ends with it. Elsewhere it may be an id in a tool's params or output.
_MEMBER: Final = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,100}"\s*'
_FIRST_ID: Final = re.compile(rb"\s*\{\s*(?:" + _MEMBER + rb',\s*)*"id"\s*:\s*(\d{1,18})\b')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*' + _MEMBER + rb")*\}\s*\Z")
_MESSAGE: Final = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"')


class StdioTransport:
    """Starts a server when it is entered, and stops it when it is left."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path | None, max_bytes: int
    ) -> None:
        self._name = name
        self._command = command
        self._env = {key: os.environ[key] for key in _INHERITED if key in os.environ} | dict(env)
        self._cwd = cwd
        self._max_bytes = max_bytes
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None
        #: Set when the server has closed its stdout or cannot be written to.
        self.ended = asyncio.Event()

    @property
    def last_words(self) -> str:
        """The end of what the server wrote to stderr, for an error message."""
        return " | ".join(self._stderr)

    async def __aenter__(self) -> TransportStreams:
        """Start the process. Raises ``OSError`` if it cannot be started."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
            limit=_CHUNK_BYTES,
        )
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks = [
            asyncio.create_task(self._read(process, incoming), name=f"mcp-{self._name}-read"),
            asyncio.create_task(self._write(process, outgoing), name=f"mcp-{self._name}-write"),
            asyncio.create_task(self._read_stderr(process), name=f"mcp-{self._name}-stderr"),
        ]
        return read_stream, write_stream

    async def __aexit__(self, *_: object) -> None:
        """Stop the process: close its stdin, then SIGTERM, then SIGKILL to it and its children."""
        stopping = asyncio.ensure_future(self._stop())
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():  # a cancelled caller must not leave a process behind
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError as error:
                cancelled = error
        stopping.result()
        if cancelled is not None:
            raise cancelled

    async def _stop(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                # Its children as well: `npx` and shells start the server as a child.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, sign)
            try:
                await asyncio.wait_for(_exited(process), _GRACE_S)
                break
            except TimeoutError:
                continue
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A grandchild may hold the pipes open; nothing public closes our ends of them.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    # --- the three pipes -----------------------------------------------------------------------------------------

    async def _read(self, process: asyncio.subprocess.Process, incoming: Any) -> None:
        assert process.stdout is not None
        try:
            async with incoming:
                lines = Lines(self._max_bytes)
                while chunk := await process.stdout.read(_CHUNK_BYTES):
                    for line, too_long in lines.feed(chunk):
                        message = self._parsed(line, too_long=too_long)
                        if message is not None:
                            await incoming.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            _log.debug("MCP server %s: the session was closed before its stdout", self._name)
        finally:
            self.ended.set()

    def _parsed(self, line: bytes, *, too_long: bool) -> SessionMessage | Exception | None:
        if too_long:
            return self._too_large(line)
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(read_once(line), by_name=False))
        except ValueError as error:
            shown = printable(line[:100].decode("utf-8", "replace"), 100)
            _log.warning("MCP server %s wrote a line that is no message: %s", self._name, quoted(shown))
            answer = _MESSAGE.search(line[:_END_BYTES]) or _MESSAGE.search(line[-_END_BYTES:])
            # Else the server prints to stdout by mistake, and the line belongs to no call.
            return (_in_place_of(line, UNREADABLE, "its answer cannot be parsed") if answer else None) or error

    def _too_large(self, data: bytes) -> SessionMessage | None:
        _log.warning("MCP server %s wrote a message of more than %d bytes", self._name, self._max_bytes)
        return _in_place_of(data, TOO_LARGE, f"its answer has more than {self._max_bytes:,} bytes")

    async def _write(self, process: asyncio.subprocess.Process, outgoing: Any) -> None:
        assert process.stdin is not None
        try:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            _log.debug("MCP server %s: its stdin was closed: %s", self._name, error)
        finally:
            self.ended.set()

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        while chunk := await process.stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk)[-2 * _CHUNK_BYTES :].split(b"\n")
            for line in lines:
                text = printable(line.decode("utf-8", "replace").strip(), _STDERR_CHARS)
                if text:
                    self._stderr.append(text)
                    _log.debug("MCP server %s: %s", self._name, quoted(text))


class Lines:
    """Divides a stream of bytes into lines; of one that is longer than ``most_bytes`` it keeps both ends."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """The lines that this chunk completes, each with whether it is too long."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield b"".join(self._parts), self._size > self._most
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._parts.append(piece)
        if self._size > self._most:
            line = b"".join(self._parts)
            self._parts = [line[:_END_BYTES], line[_END_BYTES:][-_END_BYTES:]]


def _in_place_of(data: bytes, code: int, message: str) -> SessionMessage | None:
    """An error in place of an answer that is not used, if its beginning or its end says which call it answers."""
    found = id_in(data)
    if found is None:
        return None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=found, error=ErrorData(code=code, message=message)))


def id_in(data: bytes) -> int | None:
    """The id that the beginning or the end of a message spells."""
    found = _FIRST_ID.match(data[:_END_BYTES]) or _LAST_ID.search(data[-_END_BYTES:])
    return None if found is None else int(found[1])


async def _exited(process: asyncio.subprocess.Process) -> None:
    """Wait for the process itself: ``wait`` also waits for pipes that a grandchild may hold open."""
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event for it
        await asyncio.sleep(0.01)
