"""The lease of this process: the right to write the journals of all the sagas it drives.

One lease covers all sagas of a process (as in etcd, where many keys are attached to one lease); each saga's epoch is
its fence. The server's clock counts. Locally the lease is checked on a clock that continues while the machine sleeps,
from the moment *before* the renewal was sent. This process therefore always expects it to end no later than the server
does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from saga_engine.errors import LeaseLost, SagaError, StoreUnavailable
from saga_engine.ports import Store
from saga_engine.runtime.owner import this_process

_log = logging.getLogger("saga_engine.lease")

#: CLOCK_MONOTONIC stops while a laptop sleeps, and its lease expires meanwhile; CLOCK_BOOTTIME does not stop.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock_s() -> float:
    """Seconds on a clock that never goes back and never pauses."""
    # macOS and Windows have no such clock, and Windows cannot look one up by its number.
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


#: The store's time may lag by this much behind what was said here, because responses take time: the clock then stops
#: until the store has caught up. A greater lag means another time, which counts from now on.
_JITTER_MS = 1_000
#: For so many sagas it is stored since when they are ahead of the store's clock.
_AHEAD_KEPT = 10_000


class StoreClock:
    """The store's clock as this process knows it: the last response's time plus the time that has passed here since.

    Until the store has responded it is this machine's clock, which may be hours ahead and is not authoritative.

    The store's clock may step back: it was corrected, or a replica with another clock took over. Records that were made
    before are then in the future, and so are the times that their sagas wait for. Each such saga has its own time
    (``now_after``), which continues from its last record: a wait takes no longer than intended.
    """

    __slots__ = ("_ahead", "_base_ms", "_base_s", "_heard", "_last_ms")

    def __init__(self) -> None:
        self._base_ms = time.time_ns() // 1_000_000
        self._base_s = time.monotonic()
        self._heard = False
        self._last_ms = 0
        self._ahead: dict[str, tuple[int, float]] = {}

    @property
    def heard(self) -> bool:
        """Whether the store has reported its time; until then this is the clock of this machine."""
        return self._heard

    def set(self, now_ms: int) -> None:
        """The store has just reported its time."""
        self._heard = True
        self._base_ms = now_ms
        self._base_s = time.monotonic()
        if now_ms < self._last_ms - _JITTER_MS:
            self._last_ms = now_ms

    def now_ms(self) -> int:
        """Unix milliseconds; once the store has responded, never less than before unless its clock stepped back."""
        now = self._base_ms + int((time.monotonic() - self._base_s) * 1000)
        if not self._heard:
            return now
        self._last_ms = max(self._last_ms, now)
        return self._last_ms

    def now_after(self, saga_id: str, at_ms: int) -> int:
        """The time of a saga whose last record was made at ``at_ms``: never before that, and never constant."""
        now = self.now_ms()
        if now >= at_ms:
            if self._ahead:
                self._ahead.pop(saga_id, None)
            return now
        known = self._ahead.get(saga_id)
        if known is None or known[0] != at_ms:
            if len(self._ahead) >= _AHEAD_KEPT:
                self._ahead.clear()  # their waits start anew
            known = self._ahead[saga_id] = (at_ms, time.monotonic())
        return at_ms + int((time.monotonic() - known[1]) * 1000)

    def in_store(self, due_ms: int, saga_now_ms: int) -> int:
        """What the store's clock will show when a saga's time, now ``saga_now_ms``, is ``due_ms``."""
        return due_ms - max(saga_now_ms - self.now_ms(), 0)


class Lease:
    """A lease that is renewed until it is closed or lost. Once lost, it stays lost: open another one."""

    def __init__(self, store: Store, clock: StoreClock, ttl_s: float, *, on_wake: Callable[[str], None]) -> None:
        self.owner = str(this_process())
        self.lost = False
        self._store = store
        self._clock = clock
        self.ttl_s = ttl_s
        #: Until when it is certainly valid, on ``lease_clock_s``.
        self.valid_until_s = 0.0
        #: Why it may be lost one day, as far as that is known here.
        self.why = ""
        self._ttl_ms = round(ttl_s * 1000)
        # Often enough that messages are seen within a second and that two renewals may be lost.
        self._every_s = min(1.0, ttl_s / 3)
        self._on_wake = on_wake
        self._on_lost: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """Start the lease and its renewal."""
        sent = lease_clock_s()
        self._clock.set(await self._store.open_session(self.owner, self._ttl_ms))
        self.valid_until_s = sent + self._ttl_ms / 1000
        self._task = asyncio.create_task(self._keep(), name="saga-lease")

    async def close(self, *, clean: bool = False) -> None:
        """End the lease at once, so that others need not wait for it. ``clean``: it owns no saga any more."""
        self._closing = True  # a client may swallow the one cancellation that is sent
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if not self.lost:
            self.lost = True
            try:
                await self._store.close_session(self.owner, clean=clean)
            except SagaError as error:
                # It ends by itself; waiters for a saga only wait a little longer.
                _log.warning("the lease could not be closed and will run out by itself: %s", error)

    def valid(self) -> bool:
        """Whether a call may start now."""
        return not self.lost and lease_clock_s() < self.valid_until_s

    def check(self) -> None:
        """Raises ``LeaseLost`` unless a call may start now."""
        if not self.valid():
            raise LeaseLost(
                "the lease of this process has ended; nothing was started after it",
                hint="another process may go on with the saga; `saga show` tells",
                owner=self.owner,
            )

    def prolong(self, until_s: float) -> None:
        """Another thread has renewed it, because the event loop was blocked."""
        self.valid_until_s = max(self.valid_until_s, until_s)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the lease is lost (not when it is closed)."""
        self._on_lost.append(callback)

    def lose(self) -> None:
        """The lease is gone: stop everything that relies on it."""
        if self.lost:
            return
        self.lost = True
        _log.warning("lease lost: %s%s", self.owner, f" ({self.why})" if self.why else "")
        for callback in self._on_lost:
            callback()

    async def _keep(self) -> None:
        while not self.lost and not self._closing:
            await asyncio.sleep(self._every_s)
            sent = lease_clock_s()
            if sent >= self.valid_until_s:
                self.lose()  # this process was stopped or too busy; the server has not waited for it
                return
            try:
                # Bounded by the remaining time: the store may be unavailable for longer than the lease lasts.
                async with asyncio.timeout(self.valid_until_s - sent):
                    renewal = await self._store.renew(self.owner, self._ttl_ms)
            except (TimeoutError, StoreUnavailable):
                continue
            except SagaError:
                _log.exception("the lease could not be renewed")
                continue
            if not renewal.alive:
                self.lose()
                return
            self.valid_until_s = sent + self._ttl_ms / 1000
            self.why = ""
            self._clock.set(renewal.now_ms)
            for saga_id in renewal.wakes:
                self._on_wake(saga_id)
