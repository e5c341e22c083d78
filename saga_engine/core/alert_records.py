"""The records of notifications of operators."""

from __future__ import annotations

from saga_engine.core.effects import ErrorInfo
from saga_engine.core.record_base import Record


class AlertIntended(Record, frozen=True, tag=True):
    """Operators are about to be notified of a question; ``round`` counts the reminders."""

    question: str
    attempt: int = 1
    round: int = 0


class AlertSent(Record, frozen=True, tag=True):
    """Operators were notified. Without an answer, a reminder follows ``again_ms`` after ``at`` (0: none)."""

    question: str
    again_ms: int = 0


class AlertFailed(Record, frozen=True, tag=True):
    """The notification failed; the next try is due ``delay_ms`` after ``at``.

    -1: it has been tried often enough for now; a reminder follows ``again_ms`` after ``at`` (0: none).
    """

    question: str
    error: ErrorInfo
    delay_ms: int = -1
    again_ms: int = 0
