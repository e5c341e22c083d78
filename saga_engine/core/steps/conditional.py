"""``when`` and ``failed_when``: conditions before a step, and on its output (``plan.conditions``).

They are evaluated once, and the journal has what came of it: ``StepSkipped``, the step's first record, or
``OutputChecked``. What cannot be evaluated is a failure, never a silent no (scenario ``when-undecidable``).
"""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.language.errors import said


def not_wanted(state: State, index: int, now: int) -> r.AnyRecord | None:
    """The record of a step that does not run; None: its conditions hold."""
    step = state.plan.steps[index]
    assert step.when is not None, "only such steps are asked about"
    truth = step.when.evaluate(StateScope(state))
    if truth is True:
        return None
    if truth is False:
        return r.StepSkipped(at=now, step=step.key, why="its conditions do not hold")
    return r.StepFailed(at=now, step=step.key, error=ErrorInfo("when_undecidable", _why(truth), retryable=False))


def checked(state: State, index: int, now: int) -> r.OutputChecked:
    """Whether the output of a step that happened means failure. What is undecidable does."""
    step = state.plan.steps[index]
    assert step.failed_when is not None, "only such steps are checked"
    truth = step.failed_when.evaluate(StateScope(state))
    error: ErrorInfo | None = None
    if truth is True:
        error = ErrorInfo("failed_when", said("failed_when"), retryable=False)
    elif truth is not False:
        error = ErrorInfo("failed_when_undecidable", _why(truth), retryable=False)
    return r.OutputChecked(at=now, step=step.key, error=error)


def _why(reason: str) -> str:
    return said("when_undecidable", why=reason)
