"""Built-in steps: what they do, a module for each word. Nothing is called for them; their records settle them.

``final`` has the steps of a plan's ``finally``, which call tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from saga_engine.core import records as r
from saga_engine.core.state import State
from saga_engine.core.steps import ask, brought, child, compute, each, wait
from saga_engine.core.steps.conditional import not_wanted
from saga_engine.plan import words
from saga_engine.plan.child import KIND as CHILD

_BEGIN: Final[Mapping[str, Callable[[State, int, int], r.AnyRecord]]] = {
    ask.KIND: ask.begin,
    CHILD: child.begin,
    compute.KIND: compute.begin,
    each.KIND: each.begin,
    wait.KIND: wait.begin,
}


def begin(state: State, index: int, now: int) -> r.AnyRecord | None:
    """The record with which a step begins that is no call, or does not run; often it also settles it. None: a call."""
    step = state.plan.steps[index]
    if step.when is not None and not state.steps[index].forward.attempt and index not in state.lists:
        record = not_wanted(state, index, now)
        if record is not None:
            return record
    return _BEGIN.get(step.builtin, brought.begin)(state, index, now) if step.builtin else None


def lacking(state: State) -> list[str]:
    """The words of a saga that this process does not have: what brings them is not installed."""
    used = {step.builtin for step in state.plan.steps if step.builtin} - _BEGIN.keys()
    return sorted(name for name in used if not words.known(name))
