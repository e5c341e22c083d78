"""``each``: a step that is called once for each item of a list (``plan.each``).

When its turn comes, one record holds the list, and the plan grows by a step for each item; an item is a step like any
other. When all have ended, the step itself has its turn again, and succeeds with the list of their outputs.
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledStep, Item
from saga_engine.plan.each import WORD, ItemScope
from saga_engine.plan.limits import MAX_GROWN, MAX_ITEMS
from saga_engine.plan.schema_types import type_of

KIND: Final = WORD
#: ``StepSucceeded.via`` of the list of outputs.
VIA: Final = "each"


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record with the list of the step, or with the outputs of all items; or its failure."""
    step = state.plan.steps[index]
    if index in state.lists:
        return r.StepSucceeded(at=now, step=step.key, output=_outputs(state, step), via=VIA)
    try:
        (found,) = step.params.resolve(StateScope(state)).values()
    except BindingUnresolved as error:
        return _failed(step, now, error.message)
    if not isinstance(found, list):
        return _failed(step, now, said("each_failed.list", type=type_of(found)))
    if len(found) > MAX_ITEMS:
        return _failed(step, now, said("each_failed.items", n=len(found), most=MAX_ITEMS))
    items: list[Any] = []
    for number, value in enumerate(found):
        truth = _wanted(state, step, number, value)
        if not isinstance(truth, bool):
            why = said("when_undecidable.item", n=number, why=truth)
            return r.StepFailed(at=now, step=step.key, error=ErrorInfo("when_undecidable", why, retryable=False))
        if truth:
            items.append(value)
    limits = None if state.growth is None else state.growth.limits
    most = MAX_GROWN if limits is None else limits.max_steps
    total = len(state.steps) + len(items)
    if items and total > most:
        return _failed(step, now, said("each_failed.steps", n=total, most=most))
    return r.EachExpanded(at=now, step=step.key, items=items)


def _wanted(state: State, step: CompiledStep, number: int, value: Any) -> bool | str:
    """Whether an item gets a step; else why that is unknown."""
    assert step.each is not None, "it has a list"
    if step.each.when is None:
        return True
    item = Item(step.index, number, step.key, step.key, value)
    return step.each.when.evaluate(ItemScope(StateScope(state), item))


def _outputs(state: State, step: CompiledStep) -> Any:
    assert step.each is not None, "it has a list"
    items = state.steps[step.items : step.items + len(state.lists[step.index])]
    outputs = [each.output for each in items]
    if not step.each.collect:
        return outputs
    failed = [
        {"index": number, "error_code": each.forward.error.error_code, "message": each.forward.error.message}
        for number, each in enumerate(items)
        if each.effect is None and each.forward.error is not None
    ]
    return {"outputs": outputs, "failed": failed}


def _failed(step: CompiledStep, now: int, message: str) -> r.StepFailed:
    return r.StepFailed(at=now, step=step.key, error=ErrorInfo("each_failed", message[:1000], retryable=False))
