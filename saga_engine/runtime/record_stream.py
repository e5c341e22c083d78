"""A saga's records as they become durable, in whatever process it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from saga_engine.core.masking import Reader, is_sensitive
from saga_engine.core.records import AnyRecord
from saga_engine.core.transitions import SAGA_FINAL
from saga_engine.core.views import entry
from saga_engine.execution.ids import went_back
from saga_engine.ports import Store
from saga_engine.runtime.journal import at_hand, read_records

#: The intervals, in seconds, at which the journal is read: soon after something came, then longer.
LOOK_FIRST_S: Final = 0.05
LOOK_MOST_S: Final = 1.0
#: So many records are read at a time: who follows slowly has no more of them in memory.
PAGE: Final = 32
#: And so many to learn what is sensitive: none of them is kept.
_LOOK_PAGE: Final = 256


async def follow(store: Store, saga_id: str, since: int) -> AsyncIterator[dict[str, Any]]:
    """The records from ``since`` on as plain JSON, each with its ``seq``, until the saga has ended.

    Large values appear as references. Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``, and
    ``JournalConflict`` if the journal went back: it has no record before ``since``, or not the last one that was read.
    """
    known, pause_s = since, LOOK_FIRST_S
    mask = _Mask(store, saga_id)
    last: AnyRecord | None = None  # the one before `known`
    while True:
        head = await store.head(saga_id)
        if head.length < known:
            raise went_back(saga_id, known)
        if head.length > known:
            if last is None:  # what is sensitive may be said anywhere, whatever part of the journal is requested
                await mask.look(head.length)
            # With the last one that is known: a journal that went back may have grown again since.
            before = 0 if last is None else 1
            page = await read_records(store, saga_id, known - before, whole=False, most=PAGE + before)
            records = page[before:]
            if (before and page[:1] != [last]) or not records:  # it went back since its head was read
                raise went_back(saga_id, known)
            await mask.learn(known, records)
            last = records[-1]
            for record in records:
                yield entry(known, mask.shown(record))
                known += 1
            pause_s = LOOK_FIRST_S
        elif head.status in SAGA_FINAL:
            return
        else:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MOST_S)


class _Mask:
    """Masks the records of one saga. It holds what the saga has done so far only if something in it is sensitive."""

    def __init__(self, store: Store, saga_id: str) -> None:
        self._store = store
        self._saga_id = saga_id
        self._reader: Reader | None = None
        self._seen = 0

    async def look(self, until: int) -> None:
        """Learn what is sensitive in the records before ``until``, page by page."""
        while self._seen < until:
            page = await read_records(self._store, self._saga_id, self._seen, whole=False, most=_LOOK_PAGE)
            if not page:
                return
            if self._reader is not None:
                self._reader.feed(await at_hand(self._store, self._saga_id, page))
            elif is_sensitive(page):
                self._reader, self._seen = Reader(), 0  # from the start: what came before may hold it as well
                continue
            self._seen += len(page)

    async def learn(self, start: int, records: list[AnyRecord]) -> None:
        """The same for records that are at hand."""
        new = records[self._seen - start :]
        if self._reader is not None:
            self._reader.feed(await at_hand(self._store, self._saga_id, new))
        elif is_sensitive(new):
            await self.look(start + len(records))
            return
        self._seen += len(new)

    def shown(self, record: AnyRecord) -> AnyRecord | dict[str, Any]:
        """A record, or what may be shown of it as plain JSON."""
        return record if self._reader is None else self._reader.mask(record)
