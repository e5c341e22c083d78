"""A scripted, faulty HTTP server on the loopback that records all requests and effects.

::

    async with MisbehavingServer() as server:
        server.script("/orders", cut("before-answer"), done({"order": "A1"}))
        ...                                  # the first POST takes effect and loses its answer; the second is answered
        assert len(server.effects) == 1      # it honours keys, so the repeat was no second order

A path's script is a list of acts, one for each request; the last one stays. An act may also be a function of the
request. The server implements just enough of HTTP/1.1 (RFC 9112) itself: a library would not send invalid answers. It
runs on the caller's event loop, and nothing in it waits for a time.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

Moment = Literal["before-effect", "before-answer", "in-headers", "in-body"]

_PIECE_BYTES: Final = 1 << 16
_JSON: Final = "application/json"


class Received(NamedTuple):
    """A request as received. Names of ``headers`` are in lower case; ``path`` is still percent-encoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    key: str

    @property
    def json(self) -> Any:
        """The body's JSON."""
        return json.loads(self.body)

    @property
    def last(self) -> str:
        """The last segment of the path, decoded."""
        return unquote(self.path.rpartition("/")[2])


class Effect(NamedTuple):
    """An effect: the request that made it, its idempotency key, and the answer."""

    request: Received
    key: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class Act:
    """The server's reaction to one request.

    ``effect``: whether it takes effect. ``cut``: when the connection is cut. ``hold``: when the server waits for
    ``release``. ``raw``: these bytes instead of any answer; ``length``: a false Content-Length; ``chunks``: bytes in
    place of a chunked body.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: bool = True
    cut: Moment | None = None
    hold: Moment | None = None
    raw: bytes | None = None
    length: int | None = None
    chunks: bytes | None = None


Script = Act | Callable[[Received], Act]


# --- acts ----------------------------------------------------------------------------------------------------------


def done(answer: Any = None, *, status: int = 200, **headers: str) -> Act:
    """It takes effect, and the answer is JSON."""
    return Act(status, json.dumps({} if answer is None else answer).encode(), {"Content-Type": _JSON} | headers)


def refused(status: int, answer: Any = None, *, headers: Mapping[str, str] | None = None) -> Act:
    """It does not take effect, and the status says so."""
    return replace(done(answer, status=status), effect=False, headers={"Content-Type": _JSON} | dict(headers or {}))


def failed(status: int = 500) -> Act:
    """It takes effect, and the server fails afterwards."""
    return done({"error": "it broke"}, status=status)


def throttled(after: str, status: int = 429) -> Act:
    """Not now; ``after`` is the Retry-After, in seconds or as a date."""
    return refused(status, {"message": "slow down"}, headers={"Retry-After": after})


def moved(location: str, status: int = 302) -> Act:
    """It redirects and has no effect."""
    return refused(status, headers={"Location": location})


def cut(when: Moment, answer: Any = None) -> Act:
    """The connection is cut at this moment."""
    return replace(done(answer), cut=when, effect=when != "before-effect")


def held(when: Moment, answer: Any = None) -> Act:
    """From this moment on the server sends nothing, until it is released."""
    return replace(done(answer), hold=when)


def typed(kind: str, body: bytes, status: int = 200) -> Act:
    """It takes effect, and the answer has this body with this media type."""
    return Act(status, body, {"Content-Type": kind})


def huge(size_bytes: int) -> Act:
    """JSON of this length."""
    return typed(_JSON, b'"' + b"a" * (size_bytes - 2) + b'"')


def gzip_bomb(size_bytes: int) -> Act:
    """A small body that becomes JSON of this length."""
    act = huge(size_bytes)
    return replace(act, body=gzip.compress(act.body), headers={**act.headers, "Content-Encoding": "gzip"})


def bad_chunks() -> Act:
    """A chunked body whose chunks are invalid."""
    return Act(headers={"Content-Type": _JSON}, chunks=b'5\r\n{"a":\r\nnonsense\r\n\r\n')


def garbage() -> Act:
    """It takes effect, and the answer is not HTTP."""
    return Act(raw=b"\x16\x03\x01 this is no HTTP\r\n\r\n")


# --- the server ----------------------------------------------------------------------------------------------------


def header_key(request: Received) -> str:
    """The key in the header ``Idempotency-Key``."""
    return request.headers.get("idempotency-key", "")


class MisbehavingServer:
    """See the module. Use it as an async context manager; ``url`` is its address, on a free port.

    ``honours_keys``: a key that was seen takes no effect again and gets the first answer. ``key_of`` finds the key of a
    request. ``tls``: a server's context for HTTPS. ``before_effect`` and ``after_effect`` are called with each request
    at these moments, so that a test can inject a fault there.
    """

    def __init__(
        self,
        *,
        honours_keys: bool = True,
        key_of: Callable[[Received], str] = header_key,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.honours_keys = honours_keys
        self.before_effect: Callable[[Received], None] = _nothing
        self.after_effect: Callable[[Received], None] = _nothing
        self.url = ""
        self.port = 0
        #: All requests, in order.
        self.received: list[Received] = []
        #: All effects, in order.
        self.effects: list[Effect] = []
        #: How many connections were made.
        self.connections = 0
        self._key_of = key_of
        self._tls = tls
        self._scripts: dict[str, list[Script]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()
        self._news = asyncio.Condition()

    def script(self, path: str, *acts: Script) -> None:
        """Script the requests for ``path``; with ``/*`` at its end it covers all paths one segment longer."""
        self._scripts[path] = list(acts)

    def effects_of(self, key: str) -> list[Effect]:
        """The effects under a key."""
        return [effect for effect in self.effects if effect.key == key]

    async def arrived(self, count: int) -> None:
        """Wait for this number of requests."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.received) >= count)

    def release(self) -> None:
        """Continue all held requests, now and later."""
        self._released.set()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to listen, and cut the remaining connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- one connection ------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while await self._serve(reader, writer):
                pass
            writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client may disconnect at any moment; only ``__aexit__`` cancels.
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; returns whether another may follow on this connection."""
        request = await _read(reader, self._key_of)
        self.received.append(request)
        async with self._news:
            self._news.notify_all()
        self.before_effect(request)
        act = self._act(request)
        if await self._stop(act, "before-effect"):
            return False
        if act.effect:
            act = self._apply(request, act)
            self.after_effect(request)
        if await self._stop(act, "before-answer"):
            return False
        if act.raw is not None:
            writer.write(act.raw)
            await writer.drain()
            return False
        return await self._answer(request, act, writer)

    def _act(self, request: Received) -> Act:
        above = request.path.rpartition("/")[0]
        script = self._scripts.get(request.path) or self._scripts.get(f"{above}/*")
        if not script:
            return refused(404, {"message": "no such path"})
        act = script.pop(0) if len(script) > 1 else script[0]
        return act(request) if callable(act) else act

    def _apply(self, request: Received, act: Act) -> Act:
        """Take effect, unless the key already has; then the answer is the first one."""
        earlier = self.effects_of(request.key) if self.honours_keys and request.key else []
        if earlier:
            return replace(act, body=earlier[0].answer) if act.status < 300 else act
        self.effects.append(Effect(request, request.key, act.body))
        return act

    async def _stop(self, act: Act, moment: Moment) -> bool:
        """Wait if the act says so; returns whether the connection ends here."""
        if act.hold == moment:
            await self._released.wait()
        return act.cut == moment

    async def _answer(self, request: Received, act: Act, writer: asyncio.StreamWriter) -> bool:
        headers = {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"} | dict(act.headers)
        if act.chunks is not None:
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(len(act.body) if act.length is None else act.length)
        head = f"HTTP/1.1 {act.status} Scripted\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items())
        if act.cut == "in-headers" or act.hold == "in-headers":
            writer.write(head.encode("latin-1")[:-10])
            await writer.drain()
            if await self._stop(act, "in-headers"):
                return False
            writer.write(head.encode("latin-1")[-10:] + b"\r\n")
        else:
            writer.write(head.encode("latin-1") + b"\r\n")
        body = b"" if request.method == "HEAD" else act.body if act.chunks is None else act.chunks
        half = len(body) // 2 if "in-body" in (act.cut, act.hold) else 0
        writer.write(body[:half])
        await writer.drain()
        if await self._stop(act, "in-body"):
            return False
        for start in range(half, len(body), _PIECE_BYTES):
            writer.write(body[start : start + _PIECE_BYTES])
            await writer.drain()
        return request.headers.get("connection") != "close" and act.length is None and act.chunks is None


async def _read(reader: asyncio.StreamReader, key_of: Callable[[Received], str]) -> Received:
    """Read one request. Bodies need a length; chunked requests are not supported."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    split = urlsplit(target)
    bare = Received(method, split.path, split.query, headers, body, "")
    return bare._replace(key=key_of(bare))


def _nothing(_: Received) -> None:
    """The default, without any effect."""
