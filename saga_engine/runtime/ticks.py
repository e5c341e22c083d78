"""Fires the ticks of schedules. Each worker asks the store's index for those that are due: no schedule has a task."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from saga_engine.errors import SagaError, SagaNotFound, StoreRefused, StoreUnavailable
from saga_engine.execution.schedules import ScheduleBody, Turn, body_of
from saga_engine.loggers import logger_of, quoted
from saga_engine.ports import Document, Store

_log = logger_of("saga_engine.schedules")

#: Schedules that one round looks at, and ticks of one schedule in it.
_AT_ONCE: Final = 100

#: Submits the saga with this id for a schedule of this name; the same id again is the same saga.
Submit = Callable[[str, ScheduleBody, str], Awaitable[None]]
Cancel = Callable[[str], Awaitable[None]]


class Ticks:
    """The ticks that one worker fires."""

    def __init__(self, store: Store, submit: Submit, cancel: Cancel) -> None:
        self._store = store
        self._documents = store.documents()
        self._submit = submit
        self._cancel = cancel

    async def fire(self) -> None:
        """Fire what is due. Raises ``StoreUnavailable`` and ``StoreRefused``; what was claimed is taken up later.

        A schedule whose saga lies on a server that is away does not keep the others from being fired.
        """
        due = await self._documents.due("schedule", _AT_ONCE)
        failed: SagaError | None = None
        for name in due.names:
            try:
                for _ in range(_AT_ONCE):
                    if not await self._turn(name, due.now_ms):
                        break
            except (StoreUnavailable, StoreRefused) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _turn(self, name: str, now_ms: int) -> bool:
        """One tick of a schedule, at most; whether the next one is due as well."""
        found = await self._documents.read("schedule", name)
        if found is None:
            return False
        body = body_of(found.body)
        turn = Turn(name, body, now_ms)
        if body.pending is None:
            await turn.take(self._status)
            claimed = await write(self._store, found, body, now_ms)
            if claimed is None:
                return False  # another worker has claimed it
            found = claimed
            if body.paused:
                _log.warning("schedule %s paused itself: %s", name, quoted(body.why))
            if turn.cancels is not None:
                await self._cancel_saga(turn.cancels)
        if body.pending is None:
            return False
        try:
            await self._submit(name, body, body.pending.saga_id)
        except (StoreUnavailable, StoreRefused):
            raise
        except SagaError as error:
            turn.failed(str(error))
            _log.warning("a tick of schedule %s could not be submitted: %s", name, error)
        else:
            turn.begun()
        written = await write(self._store, found, body, now_ms)
        return written is not None and 0 < body.due_ms(now_ms) <= now_ms

    async def _status(self, saga_id: str) -> str | None:
        try:
            return (await self._store.head(saga_id)).status
        except SagaNotFound:
            return None

    async def _cancel_saga(self, saga_id: str) -> None:
        try:
            await self._cancel(saga_id)
        except (StoreUnavailable, StoreRefused):
            raise
        except SagaError as error:
            _log.warning("saga %s could not be cancelled, so the next one waits for its end: %s", saga_id, error)


async def write(store: Store, document: Document, body: ScheduleBody, now_ms: int) -> Document | None:
    """Store a schedule in place of the revision that was read; None: it has changed meanwhile."""
    body.writer = secrets.token_hex(4)
    changed = document._replace(body=msgspec.json.encode(body))
    return await store.documents().write("schedule", changed, body.due_ms(now_ms))
