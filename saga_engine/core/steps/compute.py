"""``compute``: an exact, pure computation as a step (``plan.compute``).

Nothing is called and nothing can be in doubt, so there is no intent: one record holds the result, and whoever folds the
journal reads it there and does not compute again. Operands without a result fail the step.
"""

from __future__ import annotations

from typing import Final

import msgspec

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.compute import WORD

KIND: Final = WORD
#: ``StepSucceeded.via`` of a result.
VIA: Final = "computed"
#: How large a result may be, as JSON: it stays in its record.
MAX_RESULT_BYTES: Final = 32_768


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record with the result, or the failure of a step whose computation has none."""
    step = state.plan.steps[index]
    try:
        result = step.params.resolve(StateScope(state))[KIND]
    except BindingUnresolved as error:
        return _failed(step.key, now, error.message)
    size = len(msgspec.json.encode(result))
    if size > MAX_RESULT_BYTES:
        return _failed(step.key, now, said("compute_failed.size", n=size, most=MAX_RESULT_BYTES))
    return r.StepSucceeded(at=now, step=step.key, output=result, via=VIA)


def _failed(key: str, now: int, message: str) -> r.StepFailed:
    return r.StepFailed(at=now, step=key, error=ErrorInfo("compute_failed", message[:1000], retryable=False))
