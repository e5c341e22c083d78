"""Threads for synchronous tools.

A thread cannot be killed, so a tool that exceeds its time keeps its thread. The threads are daemons and belong to no
``ThreadPoolExecutor``: an abandoned call neither delays the end of the process nor occupies the place of another call.
A thread whose call has ended serves the next one, because starting a thread costs far more than waking one.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable

#: Idle threads that are kept; others end with their call.
_MAX_IDLE = 16


class Ended(NamedTuple):
    """How a call in a thread ended: with a value or with an error."""

    value: Any
    error: BaseException | None


class Running:
    """A call in a thread. Any event loop may wait for it, repeatedly; nothing ends it but itself."""

    __slots__ = ("_waiters", "ended")

    def __init__(self) -> None:
        #: None while it runs.
        self.ended: Ended | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[Ended | None]]] = []

    async def wait(self, within_s: float) -> Ended | None:
        """How it ended; None if it still runs after ``within_s`` seconds."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Ended | None] = loop.create_future()
        waiter = (loop, answer)
        self._waiters.append(waiter)
        timer: asyncio.TimerHandle | None = None
        try:
            if self.ended is not None:  # checked after the thread knows the waiter, so no end is missed
                return self.ended
            timer = loop.call_later(within_s, _settle, answer, None)
            return await answer
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    def future(self) -> asyncio.Future[Ended]:
        """A future for its end, to wait without a limit. Cancelling the future drops a late answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Ended | None] = loop.create_future()
        self._waiters.append((loop, answer))
        if self.ended is not None:
            _settle(answer, self.ended)
        return cast("asyncio.Future[Ended]", answer)

    def end(self, ended: Ended) -> None:
        """In the thread: notify all waiters."""
        self.ended = ended
        for loop, answer in [*self._waiters]:
            try:
                loop.call_soon_threadsafe(_settle, answer, ended)
            except RuntimeError:
                # The waiting program may have ended its loop: then nobody is left to receive the answer.
                if not loop.is_closed():
                    raise


class _Job(NamedTuple):
    work: Callable[[], Any]
    context: contextvars.Context
    running: Running


_idle: deque[SimpleQueue[_Job]] = deque()
_at_work: set[Running] = set()
# The threads of a parent process do not exist in its forked child.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
    os.register_at_fork(after_in_child=_at_work.clear)


def calls_in_threads() -> int:
    """The number of calls that are in a thread and have not told their end yet."""
    return len(_at_work)


def start_in_thread(work: Callable[[], Any]) -> asyncio.Future[Ended]:
    """Start ``work`` in a thread as ``begin_in_thread`` does; the future never fails."""
    return begin_in_thread(work).future()


def begin_in_thread(work: Callable[[], Any]) -> Running:
    """Start ``work`` in a daemon thread, with a copy of the caller's context variables.

    Raises ``RuntimeError`` if no thread can be started; the work has not begun then.
    """
    job = _Job(work, contextvars.copy_context(), Running())
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="saga-tool", daemon=True).start()
    _at_work.add(job.running)
    jobs.put(job)
    return job.running


def _serve(jobs: SimpleQueue[_Job]) -> None:
    while True:
        job = jobs.get()
        ended = _run(job)
        # Idle before it answers: a waiter that the answer wakes finds this thread free.
        stays = len(_idle) < _MAX_IDLE
        if stays:
            _idle.append(jobs)
        job.running.end(ended)
        _at_work.discard(job.running)  # after it has woken its waiters: nobody overlooks an end that is on its way
        if not stays:
            return
        del job, ended  # An idle thread must not keep the last call's params and result alive.


def _run(job: _Job) -> Ended:
    try:
        return Ended(job.context.run(job.work), None)
    except BaseException as error:  # noqa: BLE001 - whatever ends a tool is interpreted by the caller, in the event loop
        return Ended(None, error)


def _settle(answer: asyncio.Future[Ended | None], ended: Ended | None) -> None:
    if not answer.done():
        answer.set_result(ended)
