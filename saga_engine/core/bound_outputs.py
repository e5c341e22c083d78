"""Whether anything in a saga binds the output of a step, so that nobody may leave it out."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from saga_engine.core.state import State
from saga_engine.plan.compiled import CompiledRollback, CompiledStep


def output_is_bound(state: State, index: int) -> bool:
    """Whether something binds the output of a step that has not ended.

    That is the undo of the step's current call, its ``failed_when``, and another step: its calls, fallbacks, undos,
    conditions and resource. A binding with a default counts as well, because a default stands for what did not happen.
    """
    step = state.plan.steps[index]
    own, undo = step.key, state.whole_rollback(index)
    if undo is not None and undo.needs_output:
        return True
    if step.failed_when is not None and own in step.failed_when.outputs:
        return True
    # The output of an item is a part of what its list returns.
    keys = frozenset({own} if step.item is None else {own, step.item.parent_key})
    return any(binds(other, keys) for other in state.plan.all_steps() if other.key != own)


def binds(step: CompiledStep, keys: AbstractSet[str]) -> bool:
    """Whether anything of a step binds the output of one of these steps, with a default or without."""
    conditions = [step.when, step.failed_when]
    if step.each is not None:
        conditions.append(step.each.when)
        if binds(step.each.item, keys):
            return True
    if any(each is not None and keys & each.outputs for each in conditions):
        return True
    bound = [step.params, *(call.params for call in step.calls())]
    bound += [call.each for call in step.calls() if isinstance(call, CompiledRollback) and call.each is not None]
    if step.resource is not None:
        bound.append(step.resource)
    return any(keys & params.outputs_or_default for params in bound)
