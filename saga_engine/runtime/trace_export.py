"""A saga's journal as the lines of a trace."""

from __future__ import annotations

import asyncio

from saga_engine.analysis.trace import Export, fill
from saga_engine.core.codec import decode, refs_of
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.ports import Store


async def trace_lines(store: Store, saga_id: str, export: Export, catalog: ToolCatalog | None) -> list[str]:
    """The lines of one saga, as the next ones of ``export``. Large outputs are fetched only if they are shown whole.

    Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``; the export can continue with another saga
    then.
    """
    records = [decode(data) for data in await store.read(saga_id)]
    outputs = export.needs_outputs
    wanted = {ref.digest for record in records for name, ref in refs_of(record).items() if outputs or name != "output"}
    if wanted:
        values = await store.values(saga_id, sorted(wanted))
        records = [fill(record, values, outputs=outputs) for record in records]
    # In a thread: a long saga takes a while, and the sagas that run here must not wait for it.
    return await asyncio.to_thread(export.saga, records, catalog)
