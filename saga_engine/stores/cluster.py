"""Calls to a cluster: each goes to the node that has the slot of its key, and follows a slot that moves.

A script of the store uses keys that it derives itself, all with the hash tag of its partition. A slot that is migrated
key by key (``CLUSTER SETSLOT MIGRATING``) lies in two places for a while, and no script may run on half of it: a lease
that is on the other node would seem to have ended.

* Every script names one more key, which never exists (``absent``). In a migrating slot the server looks for it before
  the script begins, does not find it, and answers ``TRYAGAIN`` or ``ASK``.
* ``ASK`` is followed for plain commands of one key, with ``ASKING`` in front; never for a script.

A saga of such a slot waits until the slot has arrived. A slot that is migrated as a whole (Valkey 9, ``CLUSTER
MIGRATESLOTS``) is unavailable for milliseconds.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    InvalidResponse,
    MovedError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from saga_engine.errors import SagaError, StoreRefused, StoreUrlInvalid
from saga_engine.stores.addresses import CLUSTER_HINT, Address, ConnectionConfig, parse
from saga_engine.stores.connection import (
    Connector,
    Pool,
    RetryingClient,
    TransientError,
    answer_to,
    confirmed,
    is_script,
    key_of,
    passing,
    refusal,
)
from saga_engine.stores.slots import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.stores.connection import Argument, Check, RedisConnection

_PORT: Final = 6379
_HOPS: Final = 5
#: The pause before all primaries are asked again, of which none has answered, in seconds.
_PAUSE_S: Final = 0.05
#: How long a node may take to answer with its map before the others decide without it.
_ANSWER_S: Final = 1.0
#: How long a node that has never answered may take in each dialogue that examines its address.
_EXAMINED_S: Final = 2.5
#: How many nodes are asked for the map at once.
_ASKED: Final = 8
#: The error of a script that met a key on another node: only a migrating slot can cause it.
_NOT_LOCAL: Final = "non local key"


class ClusterConnector(Connector):
    """The map of ``redis+cluster://H1:6379,H2,…``: the node of each slot. Raises ``StoreUrlInvalid``."""

    hint = (
        "check that the cluster is up (CLUSTER INFO) and that the addresses are right; the sagas go on from where they "
        "are once it is. A fail-over takes cluster-node-timeout and some more: patience_s should be longer"
    )
    moves = True
    unmet = True

    def __init__(self, scheme: str, address: str, options: Mapping[str, str]) -> None:
        said = parse(scheme, address, options, port=_PORT, hint=CLUSTER_HINT)
        if tuple(said.path) not in ((), ("0",)) or options.get("db", "0") != "0":
            raise StoreUrlInvalid("a cluster has one database only", hint=CLUSTER_HINT)
        self.url = said.shown
        self._seeds = said.hosts
        self._config = ConnectionConfig(
            tls=said.tls, user=said.user, password=said.password, db=0, options=options, hint=CLUSTER_HINT
        )
        self.open_door = self._config.open_door(said.hosts)
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._known: tuple[Address, ...] = ()
        self._stale = True
        self._refreshing = asyncio.Lock()

    def twin(self) -> ClusterConnector:
        """A connector with a map and a lock of its own."""
        twin = copy.copy(self)
        twin._forget()  # noqa: SLF001 - it is one of us
        return twin

    def _forget(self) -> None:
        self._owners = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._known = ()
        self._stale = True
        self._refreshing = asyncio.Lock()

    def node(self, address: Address) -> NodeConnector:
        """A connector to one node."""
        return NodeConnector(self, self._config, address)

    async def connect(self) -> RedisConnection:
        """A connection to any node that can be reached."""
        for address in (*self._known, *self._seeds):
            try:
                return await self._config.connect(address)
            except (RedisConnectionError, InvalidResponse, OSError) as error:
                reason = error
        raise RedisConnectionError(f"no node can be reached: {reason}")

    async def fault(self, limit_s: float) -> StoreRefused | None:
        """What is wrong with the address, as far as the hosts in it tell."""
        return await self._config.fault(self._seeds, self.url, limit_s)

    # --- the map ---

    def owner(self, slot: int) -> Address:
        """The node that has a slot. Raises a connection error if no node is known to have it."""
        found = self._owners[slot]
        if found is None:
            self._stale = True
            raise RedisConnectionError(f"no node of the cluster serves slot {slot}")
        return found

    def primaries(self) -> Sequence[Address]:
        """The nodes that have slots."""
        return tuple(dict.fromkeys(owner for owner in self._owners if owner is not None))

    def moved(self, slot: int, address: Address) -> None:
        """Record that another node has the slot now; the rest of the map is refreshed before the next call."""
        self._owners[slot] = address
        self._stale = True

    def suspect(self) -> None:
        """Mark the map as possibly out of date, because a node did not answer."""
        self._stale = True

    async def prepare(self, limit_s: float) -> None:
        """Refresh the map if it may be out of date. An old map remains if no node can be reached."""
        if not self._stale:
            return
        async with self._refreshing:
            if self._stale:
                # Stale until it is done: concurrent callers wait here for the new map instead of using the old one.
                self._stale = not await self._refresh(min(limit_s, _ANSWER_S))

    async def _refresh(self, limit_s: float) -> bool:
        """Ask several nodes at once, and use the answer with the latest epoch once most have answered.

        Returns False if no node answers and there is an old map to continue with. A node that was cut off does not know
        that another has taken over its slots, and may report the old map for as long as it lives.
        """
        asked = tuple(dict.fromkeys((*self._known, *self._seeds)))[:_ASKED]
        tasks = [asyncio.create_task(self._ask(address)) for address in asked]
        found: list[_Map] = []
        reasons: list[Exception] = []
        try:
            for coming in asyncio.as_completed(tasks, timeout=limit_s):
                try:
                    found.append(await coming)
                except (RedisConnectionError, ResponseError, InvalidResponse, OSError) as error:
                    reasons.append(error)
                if len(found) > len(asked) // 2:
                    break
        except TimeoutError as error:
            reasons.append(error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if found:
            latest = max(found, key=lambda each: each[:2])
            self._owners, self._known = latest[2], latest[3]
            self.unmet = False
            return True
        if any(self._owners):
            return False  # the call itself will find out
        for reason in reasons:
            if "cluster support disabled" in str(reason):
                raise StoreRefused(
                    f"the server at {self.url} is not part of a cluster",
                    hint="write redis:// in its address",
                    url=self.url,
                )
            if isinstance(reason, ResponseError | AuthenticationError | AuthorizationError):
                raise refusal(reason, self.url)
        await self.examine(_EXAMINED_S)
        raise TransientError(reasons[0] if reasons else RedisConnectionError("no node answers"))

    async def _ask(self, address: Address) -> _Map:
        connection = await self._config.connect(address)
        try:
            # CLUSTER SLOTS is older than CLUSTER SHARDS, and every server with cluster support still has it.
            info, slots = await connection.call_many([("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
        finally:
            await connection.close()
        for reply in (info, slots):
            if isinstance(reply, ResponseError):
                raise reply
        fields = dict(line.split(":", 1) for line in info.decode().split() if ":" in line)
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        known: dict[Address, None] = {}
        for first, last, *nodes in slots:
            places = [_place(node, address) for node in nodes]
            known |= dict.fromkeys(places)
            owners[first : last + 1] = [places[0]] * (last - first + 1)
        return fields.get("cluster_state") == "ok", int(fields.get("cluster_current_epoch", 0)), owners, tuple(known)


#: Whether the node considers the cluster healthy, the epoch that it knows, the owner of each slot, and all nodes.
_Map = tuple[bool, int, list[Address | None], tuple[Address, ...]]


def _place(node: Sequence[Any], asked: Address) -> Address:
    host = b"" if node[0] is None else node[0]
    # A node that does not know its own name reports nothing or '?': it is the one that was asked.
    return Address(asked.host if host in (b"", b"?") else str(host, "utf-8"), int(node[1]))


class NodeConnector(Connector):
    """Connections to one node of a cluster."""

    moves = True

    def __init__(self, cluster: ClusterConnector, config: ConnectionConfig, address: Address) -> None:
        self.url, self.hint = cluster.url, cluster.hint
        self._config = config
        self._address = address

    async def connect(self) -> RedisConnection:
        """Open a connection."""
        return await self._config.connect(self._address)


class ClusterPool(RetryingClient):
    """Calls to the nodes of a cluster, over at most ``width`` connections to each."""

    scattered = True

    def __init__(
        self, connector: ClusterConnector, *, patience_s: float, width: int, check: Check | None = None
    ) -> None:
        super().__init__(connector, patience_s=patience_s)
        self._check = check
        self._cluster = connector
        self._width = width
        self._pools: dict[Address, Pool] = {}

    async def call_each(
        self,
        commands: Sequence[Sequence[Argument]],
        *,
        replicas: int = 0,
        grace_s: float,
        instead: Sequence[Sequence[Argument]] | None = None,
    ) -> list[tuple[Sequence[int], asyncio.Task[list[Any]]]]:
        """Send commands all at once, those of one node together: the places of each node, and the task of its replies.

        It waits for no node longer than ``grace_s``; a task that is not done continues. Its replies are the server's,
        errors included, or a ``SagaError`` for a call that failed. Each command must be safe to repeat: a failed one is
        repeated by itself, as by ``call``. ``instead`` holds for each command the plain one to call while
        its slot is being migrated.
        """
        try:
            await self._cluster.prepare(self._patience_s)
            shares, away = self._shares(commands)
        except TransientError:
            shares, away = {}, dict.fromkeys(range(len(commands)), RedisConnectionError("no map of the cluster"))
        calls: list[tuple[Sequence[int], asyncio.Task[list[Any]]]] = []
        for address, places in (*shares.items(), *((None, [place]) for place in away)):
            mine = [commands[place] for place in places]
            plain = None if instead is None else [instead[place] for place in places]
            calls.append((places, asyncio.create_task(self._see_to(address, mine, replicas, plain))))
        tasks = [task for _, task in calls]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=grace_s)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return calls

    async def _see_to(
        self,
        address: Address | None,
        commands: Sequence[Sequence[Argument]],
        replicas: int,
        instead: Sequence[Sequence[Argument]] | None,
    ) -> list[Any]:
        """The replies to the commands of one node; a command that fails there is repeated by itself."""
        replies: list[Any] = [None] * len(commands)
        if address is not None:
            replies = list(await self._at(address, commands, replicas))
        again = [
            place
            for place, reply in enumerate(replies)
            if address is None
            or isinstance(reply, TransientError)
            or (isinstance(reply, ResponseError) and _elsewhere(reply, replicas))
        ]
        moving = [place for place in again if isinstance(replies[place], ResponseError) and _on_its_way(replies[place])]
        calls = [
            self.call((instead if instead and place in moving else commands)[place], replicas=replicas)
            for place in again
        ]
        for place, reply in zip(again, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(reply, BaseException) and not isinstance(reply, ResponseError | SagaError):
                raise reply
            replies[place] = reply
        return replies

    def _shares(
        self, commands: Sequence[Sequence[Argument]]
    ) -> tuple[dict[Address, list[int]], dict[int, RedisConnectionError]]:
        """The places of the commands of each node, and of those without a known node."""
        shares: dict[Address, list[int]] = {}
        away: dict[int, RedisConnectionError] = {}
        for place, args in enumerate(commands):
            try:
                shares.setdefault(self._owner(args), []).append(place)
            except RedisConnectionError as error:
                away[place] = error
        return shares, away

    async def _at(self, address: Address, commands: Sequence[Sequence[Argument]], replicas: int) -> Sequence[Any]:
        """The replies of one node to commands that are sent together, once."""
        try:
            return await self._pool(address).once(lambda at, limit_s: confirmed(at, commands, replicas, limit_s))
        except StoreRefused as refused:
            return [refused] * len(commands)
        except TransientError as transient:
            await self._lost(address)
            return [transient] * len(commands)
        except ResponseError as error:
            # They were applied, but not confirmed.
            return [TransientError(error)] * len(commands)

    async def on_each(self, commands: Sequence[Sequence[Argument]]) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """The replies of each primary to commands without a key, by its address, and why others do not answer.

        A ``ResponseError`` is a reply. A primary may take as long as an attempt; if none answers, all are asked
        again. Raises ``StoreUnavailable`` if none does within the patience, and ``StoreRefused``.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        found: dict[Address, list[Any]] = {}
        reason: Exception = RedisConnectionError("no node of the cluster is known to have slots")
        while True:
            away: dict[Address, str] = {}
            try:
                await self._cluster.prepare(max(deadline_s - loop.time(), 0.0))
                asked = [address for address in self._cluster.primaries() if address not in found]
                told = await asyncio.gather(*(self._told(each, commands) for each in asked), return_exceptions=True)
                for address, replies in zip(asked, told, strict=True):
                    if isinstance(replies, TransientError):
                        reason = replies.reason
                        away[address] = str(reason) or "it is silent"
                    elif isinstance(replies, BaseException):
                        raise replies
                    else:
                        found[address] = replies
                # A replica may have taken over from one that did not answer.
                await self._cluster.prepare(max(deadline_s - loop.time(), 0.0))
            except TransientError as transient:
                reason = transient.reason
            now = self._cluster.primaries()
            if found and all(address in found or address in away for address in now):
                return (
                    {str(address): found[address] for address in now if address in found},
                    {str(address): away[address] for address in now if address in away},
                )
            if loop.time() + _PAUSE_S >= deadline_s:
                raise self._unavailable(reason) from reason
            await asyncio.sleep(_PAUSE_S)

    async def _told(self, address: Address, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """The replies of one node. Raises ``TransientError`` if it does not answer within the time of an attempt."""
        patience = Patience(self._attempt_s)
        pool = self._pool(address)
        try:
            return await pool.once(lambda at, _: at.call_many(commands), patience)
        except TransientError as transient:
            await self._lost(address)
            if patience.left_s() <= 0:
                raise
            reason = transient
        try:  # an idle connection that the server has closed is the common case
            return await pool.once(lambda at, _: at.call_many(commands), patience)
        except TransientError as transient:
            raise (transient if str(transient.reason) else reason) from transient

    def node_of(self, key: bytes) -> str:
        """The address of the node that has a key; empty if none is known to."""
        try:
            return str(self._cluster.owner(key_slot(key)))
        except RedisConnectionError:
            return ""

    async def _attempt(self, args: Sequence[Argument], patience: Patience, most_s: float | None, replicas: int) -> Any:
        await self._cluster.prepare(self._limit_s(patience, most_s))
        most_s = min(self._attempt_s, self._limit_s(patience, most_s))
        try:
            address = self._owner(args)
        except RedisConnectionError as error:
            raise TransientError(error) from error
        asking = False
        for _ in range(_HOPS):
            try:
                return await self._once(address, args, replicas, patience, most_s, asking=asking)
            except MovedError as moved:
                address, asking = self._redirected(moved, address), False
                self._cluster.moved(moved.slot_id, address)
            except AskError as ask:
                if is_script(args):
                    raise TransientError(ask) from ask
                address, asking = self._redirected(ask, address), True
            except ResponseError as error:
                if _elsewhere(error, replicas):
                    self._cluster.suspect()
                    raise TransientError(error) from error
                raise
            except TransientError as transient:
                await self._lost(address)
                raise _named(address, transient) from transient.reason
        raise TransientError(RedisConnectionError("the nodes of the cluster point at each other"))

    async def _once(
        self,
        address: Address,
        args: Sequence[Argument],
        replicas: int,
        patience: Patience,
        most_s: float,
        *,
        asking: bool,
    ) -> Any:
        commands: list[Sequence[Argument]] = [("ASKING",), args] if asking else [args]
        pool = self._pool(address)
        return await pool.once(lambda at, limit_s: answer_to(at, commands, replicas, limit_s), patience, most_s)

    def _owner(self, args: Sequence[Argument]) -> Address:
        key = key_of(args)
        return self._cluster.owner(key_slot(key) if key is not None else 0)

    def _redirected(self, redirection: AskError, asked: Address) -> Address:
        # Without a host it is the one that was asked.
        return Address(redirection.host or asked.host, redirection.port)

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            node = self._cluster.node(address)
            pool = Pool(node, patience_s=self._patience_s, width=self._width, check=self._check)
            self._pools[address] = pool
        return pool

    async def _lost(self, address: Address) -> None:
        """Record that a node does not answer: another may have its slots, and its other connections are useless."""
        self._cluster.suspect()
        await self._pool(address).close()

    async def _drop_idle(self) -> None:
        # Connections to nodes that answer are kept: a call to a dead one must not cost all others their connections.
        return

    async def close(self) -> None:
        """Close the idle connections."""
        for pool in self._pools.values():
            await pool.close()


def _named(address: Address, transient: TransientError) -> TransientError:
    """The same, with the name of the node: an operator must know which one is away."""
    said = str(transient.reason) or "it is silent"
    return TransientError(RedisConnectionError(said if str(address) in said else f"{address}: {said}"))


def _on_its_way(error: ResponseError) -> bool:
    """Whether the slot of the call is being migrated, key by key."""
    return isinstance(error, TryAgainError) or type(error) is AskError or _NOT_LOCAL in str(error)


def _elsewhere(error: ResponseError, replicas: int) -> bool:
    """Whether a repeat of the call may succeed, perhaps at another node."""
    return isinstance(error, AskError) or _on_its_way(error) or passing(error, moves=True, replicas=replicas)
