"""Compares the store's owners of unfinished sagas with the truth, one piece a second.

Each process with a lease runs the audit, whether it is a worker or not. It queues orphaned sagas. It releases a saga
that the store assigns to this process but that the process does not drive: the store may have gone back in time (a
restored backup, a fail-over) to when the saga was driven here. It removes what killed processes have left in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.loggers import logger_of
from saga_engine.ports import SWEEP_START, WorkStore
from saga_engine.runtime.due_times import AT_ONCE
from saga_engine.runtime.pending_releases import PendingReleases

_log = logger_of("saga_engine.audit")

#: The interval between pieces, in seconds.
EVERY_S = 1.0
#: Every so many pieces, others look at their own.
_PIECES_PER_ROUND = 5
#: Every so many whole sweeps, the audit searches for owners that are gone.
_SWEEPS_PER_CLEARING = 60
#: At most so many damaged sagas are logged, each once.
_MAX_TOLD = 1000


class Audit:
    """The audit of one process. ``owner`` returns the current owner; ``drives`` whether this process drives a saga.

    It skips partitions that the lease does not cover (``covers``): their server is unavailable.
    """

    def __init__(
        self,
        work: Callable[[], WorkStore],
        owner: Callable[[], str],
        drives: Callable[[str], bool],
        covers: Callable[[int], bool],
        pending: PendingReleases,
    ) -> None:
        #: What others look at every few pieces.
        self.on_round: Callable[[], Awaitable[None]] | None = None
        self._pieces = 0
        self._work = work
        self._owner = owner
        self._drives = drives
        self._covers = covers
        self._pending = pending
        self._at = SWEEP_START
        self._of = ""
        # Sagas of this process that were not driven at the last whole sweep, nor at this one: by epoch.
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}
        # Owners whose leases had ended when this sweep began.
        self._gone: list[str] = []
        self._sweeps = 0
        # Partitions in which a process may have died while it rebuilt a damaged key.
        self._unmended: set[int] = set()
        self._told: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Continue the audit until ``stop``."""
        if self._task is None:
            self._task = asyncio.create_task(self._go_round(), name="saga-audit")

    async def stop(self) -> None:
        """Stop the audit."""
        self._stopped = True  # a client may swallow the one cancellation that is sent
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Examine one piece. Raises ``StoreUnavailable`` or ``StoreRefused``."""
        owner = self._owner()
        if owner != self._of:  # when the lease ended, its sagas lost their owner
            self._of, self._at, self._sweeps = owner, SWEEP_START, 0
            self._unmended = set(range(self._work().count))
            self._before.clear()
            self._now.clear()
        if self._at == SWEEP_START:
            await self._begin_sweep(owner)
        if not self._skip_unavailable():
            return
        swept = await self._work().sweep(owner, self._at)
        for saga_id in swept.damaged:
            self._tell_damaged(saga_id)
        if swept.orphans:
            _log.warning("queued %d orphaned sagas", swept.orphans)
        for saga_id, epoch in swept.owned:
            if self._drives(saga_id):
                continue
            # Seen twice, so that sagas in the middle of a take-over or a release are left alone.
            if self._before.get(saga_id) == epoch:
                _log.warning("saga %s is ours by the store's word and is not driven here: it is given up", saga_id)
                self._pending.add_unsure(saga_id, AT_ONCE)
            else:
                self._now[saga_id] = epoch
        self._at = swept.at
        if self._at == SWEEP_START:
            await self._end_sweep()

    def _skip_unavailable(self) -> bool:
        """Go on to a partition that is covered; False if there is none in the rest of this sweep."""
        count = self._work().count
        for partition in range(self._at[0], count):
            if self._covers(partition):
                if partition != self._at[0]:
                    self._at = (partition, *SWEEP_START[1:])
                return True
        self._at = SWEEP_START
        self._before, self._now = self._now, {}
        return False

    async def _begin_sweep(self, owner: str) -> None:
        """Search for dead owners, in the first sweep and periodically: a killed process removed nothing itself."""
        self._gone.clear()
        work = self._work()
        covered = [number for number in range(work.count) if self._covers(number)]
        unmended = [number for number in covered if number in self._unmended]
        if unmended:
            await work.mend(unmended)
            self._unmended.difference_update(unmended)
        if self._sweeps % _SWEEPS_PER_CLEARING == 0:
            self._gone += [name for name in await _gone(work, covered) if name != owner]
        self._sweeps += 1

    async def _end_sweep(self) -> None:
        """The sagas of dead owners are queued now: no later search for the sagas of these owners is needed."""
        self._before, self._now = self._now, {}
        gone, self._gone = self._gone, []
        for name in gone:
            await self._work().forget(name)

    def _tell_damaged(self, saga_id: str) -> None:
        if saga_id not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(saga_id)
            _log.error(
                "saga %s stands still: another program wrote to its keys (restore them from a backup; `saga doctor` "
                "lists such sagas)",
                saga_id,
            )

    async def _go_round(self) -> None:
        while not self._stopped:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
                self._pieces += 1
                if self.on_round is not None and self._pieces % _PIECES_PER_ROUND == 0:
                    await self.on_round()
            except (StoreUnavailable, StoreRefused) as error:
                _log.debug("no sweep now: %s", error)
            except Exception:  # noqa: BLE001 - the next piece may do better
                _log.exception("a sweep failed")


async def clear_away(work: WorkStore) -> None:
    """Queue the sagas that killed processes have left, and forget their owners. Costs one read if there are none."""
    gone = await _gone(work, range(work.count))
    if not gone:
        return
    at = SWEEP_START
    while True:
        at = (await work.sweep("nobody", at)).at
        if at == SWEEP_START:
            break
    for owner in gone:
        await work.forget(owner)


async def _gone(work: WorkStore, partitions: Sequence[int]) -> Sequence[str]:
    """The owners whose leases have ended."""
    owners = await work.owners(partitions)
    return [owner for owner, ttl_ms in owners.items() if ttl_ms == 0]
