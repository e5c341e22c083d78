"""Group commit: all sagas of a process that wait for the disk at the same moment share one round trip and one fsync.

One call is in flight at a time, and the call in flight is the batching window: whatever is appended meanwhile goes into the
next one. No timer delays anybody (Helland et al., *Group Commit Timers and High Volume Transaction Systems*, 1988, found
that load makes the batch; here the previous commit does).
"""

from __future__ import annotations

import asyncio

from saga_engine.errors import SagaError
from saga_engine.ports import Ack, Entry, Store
from saga_engine.runtime.lease import StoreClock

_MAX_ENTRIES = 512


class JournalWriter:
    """The one writer of a process. A saga has at most one append under way; its driver sees to that."""

    __slots__ = ("_clock", "_queue", "_store", "_task", "owner")

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self.owner = ""
        self._store = store
        self._clock = clock
        self._queue: list[tuple[asyncio.Future[Ack], Entry]] = []
        self._task: asyncio.Task[None] | None = None

    def append(self, entry: Entry) -> asyncio.Future[Ack]:
        """Queue one saga's records; the future's ack says that they are durable, or why they were not added.

        It fails with ``StoreUnavailable`` or ``StoreRefused``; then it is not known whether they were added, and asking again
        with the same entry is safe.
        """
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self._queue.append((future, entry))
        if self._task is None:
            self._task = asyncio.create_task(self._flush(), name="saga-writer")
        return future

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # let every saga that is ready to append do so first
        try:
            while self._queue:
                batch, self._queue = self._queue[:_MAX_ENTRIES], self._queue[_MAX_ENTRIES:]
                # Whoever cancelled the wait has gone on from the journal; the entry is nobody's any more.
                batch = [item for item in batch if not item[0].cancelled()]
                if not batch:
                    continue
                try:
                    reply = await self._store.append(self.owner, [entry for _, entry in batch])
                except SagaError as error:
                    for future, _ in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    self._clock.set(reply.now_ms)
                    for (future, _), ack in zip(batch, reply.acks, strict=True):
                        if not future.done():
                            future.set_result(ack)
                await asyncio.sleep(0)  # those that were just served may have the next records ready
        finally:
            self._task = None
            for future, _ in self._queue:
                future.cancel()

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
