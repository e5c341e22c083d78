"""Shows Temporal that an activity is alive, and whether its call has begun.

Temporal keeps the details of the last heartbeat and reports them when it gives an activity up. While a guard keeps the
call waiting, the details say so: an activity that died then has called nothing. Before the call begins, Temporal must
acknowledge a heartbeat without that note; without the acknowledgement nothing is called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from saga_engine.errors import LeaseLost
from saga_engine.loggers import logger_of
from saga_engine.temporal import payloads

if TYPE_CHECKING:
    from saga_engine.ports import Call

_log = logger_of("saga_engine.temporal")

#: CLOCK_MONOTONIC stops while a machine sleeps, and Temporal's time-outs do not; CLOCK_BOOTTIME continues.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)


class Pulse:
    """The heartbeats of one activity. Use ``beating``."""

    def __init__(self) -> None:
        self._info = activity.info()
        limit = self._info.heartbeat_timeout
        self._limit_s = limit.total_seconds() if limit else 0.0
        self._last_s = _clock_s()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    def start(self) -> None:
        """Send heartbeats from now on, if Temporal expects them."""
        if self._limit_s:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s / 4, self._beat)

    async def stop(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])

    def permit(self) -> None:
        """Raises ``LeaseLost`` if no heartbeat has got through for too long."""
        silent_s = _clock_s() - self._last_s
        if activity.is_cancelled() or (self._limit_s and silent_s >= self._limit_s):
            raise LeaseLost(f"the worker was silent for {silent_s:.1f} s; it began nothing")

    def waits(self, call: Call, waiting: bool) -> Awaitable[None] | None:  # noqa: ARG002 - as ``Call.waits``
        """Note that a guard keeps the call waiting, or (``waiting`` is False) that it begins. See ``Call.waits``."""
        if not self._limit_s or waiting is (self._waiting is not None):
            return None
        if not waiting:
            return self._begin()
        # From here on each heartbeat is answered before the next is sent: none arrives after the one that ends them.
        self._over.clear()
        self._waiting = asyncio.create_task(self._say_waiting(), name="saga-temporal-waiting")
        return None

    def _beat(self) -> None:
        now_s = _clock_s()
        # Temporal has given up an activity that was silent for too long: it must not consider itself alive.
        if self._waiting is None and now_s - self._last_s < self._limit_s:
            self._last_s = now_s
            activity.heartbeat()
        self.start()

    async def _say_waiting(self) -> None:
        while not self._over.is_set():
            began_s = _clock_s()
            try:
                await self._handle().heartbeat(payloads.WAITS, rpc_timeout=self._answer_within())
            except (RPCError, AsyncActivityCancelledError) as error:
                _log.debug("a heartbeat of a call that waits came to nothing: %s", error)
            else:
                self._last_s = began_s
            try:
                async with asyncio.timeout(self._limit_s / 4):
                    await self._over.wait()
            except TimeoutError:
                continue

    async def _begin(self) -> None:
        """Get the acknowledgement that the call may have begun. Raises ``LeaseLost``: nothing was called."""
        assert self._waiting is not None
        self._over.set()
        await asyncio.wait([self._waiting])
        began_s = _clock_s()
        try:
            await self._handle().heartbeat(rpc_timeout=self._answer_within())
        except (RPCError, AsyncActivityCancelledError) as error:
            raise LeaseLost(f"Temporal did not acknowledge that the call begins: {error}"[:1000]) from error
        self._last_s = began_s
        self._waiting = None

    def _answer_within(self) -> timedelta:
        return timedelta(seconds=self._limit_s / 2)

    def _handle(self) -> AsyncActivityHandle:
        return activity.client().get_async_activity_handle(task_token=self._info.task_token)


@asynccontextmanager
async def beating() -> AsyncIterator[Pulse]:
    """Send heartbeats for the duration of the block."""
    pulse = Pulse()
    pulse.start()
    try:
        yield pulse
    finally:
        await pulse.stop()


async def require_ours() -> None:
    """Ask Temporal, if this worker may have slept between taking the call and now. Raises ``ApplicationError``.

    Its clock and Temporal's may differ, so they only decide when to ask.
    """
    info = activity.info()
    limit_s = info.heartbeat_timeout.total_seconds() if info.heartbeat_timeout else 0.0
    if not limit_s or abs(time.time() - info.started_time.timestamp()) < limit_s / 2:
        return
    try:
        await activity.client().get_async_activity_handle(task_token=info.task_token).heartbeat()
    except (RPCError, AsyncActivityCancelledError) as error:
        raise ApplicationError(
            f"the worker took the call and slept; it is not its own any more: {error}"[:1000],
            type=payloads.NOT_CALLED,
            non_retryable=True,
        ) from error


def _clock_s() -> float:
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
