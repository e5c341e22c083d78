"""Logs a tool's unforeseen exception with its saga and step, on both runtimes, after secrets are removed."""

from __future__ import annotations

from saga_engine.core.effects import ErrorInfo
from saga_engine.loggers import logger_of, quoted

_log = logger_of("saga_engine.tools")


def log_defect(error: ErrorInfo, *, tool: str, saga_id: str, step: int | str, direction: str, attempt: int) -> None:
    """Log an error that has a traceback; any other one was reported or foreseen, and the journal has it.

    ``step``: its id as the plan has it.
    """
    if error.traceback is None:
        return
    _log.warning(
        "saga %s: step %s: the tool %r raised an unforeseen exception (%s, attempt %d): %s: %s\n%s",
        saga_id,
        step,
        tool,
        direction,
        attempt,
        error.error_code,
        quoted(error.message),
        error.traceback,
        extra={"saga_id": saga_id, "step_id": step, "tool": tool, "direction": direction, "attempt": attempt},
    )
