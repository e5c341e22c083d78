"""Waits whose time has come. One record ends a wait: what it waits for, its due time, or the turn of the saga."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from saga_engine.core import records as r
from saga_engine.core.state import State
from saga_engine.core.steps import sleep, wait
from saga_engine.core.waits import Wait

#: What ends a wait at its due time, by the kind of the step.
_DUE: Final[Mapping[str, Callable[[State, int, Wait, int], r.AnyRecord]]] = {
    sleep.KIND: sleep.due,
    wait.KIND: wait.due,
}


def due_waits(state: State, now: int) -> Sequence[r.AnyRecord]:
    """The records that end the waits which are due."""
    return [
        _DUE[state.plan.steps[index].builtin](state, index, open_wait, now)
        for index, open_wait in state.waits.items()
        if open_wait.due is not None and open_wait.due <= now
    ]
