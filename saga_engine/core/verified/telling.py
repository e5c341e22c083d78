"""What views show of undos that were looked at."""

from __future__ import annotations

from typing import Any

from saga_engine.core import states as t
from saga_engine.core.state import State


def of_undo(state: State, index: int) -> dict[str, Any]:
    """Whether the undo of a step that counts as undone is verified; ``unverified_because``: why not, if that is known.

    Empty: the step is not undone, or it is still looked at.
    """
    step = state.steps[index]
    if step.status not in (t.COMPENSATED, t.RESOLVED) or step.accepted or index in state.looks:
        return {}
    look = step.look
    if look is not None and look.how == "verified":
        return {"verified": True}
    why = {} if look is None or look.error is None else {"unverified_because": look.error.message}
    return {"verified": False, **why}


def verified(state: State) -> list[int | str]:
    """The ids of the steps whose undo is verified."""
    return [
        step.step_id
        for step in state.plan.steps
        if state.steps[step.index].look is not None and of_undo(state, step.index).get("verified")
    ]
