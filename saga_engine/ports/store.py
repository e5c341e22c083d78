"""The store of the journals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from saga_engine.ports.documents import DocumentStore
from saga_engine.ports.ended import EndedStore
from saga_engine.ports.events import EventStore
from saga_engine.ports.guards import GuardStore, StopsSeen
from saga_engine.ports.head import Head
from saga_engine.ports.queue import WorkStore
from saga_engine.ports.seals import SealStore
from saga_engine.ports.values import ValueStore

#: Where a page starts: partition and cursor, each as the store counts them.
PagePlace = tuple[int, str]
PAGE_START: Final[PagePlace] = (0, "0")
#: Where a page of a search ends: when the last saga of it was created (Unix ms), and its id.
SearchPlace = tuple[int, str]


class Creation(NamedTuple):
    """The initial head of a new saga. ``owned``: the creator becomes its owner at epoch 1.

    One that is not owned is for workers; ``room`` is how many of its partition may already wait for one, 0: unlimited.
    ``key``: the wrapped key with which its payloads are sealed; empty: they are not.
    """

    digest: str
    owned: bool
    room: int = 0
    key: bytes = b""


class Entry(NamedTuple):
    """One saga's share of a group commit: records to add, on condition of ``epoch`` and of ``seq``.

    ``seq`` is the length that the journal must have before. ``status`` and ``summary`` (JSON) replace those of the head
    when given. ``release`` gives up ownership in the same write, unless messages are waiting and the saga has not
    ended. ``consumed`` messages are removed. ``keep_ms`` (with a final status) is how long the finished saga is kept; 0
    is for ever. ``values`` are stored once, by digest, before the records that refer to them. ``due_ms``: when, in Unix
    ms, the saga needs a worker once no process owns it; a time that is past is now, and 0 is never. ``terms`` are added
    to those by which the saga is found (``Store.search``): texts without control characters. ``asks``: whether a
    question is open now; None: as before.
    """

    saga_id: str
    seq: int
    epoch: int
    records: Sequence[bytes]
    status: str | None = None
    summary: bytes | None = None
    release: bool = False
    consumed: int = 0
    keep_ms: int = 0
    values: Mapping[str, bytes] | None = None
    creation: Creation | None = None
    due_ms: int = 0
    terms: Sequence[str] = ()
    asks: bool | None = None


AckCode = Literal["ok", "fenced", "conflict", "exists", "missing", "full", "reserved", "late"]


class Ack(NamedTuple):
    """The acknowledgement of one entry.

    ``ok``: durable now, or already there from an earlier try with the same records. ``fenced``: the epoch is not the
    head's, or the owner's lease has ended. ``conflict``: the journal does not continue at ``seq``. ``exists``: the id
    to create is taken (``digest`` identifies its plan). ``reserved``: it is reserved for another saga, which will own
    effects of the saga ``digest``. ``missing``: no such saga. ``full``: too many sagas wait for a worker already.
    ``late``: see ``AppendReply``. An entry that is neither ``ok`` nor ``late`` changed nothing.
    ``messages`` is the number of messages waiting. ``released``: no process owns the saga now; a saga with messages is
    released only if it has ended.
    """

    code: AckCode
    messages: int = 0
    digest: str = ""
    released: bool = False


class AppendReply(NamedTuple):
    """The store's response to a group commit: its clock in Unix milliseconds and one ack for each entry, in order.

    ``late`` (see ``Apart``): the entries, by their place, whose server has not responded with the others. Each future's
    ack is the entry's, or it fails as ``append`` would have failed if it had been called for that entry alone.
    """

    now_ms: int
    acks: Sequence[Ack]
    late: Mapping[int, asyncio.Future[Ack]] = {}


class Query(NamedTuple):
    """What is searched for: sagas with all of the ``terms`` and one of the ``statuses`` (empty: any).

    ``asks``: a question is open. ``since_ms`` and ``until_ms`` bound the time of creation, in Unix ms.
    """

    terms: Sequence[str] = ()
    statuses: Sequence[str] = ()
    asks: bool = False
    since_ms: int = 0
    until_ms: int | None = None
    limit: int = 100


class Acquired(NamedTuple):
    """The saga is ours: its new epoch, the length of its journal, and its unread messages."""

    epoch: int
    seq: int
    messages: Sequence[bytes]


class Held(NamedTuple):
    """Another process owns the saga for at least ``ttl_ms`` more."""

    owner: str
    ttl_ms: int


class Renewal(NamedTuple):
    """``alive`` is False when the lease had already ended. ``wakes`` are owned sagas with a message waiting.

    ``only``: the partitions in which it was renewed, if others could not be asked; None: in all.
    """

    now_ms: int
    alive: bool
    wakes: Sequence[str]
    only: Sequence[int] | None = None


class Begun(NamedTuple):
    """A lease that has begun: the store's clock in Unix ms, and the partitions in which it has."""

    now_ms: int
    partitions: Sequence[int]


class Renewals(NamedTuple):
    """What came of renewing a lease by partition. ``late`` futures fail as ``Store.renew`` would."""

    found: Mapping[int, Renewal]
    late: Mapping[int, asyncio.Future[Renewal]]


@dataclass(frozen=True, slots=True)
class StorePromise:
    """What a store reports about its own durability, for the start-up check and for ``saga doctor``.

    ``level`` is the durability that it provides: ``fsync`` (acknowledged means on disk), ``replicated:N`` (and on the
    disks of N replicas; only when that was requested) or ``relaxed`` (it may lose the last writes, or everything).
    ``findings`` are (severity, text, hint) with severity ``ok``, ``warning`` or ``error``.
    """

    url: str
    server: str
    level: str
    findings: Sequence[tuple[str, str, str]] = field(default_factory=tuple)


class Store(Protocol):
    """The store of the journals. A write is atomic for each saga, and durable (at the store's level) when it returns.

    All methods raise ``StoreUnavailable`` when the server cannot be reached within the store's patience, and
    ``StoreRefused`` when it responds with an error. A call that raised ``StoreUnavailable`` may or may not have been
    applied; repeating it with the same arguments is always safe. Only the server's clock counts for leases.
    """

    url: str

    async def open(self) -> None:
        """Connect, check the format version, and refuse a server that provides less than the configured durability."""

    async def close(self) -> None:
        """Release connections. Leases do not end with this."""

    async def verify(self) -> None:
        """Verify again what ``open`` requires: servers are reconfigured. Raises ``DurabilityInsufficient``."""

    async def promise(self) -> StorePromise:
        """The server's durability, read from the server now."""
        ...

    async def open_lease(
        self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b""
    ) -> int:
        """Start the lease of ``owner``, in every partition or in some; returns the store's clock in Unix ms.

        ``note``: what ``WorkStore.overview`` shows of the owner for as long as the lease holds. Idempotent.
        """
        ...

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """Extend the lease, unless it has ended in any partition. One round trip."""
        ...

    def renew_blocking(
        self, owner: str, ttl_ms: int, limit_s: float, held: Mapping[str, Sequence[str]] | None = None
    ) -> Renewal:
        """As ``renew``, from any thread, over its own connection, within ``limit_s`` seconds.

        ``held``: the tickets by resource that are kept alive as well (``GuardStore.keep``) if the lease is. It blocks
        its thread: it is for the case that the event loop is blocked.
        """
        ...

    async def close_lease(self, owner: str, *, clean: bool = False, partitions: Sequence[int] | None = None) -> None:
        """End the lease now, in every partition or in some: others may take over at once. Idempotent.

        ``clean``: it owns no saga any more.
        """

    async def acquire(self, saga_id: str, owner: str, dead_owner: str | None = None) -> Acquired | Held:
        """Take the saga if no process with a valid lease owns it; each success makes a new, greater epoch.

        ``dead_owner`` names an owner that is provably dead: its valid lease is no obstacle. Repeated by the owner
        itself, it succeeds (with a new epoch). Raises ``SagaNotFound``.
        """
        ...

    async def release(self, saga_id: str, epoch: int, due_ms: int = 0) -> None:
        """Release the saga, if ``epoch`` is still its epoch; it needs a worker at ``due_ms``, as in ``Entry``.

        -1: it stays queued as it is: others may have to be told what follows from its end.
        Idempotent.
        """

    async def reserve(self, saga_id: str, digest: str, of: str, ttl_ms: int) -> str:
        """Reserve an id for the saga with this ``digest``, which will own effects of the saga ``of``.

        For ``ttl_ms``, or until that saga is created, no other saga can be created with the id. Returns the digest for
        which the id is taken now: another one if a saga exists or the id was reserved before. Idempotent.
        """
        ...

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit: every entry succeeds or fails by itself, in one round trip and one fsync."""
        ...

    @property
    def stops_seen(self) -> StopsSeen:
        """What replies to ``append`` have told of the operator's stops (``GuardStore.stops``)."""
        ...

    async def read(self, saga_id: str, start: int = 0, most: int = 0) -> Sequence[bytes]:
        """The records from ``start`` on, in order, ``most`` of them (0: all). Raises ``SagaNotFound``."""
        ...

    async def values(self, saga_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """The large values of a saga by digest; a missing one raises ``JournalUnreadable``."""
        ...

    async def head(self, saga_id: str) -> Head:
        """The summary of one saga. Raises ``SagaNotFound``."""
        ...

    async def list(self, status: str | None = None, limit: int = 1000) -> Sequence[Head]:
        """Summaries, the most recently changed first; ``status`` None is all."""
        ...

    async def page(self, status: str, at: PagePlace = PAGE_START) -> tuple[Sequence[Head], PagePlace | None]:
        """Some hundreds of the sagas of a status, in no order, and where to continue; None: these were the last.

        A saga that has the status throughout is on one page at least; one may be on several.
        """
        ...

    async def search(self, query: Query, after: SearchPlace | None = None) -> tuple[Sequence[Head], SearchPlace | None]:
        """A page of the sagas that fit, the most recently created first, and where the next page starts.

        None: this was the last. A saga that fits throughout is on exactly one page. A page may hold fewer than
        ``query.limit``, and even none, although there is a next one.
        """
        ...

    async def post(self, saga_id: str, message: bytes, *, spare_ms: int = 5_000) -> Head:
        """Post a message to a saga and wake its owner; returns the head as it then was. Raises ``SagaNotFound``.

        If no process owns the saga, the sender acts on it; if that fails, a worker does after ``spare_ms``. A saga
        holds some hundreds of messages at least; ``StoreRefused`` (reason ``MESSAGES``) reports that there is no room.
        """
        ...

    async def messages(self, saga_id: str) -> Sequence[bytes]:
        """The unread messages, oldest first."""
        ...

    def guard_store(self) -> GuardStore:
        """The shared state of the guards of all processes, in the same place as the journals."""
        ...

    def event_store(self) -> EventStore:
        """Events and the waits for them, in the same place as the journals."""
        ...

    def value_store(self) -> ValueStore:
        """Large values of sagas whose journals lie elsewhere."""
        ...

    def documents(self) -> DocumentStore:
        """Named documents: templates of plans, schedules."""
        ...

    def work(self) -> WorkStore:
        """The queue of sagas that need a worker."""
        ...

    def ended(self) -> EndedStore:
        """The sagas that have ended, and how they leave the store."""
        ...

    def seals(self) -> SealStore:
        """The wrapped keys of sagas whose payloads are sealed."""
        ...


class Apart(Protocol):
    """What a store over several servers provides as well: the sagas of one do not wait for another."""

    def partition_of(self, saga_id: str) -> int:
        """The partition in which a saga lies."""
        ...

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """As that of ``Store``."""
        ...

    @property
    def open_apart(self) -> Callable[[str, int, bytes], Awaitable[Begun]] | None:
        """As ``open_lease``, in those partitions whose server answers; one that is slow or away is left out.

        A server that is left out may still start the lease when it goes on: it ends by itself. Raises if none answers.
        None: there is one server.
        """
        ...

    @property
    def renew_apart(self) -> Callable[[str, int, Sequence[int]], Awaitable[Renewals]] | None:
        """As ``renew``, by partition: what a server that is slow or away has not said is ``late``. One round trip.

        None: there is one server, and a lease has one part.
        """
        ...

    @property
    def append_apart(self) -> Callable[[str, Sequence[Entry]], Awaitable[AppendReply]] | None:
        """As ``append``, but a slow or unavailable server delays only its own entries: they are ``late``.

        Raises if no entry was acknowledged. None: there is one server.
        """
        ...


def parts_of(store: Store) -> Callable[[str], int]:
    """By what a saga shares the fate of others if a server is away: its partition; of one server all have the same."""
    if getattr(store, "renew_apart", None) is None:
        return lambda _: 0
    part: Callable[[str], int] = store.partition_of  # type: ignore[attr-defined]
    return part
