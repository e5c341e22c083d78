"""A saga's records as they become durable, in whatever process it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from saga_engine.core.masking import Reader, is_sensitive
from saga_engine.core.records import AnyRecord
from saga_engine.core.transitions import SAGA_FINAL
from saga_engine.execution.ids import went_back
from saga_engine.ports import Store
from saga_engine.runtime.journal import at_hand, read_records

#: The intervals, in seconds, at which the journal is read: soon after something came, then longer.
LOOK_FIRST_S: Final = 0.05
LOOK_MOST_S: Final = 1.0


async def follow(store: Store, saga_id: str, since: int) -> AsyncIterator[dict[str, Any]]:
    """The records from ``since`` on as plain JSON, each with its ``seq``, until the saga has ended.

    Large values appear as references. Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``, and
    ``JournalConflict`` if the journal went back: it has no record before ``since``, or not the last one that was read.
    """
    known, pause_s = since, LOOK_FIRST_S
    reader: Reader | None = None
    last: AnyRecord | None = None  # the one before `known`
    while True:
        head = await store.head(saga_id)
        if head.length < known:
            raise went_back(saga_id, known)
        if head.length > known:
            if reader is None:
                # The first record lists what is sensitive, whatever part of the journal is requested.
                reader = Reader()
                before = await read_records(store, saga_id, whole=False)
                reader.feed(await at_hand(store, saga_id, before) if is_sensitive(before) else before)
                records = before[known:]
            else:
                # With the last one that is known: a journal that went back may have grown again since.
                before = await read_records(store, saga_id, known - 1, whole=False)
                if before[:1] != [last]:
                    raise went_back(saga_id, known)
                records = before[1:]
                reader.feed(await at_hand(store, saga_id, records) if reader.masks else records)
            if not records:  # it went back since its head was read
                raise went_back(saga_id, known)
            last = records[-1]
            for record in records:
                yield {"seq": known, **(reader.mask(record) if reader.masks else msgspec.to_builtins(record))}
                known += 1
            pause_s = LOOK_FIRST_S
        elif head.status in SAGA_FINAL:
            return
        else:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MOST_S)
