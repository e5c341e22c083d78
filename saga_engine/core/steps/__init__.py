"""Built-in steps: what they do, a module for each word. Nothing is called for them; their records settle them.

``final`` has the steps of a plan's ``finally``, which call tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from saga_engine.core import records as r
from saga_engine.core.state import State
from saga_engine.core.steps import ask, compute, sleep, wait

_BEGIN: Final[Mapping[str, Callable[[State, int, int], r.AnyRecord]]] = {
    ask.KIND: ask.begin,
    compute.KIND: compute.begin,
    sleep.KIND: sleep.begin,
    wait.KIND: wait.begin,
}


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record with which a built-in step whose turn has come begins; often it also settles the step."""
    return _BEGIN[state.plan.steps[index].builtin](state, index, now)
