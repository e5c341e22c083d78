"""The store: journals in Redis or Valkey, written by scripts that check epoch and position before they add anything.

One class serves every server; a remote, an embedded and a fake one differ only in their ``Connector``. All keys of a
saga carry the hash tag of its partition, so everything that a script changes together is in one slot::

    saga:{p07}:journal:<id>     list    the records
    saga:{p07}:head:<id>  hash  status epoch owner digest created_ms changed_ms summary messages values tally idle key
    saga:{p07}:values:<id>      hash    large values by digest
    saga:{p07}:messages:<id>    list    messages waiting
    saga:{p07}:tally:<id>       hash    counts of the policy (see ``guards``)
    saga:{p07}:reserved:<id>    hash    with a TTL: digest and of, before the saga of a reserved id is created
    saga:{p07}:index:<STATUS>   zset    id by changed_ms
    saga:{p07}:search           zset    term, created_ms and id, in lexical order
    saga:{p07}:terms:<id>       string  created_ms and the terms of a saga, until it is removed from ``search``
    saga:{p07}:expiry           zset    id of a finished saga by the time it expires
    saga:{p07}:lease:<owner>    string  with a TTL: the lease of a process, which covers all its sagas; and its note
    saga:{p07}:wake:<owner>     set     ids of its sagas with messages
    saga:{p07}:owners           set     owners with a lease, or with sagas left when it ended
    saga:{p07}:due              zset    id of a saga that nobody owns, by the time when it needs a worker
    saga:{p07}:taken:<owner>    list    the result of its last request for work: nonce, ids
    saga:{p00}:report:<owner>   string  with a TTL: a worker's report about itself
    saga:{p07}:clock            string  the latest time that was seen (see ``renew.lua``)
    saga:{p07}:damaged:<name>   any     a foreign value found at one of these keys (``mend.lua``)
    saga:{p07}:mending          string  while they are rebuilt
    saga:{p07}:stops            hash    the operator's stops by scope, and their version (``stop.lua``)
    saga:{p07}:mark             string  with a TTL: the write that replicas confirm (see ``connection``)
    saga:meta                   hash    format, partitions, key

The keys of guards are in ``guards``, of large values without a journal in ``values``; the queue's verbs in ``queue``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from saga_engine.core.states import SAGA_STATES
from saga_engine.errors import DurabilityInsufficient, JournalUnreadable, LeaseLost, SagaNotFound, StoreRefused
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.ports import (
    PAGE_START,
    Acquired,
    AppendReply,
    Begun,
    Entry,
    Head,
    Held,
    PagePlace,
    Query,
    Renewal,
    Renewals,
    SearchPlace,
    StopsSeen,
    StorePromise,
)
from saga_engine.settings import replicas_of
from saga_engine.stores.append_entries import damaged_head, head_of
from saga_engine.stores.client import Calls
from saga_engine.stores.commits import Commits
from saga_engine.stores.documents import RedisDocuments
from saga_engine.stores.durability import demand
from saga_engine.stores.ended import RedisEnded
from saga_engine.stores.events import RedisEvents
from saga_engine.stores.guards import RedisGuards
from saga_engine.stores.index import Candidate, latest, scanned, sought
from saga_engine.stores.leases import RedisLeases, renewed_anywhere
from saga_engine.stores.queue import RedisWork
from saga_engine.stores.repair import Mender
from saga_engine.stores.seals import RedisSeals
from saga_engine.stores.values import RedisValues

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from saga_engine.stores.connection import Connector

FORMAT: Final = 1
PARTITIONS: Final = 16

_RECORDS_PER_READ: Final = 1000
#: The number of sagas whose key names are cached.
_KEYS_KEPT: Final = 4096
_HEADS_PER_READ: Final = 500
_LOOKS: Final = 5
_log = logger_of("saga_engine.stores")
_Records = list[bytes]
_Places = list[int]


class RedisStore:
    """A ``Store`` (see ``ports``) on any server that a ``Connector`` reaches."""

    def __init__(
        self,
        connector: Connector,
        *,
        namespace: str = "saga",
        durability: str = "fsync",
        patience_s: float = 10.0,
        open_door: bool = False,
    ) -> None:
        self.url = connector.url
        self._connector = connector
        self._namespace = namespace
        self._durability = durability
        self._open_door = open_door
        self._calls = Calls(connector, patience_s=patience_s, replicas=replicas_of(durability))
        self._mender = Mender(self._calls)
        self._run, self._plain = self._mender.run, self._mender.plain
        self._wrapped = b""
        self.stops_seen = StopsSeen()
        self._tags = self._make_tags(PARTITIONS)

    # --- opening and closing ---

    async def open(self) -> None:
        """Connect, refuse a server with insufficient durability, and agree on the format.

        Of a cluster, a primary that does not answer is left out. A connection to it is checked when it is made.
        """
        demanding = self._durability != "relaxed" and not self._connector.promise()
        try:
            if demanding:
                demand(await self.promise())
                self._calls.demanding = True
            found = await self._run("meta", [f"{self._namespace}:meta"], [FORMAT, PARTITIONS])
        except BaseException:
            await self._calls.abandon()
            raise
        written, partitions = int(found[0]), int(found[1])
        if written > FORMAT:
            await self._calls.abandon()
            raise JournalUnreadable(
                f"the store at {self.url} has format {written}; this engine understands {FORMAT}",
                hint="upgrade the engine",
                url=self.url,
            )
        self._tags = self._make_tags(partitions)
        self._wrapped = found[2] or b""

    async def verify(self) -> None:
        """Refuse a server whose durability has dropped; then so does every new connection, until it recovers."""
        if self._calls.demanding:
            try:
                demand(await self.promise())
            except DurabilityInsufficient:
                await self._calls.forget()
                raise

    async def close(self) -> None:
        """Release connections. An embedded server stops when its last client has left."""
        await self._mender.close()
        await self._calls.close()
        await self._connector.close()

    async def promise(self) -> StorePromise:
        """The server's durability, read from the server now."""
        known = self._connector.promise()
        if known:
            return known
        found = await self._calls.promise(self._tags, open_door=self._open_door)
        return replace(found, findings=(*found.findings, *self._connector.findings()))

    # --- leases ---

    async def open_lease(
        self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b""
    ) -> int:
        """Start the lease of ``owner``, in every partition or in some; returns the store's clock in Unix ms."""
        return await self._leases().open(owner, ttl_ms, partitions, note)

    @property
    def open_apart(self) -> Callable[[str, int, bytes], Awaitable[Begun]] | None:
        """Start the lease where a server answers (see ``ports.Apart``); None on one server."""
        return self._leases().open_apart if self._calls.scattered else None

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """Extend the lease, unless it has ended in any partition: then the others expire by themselves."""
        return await self._leases().renew(owner, ttl_ms)

    @property
    def renew_apart(self) -> Callable[[str, int, Sequence[int]], Awaitable[Renewals]] | None:
        """Renew by partition, without one waiting for another (see ``ports.Apart``); None on one server."""
        return self._leases().renew_apart if self._calls.scattered else None

    def partition_of(self, saga_id: str) -> int:
        """The partition of a saga."""
        return crc32(saga_id.encode()) % len(self._tags)

    def _leases(self) -> RedisLeases:
        return RedisLeases(self._calls, self._mender, self._tags)

    def renew_blocking(
        self, owner: str, ttl_ms: int, limit_s: float, held: Mapping[str, Sequence[str]] | None = None
    ) -> Renewal:
        """Extend the lease and the places in queues from another thread, over a connection of its own."""

        async def renewed() -> Renewal:
            # If one server is unavailable, the answers of the others must be used in time.
            patience_s = limit_s / 2 if self._calls.scattered else limit_s
            twin = RedisStore(
                self._connector.twin(), namespace=self._namespace, durability=self._durability, patience_s=patience_s
            )
            twin._tags = self._tags
            try:
                renewal = await renewed_anywhere(twin, owner, ttl_ms, range(len(self._tags)))
                if renewal.alive:
                    guards = twin.guard_store()
                    for resource, tickets in (held or {}).items():
                        await guards.keep(resource, tickets, ttl_ms)
                return renewal
            finally:
                await twin._calls.close()

        return asyncio.run(renewed())

    async def close_lease(self, owner: str, *, clean: bool = False, partitions: Sequence[int] | None = None) -> None:
        """End the lease now, in every partition or in some."""
        await self._leases().close(owner, clean=clean, partitions=partitions)

    async def acquire(self, saga_id: str, owner: str, dead_owner: str | None = None) -> Acquired | Held:
        """Take the saga if no process with a valid lease owns it.

        Raises ``SagaNotFound``, and ``LeaseLost`` if the lease of ``owner`` itself has ended.
        """
        reply = await self._run("acquire", self._journal_and_head(saga_id), [owner, dead_owner or ""])
        outcome = reply[0]
        if outcome == -1:
            raise self._not_found(saga_id)
        if outcome == -3:
            raise damaged_head(saga_id, "its fields are missing, or are not what the engine wrote")
        if outcome == -2:
            raise LeaseLost(
                f"the lease of {owner} has ended, so it cannot take saga {saga_id}",
                hint="open a new lease",
                saga_id=saga_id,
                owner=owner,
            )
        if outcome == 0:
            return Held(str(reply[1], "utf-8"), reply[2])
        return Acquired(reply[1], reply[2], reply[3:])

    async def release(self, saga_id: str, epoch: int, due_ms: int = 0) -> None:
        """Release the saga, if ``epoch`` is still its epoch."""
        await self._run("release", [self._key("head", saga_id)], [epoch, due_ms])

    # --- the journal ---

    async def reserve(self, saga_id: str, digest: str, of: str, ttl_ms: int) -> str:
        """Reserve the id for the saga with this digest; returns the digest for which it is taken now."""
        return str(await self._run("reserve", [self._key("head", saga_id)], [digest, of, ttl_ms]), "utf-8")

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit. Raises ``ValueError`` for an entry that contradicts itself."""
        return await self._commits.append(owner, entries)

    @property
    def append_apart(self) -> Callable[[str, Sequence[Entry]], Awaitable[AppendReply]] | None:
        """Append on several servers, without one waiting for another (see ``ports.Apart``); None on one server."""
        return self._commits.append_apart if self._calls.scattered else None

    async def read(self, saga_id: str, start: int = 0, most: int = 0) -> Sequence[bytes]:
        """The records from ``start`` on. Raises ``JournalUnreadable`` for a saga whose journal is gone."""
        keys = self._journal_and_head(saga_id)
        records: _Records = []
        while True:
            first = start + len(records)
            at_once = min(_RECORDS_PER_READ, most - len(records)) if most else _RECORDS_PER_READ
            piece = await self._run("read", keys, [first, first + at_once - 1])
            if piece is None:
                raise self._not_found(saga_id)
            records += piece
            if len(piece) < at_once or len(records) == most:
                break
        if not records and start == 0:
            raise JournalUnreadable(
                f"saga {saga_id} has a head but no journal",
                hint="something outside the engine removed its keys; restore them from a backup",
                saga_id=saga_id,
            )
        return records

    async def values(self, saga_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """The large values of a saga by digest."""
        found: dict[str, bytes] = {}
        # One by one: each may be large, and a reply with all of them might exceed every time-out.
        for digest in dict.fromkeys(digests):
            value = await self._plain("HGET", self._key("values", saga_id), digest)
            if value is None:
                raise JournalUnreadable(
                    f"a value of saga {saga_id} is missing from the store",
                    hint="something outside the engine removed it; restore it from a backup",
                    saga_id=saga_id,
                    digest=digest,
                )
            found[digest] = value
        return found

    # --- looking ---

    async def head(self, saga_id: str) -> Head:
        """The summary of one saga."""
        (found,) = await self._run("heads", [self._key("head", saga_id)], [""])
        if found is None:
            raise self._not_found(saga_id)
        return head_of(saga_id, found)

    async def list(self, status: str | None = None, limit: int = 1000) -> Sequence[Head]:
        """Summaries, the most recently changed first."""
        wanted = (status,) if status else SAGA_STATES
        heads: dict[str, Head] = {}
        damaged: dict[str, JournalUnreadable] = {}
        # Reading a wrong index entry removes it, and it may have hidden a right one: read again. Only a few times,
        # because sagas change while they are listed.
        for _ in range(_LOOKS):
            heads.clear()
            damaged.clear()
            candidates = await latest(self._mender, self._tags, wanted, limit)
            for start in range(0, len(candidates), _HEADS_PER_READ):
                piece = candidates[start : start + _HEADS_PER_READ]
                found = await self._heads(piece)
                for (_, saga_id, _), fields in zip(piece, found, strict=True):
                    try:
                        if fields is not None and (status is None or fields[0] in (None, status.encode())):
                            heads[saga_id] = head_of(saga_id, fields)
                    except JournalUnreadable as error:
                        damaged[saga_id] = error
            if len(heads) + len(damaged) == len(candidates):
                break
        for why in damaged.values():
            _log.warning("left out of a list: %s", why)
        return sorted(heads.values(), key=lambda head: (-head.changed_ms, head.saga_id))

    async def search(self, query: Query, after: SearchPlace | None = None) -> tuple[Sequence[Head], SearchPlace | None]:
        """A page of the sagas that fit, the most recently created first; see ``ports.Store``."""
        piece, following = await sought(self._mender, self._tags, query, after)
        return await self._heads_of(piece, query.statuses, "search"), following

    async def page(self, status: str, at: PagePlace = PAGE_START) -> tuple[Sequence[Head], PagePlace | None]:
        """Some of the sagas of a status, and where to continue; see ``ports.Store``."""
        piece, following = await scanned(self._mender, self._tags, status, at)
        return await self._heads_of(piece, (status,), "page"), following

    async def _heads_of(self, piece: Sequence[Candidate], statuses: Sequence[str], what: str) -> Sequence[Head]:
        """The heads of candidates that exist, and have one of the statuses (empty: any) by now."""
        wanted = {None, *(status.encode() for status in statuses)}
        heads = []
        for (_, saga_id, _), fields in zip(piece, await self._heads(piece), strict=True):
            try:
                if fields and (len(fields) == 1 or not statuses or fields[0] in wanted):
                    heads.append(head_of(saga_id, fields))
            except JournalUnreadable as error:
                _log.warning("left out of a %s: %s", what, error)
        return heads

    async def _heads(self, piece: Sequence[Candidate]) -> Sequence[Any]:
        """The reply of ``heads.lua`` for each candidate."""
        shares: dict[str, _Places] = {}
        for place, (_, saga_id, _) in enumerate(piece):
            head = self._key("head", saga_id)
            shares.setdefault(head[: head.index("}")] if self._calls.scattered else "", []).append(place)
        calls = [
            ([self._key("head", piece[place][1]) for place in places], [piece[place][2] for place in places])
            for places in shares.values()
        ]
        replies = await self._calls.run_many("heads", calls)
        by_place = {
            place: fields
            for places, reply in zip(shares.values(), replies, strict=True)
            for place, fields in zip(places, reply, strict=True)
        }
        return [by_place[place] for place in range(len(piece))]

    # --- messages ---

    async def post(self, saga_id: str, message: bytes, *, spare_ms: int = 5_000) -> Head:
        """Post a message to a saga and wake its owner. The same bytes never wait twice."""
        found = await self._run("post", [self._key("head", saga_id)], [message, spare_ms])
        if found is None:
            raise self._not_found(saga_id)
        if found == 0:
            raise StoreRefused(
                f"saga {saga_id} has too many unread messages; nothing was added",
                hint="its messages are read when it is driven: `saga resume`, or a worker",
                saga_id=saga_id,
                reason="MESSAGES",
            )
        return head_of(saga_id, found)

    async def messages(self, saga_id: str) -> Sequence[bytes]:
        """The waiting messages, oldest first; none for a saga that does not exist."""
        waiting: Sequence[bytes] = await self._plain("LRANGE", self._key("messages", saga_id), 0, -1)
        return waiting

    # --- what workers and guards share ---

    def work(self) -> RedisWork:
        """The queue, on the connections that do not carry the journal."""
        return RedisWork(self._mender, self._tags, self._connector, together=not self._calls.scattered)

    def guard_store(self) -> RedisGuards:
        """The shared state of guards, on the connections that do not carry the journal."""
        return RedisGuards(
            self._mender,
            self._namespace,
            self._status,
            self._driven,
            saga_keys=partial(self._journal_and_head, kind="tally"),
            stop_keys=[f"{tag}stops" for tag in self._tags],
            stops_seen=self.stops_seen,
            apart=self._calls if self._calls.scattered else None,
        )

    def event_store(self) -> RedisEvents:
        """Events and the waits for them, on the connections that do not carry the journal."""
        return RedisEvents(self._mender, self._tags)

    def value_store(self) -> RedisValues:
        """Large values of sagas whose journals lie elsewhere, on the connections that do not carry the journal."""
        return RedisValues(self._mender, self._namespace)

    def documents(self) -> RedisDocuments:
        """Named documents, on the connections that do not carry the journal."""
        return RedisDocuments(self._mender, self._namespace)

    def ended(self) -> RedisEnded:
        """The sagas that have ended, on the connections that do not carry the journal."""
        return RedisEnded(self._mender, self._tags, self._heads_of)

    def seals(self) -> RedisSeals:
        """The wrapped keys of sagas and of the store, on the connections that do not carry the journal."""
        return RedisSeals(self._mender, self._wrapped, f"{self._namespace}:meta", partial(self._key, "head"))

    async def _status(self, saga_id: str) -> str | None:
        found = await self._plain("HGET", self._key("head", saga_id), "status")
        return None if found is None else str(found, "utf-8")

    async def _driven(self, saga_id: str) -> bool:
        try:
            return (await self.head(saga_id)).owner_ttl_ms > 0
        except SagaNotFound:
            return False

    # --- keys ---

    def _make_tags(self, partitions: int) -> Sequence[str]:
        width = max(2, len(str(partitions - 1)))
        tags = [f"{self._namespace}:{{p{number:0{width}}}}:" for number in range(partitions)]

        def both(saga_id: str) -> tuple[str, str]:
            tag = tags[crc32(saga_id.encode()) % partitions]
            return f"{tag}journal:{saga_id}", f"{tag}head:{saga_id}"

        # A saga needs them for each append.
        both = lru_cache(_KEYS_KEPT)(both)
        self._commits = Commits(
            self._calls, self._mender, self.stops_seen, url=self.url, both=both, partitions=partitions
        )
        return tags

    def _key(self, kind: str, saga_id: str) -> str:
        try:
            tag = self._tags[crc32(saga_id.encode()) % len(self._tags)]
        except UnicodeEncodeError as error:
            # A lone surrogate, as a terminal makes one of a byte that is not UTF-8: no saga can have this id.
            raise self._not_found(ascii(saga_id)[1:-1]) from error
        return f"{tag}{kind}:{saga_id}"

    def _journal_and_head(self, saga_id: str, kind: str = "journal") -> Sequence[str]:
        return [self._key(kind, saga_id), self._key("head", saga_id)]

    def _not_found(self, saga_id: str) -> SagaNotFound:
        return SagaNotFound(
            said("saga_not_found", saga=saga_id, store=self.url),
            hint=said("saga_not_found.hint"),
            saga_id=saga_id,
        )
