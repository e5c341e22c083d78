"""Calls to one server: few connections, bounded attempts, and patience.

redis-py repeats writes by itself unless told otherwise; here that is off, and ``Line`` repeats instead. It may, because
every script of the store recognises its own work: a call that was applied and whose answer was lost is answered again
as if it had just been made.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from saga_engine.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.asyncio.connection import AbstractConnection, ConnectionPool

    from saga_engine.ports import StorePromise

Argument = bytes | str | int

#: Pauses between attempts, in seconds: none before the first repeat (an idle connection that the server has closed is
#: the common case), then doubling from the base up to the ceiling, each made shorter at random.
_PAUSE_BASE_S: Final = 0.02
_PAUSE_CEILING_S: Final = 0.5

_PERMISSION_HINT: Final = "the user of the URL lacks a permission: docs/stores.md lists what is needed"
_REFUSALS: Final[Sequence[tuple[str, type[Exception] | None, str]]] = (
    ("OOM", OutOfMemoryError, "the server is full: raise its maxmemory, or purge finished sagas sooner"),
    ("READONLY", ReadOnlyError, "this server is a replica: give the address of the primary"),
    ("MISCONF", None, "the server cannot write to its disk: see its log, and make room"),
    ("NOPERM", NoPermissionError, _PERMISSION_HINT),
    ("The user executing the script", None, _PERMISSION_HINT),
    ("WRONGTYPE", None, "another program uses keys of this name: choose a namespace of your own with ?namespace=NAME"),
    ("NOREPLICAS", None, "too few replicas are attached for the server's min-replicas-to-write"),
    ("MOVED", None, "this is a node of a cluster, which this release cannot use: give a single server"),
    ("CROSSSLOT", None, "this is a node of a cluster, which this release cannot use: give a single server"),
)


def pack(args: Sequence[Argument]) -> bytes:
    """One command as it goes over the wire."""
    packed: bytes = pack_command(tuple(args))  # type: ignore[arg-type] # its stub allows for one argument only
    return packed


class Wire(Protocol):
    """One connection."""

    async def call(self, args: Sequence[Argument]) -> Any:
        """Send one command and return its raw reply. Raises what redis-py raises."""

    async def close(self) -> None:
        """Close it; never raises."""


class Connector(Protocol):
    """How a connection to the server is obtained: all that differs between a remote, an embedded and a fake server."""

    url: str
    hint: str

    async def prepare(self, limit_s: float) -> None:
        """Mend what can be mended before a connection is tried, within ``limit_s``. Raises ``StoreUnavailable``."""

    async def connect(self) -> Wire:
        """Open a connection."""
        ...

    async def close(self) -> None:
        """Called once, after the last wire is closed."""

    def promise(self) -> StorePromise | None:
        """What is known without asking: the choice of such a server is the choice of its level. None: ask it."""
        ...


class RedisWire:
    """A connection of redis-py, without the layers above it.

    hiredis encodes a group commit ten times faster than redis-py's own packer, and skipping the
    client and its pool halves what a small call costs.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def call(self, args: Sequence[Argument]) -> Any:
        """Send one command and return its raw reply."""
        connection = self._connection
        await connection.send_packed_command(pack(args), check_health=False)
        return await connection.read_response()

    async def close(self) -> None:
        """Close the socket. The other side may be gone, so there is nothing to wait for."""
        await self._connection.disconnect(nowait=True)


async def open_wire(pool: ConnectionPool) -> RedisWire:
    """Connect as ``pool`` is configured. The pool is only the recipe: its own bookkeeping is not used."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return RedisWire(connection)


def connection_options() -> Mapping[str, Any]:
    """What every connection is configured with. Time-outs are ``Line``'s: one for a whole attempt costs one timer."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "protocol": 2,
    }


class _NotNowError(Exception):
    """An attempt came to nothing, or nobody knows what it came to; the next one may do better."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Line:
    """Calls over at most ``width`` connections, repeated for at most ``patience_s`` seconds in total."""

    def __init__(self, connector: Connector, *, patience_s: float, width: int) -> None:
        self._connector = connector
        self._patience_s = patience_s
        # Half, so that a server which hangs once leaves time for a second try.
        self._attempt_s = patience_s / 2
        self._slots = asyncio.Semaphore(width)
        self._idle: list[Wire] = []

    async def call(self, args: Sequence[Argument]) -> Any:
        """The reply of one command, which must be safe to repeat.

        A ``ResponseError`` is passed on as it is; ``StoreUnavailable`` says that patience ran out; ``StoreRefused``
        that the server does not let us in.
        """
        started_s = asyncio.get_running_loop().time()
        try:
            return await self._attempt(args, self._patience_s)
        except _NotNowError as not_now:
            return await self._again(args, not_now.reason, started_s + self._patience_s)

    async def _again(self, args: Sequence[Argument], reason: Exception, deadline_s: float) -> Any:
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while True:
            await self._drop_idle()
            left_s = deadline_s - loop.time() - pause_s
            if left_s <= 0:
                raise StoreUnavailable(
                    f"the store at {self._connector.url} could not be reached for {self._patience_s:g} s: "
                    f"{str(reason) or type(reason).__name__}",
                    hint=self._connector.hint,
                    url=self._connector.url,
                ) from reason
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, _PAUSE_BASE_S), _PAUSE_CEILING_S) * random.uniform(0.5, 1.0)
            try:
                return await self._attempt(args, left_s)
            except _NotNowError as not_now:
                reason = not_now.reason

    async def _attempt(self, args: Sequence[Argument], left_s: float) -> Any:
        try:
            if not self._idle:
                await self._connector.prepare(left_s)
            async with asyncio.timeout(min(self._attempt_s, left_s)), self._slots:
                wire = self._idle.pop() if self._idle else await self._connector.connect()
                try:
                    reply = await wire.call(args)
                except ResponseError:
                    self._idle.append(wire)
                    raise
                except BaseException:
                    # Its answer may still come: nobody else must read it.
                    await wire.close()
                    raise
                self._idle.append(wire)
                return reply
        except (AuthenticationError, AuthorizationError, AuthenticationWrongNumberOfArgsError) as error:
            raise refusal(error, self._connector.url) from error
        except ResponseError as error:
            if _passing(error):
                raise _NotNowError(error) from error
            raise
        except (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError) as error:
            # TimeoutError, which asyncio.timeout raises, is an OSError.
            raise _NotNowError(error) from error

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Close the connections that are not in use."""
        await self._drop_idle()


def _passing(error: ResponseError) -> bool:
    """True for an answer that says 'not now': nothing was done, and the same call may succeed in a moment."""
    return isinstance(error, MasterDownError) or str(error).startswith(("BUSY ", "TRYAGAIN", "UNBLOCKED"))


def refusal(error: RedisError, url: str) -> StoreRefused:
    """What the server answered, as an error of ours with a hint."""
    if isinstance(error, AuthenticationError | AuthorizationError | AuthenticationWrongNumberOfArgsError):
        hint = "give the right user and password in the URL: redis://USER:PASSWORD@HOST"
        return StoreRefused(f"the store at {url} does not let us in: {error}", hint=hint, url=url)
    text = str(error)
    for word, kind, hint in _REFUSALS:
        if (kind is not None and isinstance(error, kind)) or text.startswith(word) or f"-{word} " in text:
            # redis-py leaves the word out where it knows it.
            said = text if word in text else f"{word} {text}"
            return StoreRefused(f"the store at {url} refused the call: {said}", hint=hint, url=url, reason=word)
    return StoreRefused(f"the store at {url} answered with an error: {text}", hint=None, url=url)
