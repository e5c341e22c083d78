"""Purges sagas that ended long ago, one by one, each only if no other saga may still need it.

A saga is removed by one script, and only as it was when it was looked at: whoever takes it meanwhile makes a new epoch,
and then it stays. So nothing here needs a lease: a process that is suspended between look and removal removes nothing
that has changed, one that is killed leaves whole sagas, and several at once remove each saga once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from saga_engine.core.codec import decode
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import JournalUnreadable, SagaNotFound, StoreRefused, StoreUnavailable
from saga_engine.execution.event_loops import happens
from saga_engine.execution.retention import Retention
from saga_engine.loggers import logger_of
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.ports import Head, Store
from saga_engine.ports.head import tombstone_of
from saga_engine.runtime.archive import Archive
from saga_engine.runtime.ties import Ties, ties_in, ties_of

_log = logger_of("saga_engine.retention")

#: How many sagas one round looks at.
AT_ONCE: Final = 200
#: How long a worker rests between two rounds, in seconds: if there was nothing to do, and if there was.
_REST_S: Final = (60.0, 1.0)
#: So many sagas that took over effects, one from the other, are followed; more are taken for a reason to keep the saga.
_HEIRS: Final = 100

#: Why a saga stays although it is old enough.
PARENT: Final = "its parent is stored"
ORIGIN: Final = "the saga whose effects it took over is stored"
CHILD: Final = "a child has not ended"
HEIR: Final = "a saga that took over its effects stays"
TAKEN: Final = "it is in use"
UNREADABLE: Final = "its journal cannot be read"
UNARCHIVED: Final = "it cannot be archived"
#: Reasons that an operator has to mend.
TROUBLES: Final = (UNREADABLE, UNARCHIVED)


@dataclass(slots=True)
class Purged:
    """What came of purging. ``looked``: at how many old sagas. ``kept``: how many stay, by the reason."""

    looked: int = 0
    purged: list[str] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)


class Purging:
    """Purges what is old by ``rules``, and archives it before if they say so; ``only``: the partitions to look at."""

    def __init__(self, store: Store, rules: Retention, catalog: ToolCatalog, only: Sequence[int] | None = None) -> None:
        self._store = store
        self._archive = None if rules.archive is None else Archive(store, rules, rules.archive, catalog)
        self._ended = store.ended()
        self._rules = rules
        partitions = list(range(self._ended.count) if only is None else only)
        self._places = [(partition, status) for partition in partitions for status in sorted(rules.age_ms)]
        self._partitions = partitions
        random.shuffle(self._places)  # several processes begin at different ends
        self._at = 0
        self._skip = 0

    async def hold(self) -> None:
        """See that nothing expires by itself: from now on the rules count. Raises what the store raises."""
        for partition in self._partitions:
            while await self._ended.hold(partition, AT_ONCE) == AT_ONCE:
                pass

    async def round(self, found: Purged, *, dry_run: bool = False, limit: int = AT_ONCE) -> bool:
        """Look at up to ``limit`` old sagas; returns whether there are more that this pass has not come to.

        Raises what the store raises.
        """
        if not self._places:
            return False
        left = limit
        while left > 0:
            partition, status = self._places[self._at]
            aged = await self._ended.aged(partition, status, self._rules.age_ms[status], self._skip, left)
            left -= aged.looked
            self._skip += aged.looked - len(aged.heads)  # entries that stand for no saga, or for a damaged one
            for head in aged.heads:
                found.looked += 1
                reason = await self._purge(head, aged.now_ms, dry_run=dry_run)
                if reason is None:
                    found.purged.append(head.saga_id)
                elif reason:
                    found.kept[reason] += 1
                self._skip += bool(reason) or dry_run
            if not aged.looked:
                self._skip = 0
                self._at = (self._at + 1) % len(self._places)
                if self._at == 0:
                    return False
        return True

    async def _purge(self, head: Head, now_ms: int, *, dry_run: bool) -> str | None:
        """Purge a saga; returns why it stays, and nothing if another process has purged it."""
        try:
            if tombstone_of(head.summary) is not None:  # there is no journal that an archive could hold
                reason = await self._needed(head, await ties_of(self._store, head), now_ms)
                return reason if reason is not None or dry_run else await self._remove(head)
            data = await self._store.read(head.saga_id)
            if len(data) != head.length:
                return TAKEN
            records = [decode(piece) for piece in data]
            reason = await self._needed(head, await ties_in(self._store, records), now_ms)
            if reason is not None or dry_run:
                return reason
            if self._archive is not None:
                await self._archive.save(head, data)
        except SagaNotFound:
            return ""
        except JournalUnreadable as error:
            _log.warning("saga %s is not purged: %s", head.saga_id, error, extra={"saga_id": head.saga_id})
            return UNREADABLE
        except OSError as error:
            _log.error("saga %s is not purged: its archive cannot be written: %s", head.saga_id, error)
            return UNARCHIVED
        return await self._remove(head)

    async def _remove(self, head: Head) -> str | None:
        removed = await self._ended.purge(head)
        if removed:
            _log.debug("saga %s is purged", head.saga_id, extra={"saga_id": head.saga_id, "status": head.status})
        return "" if removed is None else None if removed else TAKEN

    # --- who needs it ------------------------------------------------------------------------------------------------

    async def _needed(self, head: Head, ties: Ties, now_ms: int) -> str | None:
        """Why a saga must stay for the sake of others."""
        if ties.parent and await self._head(ties.parent) is not None:
            return PARENT
        if ties.origin and await self._head(ties.origin) is not None:
            return ORIGIN
        return await self._needed_below(ties, now_ms, {head.saga_id})

    async def _needed_below(self, ties: Ties, now_ms: int, seen: set[str]) -> str | None:
        """The same for the sagas that came from it. Those that have its effects leave together with it."""
        for child in sorted(ties.children):
            found = await self._head(child)
            if found is not None and found.status not in SAGA_FINAL:
                return CHILD
        for heir in sorted(ties.heirs - seen):
            seen.add(heir)
            if len(seen) > _HEIRS:
                return HEIR
            found = await self._head(heir)
            if found is None:
                if await self._ended.reserved(heir):
                    return HEIR  # it is about to begin
                continue
            if not self._rules.due(found.status, found.changed_ms, now_ms):
                return HEIR
            theirs = await ties_of(self._store, found)
            if await self._needed_below(theirs, now_ms, seen) is not None:
                return HEIR
        return None

    async def _head(self, saga_id: str) -> Head | None:
        try:
            return await self._store.head(saga_id)
        except SagaNotFound:
            return None


async def purge_all(purging: Purging, *, dry_run: bool = False) -> Purged:
    """Purge all that is old, by hand. A saga that others needed is looked at again once they have gone."""
    found = Purged()
    while True:
        before = len(found.purged)
        found.looked, found.kept = 0, Counter()
        while await purging.round(found, dry_run=dry_run):
            pass
        if dry_run or len(found.purged) == before:
            return found


async def keep_purging(purging: Purging, stopping: asyncio.Event) -> None:
    """A worker's rounds, until it stops. An outage, or whatever goes wrong with a saga, is waited out."""
    while not stopping.is_set():
        found, more = Purged(), False
        try:
            await purging.hold()
            more = await purging.round(found)
        except (StoreUnavailable, StoreRefused) as error:
            _log.info("nothing can be purged now: %s", error)
        except Exception:  # noqa: BLE001 - the next round may do better
            _log.exception("a round of purging failed")
        _tell(found)
        await happens(stopping, _REST_S[bool(more)])


def _tell(found: Purged) -> None:
    if found.purged:
        _log.info("%d sagas that ended long ago are purged", len(found.purged), extra={"purged": len(found.purged)})


def kept_texts(kept: Mapping[str, int]) -> list[str]:
    """Why sagas stay, the most frequent reason first."""
    return [f"{count}: {reason}" for reason, count in sorted(kept.items(), key=lambda each: (-each[1], each[0]))]
