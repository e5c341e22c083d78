"""The queue of sagas that need a worker, and the reports of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol


class Taken(NamedTuple):
    """A saga that is ours now: its new epoch, the length of its journal, and the number of its unread messages.

    ``records`` are the whole journal; None if it is too long to include.
    """

    saga_id: str
    epoch: int
    seq: int
    messages: int
    records: Sequence[bytes] | None


class Taking(NamedTuple):
    """The response to a request for work.

    ``next_due_ms``: when, in Unix ms, the next saga needs a worker; None: none does.
    ``alive`` is False when the lease of the requesting owner has ended in some partitions (``ended``), from which
    nothing was taken.
    """

    now_ms: int
    alive: bool
    next_due_ms: int | None
    sagas: Sequence[Taken]
    ended: Sequence[int] = ()


class Hint(NamedTuple):
    """What a worker that listens is told: that something is due (empty), or that ``owner`` has messages for a saga."""

    owner: str = ""
    saga_id: str = ""


#: Where a sweep continues: partition, status and cursor, each as the store counts them.
SweepPlace = tuple[int, int, str]
SWEEP_START: Final[SweepPlace] = (0, 0, "0")


class Swept(NamedTuple):
    """The result of a piece of a sweep. ``at``: where to continue; ``SWEEP_START``: the sweep is complete.

    ``orphans``: the number of orphaned sagas. ``owned``: sagas of the requesting owner, each with its epoch.
    ``damaged``: sagas to whose keys another program wrote: they cannot be driven.
    """

    at: SweepPlace
    orphans: int
    owned: Sequence[tuple[str, int]]
    damaged: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """The pending work of a store. ``statuses``: sagas by status. ``queued`` need a worker now, ``timed`` later.

    ``oldest_ms``: since when, in Unix ms, the longest waiting one of ``queued`` has needed a worker; None: none does.
    ``owners``: the owners, with the remaining ms of each lease. ``reports``: the workers' reports (JSON). ``notes``:
    what the owners have noted in their leases, if that can be read.
    """

    now_ms: int
    statuses: Mapping[str, int]
    queued: int
    timed: int
    oldest_ms: int | None
    owners: Mapping[str, int]
    reports: Mapping[str, bytes]
    notes: Mapping[str, bytes] = field(default_factory=dict)


class WorkStore(Protocol):
    """The queue beside the journals: one sorted set for each partition, by the time when a saga needs a worker.

    A saga enters it when it is submitted for workers, when it is released with work left (now, or when its next timer
    fires), when it is reclaimed from an owner whose lease has ended, and, some seconds after a message was posted, when
    no process owns it. Acquiring a saga removes it. Methods raise what those of ``Store`` raise, and are as safe to
    repeat. ``partitions`` are numbers from 0 to ``count`` - 1.
    """

    @property
    def count(self) -> int:
        """How many partitions the store has."""
        ...

    async def take(self, owner: str, nonce: str, limit: int, partitions: Sequence[int]) -> Taking:
        """Acquire up to ``limit`` sagas that need a worker now, those that have waited longest in a partition first.

        It may take fewer than it could. Repeated with the same ``nonce`` after a lost response, it responds with what
        it took the first time: until it has responded, repeat it with the same one, for the same partitions in their
        order.
        """
        ...

    async def listen(self, partitions: Sequence[int], heard: Callable[[Hint | None], None]) -> None:
        """Pass on hints of these partitions until it is cancelled; return at once if this store sends none.

        A hint may be lost, repeated or wrong: nothing relies on it. Whenever the connection is there (again), ``heard``
        gets an empty hint, because hints may have been missed; when it is lost, None. It raises nothing: a server that
        is away or refuses is tried again.
        """

    async def owners(self, partitions: Sequence[int]) -> Mapping[str, int]:
        """The owners, present or past, and the remaining ms of each lease; 0.

        It has ended, and its sagas have no owner.
        """
        ...

    async def reclaim(self, owner: str, partitions: Sequence[int], *, dead: bool = False, silent_ms: int = 0) -> int:
        """Queue the sagas of an owner whose lease has ended; returns how many there were.

        ``dead``: the owner is provably dead, so its valid lease is no obstacle, if it was not renewed in the last
        ``silent_ms``. A live owner is left alone.
        """
        ...

    async def sweep(self, owner: str, at: SweepPlace = SWEEP_START, *, queue: bool = True) -> Swept:
        """Examine some hundreds of the sagas that have not ended, from ``at`` on.

        Orphaned ones are queued, unless they wait for an operator or for their agent; without ``queue`` they are only
        counted. A saga that exists throughout a sweep is examined.
        """
        ...

    async def forget(self, owner: str) -> None:
        """Forget an owner whose lease has ended and that has left no saga behind (a whole sweep has passed since).

        A live owner is left alone.
        """

    async def damage(self) -> Sequence[tuple[str, str]]:
        """The shared keys to which another program wrote, so that they have a wrong type.

        ``wrong`` and the key: the next process that meets it repairs it. ``aside`` and the key: it was moved aside
        lately.
        """
        ...

    async def mend(self, partitions: Sequence[int] | None = None) -> None:
        """Move such keys aside and rebuild their content; continue what a process that died has left unfinished.

        In all partitions or in some.
        """

    async def rebuild(self) -> Sequence[str]:
        """Add to all indexes what is missing there, from what is stored of each saga. They may be used meanwhile.

        Returns the sagas whose terms are lost; ``restore_terms`` gives them back.
        """
        ...

    async def restore_terms(self, saga_id: str, terms: Sequence[str]) -> None:
        """Add to the terms by which ``Store.search`` finds a saga; nothing happens if it is gone."""

    async def report(self, owner: str, body: bytes, ttl_ms: int) -> None:
        """Store a worker's report (JSON) for ``overview``; it expires after ``ttl_ms``."""

    async def overview(self) -> Load:
        """The pending work and the workers. Its cost does not grow with the number of sagas."""
        ...
