"""The records of conditions: a step that does not run, and an output that was checked."""

from __future__ import annotations

from saga_engine.core.effects import ErrorInfo
from saga_engine.core.record_base import Record


class StepSkipped(Record, frozen=True, tag=True):
    """The conditions of the step's ``when`` do not hold: nothing was called, and what depends on it goes on."""

    step: str
    why: str = ""


class OutputChecked(Record, frozen=True, tag=True):
    """The ``failed_when`` of a step that happened was evaluated. With an ``error`` the output means failure."""

    step: str
    error: ErrorInfo | None = None
