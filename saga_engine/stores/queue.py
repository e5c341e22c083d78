"""The queue of sagas that need a worker, beside the journals in the same Redis or Valkey.

A sorted set in each partition holds the sagas that nobody owns by the time when they need a worker: at once, or when a
timer fires. It changes in the same script as owner and epoch, so a saga never has two owners and is never lost between
two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from saga_engine.core.states import SAGA_FINAL, SAGA_STATES
from saga_engine.ports import SWEEP_START, Load, SweepPlace, Swept, Taken, Taking
from saga_engine.stores.hints import pass_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from saga_engine.ports import Hint
    from saga_engine.stores.connection import Connector
    from saga_engine.stores.repair import Mender

_LIVE: Final = tuple(status for status in SAGA_STATES if status not in SAGA_FINAL)
#: How many sagas one call of a partition's scan reads: it blocks the server for a millisecond at most.
_LOOK_AT: Final = 500
#: Lua's stack limits the number of names that one command can take.
_TAKE_AT_ONCE: Final = 1000


class RedisWork:
    """A ``WorkStore`` (see ``ports``) beside the journals of a ``RedisStore``."""

    def __init__(self, mender: Mender, tags: Sequence[str], connector: Connector, *, together: bool = True) -> None:
        self._connector = connector
        self._mender = mender
        self._spread, self._plain = mender.spread, mender.plain
        self._tags = tags
        self._together = together  # whether one call may use several partitions

    @property
    def count(self) -> int:
        """How many partitions the store has."""
        return len(self._tags)

    async def take(self, owner: str, nonce: str, limit: int, partitions: Sequence[int]) -> Taking:
        """Acquire up to ``limit`` sagas that need a worker now; see ``ports.WorkStore``."""
        limit = min(limit, _TAKE_AT_ONCE)
        now_ms, next_due_ms = 0, None
        sagas: list[Taken] = []
        ended: list[int] = []
        # If each partition takes a call, one after the other: together they must not take more than the limit.
        for numbers in [partitions] if self._together else [[number] for number in partitions]:
            due = [(f"{self._tags[number]}due",) for number in numbers]
            for reply in await self._spread("take", due, [owner, nonce, limit - len(sagas)]):
                now_ms = max(now_ms, reply[0])
                if reply[1] != 1:
                    ended += numbers
                if reply[2] != -1:
                    next_due_ms = reply[2] if next_due_ms is None else min(next_due_ms, reply[2])
                for at in range(3, len(reply), 5):
                    saga_id, epoch, length, messages, records = reply[at : at + 5]
                    sagas.append(Taken(str(saga_id, "utf-8"), epoch, length, messages, records))
        return Taking(now_ms, not ended, next_due_ms, sagas, ended)

    async def listen(self, partitions: Sequence[int], heard: Callable[[Hint | None], None]) -> None:
        """Pass on hints until it is cancelled; see ``ports.WorkStore``."""
        await pass_on(self._connector, [f"{self._tags[number]}hints" for number in partitions], heard)

    async def owners(self, partitions: Sequence[int]) -> Mapping[str, int]:
        """The owners that have, or had, a lease, and its remaining time in ms; 0: it has ended."""
        found: dict[str, int] = {}
        for reply in await self._spread("owners", [(f"{self._tags[number]}owners",) for number in partitions], []):
            for owner, ttl_ms in zip(reply[::2], reply[1::2], strict=True):
                name = str(owner, "utf-8")
                found[name] = min(ttl_ms, found.get(name, ttl_ms))
        return found

    async def reclaim(self, owner: str, partitions: Sequence[int], *, dead: bool = False, silent_ms: int = 0) -> int:
        """Put the sagas of an owner whose lease has ended into the queue; returns their number."""
        moved = 0
        least_ms = silent_ms if dead else -1
        for number in partitions:
            keys = [(f"{self._tags[number]}owners",)]
            for status in (*_LIVE, ""):
                cursor = 0
                while True:
                    ((cursor, *rest),) = await self._spread(
                        "reclaim", keys, [owner, least_ms, status, cursor, _LOOK_AT]
                    )
                    if not rest:
                        break
                    moved += rest[0]
                    if cursor == 0:
                        break
                if not rest:
                    break  # it lives in this partition
        return moved

    async def sweep(self, owner: str, at: SweepPlace = SWEEP_START, *, queue: bool = True) -> Swept:
        """Scan some of the sagas that have not ended; see ``ports.WorkStore``."""
        partition, status, cursor = at
        tags = self._tags if self._together else self._tags[partition : partition + 1]
        args = [owner, int(queue), _LOOK_AT, partition if self._together else 0, status, cursor, *_LIVE]
        # On a cluster the call uses one partition, and its reply is the only one.
        (reply,) = await self._spread("sweep", [(f"{tag}owners",) for tag in tags], args)
        next_at = (reply[0], reply[1], str(reply[2], "utf-8"))
        if not self._together:
            following = partition + (next_at == SWEEP_START)
            next_at = (following % len(self._tags), *next_at[1:])
        owned = [(str(saga_id, "utf-8"), epoch) for saga_id, epoch in zip(reply[5::2], reply[6::2], strict=True)]
        damaged = [str(saga_id, "utf-8", "replace") for saga_id in reply[4]]
        return Swept(next_at, reply[3], owned, damaged)

    async def forget(self, owner: str) -> None:
        """Remove an owner whose lease has ended and that has no saga left; see ``ports.WorkStore``."""
        await self._spread("reclaim", [(f"{tag}owners",) for tag in self._tags], [owner, -1, "", 0, 0])

    async def damage(self) -> Sequence[tuple[str, str]]:
        """The keys of partitions that have a wrong type; see ``ports.WorkStore``."""
        found = await self._mender.find(self._tags)
        return [(word, key) for word, key in found if word != "unfinished"]

    async def mend(self, partitions: Sequence[int] | None = None) -> None:
        """Continue unfinished mending of other processes, and mend what is damaged now; see ``ports.WorkStore``."""
        await self._mender.mend(self._tags if partitions is None else [self._tags[number] for number in partitions])

    async def rebuild(self) -> Sequence[str]:
        """Rebuild all indexes from the sagas' own keys; see ``ports.WorkStore``."""
        return await self._mender.rebuild(self._tags)

    async def restore_terms(self, saga_id: str, terms: Sequence[str]) -> None:
        """Give a saga that has lost its terms what its journal says they are; see ``ports.WorkStore``."""
        tag = self._tags[crc32(saga_id.encode()) % len(self._tags)]
        await self._mender.run("mend", [f"{tag}head:{saga_id}"], ["terms", *terms])

    async def report(self, owner: str, body: bytes, ttl_ms: int) -> None:
        """Store a worker's report (JSON), which expires after ``ttl_ms``."""
        await self._plain("SET", self._report_key(owner), body, "PX", ttl_ms)

    async def overview(self) -> Load:
        """The work in the store, and its workers."""
        replies = await self._spread("overview", [(f"{tag}due",) for tag in self._tags], list(SAGA_STATES))
        waiting = [reply[3] for reply in replies if reply[3] != -1]
        owners, notes = await self._noted()
        reports: dict[str, bytes] = {}
        for owner in owners:
            body = await self._plain("GET", self._report_key(owner))
            if body is not None:
                reports[owner] = body
        return Load(
            now_ms=max(reply[0] for reply in replies),
            statuses={name: sum(reply[4 + at] for reply in replies) for at, name in enumerate(SAGA_STATES)},
            queued=sum(reply[1] for reply in replies),
            timed=sum(reply[2] for reply in replies),
            oldest_ms=min(waiting, default=None),
            owners=owners,
            reports=reports,
            notes=notes,
        )

    async def _noted(self) -> tuple[dict[str, int], dict[str, bytes]]:
        """The owners with the remaining time of each lease, and what they have noted in it."""
        found: dict[str, int] = {}
        notes: dict[str, bytes] = {}
        for reply in await self._spread("owners", [(f"{tag}owners",) for tag in self._tags], ["notes"]):
            for owner, ttl_ms, note in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
                name = str(owner, "utf-8")
                found[name] = min(ttl_ms, found.get(name, ttl_ms))
                if note:
                    notes[name] = note
        return found, notes

    def _report_key(self, owner: str) -> str:
        return f"{self._tags[0]}report:{owner}"
