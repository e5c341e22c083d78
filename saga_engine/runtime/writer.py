"""Group commit: sagas of a process that wait for the disk at the same moment share a round trip and an fsync.

The calls in flight are the batching window: entries that are appended meanwhile go into the next one, and no timer
delays any of them (Helland et al., *Group Commit Timers and High Volume Transaction Systems*, 1988, tuned timers to the
load; here the commit before does it). Two calls may be in flight: while the server writes one batch, this process
handles the other.
"""

from __future__ import annotations

import asyncio
from functools import partial

from saga_engine.errors import SagaError
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.event_loops import pass_on
from saga_engine.loggers import logger_of
from saga_engine.ports import Ack, Entry, Store

_log = logger_of("saga_engine.writer")

_MAX_ENTRIES = 512
_CALLS_IN_FLIGHT = 2
_WORTH_HALVING = 32


class JournalWriter:
    """The one writer of a process. A saga has at most one append in flight; its driver ensures that."""

    __slots__ = ("_clock", "_flushing", "_late", "_loop", "_queue", "_sending", "_store", "_tasks", "owner")

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self.owner = ""
        self._store = store
        self._clock = clock
        #: Looked up once: finding the running loop costs a system call each time.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: list[tuple[asyncio.Future[Ack], Entry]] = []
        self._flushing = 0
        self._sending = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Future[Ack]] = set()

    def append(self, entry: Entry) -> asyncio.Future[Ack]:
        """Queue one saga's records; the future's ack says that they are durable, or why they were not added.

        It fails with ``StoreUnavailable`` or ``StoreRefused``; then it is unknown whether they were added, and
        repeating the same entry is safe.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Ack] = self._loop.create_future()
        self._queue.append((future, entry))
        # A call that has not been sent yet will include this entry; only beside one in flight is another worthwhile.
        if len(self._queue) == 1:
            self._flush_soon()
        return future

    def _flush_soon(self) -> None:
        if self._flushing < _CALLS_IN_FLIGHT:
            self._flushing += 1
            task = asyncio.create_task(self._flush(), name="saga-writer")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        try:
            await asyncio.sleep(0)  # let every saga that is ready to append do so first
            while self._queue:
                size = min(len(self._queue), _MAX_ENTRIES)
                if not self._sending and size >= _WORTH_HALVING:
                    size //= 2  # the server starts on one half while this process still prepares the other
                batch, self._queue = self._queue[:size], self._queue[size:]
                if self._queue:
                    self._flush_soon()
                # The code that cancelled the wait has continued from the journal; the entry has no owner any more.
                batch = [item for item in batch if not item[0].cancelled()]
                if batch:
                    await self._send(batch)
                    await asyncio.sleep(0)  # those that were just served may have their next records ready
        finally:
            self._flushing -= 1  # at once: an entry that comes now must find that no call will include it

    async def _send(self, batch: list[tuple[asyncio.Future[Ack], Entry]]) -> None:
        self._sending += 1
        try:
            # Of several servers none waits for another.
            append = getattr(self._store, "append_apart", None) or self._store.append
            reply = await append(self.owner, [entry for _, entry in batch])
        except BaseException as error:
            for future, _ in batch:
                if not future.done():
                    if isinstance(error, Exception):
                        future.set_exception(error)
                    else:
                        future.cancel()  # the event loop is closing
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, SagaError):
                # Each driver is told; the batches that wait behind this one are sent all the same.
                _log.error("a group commit failed inside the engine", exc_info=error)
            return
        finally:
            self._sending -= 1
        self._clock.set(reply.now_ms)
        for (future, _), ack in zip(batch, reply.acks, strict=True):
            if not future.done() and ack.code != "late":
                future.set_result(ack)
        for place, late in reply.late.items():
            late.add_done_callback(partial(pass_on, batch[place][0]))
            self._late.add(late)
            late.add_done_callback(self._late.discard)

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._tasks, *self._late, return_exceptions=True)
