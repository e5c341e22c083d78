"""The records of a saga's end, and of the steps that run before it."""

from __future__ import annotations

from typing import Any

from saga_engine.core.effects import ErrorInfo
from saga_engine.core.record_base import Record, ValueRef


class FinallyStarted(Record, frozen=True, tag=True):
    """The saga's end is certain: ``end`` is the status that follows. The steps of ``finally`` run before it.

    ``until_ms`` (Unix ms on the store's clock): no further call of theirs starts from then on. ``facts`` are the other
    fields of ``$end``.
    """

    end: str
    until_ms: int
    facts: dict[str, Any] = {}
    refs: dict[str, ValueRef] = {}


class StepUnsettled(Record, frozen=True, tag=True):
    """Nothing can settle the doubt of a step of ``finally``. It stays in doubt, and the saga's end does not wait."""

    step: str
    error: ErrorInfo


class SagaCompleted(Record, frozen=True, tag=True):
    """Every step happened."""


class SagaCompensated(Record, frozen=True, tag=True):
    """Everything that happened was undone."""


class SagaEscalated(Record, frozen=True, tag=True):
    """Nothing can continue before an operator answers."""


class SagaWaived(Record, frozen=True, tag=True):
    """The saga is over; an operator accepted the remaining effects, or their steps are irreversible."""
