"""The exit codes of ``saga``; ``docs/cli.md`` has the same table, and a test compares the two."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.errors import SagaError

COMPLETED: Final = 0
ERROR: Final = 1
USAGE: Final = 2
COMPENSATED: Final = 3
NEEDS_PERSON: Final = 4
NOT_FOUND: Final = 5
CONFLICT: Final = 6
PLAN_INVALID: Final = 7
STILL_RUNNING: Final = 8
INTERRUPTED: Final = 130


class SagaStatus(StrEnum):
    """The statuses of a saga. Repeated here, so that a list needs no state machine; a test compares them."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPENSATING = "COMPENSATING"
    ESCALATED = "ESCALATED"
    COMPLETED = "COMPLETED"
    COMPENSATED = "COMPENSATED"
    WAIVED = "WAIVED"


_OF_STATUS: Final = {
    "PENDING": STILL_RUNNING,
    "RUNNING": STILL_RUNNING,
    "COMPENSATING": STILL_RUNNING,
    "ESCALATED": NEEDS_PERSON,
    "COMPLETED": COMPLETED,
    "COMPENSATED": COMPENSATED,
    "WAIVED": COMPENSATED,
}
_OF_ERROR: Final = {
    "saga-not-found": NOT_FOUND,
    "template-not-found": NOT_FOUND,
    "schedule-not-found": NOT_FOUND,
    "token-not-found": NOT_FOUND,
    "job-not-found": NOT_FOUND,
    "saga-exists": CONFLICT,
    "session-diverged": CONFLICT,
    "session-ended": CONFLICT,
    "decision-refused": CONFLICT,
    "cancel-refused": CONFLICT,
    "resume-refused": CONFLICT,
    "files-exist": CONFLICT,
    "amend-refused": CONFLICT,
    "fork-refused": CONFLICT,
    "undo-refused": CONFLICT,
    "event-refused": CONFLICT,
    "erase-refused": CONFLICT,
    "plan-invalid": PLAN_INVALID,
    "planner-failed": PLAN_INVALID,
    "planner-asks": NEEDS_PERSON,
    "planner-needs": NEEDS_PERSON,
    "lease-held": STILL_RUNNING,
    "interrupted": INTERRUPTED,
}
#: From the most to the least severe, for a command about many sagas.
_GRAVITY: Final = (INTERRUPTED, NEEDS_PERSON, ERROR, COMPENSATED, STILL_RUNNING, COMPLETED)


def of_status(status: str) -> int:
    """The code of a saga with this status."""
    return _OF_STATUS.get(status, ERROR)


def of_error(error: SagaError) -> int:
    """The code of an error."""
    return _OF_ERROR.get(error.code, ERROR)


def gravest(codes: Iterable[int]) -> int:
    """The most severe of the codes, ``COMPLETED`` if there is none; a code outside the order counts as ``ERROR``."""
    ranks = [_GRAVITY.index(code if code in _GRAVITY else ERROR) for code in codes]
    return _GRAVITY[min(ranks)] if ranks else COMPLETED
