"""A server behind a URL (streamable HTTP): the SDK's transport over a client that bounds and labels the answers.

The SDK reports every refusal of a server as the same error. Here each says what is known: that nothing was sent, or the
HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from saga_engine._version import __version__
from saga_engine.sources.mcp.messages import read_once
from saga_engine.sources.mcp.transport_errors import LABELLED, label

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams

_CONNECT_S: Final = 10.0
#: The calls have time-outs of their own; this one ends streams that a server forgot.
_READ_S: Final = 3600.0
_MAX_ERROR_BYTES: Final = 64 * 1024


def http_transport(
    url: str, headers: Mapping[str, str], max_bytes: int
) -> tuple[httpx2.AsyncClient, AbstractAsyncContextManager[TransportStreams]]:
    """The client, which the caller closes, and the transport that uses it."""
    client = httpx2.AsyncClient(
        headers={"User-Agent": f"saga-engine/{__version__}", "Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
        transport=_Labelled(httpx2.AsyncHTTPTransport(), max_bytes),
        trust_env=False,
        follow_redirects=False,
    )
    return client, streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes)


class _Labelled(httpx2.AsyncBaseTransport):
    """Turns a refused connection and an HTTP error into JSON-RPC errors that say so."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            if request.method != "POST":
                raise
            return _refusal(request, 503, str(error) or type(error).__name__, never_sent=True)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            return _refusal(request, 502, str(error) or type(error).__name__, lost=True)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _refusal(request, 502, "the answer is compressed, which was not asked for")
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 400 and request.method == "POST":
            return await _labelled(request, response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if kind.startswith("text/event-stream"):
            response.stream = _Events(response.stream, self._max_bytes)
            return response
        response.stream = _Bounded(response.stream, self._max_bytes)
        if kind.startswith("application/json"):
            # The body as it is read has another length than the header says.
            response.headers.pop("content-length", None)
            response.stream = _ReadOnce(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _labelled(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """The error of the protocol in an HTTP error, else one that has the status."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream = _Bounded(response.stream, _MAX_ERROR_BYTES)
    try:
        body = b"".join([chunk async for chunk in stream])
        error = json.loads(body)["error"]
        if isinstance(error["code"], int) and isinstance(error["message"], str):
            return httpx2.Response(
                response.status_code, content=body, headers={"Content-Type": "application/json"}, request=request
            )
    except (httpx2.StreamError, ValueError, TypeError, KeyError, RecursionError):
        pass  # the status says what is known
    finally:
        await stream.aclose()
    return _refusal(request, response.status_code, f"HTTP {response.status_code}", status=response.status_code)


def _refusal(request: httpx2.Request, answered: int, message: str, **known: Any) -> httpx2.Response:
    error = {"code": LABELLED, "message": message, "data": label(**known)}
    return httpx2.Response(answered, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most so many bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._left -= len(chunk)
                if self._left < 0:
                    raise httpx2.StreamError(f"its answer has more than {self._most:,} bytes")
                yield chunk
        except httpx2.TransportError as error:
            raise httpx2.StreamError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        await self._inner.aclose()


class _ReadOnce(httpx2.AsyncByteStream):
    """One message, made ready for the parser."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield read_once(b"".join([chunk async for chunk in self._inner]))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """Server-sent events, each line of data made ready for the parser; no line is longer than ``most``."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun = bytearray()
        async for chunk in self._inner:
            begun += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(begun).split(b"\n")
                begun = bytearray(rest)
                yield b"".join(_read_line(line) + b"\n" for line in lines)
            if len(begun) > self._most:
                raise httpx2.StreamError(f"its answer has more than {self._most:,} bytes")
        if begun:
            yield _read_line(bytes(begun))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _read_line(line: bytes) -> bytes:
    head, colon, data = line.partition(b":")
    return b"data: " + read_once(data) if colon and head == b"data" and data.strip() else line
