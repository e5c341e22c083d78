"""Routes commands to servers: scripts and plain commands, on one server or over the partitions of a cluster."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from saga_engine.errors import SagaError, StoreRefused, StoreUnavailable
from saga_engine.stores.cluster import ClusterConnector, ClusterPool
from saga_engine.stores.connection import Pool, TooFewError, beside, refusal
from saga_engine.stores.durability import SETTINGS, ServerFacts, confirms, demand_kept, verify
from saga_engine.stores.first_contact import NO_SCRIPTS_HINT
from saga_engine.stores.scripts import Script, script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.ports import StorePromise
    from saga_engine.stores.connection import Argument, Check, Connection, Connector

#: Scripts that need not be on a replica's disk before they count: those that read, those that only release, and those
#: whose loss costs a statistic, a slot of a rate, or one more failure before a breaker opens. All others wait, because
#: a process relies on what they wrote: an epoch that came back after a fail-over would mean two owners.
_UNCONFIRMED: Final = frozenset(
    {
        "close_lease",
        "document_due",
        "ended",
        "guard_breaker",
        "guard_counts",
        "guard_good",
        "guard_rate",
        "heads",
        "index",
        "overview",
        "owners",
        "read",
        "search",
        "sweep",
    }
)

#: What a server is asked about its durability.
_QUESTIONS: Final[Sequence[Sequence[Argument]]] = (*(("CONFIG", "GET", setting) for setting in SETTINGS), ("INFO",))
_ABSENT: Final = b"absent"
#: How servers and proxies say that they do not have a command, and how far into their answer they name it.
_LACKING: Final = ("unknown", "unsupported", "not supported", "not allowed", "disabled", "no such command")
_NAMED_CHARS: Final = 100
#: An error about a wrong type names the keys of the call, up to this number.
_KEYS_NAMED: Final = 4
#: How long a group commit on a cluster waits for the slowest node, in seconds, before the others proceed.
_GRACE_S: Final = 1.0


class Calls:
    """Calls of one store. With ``replicas``, a write counts once that many replicas of its server have it on disk."""

    def __init__(self, connector: Connector, *, patience_s: float, replicas: int) -> None:
        self._url = connector.url
        self._replicas = replicas
        self._patience_s = patience_s
        self._cluster = isinstance(connector, ClusterConnector)
        self._settling: set[asyncio.Task[None]] = set()
        # A long list or a large value must not delay the journal: appends have their own connections.
        self.journal = _pool(connector, patience_s, self._check, width=2)
        self.others = _pool(connector, patience_s, self._check, width=8)
        # Nor may either delay what keeps this process the owner of its sagas, and of its places in queues.
        self.renewals = _pool(connector, patience_s, self._check, width=2)
        self._queues = _pool(connector, patience_s, self._check, width=2)
        #: Whether scripts are called by their digests. Some servers allow this user EVAL and not EVALSHA.
        self._by_digest = True
        #: Whether each new connection refuses a server whose durability is insufficient.
        self.demanding = False

    @property
    def scattered(self) -> bool:
        """Whether partitions may be on different servers, so that no call can use two of them."""
        return self._cluster

    async def close(self) -> None:
        """Wait for calls whose answers are late, and close the connections."""
        await asyncio.gather(*self._settling, return_exceptions=True)
        await self.forget()

    async def run(
        self,
        name: str,
        keys: Sequence[Argument],
        args: Sequence[Argument],
        pool: Pool | ClusterPool | None = None,
    ) -> Any:
        """The reply of one script, whose keys share a hash tag (on one server: any keys).

        Raises ``StoreUnavailable`` and ``StoreRefused``.
        """
        pool = pool or self._pool_of(name)
        chosen: Script = script(name)
        replicas = 0 if name in _UNCONFIRMED else self._replicas
        if self._cluster:
            keys = _with_absent(keys)
        try:
            if self._by_digest:
                try:
                    return await pool.call([b"EVALSHA", chosen.sha, len(keys), *keys, *args], replicas=replicas)
                except ResponseError as error:
                    if not self._wants_text(error):
                        raise
            return await pool.call([b"EVAL", chosen.body, len(keys), *keys, *args], replicas=replicas)
        except ResponseError as error:
            raise self._refused(error, keys if len(keys) <= _KEYS_NAMED else ()) from error

    def _pool_of(self, name: str) -> Pool | ClusterPool:
        return self.renewals if name == "renew" else self._queues if name == "guard_queue" else self.others

    def _refused(self, error: ResponseError, keys: Sequence[Argument] = ()) -> StoreRefused:
        """The answer to a script, as an error."""
        if _lacks(error, b"EVAL") and not isinstance(error, NoPermissionError):
            text = f"the store at {self._url} runs no scripts: {error}"
            return StoreRefused(text, hint=NO_SCRIPTS_HINT, url=self._url)
        return refusal(error, self._url, keys)

    def _wants_text(self, error: ResponseError) -> bool:
        """Whether the script's text is to be sent instead of its digest: this time, or always from now on."""
        if isinstance(error, NoScriptError):
            return True  # the server was restarted, or has never seen it; EVAL also loads it
        if _lacks(error, b"EVALSHA"):
            self._by_digest = False
        return not self._by_digest

    async def run_many(
        self,
        name: str,
        calls: Sequence[tuple[Sequence[Argument], Sequence[Argument]]],
        pool: Pool | ClusterPool | None = None,
        instead: Sequence[Sequence[Argument]] | None = None,
    ) -> list[Any]:
        """The replies of one script to several (keys, arguments); on a cluster all at once, one round trip per node.

        ``instead``: for each a plain command of one key, which is called while the slot is being migrated. Raises as
        ``run`` does.
        """
        pool = pool or self._pool_of(name)
        if not isinstance(pool, ClusterPool):
            return [await self.run(name, keys, args, pool) for keys, args in calls]
        return await asyncio.gather(*await self.run_each(name, calls, pool, instead))

    async def run_each(
        self,
        name: str,
        calls: Sequence[tuple[Sequence[Argument], Sequence[Argument]]],
        pool: ClusterPool,
        instead: Sequence[Sequence[Argument]] | None = None,
    ) -> list[asyncio.Future[Any]]:
        """The reply of each call of one script on a cluster. It waits for no node longer than ``_GRACE_S``.

        ``instead`` is as in ``run_many``. A future that is not done continues by itself; one that failed has a
        ``SagaError``.
        """
        chosen = script(name)
        replicas = 0 if name in _UNCONFIRMED else self._replicas
        wholes = [(_with_absent(keys), args) for keys, args in calls]
        verb, text = (b"EVALSHA", chosen.sha) if self._by_digest else (b"EVAL", chosen.body)
        commands = [[verb, text, len(keys), *keys, *args] for keys, args in wholes]
        found: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in calls]
        settling = []
        for places, task in await pool.call_each(commands, replicas=replicas, grace_s=_GRACE_S, instead=instead):
            settle = self._settle(task, [(found[place], calls[place]) for place in places], name, pool)
            if task.done():
                await settle
            else:
                settling.append(asyncio.create_task(settle))
        self._settling.update(settling)
        for late in settling:
            late.add_done_callback(self._settling.discard)
        return found

    async def _settle(
        self,
        task: asyncio.Task[list[Any]],
        waiting: Sequence[tuple[asyncio.Future[Any], tuple[Sequence[Argument], Sequence[Argument]]]],
        name: str,
        pool: ClusterPool,
    ) -> None:
        """Set the replies of one node on the futures of their callers."""
        try:
            replies = await task
        except BaseException as error:
            for future, _ in waiting:
                if future.done():
                    continue  # nobody waits for it any more
                if isinstance(error, Exception):
                    future.set_exception(error)
                else:
                    future.cancel()
            raise
        for reply, (future, call) in zip(replies, waiting, strict=True):
            settled = reply
            if isinstance(reply, ResponseError) and self._wants_text(reply):
                try:
                    settled = await self.run(name, *call, pool)
                except SagaError as error:
                    settled = error
            elif isinstance(reply, ResponseError):
                settled = refusal(reply, self._url)
            if future.done():
                continue  # nobody waits for it any more
            if isinstance(settled, SagaError):
                future.set_exception(settled)
                future.exception()  # a caller that needs it reads it; no caller has to
            else:
                future.set_result(settled)

    async def spread(
        self,
        name: str,
        keys_by_tag: Sequence[Sequence[str]],
        args: Sequence[Argument],
        instead: Sequence[Sequence[Argument]] | None = None,
    ) -> list[Any]:
        """Run one script over many partitions, with the same arguments; returns the reply of each call that was made.

        ``keys_by_tag`` are groups of keys; those of a group share one hash tag. One server gets all keys in one call,
        in the given order, so there is one reply. A cluster gets one call for each group, all at once, and the replies
        are in the order of the groups. So the replies of the script must be mergeable for any number of groups. No call
        is atomic with another. Raises the first error of any call. ``instead`` is as in ``run_many``.
        """
        if self._cluster:
            return await self.run_many(name, [(keys, args) for keys in keys_by_tag], instead=instead)
        return [await self.run(name, [key for group in keys_by_tag for key in group], args)]

    async def plain(self, *args: Argument) -> Any:
        """The reply of a plain command on one key. Raises as ``run`` does."""
        try:
            return await self.others.call(args)
        except ResponseError as error:
            raise refusal(error, self._url) from error

    # --- what the servers promise ---

    async def promise(self, tags: Sequence[str], *, open_door: bool) -> StorePromise:
        """The durability that the servers report now; with ``replicas``, a write to each partition is tried as well.

        Of a cluster, primaries that do not answer are named in a warning, and count for nothing.
        """
        servers, away = await self._servers(open_door=open_door)
        if not any(each.info or each.settings for each in servers):
            await self._demand_scripts(tags[0])
        unconfirmed = ""
        if self._replicas and all(map(confirms, servers)):
            try:
                for tag in tags if self._cluster else tags[:1]:
                    mark = beside(tag.encode(), b"mark")
                    if isinstance(self.others, ClusterPool) and self.others.node_of(mark) in away:
                        continue
                    await self.others.call([b"SET", mark, b"1", b"PX", 1000], replicas=self._replicas)
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, TooFewError):
                    raise
                unconfirmed = str(error.__cause__)
            except ResponseError as error:
                raise refusal(error, self._url) from error
        return verify(self._url, servers, replicas=self._replicas, unconfirmed=unconfirmed, away=away)

    async def _demand_scripts(self, tag: str) -> None:
        """Refuse a proxy that has no scripts for that reason, and not for the settings that it does not show."""
        try:
            await self.others.call([b"EVAL", b"return 1", 1, beside(tag.encode(), b"mark")])
        except ResponseError as error:
            raise self._refused(error) from error

    async def _check(self, connection: Connection) -> None:
        """Check a newly connected server; raises ``DurabilityInsufficient``.

        It may have been restarted with another configuration, or replaced, or it did not answer when the store was
        opened. Its role in its cluster or group of replicas shows with the first call.
        """
        if self.demanding:
            demand_kept(self._url, _facts(await connection.call_many(_QUESTIONS)))

    async def abandon(self) -> None:
        """End what is under way, and close the connections: the store could not be opened."""
        late = list(self._settling)
        for each in late:
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await self.forget()

    async def forget(self) -> None:
        """Close the idle connections: every later call gets a new one."""
        await self.journal.close()
        await self.others.close()
        await self.renewals.close()
        await self._queues.close()

    async def _servers(self, *, open_door: bool) -> tuple[list[ServerFacts], Mapping[str, str]]:
        """The facts of each server that answers, and by name why others do not."""
        away: Mapping[str, str] = {}
        try:
            if isinstance(self.others, ClusterPool):
                told, away = await self.others.on_each(_QUESTIONS)
            else:
                told = {"": [await self._answer(args) for args in _QUESTIONS]}
            return [_facts(replies, name, open_door=open_door) for name, replies in told.items()], away
        except ResponseError as error:
            raise refusal(error, self._url) from error

    async def _answer(self, args: Sequence[Argument]) -> Any:
        try:
            return await self.others.call(args)
        except ResponseError as error:
            return error


def _pool(connector: Connector, patience_s: float, check: Check, *, width: int) -> Pool | ClusterPool:
    if isinstance(connector, ClusterConnector):
        return ClusterPool(connector, patience_s=patience_s, width=width, check=check)
    return Pool(connector, patience_s=patience_s, width=width, check=check)


def _with_absent(keys: Sequence[Argument]) -> Sequence[Argument]:
    if not keys:
        return keys
    first = keys[0]
    return [*keys, beside(first.encode() if isinstance(first, str) else bytes(first), _ABSENT)]


def _facts(replies: Sequence[Any], name: str = "", *, open_door: bool = False) -> ServerFacts:
    """What a server says to ``_QUESTIONS``. Raises its ``ResponseError``, unless it only hides its settings."""
    *told, info = replies
    settings: dict[str, str] | None = {}
    for setting, found in zip(SETTINGS, told, strict=True):
        if isinstance(found, ResponseError):
            if not _untold(found):
                raise found
            settings = None
        elif settings is not None:
            settings[setting] = str(found[1], "utf-8") if found else ""
    # Some managed services do not provide INFO; the check uses what can be read.
    return ServerFacts({} if isinstance(info, ResponseError) else _info(info), settings, open_door, name)


def _untold(error: ResponseError) -> bool:
    """Whether the server does not show its settings."""
    return isinstance(error, NoPermissionError) or any(word in str(error).lower() for word in _LACKING)


def _lacks(error: ResponseError, command: bytes) -> bool:
    """Whether a server, or a proxy before it, does not have this command, or not for this user."""
    said = str(error).lower()
    names = re.search(rf"\b{command.decode().lower()}\b", said[:_NAMED_CHARS])
    return names is not None and (isinstance(error, NoPermissionError) or any(word in said for word in _LACKING))


def _info(raw: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in raw.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in lines}
