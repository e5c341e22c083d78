"""Why a server that was never reached will never answer as its address is written.

The error of a connection does not tell a server that is away from an address that is wrong: a plain server is silent
to TLS, and a TLS server closes a plain connection. So the first call that fails asks the server in both ways. Only what
a server says is evidence; silence is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from saga_engine.errors import StoreRefused
from saga_engine.plan.values import printable

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

_PING: Final = b"PING\r\n"
#: A script on one key, as the store's own are.
_EVAL: Final = b"*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$10\r\nsaga:probe\r\n"
#: How the replies of a Redis server begin.
_REPLIES: Final = (b"+", b"-", b":", b"$", b"*")
_SHOWN_CHARS: Final = 60
NO_SCRIPTS_HINT: Final = (
    "the engine needs EVAL: give the address of the server itself, or of a proxy that passes scripts on"
)


async def fault(connection: AbstractConnection, url: str, limit_s: float) -> StoreRefused | None:
    """What is wrong with the address of a server; None if the server is away, or answers as it should.

    ``connection``: one that was never opened. Each of at most five dialogues lasts at most ``limit_s``.
    """
    if isinstance(connection, UnixDomainSocketConnection):
        return None

    def refused(why: str, hint: str) -> StoreRefused:
        return StoreRefused(f"the store at {url} {why}", hint=hint, url=url)

    line = _Line(connection, limit_s)
    if isinstance(connection, SSLConnection):
        try:
            line.context = connection.ssl_context.get()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            return refused(
                f"cannot be connected to: a file of its ssl_… options cannot be used: {error}",
                "ssl_ca_certs, ssl_certfile and ssl_keyfile are paths of PEM files",
            )
    try:
        plain = await line.said(_PING, None)
        if line.context is not None:
            if plain.startswith(_REPLIES):
                return refused("does not speak TLS", "write redis instead of rediss in its address, or its TLS port")
            plain = await line.said(_PING, line.context) or await line.said(b"", line.context)
        elif not plain.startswith(_REPLIES):
            if await line.speaks_tls():
                return refused("speaks TLS", "write rediss instead of redis in its address")
            if plain:
                shown = printable(plain.decode("latin-1").split("\r\n")[0], _SHOWN_CHARS)
                return refused(f"is no Redis or Valkey server: it says {shown!r}", "is this the right port?")
        closes = plain.startswith(b"+") and not await line.said(_EVAL, line.context)
        # A server that ends in this moment closes its connections as well.
        if closes and (await line.said(_PING, line.context)).startswith(b"+"):
            return refused("closes the connection when it gets a script (EVAL)", NO_SCRIPTS_HINT)
    except ssl.SSLCertVerificationError as error:
        return refused(
            f"has a certificate that is not accepted: {error.verify_message}",
            "ssl_ca_certs=FILE names the CA that signed it; the address names the host as the certificate does",
        )
    except ssl.SSLError as error:
        if "CERTIFICATE_REQUIRED" in (error.reason or "") or "HANDSHAKE_FAILURE" in (error.reason or ""):
            return refused(
                f"does not accept this client over TLS: {error.reason}",
                "it may want a certificate of the client: ssl_certfile=FILE and ssl_keyfile=FILE",
            )
        return None
    except OSError:  # it is away, or silent: TimeoutError is one
        return None
    return None


class _Line:
    """Short dialogues with a server, each over a connection of its own."""

    def __init__(self, connection: Any, limit_s: float) -> None:
        self._host, self._port = connection.host, connection.port
        self._limit_s = limit_s
        self.context: ssl.SSLContext | None = None

    async def said(self, request: bytes, context: ssl.SSLContext | None) -> bytes:
        """The first bytes of the answer; none if the server closes the connection. Raises ``OSError``.

        Without a request it only listens: what a server says as it closes is lost if it did not read all of one.
        """
        async with asyncio.timeout(self._limit_s):
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
            try:
                writer.write(request)
                return await reader.read(512)
            except ConnectionError:
                return b""
            finally:
                writer.transport.abort()

    async def speaks_tls(self) -> bool:
        """Whether a handshake gets as far as a certificate, whoever signed it."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(OSError):
            async with asyncio.timeout(self._limit_s):
                _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
                writer.transport.abort()
                return True
        return False
