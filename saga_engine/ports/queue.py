"""The queue of sagas that want a worker, and who is at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol


class Taken(NamedTuple):
    """A saga that is ours now: its new epoch, the length of its journal, and how many messages wait in its inbox.

    ``records`` are the whole journal; None if it is too long to come along.
    """

    saga_id: str
    epoch: int
    seq: int
    inbox: int
    records: Sequence[bytes] | None


class Taking(NamedTuple):
    """What came of asking for work. ``next_due_ms``: when, in Unix ms, the next saga wants a worker; None: none does.

    ``alive`` is False when the session of the one who asked has ended; nothing was taken then.
    """

    now_ms: int
    alive: bool
    next_due_ms: int | None
    sagas: Sequence[Taken]


#: Where a sweep goes on: partition, status and cursor, each as the store counts them.
SweepPlace = tuple[int, int, str]
SWEEP_START: Final[SweepPlace] = (0, 0, "0")


class Swept(NamedTuple):
    """What a piece of a sweep found. ``at``: where to go on; ``SWEEP_START``: the sweep is through.

    ``orphans``: how many sagas had not ended although nobody owned them and nobody had queued them. ``owned``: sagas of
    the one who asked, each with its epoch. ``damaged``: sagas to whose keys somebody else wrote: nobody can drive them.
    """

    at: SweepPlace
    orphans: int
    owned: Sequence[tuple[str, int]]
    damaged: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What a store has to do. ``statuses``: sagas by status. ``queued`` want a worker now, ``timed`` later.

    ``oldest_ms``: since when, in Unix ms, the longest waiting one of ``queued`` has wanted a worker; None: none does.
    ``owners``: the sessions, with what is left of each in ms. ``reports``: what workers say of themselves (JSON).
    """

    now_ms: int
    statuses: Mapping[str, int]
    queued: int
    timed: int
    oldest_ms: int | None
    owners: Mapping[str, int]
    reports: Mapping[str, bytes]


class WorkStore(Protocol):
    """The queue beside the journals: one sorted set for each partition, by the time when a saga wants a worker.

    A saga gets there when it is submitted for workers, when it is given up with something left to do (now, or when its
    next timer fires), when it is reclaimed from an owner whose session has ended, and, some seconds after a message was
    posted, when nobody owns it. Whoever acquires it takes it out. Methods raise what those of ``Store`` raise, and are
    as safe to repeat. ``partitions`` are numbers from 0 to ``count`` - 1.
    """

    @property
    def count(self) -> int:
        """How many partitions the store has."""
        ...

    async def take(self, owner: str, nonce: str, limit: int, partitions: Sequence[int]) -> Taking:
        """Acquire up to ``limit`` sagas that want a worker now, those that have waited longest in a partition first.

        It may take fewer than it could. Asked again with the same ``nonce`` after a lost answer, it answers with what
        it took the first time: until it has answered, ask with the same one, for the same partitions in their order.
        """
        ...

    async def owners(self, partitions: Sequence[int]) -> Mapping[str, int]:
        """Who has, or had, a session, and what is left of it in ms; 0: it has ended, and its sagas are nobody's."""
        ...

    async def reclaim(self, owner: str, partitions: Sequence[int], *, dead: bool = False, silent_ms: int = 0) -> int:
        """Put the sagas of an owner whose session has ended into the queue; returns how many there were.

        ``dead``: the owner is provably dead, so its live session is no obstacle, if it was not renewed in the last
        ``silent_ms``. An owner that lives is left alone.
        """
        ...

    async def sweep(self, owner: str, at: SweepPlace = SWEEP_START, *, queue: bool = True) -> Swept:
        """Look at some hundreds of the sagas that have not ended, from ``at`` on.

        Those that nobody owns and nobody queued go into the queue, unless they rest for a person or for their agent;
        without ``queue`` they are only counted. A saga that is there throughout a sweep is looked at.
        """
        ...

    async def forget(self, owner: str) -> None:
        """An owner whose session has ended has left no saga behind (a whole sweep has come by since): it is no more.

        An owner that lives is left alone.
        """

    async def damage(self) -> Sequence[tuple[str, str]]:
        """The keys that sagas share and to which somebody else wrote, so that they have a wrong type.

        ``wrong`` and the key: it will be mended by whoever meets it. ``aside`` and the key: what was set aside lately.
        """
        ...

    async def mend(self) -> None:
        """Set such keys aside and rebuild what they said; go on with what a process that died has left unfinished."""

    async def report(self, owner: str, body: bytes, ttl_ms: int) -> None:
        """What a worker says of itself (JSON), for ``overview``; forgotten after ``ttl_ms``."""

    async def overview(self) -> Load:
        """What there is to do, and who does it. Its cost does not grow with the number of sagas."""
        ...
