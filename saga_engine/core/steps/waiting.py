"""Waits whose time has come. One record ends a wait: what it waits for, its due time, or the turn of the saga."""

from __future__ import annotations

from collections.abc import Sequence

from saga_engine.core import records as r
from saga_engine.core.state import State
from saga_engine.core.steps import brought, wait


def due_waits(state: State, now: int) -> Sequence[r.AnyRecord]:
    """The records that end the waits which are due."""
    return [
        (wait if state.plan.steps[index].builtin == wait.KIND else brought).due(state, index, open_wait, now)
        for index, open_wait in state.pending.items()
        if open_wait.due is not None and open_wait.due <= now
    ]
