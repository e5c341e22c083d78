"""What the record of a step with ``each`` changes: the plan grows in place, by a step for each item."""

from __future__ import annotations

from dataclasses import replace

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.evolve.transition import index_of, turn_saga
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.each import add_items


def expanded(state: State, record: r.EachExpanded) -> None:
    """The list of a step is known. The step waits for its items, and they for what it waited for."""
    index = index_of(state, record)
    if state.plan.steps[index].each is None or index in state.lists or state.steps[index].status != t.PENDING:
        raise KeyError(f"step {record.step} has no list, or had its items before")
    if not state.grown:  # a plan is shared by many sagas, but one that has grown belongs to this one
        state.plan = replace(state.plan, steps=list(state.plan.steps), by_key=dict(state.plan.by_key))
        state.grown = True
    state.ready.pop(index, None)
    if state.status == t.PENDING:
        turn_saga(state, "go")
    state.lists[index] = record.items
    plan = state.plan
    made = add_items(plan.steps, plan.by_key, index, record.items, len(plan.steps))
    if state.growth is not None:
        state.growth.has_items(made)
    state.steps.extend(StepState(0) for _ in made)
    state.remaining += len(made)
    for compiled in (*made, plan.steps[index]):
        _wait(state, compiled)


def _wait(state: State, compiled: CompiledStep) -> None:
    step = state.steps[compiled.index]
    step.waits = sum(1 for other in compiled.deps if not state.steps[other].settled)
    if not step.waits:
        state.ready[compiled.index] = None
