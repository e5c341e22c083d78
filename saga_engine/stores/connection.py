"""Calls to one server: few connections, bounded attempts, and retries.

redis-py repeats writes by itself by default; here that is off, and ``Pool`` repeats instead. It may, because every
script of the store recognises its own work: a repeat of a call that was applied and whose answer was lost gets the
answer of the first call.

With ``replicas`` a call counts only once that many replicas have it on their disks. ``WAITAOF`` asks for that, and
refers to the last *write* of the connection that it is sent on. A repeated script that finds its own work writes
nothing, so on another connection ``WAITAOF`` would refer to an older write, or to none. So a small write, the mark,
goes between the two: everything that the script relies on was written before it, and replicas apply writes in order.

A ``WAIT`` goes before it, for speed: a replica that reads the write and the question together answers before it has
synced, and would report the sync only with its regular report, once a second. An answer to ``WAIT`` leaves the replica
after its sync (with ``appendfsync always``), so the next question finds it done.
"""

from __future__ import annotations

import asyncio
import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    ClusterCrossSlotError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
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
from saga_engine.stores.slots import Patience, Slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.asyncio.connection import AbstractConnection, ConnectionPool

    from saga_engine.ports import StorePromise

Argument = bytes | str | int
_T = TypeVar("_T")

#: Pauses between attempts, in seconds: none before the first repeat (an idle connection that the server has closed is
#: the common case), then doubling from the base up to the maximum, each shortened at random.
_PAUSE_BASE_S: Final = 0.02
_PAUSE_CEILING_S: Final = 0.5

#: How long, in seconds, to wait for a silent server that another may have replaced.
_ATTEMPT_S: Final = 5.0
#: How long the very first attempt lasts, in seconds, before the address of a silent server is examined.
_FIRST_S: Final = 1.0

_PERMISSION_HINT: Final = "the user of the URL lacks a permission: docs/stores.md lists what is needed"
_FOREIGN_HINT: Final = (
    "another program wrote to a key of the engine: restore the key from a backup, or remove it if what it said may be "
    "forgotten; give that program another database, or the engine a namespace of its own with ?namespace=NAME"
)
_REFUSALS: Final[Sequence[tuple[str, type[Exception] | None, str]]] = (
    ("OOM", OutOfMemoryError, "the server is full: raise its maxmemory, or purge finished sagas sooner"),
    ("READONLY", ReadOnlyError, "this server is a replica: give the address of the primary"),
    ("MISCONF", None, "the server cannot write to its disk: see its log, and make room"),
    ("NOPERM", NoPermissionError, _PERMISSION_HINT),
    ("The user executing the script", None, _PERMISSION_HINT),
    ("ERR The user executing the script", None, _PERMISSION_HINT),
    ("WRONGTYPE", None, _FOREIGN_HINT),
    ("NOREPLICAS", None, "too few replicas are attached for the server's min-replicas-to-write"),
    ("MOVED", MovedError, "this is a node of a cluster: write redis+cluster:// in its address"),
    ("CROSSSLOT", ClusterCrossSlotError, "this is a node of a cluster: write redis+cluster:// in its address"),
)

#: How long the mark of a confirmation is kept: only its writing matters.
_MARK_MS: Final = 60_000
#: How long one question waits for replicas, in seconds: the server may be a former primary, whose replicas never
#: answer. A replica that syncs every second, and reports every second, needs that long. The attempt's time limits both
#: questions, so that the answers still come in time: a server checks its clock ten times a second.
_CONFIRMING_S: Final = 2.5
_RECEIVING_SHARE: Final = 0.1
_CONFIRMING_SHARE: Final = 0.4


def pack(args: Sequence[Argument]) -> bytes:
    """One command in its encoded form."""
    packed: bytes = pack_command(tuple(args))  # type: ignore[arg-type] # its stub allows for one argument only
    return packed


class Connection(Protocol):
    """One connection."""

    async def call(self, args: Sequence[Argument]) -> Any:
        """Send one command and return its raw reply. Raises what redis-py raises."""

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send all at once; the raw replies in order, a ``ResponseError`` as a reply. Raises if it breaks."""
        ...

    async def close(self) -> None:
        """Close it; never raises."""


#: Checks a new connection before anything else is sent on it; raises the reason why it cannot be used.
Check = Callable[[Connection], Awaitable[None]]


class Connector(ABC):
    """Obtains connections to a server: all that differs between a remote, an embedded and a fake server.

    Unless a class says otherwise, its server cannot be repaired or stopped from here, stays at its address, and is
    asked for its durability.
    """

    url: str
    hint: str
    #: Whether another server may replace the one that is connected.
    moves = False
    #: Counts failed calls to a server that may have moved: all pools then reconnect.
    losses = 0
    #: Whether no script was answered yet, so that the first call that fails examines the address.
    unmet = False

    async def prepare(self, limit_s: float) -> None:  # noqa: B027
        """Repair what can be repaired before a connection is tried, within ``limit_s``. Raises ``StoreUnavailable``."""

    @abstractmethod
    async def connect(self) -> Connection:
        """Open a connection."""

    async def close(self) -> None:  # noqa: B027
        """Called once, after the last connection is closed."""

    async def fault(self, limit_s: float) -> StoreRefused | None:  # noqa: ARG002 - for connectors with an address
        """What is wrong with the address, as far as its server tells; ``limit_s`` is for each dialogue."""
        return None

    async def examine(self, limit_s: float) -> None:
        """Raise ``StoreRefused`` if a server that was never reached will not be, as its address is written."""
        if self.unmet:
            self.unmet = False
            found = await self.fault(limit_s)
            if found is not None:
                self.unmet = True
                raise found

    def twin(self) -> Self:
        """A connector for the event loop of another thread; it shares nothing bound to a loop, and is not closed."""
        return copy.copy(self)

    def promise(self) -> StorePromise | None:
        """The durability, if the choice of such a server determines it. None: ask the server."""
        return None

    def findings(self) -> Sequence[tuple[str, str, str]]:
        """Findings about the server's data that the server does not report: as in ``StorePromise``."""
        return ()


class RedisConnection:
    """A connection of redis-py, without the layers above it.

    hiredis encodes a group commit ten times faster than redis-py's own packer, and without the client and its pool a
    small call costs half as much.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def call(self, args: Sequence[Argument]) -> Any:
        """Send one command and return its raw reply."""
        connection = self._connection
        await connection.send_packed_command(pack(args), check_health=False)
        return await connection.read_response()

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send all at once and return the raw replies; an error of one command is its reply."""
        connection = self._connection
        await connection.send_packed_command([pack(args) for args in commands], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    async def send(self, *commands: Sequence[Argument]) -> None:
        """Send commands; what comes of them, and what the server says by itself, is read by ``receive``."""
        await self._connection.send_packed_command([pack(args) for args in commands], check_health=False)

    async def receive(self) -> Any:
        """The next thing that the server says. Raises what redis-py raises."""
        return await self._connection.read_response()

    async def close(self) -> None:
        """Close the socket. The server may be gone, so there is nothing to wait for."""
        await self._connection.disconnect(nowait=True)


async def open_connection(pool: ConnectionPool) -> RedisConnection:
    """Connect as ``pool`` is configured. The pool is only the configuration: its own bookkeeping is not used."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return RedisConnection(connection)


def connection_options() -> Mapping[str, Any]:
    """The options of every connection. ``Pool`` has the time-outs: one for a whole attempt costs one timer."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "protocol": 2,
    }


class TransientError(Exception):
    """An attempt failed or has an unknown outcome; the next one may succeed."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class TooFewError(ResponseError):
    """The write is on the primary, but not yet on enough replicas."""


class RetryingClient(ABC):
    """Repeats calls for at most ``patience_s`` seconds in total, beside the time that they wait behind others."""

    #: Whether keys with different tags may be on different servers.
    scattered = False

    def __init__(self, connector: Connector, *, patience_s: float) -> None:
        self._connector = connector
        self._patience_s = patience_s
        # Half, so that a server which blocks once leaves time for a second attempt.
        self._attempt_s = min(patience_s / 2, _ATTEMPT_S) if connector.moves else patience_s / 2

    async def call(self, args: Sequence[Argument], *, replicas: int = 0) -> Any:
        """The reply of one command, which must be safe to repeat; with ``replicas``, once that many have it on disk.

        A ``ResponseError`` is passed on unchanged. Raises ``StoreUnavailable`` after ``patience_s``, and
        ``StoreRefused`` if the server refuses the connection.
        """
        patience = Patience(self._patience_s)
        unmet = self._connector.unmet
        try:
            reply = await self._attempt(args, patience, min(self._attempt_s, _FIRST_S) if unmet else None, replicas)
            if unmet and is_script(args):
                self._connector.unmet = False
            return reply
        except TransientError as transient:
            if unmet:
                await self._connector.examine(self._patience_s / 4)
            return await self._again(args, replicas, transient.reason, patience)

    async def _again(self, args: Sequence[Argument], replicas: int, reason: Exception, patience: Patience) -> Any:
        pause_s = 0.0
        while True:
            self._connector.losses += self._connector.moves
            await self._drop_idle()
            if patience.left_s() <= pause_s:
                raise self._unavailable(reason) from reason
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, _PAUSE_BASE_S), _PAUSE_CEILING_S) * random.uniform(0.5, 1.0)
            try:
                return await self._attempt(args, patience, None, replicas)
            except TransientError as transient:
                if str(transient.reason):  # a time-out has no text, and the reason before it says more
                    reason = transient.reason

    def _unavailable(self, reason: Exception) -> StoreUnavailable:
        url, hint = self._connector.url, self._connector.hint
        said = str(reason) or type(reason).__name__
        if isinstance(reason, TooFewError):
            text = f"the store at {url} did not confirm a write for {self._patience_s:g} s: {said}"
            hint = "check that the replicas run and are attached; the sagas continue when they are back"
        else:
            text = f"the store at {url} could not be reached for {self._patience_s:g} s: {said}"
        return StoreUnavailable(text, hint=hint, url=url)

    @abstractmethod
    async def _attempt(self, args: Sequence[Argument], patience: Patience, most_s: float | None, replicas: int) -> Any:
        """One attempt, for ``most_s`` at most. Raises ``TransientError`` if another may succeed."""

    def _limit_s(self, patience: Patience, most_s: float | None) -> float:
        """How long an attempt may take from now on."""
        left_s = patience.left_s()
        return left_s if most_s is None else min(most_s, left_s)

    @abstractmethod
    async def _drop_idle(self) -> None:
        """Close the idle connections."""

    async def close(self) -> None:
        """Close the idle connections."""
        await self._drop_idle()


class Pool(RetryingClient):
    """Calls to one server over at most ``width`` connections."""

    def __init__(self, connector: Connector, *, patience_s: float, width: int, check: Check | None = None) -> None:
        super().__init__(connector, patience_s=patience_s)
        self._check = check
        self._slots = Slots(width)
        self._idle: list[Connection] = []
        self._losses = 0

    async def _attempt(self, args: Sequence[Argument], patience: Patience, most_s: float | None, replicas: int) -> Any:
        try:
            if not replicas:
                return await self.once(lambda at, _: at.call(args), patience, most_s)
            return await self.once(lambda at, limit_s: answer_to(at, [args], replicas, limit_s), patience, most_s)
        except ResponseError as error:
            if passing(error, moves=self._connector.moves, replicas=replicas):
                raise TransientError(error) from error
            raise

    async def once(
        self,
        talk: Callable[[Connection, float], Awaitable[_T]],
        patience: Patience | None = None,
        most_s: float | None = None,
    ) -> _T:
        """The result of ``talk``, over one connection, tried once; it is told how many seconds it has.

        They begin once there is a connection for it, or room for one. Raises ``TransientError`` for a connection that
        cannot be made, breaks or takes longer (``most_s``, and what an attempt may take), ``StoreRefused`` if the
        server refuses the connection, and the server's own ``ResponseError``.
        """
        patience = patience or Patience(self._attempt_s)
        slots = self._slots
        if slots.free:
            slots.free -= 1
        else:
            try:
                await slots.take(patience)
            except TimeoutError as error:
                raise TransientError(slots.failure or error) from error
        try:
            return await self._over_one(talk, patience, most_s)
        except (AuthenticationError, AuthorizationError, AuthenticationWrongNumberOfArgsError) as error:
            raise refusal(error, self._connector.url) from error
        except ResponseError as error:
            if passing(error, moves=True, replicas=1):
                slots.failed(error)
            else:
                slots.answered()
            raise
        except (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError) as error:
            # TimeoutError, which asyncio.timeout raises, is an OSError.
            slots.failed(error)
            raise TransientError(error) from error
        finally:
            slots.release()

    async def _over_one(
        self, talk: Callable[[Connection, float], Awaitable[_T]], patience: Patience, most_s: float | None
    ) -> _T:
        if self._losses != self._connector.losses:
            # Another pool found the server unusable: these connections may lead to a former primary.
            self._losses = self._connector.losses
            await self._drop_idle()
        loop = asyncio.get_running_loop()
        if not self._idle:
            await self._connector.prepare(self._limit_s(patience, most_s))
        task, begun_s = asyncio.current_task(), loop.time()
        limit_s = min(self._attempt_s, patience.until_s - begun_s)
        if most_s is not None:
            limit_s = min(limit_s, most_s)
        try:
            async with asyncio.timeout(limit_s):
                connection = self._idle.pop() if self._idle else await self._connect()
                asked = 0 if task is None else task.cancelling()
                try:
                    reply = await talk(connection, limit_s)
                    if task is not None and task.cancelling() > asked:
                        raise asyncio.CancelledError  # the client has swallowed it
                except ResponseError:
                    self._idle.append(connection)
                    raise
                except BaseException:
                    # Its answer may still arrive: no other call may read it.
                    await connection.close()
                    raise
                self._idle.append(connection)
                self._slots.answered_s, self._slots.failure = loop.time(), None
                return reply
        except TimeoutError:
            patience.excuse_lateness(begun_s, begun_s + limit_s)
            raise

    async def _connect(self) -> Connection:
        connection = await self._connector.connect()
        if self._check is not None:
            try:
                await self._check(connection)
            except BaseException:
                await connection.close()
                raise
        return connection

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()


async def answer_to(
    connection: Connection, commands: Sequence[Sequence[Argument]], replicas: int, limit_s: float
) -> Any:
    """The reply of the last of these commands, as ``confirmed`` gets it; an error is raised."""
    if not replicas and len(commands) == 1:
        return await connection.call(commands[0])
    *_, reply = await confirmed(connection, commands, replicas, limit_s)
    if isinstance(reply, ResponseError):
        raise reply
    return reply


async def confirmed(
    connection: Connection, commands: Sequence[Sequence[Argument]], replicas: int, limit_s: float
) -> list[Any]:
    """The replies of commands once ``replicas`` replicas (and the server) have them on disk; 0: at once.

    Raises ``TooFewError`` if that is not so in time (``limit_s`` is the attempt's); the commands were applied
    nevertheless.
    """
    if not replicas:
        return await connection.call_many(commands)
    # 0 would mean no limit.
    received_ms = max(int(min(limit_s * _RECEIVING_SHARE, _CONFIRMING_S) * 1000), 1)
    confirmed_ms = max(int(min(limit_s * _CONFIRMING_SHARE, _CONFIRMING_S) * 1000), 1)
    key = key_of(commands[0])
    # A plain command is a write of its own, and of a migrating slot only its key may have arrived.
    marks = [("SET", beside(key, b"mark"), "1", "PX", _MARK_MS)] if key is not None and is_script(commands[0]) else []
    asked: list[Sequence[Argument]] = [("WAIT", replicas, received_ms), ("WAITAOF", 1, replicas, confirmed_ms)]
    *replies, _, acked = await connection.call_many([*commands, *marks, *asked])
    marked = replies.pop() if marks else None
    if all(isinstance(reply, ResponseError) for reply in replies):
        return replies
    for said in (marked, acked):
        if isinstance(said, ResponseError):
            raise said
    here, there = acked
    if here < 1 or there < replicas:
        raise TooFewError(f"{there} of {replicas} replicas have it on disk")
    return replies


def key_of(args: Sequence[Argument]) -> bytes | None:
    """The first key of a command as the store sends them: a script's, or a plain command's; None if it has none."""
    if is_script(args):
        key = args[3] if int(args[2]) else None
    else:
        key = args[1] if len(args) > 1 and args[0] != "CONFIG" else None
    return key.encode() if isinstance(key, str) else None if key is None else bytes(key)


def is_script(args: Sequence[Argument]) -> bool:
    """Whether it runs a script."""
    return args[0] in (b"EVALSHA", b"EVAL")


def beside(key: bytes, name: bytes) -> bytes:
    """A key of the same namespace and slot: with the same hash tag, or with the key for one."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    tag = key[start + 1 : end] if 0 <= start < end - 1 else key
    return key.partition(b":")[0] + b":{" + tag + b"}:" + name


def passing(error: ResponseError, *, moves: bool, replicas: int) -> bool:
    """True for an answer that means 'not now': nothing was done, and the same call may succeed in a moment.

    A former primary that has become a replica is passing only if another can replace it (``moves``), and too few
    replicas only if the call waits for them.
    """
    text = str(error)
    # A cluster that is down, and a replica that has lost its primary (MASTERDOWN is one kind).
    if isinstance(error, ClusterDownError | TooFewError) or text.startswith(("BUSY ", "TRYAGAIN", "UNBLOCKED")):
        return True
    if replicas and (text.startswith("NOREPLICAS") or "-NOREPLICAS " in text):
        return True
    return moves and (isinstance(error, ReadOnlyError) or "READONLY" in text or "replica instances" in text)


def refusal(error: RedisError, url: str, keys: Sequence[Argument] = ()) -> StoreRefused:
    """The server's answer, as an error with a hint; ``keys`` are named if the type of one is wrong."""
    if isinstance(error, AuthenticationError | AuthorizationError | AuthenticationWrongNumberOfArgsError):
        hint = "give the right user and password in the URL: redis://USER:PASSWORD@HOST"
        return StoreRefused(f"the store at {url} does not let us in: {error}", hint=hint, url=url)
    text = str(error)
    for word, kind, hint in _REFUSALS:
        if (kind is not None and isinstance(error, kind)) or text.startswith(word) or f"-{word} " in text:
            # redis-py removes the word if it knows it.
            said = text if word in text else f"{word} {text}"
            if word == "WRONGTYPE" and keys:
                names = (str(key, "utf-8", "replace") if isinstance(key, bytes) else str(key) for key in keys)
                said = f"{said.rstrip('.')} (one of these, or one beside it: {', '.join(names)})"
            return StoreRefused(f"the store at {url} refused the call: {said}", hint=hint, url=url, reason=word)
    return StoreRefused(f"the store at {url} answered with an error: {text}", hint=None, url=url)
