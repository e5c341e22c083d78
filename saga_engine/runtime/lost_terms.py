"""Restores the terms of sagas that the store has lost: what a saga is found by follows from its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from saga_engine.core.search_terms import terms_of
from saga_engine.errors import JournalUnreadable, PlanInvalid, SagaNotFound
from saga_engine.ports import Store
from saga_engine.runtime.journal import look

#: How many journals are read at a time.
_AT_ONCE: Final = 16


async def rebuild_indexes(store: Store) -> tuple[int, Sequence[str]]:
    """Rebuild all indexes of a store, which may be used meanwhile.

    Returns how many sagas had lost their terms and have them again, and which ones have not: their journals cannot be
    read. Raises ``StoreUnavailable`` and ``StoreRefused``.
    """
    lost = await store.work().rebuild()
    unreadable: list[str] = []
    sagas = iter(lost)

    async def one_after_another() -> None:
        for saga_id in sagas:
            try:
                state = await look(store, saga_id)
            except SagaNotFound:
                continue
            except (JournalUnreadable, PlanInvalid):
                unreadable.append(saga_id)
                continue
            await store.work().restore_terms(saga_id, terms_of(state))

    await asyncio.gather(*(one_after_another() for _ in range(min(_AT_ONCE, len(lost)))))
    return len(lost) - len(unreadable), sorted(unreadable)
