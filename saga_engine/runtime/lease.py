"""The lease of this process: the right to write the journals of all the sagas it drives.

One lease covers all sagas of a process (as in etcd, where many keys hang on one lease); each saga's epoch is its
fence. Over several servers it has a share in each partition, which lives and ends by itself. The lease lives on the
server's clock. Locally its validity is measured on a clock that goes on while the machine sleeps, from the moment
*before* the renewal was sent, so this process always believes it ends no later than the server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Sequence
from functools import partial
from typing import Any

from saga_engine.errors import LeaseLost, SagaError, StoreUnavailable
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.owner import this_process, words_of
from saga_engine.loggers import logger_of
from saga_engine.ports import Renewal, Store, parts_of
from saga_engine.ports.machine_clock import machine_clock

_log = logger_of("saga_engine.lease")


class Share:
    """What a lease is in one partition; of a store on one server, the whole of it. Once lost, it stays lost."""

    __slots__ = ("_lease", "lost", "partition", "valid_until_s")

    def __init__(self, lease: Lease, partition: int, valid_until_s: float) -> None:
        self._lease = lease
        self.partition = partition
        self.lost = False
        #: Until when it is ours for certain, on ``machine_clock.boottime``.
        self.valid_until_s = valid_until_s

    @property
    def owner(self) -> str:
        """The name of the lease."""
        return self._lease.owner

    @property
    def why(self) -> str:
        """Why it may be lost one day, as far as that is known here."""
        return self._lease.why

    @why.setter
    def why(self, why: str) -> None:
        self._lease.why = why

    def valid(self) -> bool:
        """Whether a call may start now."""
        return not self.lost and machine_clock.boottime() < self.valid_until_s

    def check(self) -> None:
        """Raises ``LeaseLost`` unless a call may start now."""
        if self.lost or machine_clock.boottime() >= self.valid_until_s:
            raise LeaseLost(
                "the lease of this process has ended; nothing was started after it",
                hint="another process may go on with the saga; `saga show` tells",
                owner=self.owner,
            )

    def lose(self) -> None:
        """It is gone: stop all that relies on it."""
        if not self.lost:
            self._lease.lose([self.partition])


class Lease:
    """A lease that is kept alive until it is closed or lost. Once lost, it stays lost: open another one.

    Over several servers each partition has a share of its own, and an outage of one server that is longer than the
    lease costs the shares of its partitions; one that is away when the lease begins gives none. They are taken up
    when it is back, after what was ours there has been given up: a lease that is over is never brought back while a
    saga hangs on it.
    """

    def __init__(
        self, store: Store, clock: StoreClock, ttl_s: float, *, on_wake: Callable[[str], None], note: bytes = b""
    ) -> None:
        self.owner = str(this_process())
        self._note = note
        self.lost = False
        self._store = store
        self._clock = clock
        self.ttl_s = ttl_s
        #: Why it may be lost one day, as far as that is known here.
        self.why = ""
        self._ttl_ms = round(ttl_s * 1000)
        # Often enough that a message is seen within a second and that two renewals may be lost.
        self._every_s = min(1.0, ttl_s / 3)
        self._on_wake = on_wake
        self._on_lost: list[Callable[[Container[int]], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._renew_apart = getattr(store, "renew_apart", None)
        self._open_apart = getattr(store, "open_apart", None)
        #: The partition whose share a saga needs.
        self.partition_of = parts_of(store)
        self._shares: dict[int, Share] = {}
        #: Partitions whose server has not answered the last renewal.
        self._unheard: dict[int, asyncio.Future[Renewal]] = {}
        self._reopening: dict[int, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Start the lease and its renewal. A share whose server does not answer is lost from the beginning.

        Raises ``StoreUnavailable`` if none answers.
        """
        sent = machine_clock.boottime()
        count = 1 if self._renew_apart is None else self._store.work().count
        if self._open_apart is None:
            now_ms, begun = await self._store.open_lease(self.owner, self._ttl_ms, note=self._note), range(count)
        else:
            now_ms, begun = await self._open_apart(self.owner, self._ttl_ms, self._note)
        self._clock.set(now_ms)
        until_s = sent + self._ttl_ms / 1000
        self._shares = {number: Share(self, number, until_s) for number in range(count)}
        for number in self._shares.keys() - set(begun):
            self._shares[number].lost = True
        if len(begun) < count:
            _log.warning(
                "the lease has begun in %d of %d partitions: the sagas of the others wait for their servers",
                len(begun),
                count,
            )
        self._task = asyncio.create_task(self._keep(), name="saga-lease")

    async def close(self, *, clean: bool = False) -> None:
        """End the lease at once, so that others need not wait for it. ``clean``: it owns no saga any more."""
        self._closing = True  # a client may swallow the one cancellation that is sent
        waiting: list[asyncio.Future[Any]] = [*self._reopening.values(), *self._unheard.values()]
        if self._task is not None:
            waiting.append(self._task)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._task = None
        if not self.lost:
            self.lost = True
            held = [number for number, share in self._shares.items() if not share.lost]
            partitions = held if len(held) < len(self._shares) else None  # a server that is away must not delay the end
            for share in self._shares.values():
                share.lost = True
            try:
                await self._store.close_lease(self.owner, clean=clean, partitions=partitions)
            except SagaError as error:
                # It ends by itself; whoever waits for a saga just waits a little longer.
                _log.warning("the lease could not be closed and will run out by itself: %s", error)

    # --- its shares ----------------------------------------------------------------------------------------------

    def share_of(self, saga_id: str) -> Share:
        """The share that a saga needs; it may be lost."""
        return self._shares[self.partition_of(saga_id)]

    def covers(self, partition: int) -> bool:
        """Whether a partition is ours, and its server answered lately."""
        share = self._shares.get(0 if self._renew_apart is None else partition)
        return share is not None and share.valid() and partition not in self._unheard

    def valid(self) -> bool:
        """Whether a call may begin now, in any partition."""
        return not self.lost and any(share.valid() for share in self._shares.values())

    @property
    def valid_until_s(self) -> float:
        """Until when anything of it is ours for certain, on ``machine_clock.boottime``."""
        return max((share.valid_until_s for share in self._shares.values() if not share.lost), default=0.0)

    def prolong(self, until_s: float, only: Sequence[int] | None = None) -> None:
        """It has been renewed from another thread, because the event loop was blocked."""
        for number in self._shares if only is None else only:
            share = self._shares[number]
            share.valid_until_s = max(share.valid_until_s, until_s)

    def on_lost(self, callback: Callable[[Container[int]], None]) -> None:
        """Have ``callback`` called with the partitions in which the lease is lost (not when it is closed)."""
        self._on_lost.append(callback)

    def lose(self, partitions: Collection[int] | None = None) -> None:
        """The lease is gone, in some partitions or all: stop all that relies on it."""
        whole = partitions is None or (bool(partitions) and self._renew_apart is None)
        lost = [each for each, share in self._shares.items() if not share.lost and (whole or each in partitions)]  # type: ignore[operator]
        if self.lost or not lost:
            return
        for number in lost:
            self._shares[number].lost = True
        self.lost = all(share.lost for share in self._shares.values())
        of = "" if self.lost else f" in {len(lost)} of {len(self._shares)} partitions"
        _log.warning("lease lost%s: %s%s", of, words_of(self.owner), f" ({self.why})" if self.why else "")
        for callback in self._on_lost:
            callback(frozenset(lost))

    async def reopen(self, partition: int) -> None:
        """Have a share again that was lost, with none of the sagas that it covered. Raises ``StoreUnavailable``."""
        await asyncio.shield(self._reopen_soon(partition))

    def _reopen_soon(self, partition: int) -> asyncio.Task[None]:
        task = self._reopening.get(partition)
        if task is None:
            task = asyncio.create_task(self._reopen(partition), name="saga-lease-reopening")
            self._reopening[partition] = task
            task.add_done_callback(partial(self._reopened, partition))
        return task

    async def _reopen(self, partition: int) -> None:
        only = [partition]
        # Over, and then empty: no saga of before becomes ours again without anybody here knowing of it.
        await self._store.close_lease(self.owner, partitions=only)
        await self._store.work().reclaim(self.owner, only)
        sent = machine_clock.boottime()
        await self._store.open_lease(self.owner, self._ttl_ms, only, self._note)
        if not (self.lost or self._closing):
            self._shares[partition] = Share(self, partition, sent + self._ttl_ms / 1000)

    def _reopened(self, partition: int, task: asyncio.Task[None]) -> None:
        del self._reopening[partition]
        if not task.cancelled():
            task.exception()  # it is raised where it is waited for; if nobody waits, it is tried again

    # --- keeping it ----------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            await self._keep_on()
        except Exception as error:  # noqa: BLE001 - a lease that nothing renews would end unnoticed
            _log.exception("the renewal of the lease has stopped")
            self.why = f"its renewal failed: {type(error).__name__}: {error}"
            self.lose()

    async def _keep_on(self) -> None:
        while not self.lost and not self._closing:
            await asyncio.sleep(self._every_s)
            sent = machine_clock.boottime()
            # This process was stopped or too busy, or the server was away; it has not waited for us.
            self.lose([number for number, share in self._shares.items() if sent >= share.valid_until_s])
            if self.lost:
                return
            try:
                await (self._renew(sent) if self._renew_apart is None else self._renew_shares(sent))
            except (TimeoutError, StoreUnavailable):
                continue
            except SagaError:
                _log.exception("the lease could not be renewed")

    async def _renew(self, sent: float) -> None:
        # Bounded by what is left: the store may be away for longer than the lease lasts.
        async with asyncio.timeout(self.valid_until_s - sent):
            renewal = await self._store.renew(self.owner, self._ttl_ms)
        self._renewed([0], sent, renewal)
        if renewal.alive:
            self._clock.set(renewal.now_ms)

    async def _renew_shares(self, sent: float) -> None:
        ours = [number for number, share in self._shares.items() if not share.lost]
        for number in self._shares.keys() - ours:
            self._reopen_soon(number)
        asked = [number for number in ours if number not in self._unheard]
        if asked:
            found, late = await self._renew_apart(self.owner, self._ttl_ms, asked)  # type: ignore[misc]
            for number, renewal in found.items():
                self._renewed([number], sent, renewal)
            if found:  # of several clocks, the one that is ahead
                self._clock.set(max(renewal.now_ms for renewal in found.values()))
            for number, future in late.items():
                self._unheard[number] = future
                future.add_done_callback(partial(self._heard, number, self._shares[number], sent))

    def _heard(self, number: int, share: Share, sent: float, future: asyncio.Future[Renewal]) -> None:
        del self._unheard[number]
        if future.cancelled() or self._closing:
            return
        error = future.exception()
        if error is None and self._shares[number] is share and not share.lost:
            self._renewed([number], sent, future.result())
        elif error is not None and not isinstance(error, StoreUnavailable):
            _log.error("the lease could not be renewed in partition %d", number, exc_info=error)

    def _renewed(self, partitions: Sequence[int], sent: float, renewal: Renewal) -> None:
        if not renewal.alive:
            self.lose(partitions)
            return
        for number in partitions:
            self._shares[number].valid_until_s = sent + self._ttl_ms / 1000
        self.why = ""
        for saga_id in renewal.wakes:
            self._on_wake(saga_id)
