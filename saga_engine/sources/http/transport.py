"""The transport to an endpoint: connections to checked addresses only, and the meaning of their failures.

The engine resolves a host's name here, checks every address against the policy's host rules, and connects to a checked
address: a name that resolves differently the second time (DNS rebinding) gains nothing. TLS still verifies the name. No
proxy of the environment is used, no cookie is kept, nothing is sent twice.

httpx2's own client does not send the requests, because it logs whole URLs, which may hold secrets.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import httpcore2
import httpx2

from saga_engine.plan.values import printable
from saga_engine.policy.hosts import Addresses, HostRefused
from saga_engine.tools.outcomes import snake_case

MAX_CONNECTIONS = 100
#: How long an unused connection is kept for the next call, in seconds.
KEEP_ALIVE_S = 5.0
_REASON_CHARS = 300


class Network(NamedTuple):
    """The connection settings of a tool; tools with equal settings share connections, within one event loop.

    ``tls``: whether they are encrypted. ``allow_private``: the addresses that may be called although they are not
    public. ``reuse``: whether a connection may serve a second request. That saves a handshake; but a server may close
    the connection at the moment of its reuse, which leaves a write in doubt. (The request's header says so; here it
    only keeps the two kinds separate.)
    """

    tls: bool = True
    allow_private: tuple[str, ...] = ()
    ca_file: Path | None = None
    verify: bool = True
    reuse: bool = True


class RawRequest(NamedTuple):
    """A request in its sent form. ``target`` is path and query, encoded; ``host`` has no brackets."""

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    connect_timeout_s: float
    read_timeout_s: float


class NeverSent(Exception):
    """No byte of the request was written. ``retryable``: the same call may succeed later."""

    def __init__(self, error_code: str, reason: str, *, retryable: bool = True) -> None:
        super().__init__(reason)
        self.error_code = error_code
        self.reason = reason
        self.retryable = retryable


class Lost(Exception):
    """The request was sent, but its answer did not arrive, or only in part."""

    def __init__(self, error_code: str, reason: str) -> None:
        super().__init__(reason)
        self.error_code = error_code
        self.reason = reason


class Answer:
    """The head of an answer; its body is read on demand, decoded (gzip, deflate), and never beyond a limit."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self.status = response.status
        self.headers = httpx2.Headers(response.headers)

    async def read(self, limit_bytes: int) -> bytes:
        """The whole body. Raises ``Lost`` if it is truncated, does not decode, or is too long, encoded or decoded."""
        assert isinstance(self._response.stream, AsyncIterable)
        decoder = _Decoder(self.headers.get("content-encoding", ""))
        body = bytearray()
        sent = 0
        try:
            async for data in self._response.stream:
                sent += len(data)  # a body that decodes to nothing must not continue for ever either
                for piece in decoder.decode(data):
                    body += piece
                    if max(sent, len(body)) > limit_bytes:
                        raise Lost("answer_too_large", f"the answer is longer than {limit_bytes} bytes")
            decoder.end()
        except Lost:
            raise
        except Exception as error:
            raise _lost(error) from error
        return bytes(body)


class _Decoder:
    """Decodes one content coding in bounded pieces, so that a decompression bomb is found with its first pieces.

    httpx2's own decoders accept a truncated stream as a whole one.
    """

    def __init__(self, coding: str) -> None:
        coding = coding.strip().lower()
        if coding not in _WINDOWS:
            raise Lost(
                "answer_encoding", f"the answer is encoded as '{printable(coding, 50)}', which was not asked for"
            )
        window = _WINDOWS[coding]
        self._zlib = None if window is None else zlib.decompressobj(window)
        self._begun = self._full = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The part that can be decoded now. Raises ``zlib.error`` and ``Lost``."""
        if self._zlib is None:
            yield data
            return
        more = data
        while more or self._full:
            if self._zlib.eof and more:
                raise Lost("answer_encoding", "something follows the end of the compressed answer")
            piece = self._zlib.decompress(more, _PIECE_BYTES)
            more = self._zlib.unused_data or self._zlib.unconsumed_tail
            self._full = len(piece) == _PIECE_BYTES  # then it may contain more
            self._begun = True
            yield piece

    def end(self) -> None:
        """End the body. Raises ``Lost`` if it is not whole."""
        if self._zlib is not None and self._begun and not self._zlib.eof:
            raise Lost("answer_encoding", "the compressed answer breaks off")


#: RFC 9110 section 8.4.1: the accepted codings, by zlib's names.
_WINDOWS: Final[Mapping[str, int | None]] = {
    "": None,
    "identity": None,
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
_PIECE_BYTES: Final = 1 << 18


def _lost(error: Exception) -> Lost:
    return Lost(snake_case(type(error).__name__), _reason(error))


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    return printable(text, _REASON_CHARS) if text else type(error).__name__


# --- sending -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def ask(network: Network, raw: RawRequest) -> AsyncGenerator[Answer, None]:
    """Send one request, once, and return the head of its answer. Raises ``NeverSent`` and ``Lost``."""
    written = False

    async def trace(event: str, _: dict[str, Any]) -> None:
        nonlocal written
        written = written or event == "http11.send_request_headers.started"

    timeout = {
        "connect": raw.connect_timeout_s,
        "pool": raw.connect_timeout_s,
        "read": raw.read_timeout_s,
        "write": raw.read_timeout_s,
    }
    request = httpcore2.Request(
        raw.method,
        httpcore2.URL(scheme=raw.scheme, host=raw.host, port=raw.port, target=raw.target),
        headers=list(raw.headers),
        content=raw.body,
        extensions={"timeout": timeout, "trace": trace},
    )
    try:
        response = await (await _pool(network)).handle_async_request(request)
    except NeverSent:
        raise
    except httpcore2.LocalProtocolError as error:
        # The encoder raises it, and writes nothing that it refuses.
        raise NeverSent("request_invalid", _reason(error), retryable=False) from error
    except Exception as error:
        if written:
            raise _lost(error) from error
        raise NeverSent(snake_case(type(error).__name__), _reason(error)) from error
    try:
        yield Answer(response)
    finally:
        # Closing it early closes the connection: the rest of the body cannot become the next answer.
        await response.aclose()


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Opens TCP connections to permitted addresses only."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._tcp = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of the host that answers, within ``timeout`` seconds for all of them."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout or 0.0)
        try:
            async with asyncio.timeout(timeout):
                found = await self._addresses.resolve(host, port)
        except HostRefused as error:
            raise _refusal(error) from error
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"the name {host} was not resolved in time") from error
        failure: Exception | None = None
        for number, address in enumerate(found):
            # A silent address must not use up the time of the ones after it.
            share = None if timeout is None else max(end - loop.time(), 0.001) / (len(found) - number)
            try:
                return await self._tcp.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"the name {host} has no address")

    async def sleep(self, seconds: float) -> None:
        """The wait between connection attempts, which are not repeated here."""
        await asyncio.sleep(seconds)


def _refusal(error: HostRefused) -> NeverSent:
    if error.unavailable:
        return NeverSent("name_not_resolved", _reason(error))
    return NeverSent("host_refused", _reason(error), retryable=False)


# --- connections ---------------------------------------------------------------------------------------------------


class _Pools:
    """The connections of one event loop; they are closed together with it."""

    def __init__(self) -> None:
        self._pools: dict[Network, httpcore2.AsyncConnectionPool] = {}
        self._keeper = self._keep()

    async def open(self) -> None:
        """Have the loop close everything when it shuts down its asynchronous generators, as ``asyncio.run`` does."""
        await anext(self._keeper)

    def get(self, network: Network) -> httpcore2.AsyncConnectionPool:
        """The connections of one kind."""
        pool = self._pools.get(network)
        if pool is None:
            pool = self._pools[network] = httpcore2.AsyncConnectionPool(
                ssl_context=_tls(network) if network.tls else None,
                max_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
                network_backend=_CheckedBackend(Addresses(network.allow_private)),
            )
        return pool

    async def _keep(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            pools = list(self._pools.values())
            self._pools.clear()
            for pool in pools:
                await pool.aclose()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools] = WeakKeyDictionary()


async def _pool(network: Network) -> httpcore2.AsyncConnectionPool:
    loop = asyncio.get_running_loop()
    pools = _of_loop.get(loop)
    if pools is None:
        pools = _of_loop[loop] = _Pools()
        await pools.open()
    return pools.get(network)


def _tls(network: Network) -> ssl.SSLContext:
    """The context that verifies the server's name. The environment (``SSL_CERT_FILE``) has no influence."""
    if network.ca_file is not None:
        return ssl.create_default_context(cafile=str(network.ca_file))
    return httpx2.create_ssl_context(verify=network.verify, trust_env=False)
