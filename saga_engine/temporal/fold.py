"""Folds a journal that came through Temporal into the saga's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saga_engine.analysis.trace import state_at_start
from saga_engine.core.codec import decode, inflate
from saga_engine.core.evolve import evolve
from saga_engine.core.records import AnyRecord, SagaStarted
from saga_engine.core.state import State
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.tool_spec import ToolCatalog


def state_of(records: Sequence[AnyRecord], catalog: ToolCatalog | None = None) -> State:
    """The folded state of records; without a catalog it is sufficient for display. Raises ``JournalUnreadable``."""
    first = records[0] if records else None
    if not isinstance(first, SagaStarted):
        raise JournalUnreadable("a journal must begin with SagaStarted", hint="the workflow is none of this engine's")
    state = state_at_start(first, catalog)
    for record in records[1:]:
        evolve(state, record)
    return state


def whole_records(journal: Sequence[bytes], values: Mapping[str, bytes]) -> list[AnyRecord]:
    """Records with their large values inserted."""
    return [inflate(decode(data), values) for data in journal]
