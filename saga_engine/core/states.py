"""The states of a saga and of a step, by name.

Their transitions are in ``transitions``; code that only reads statuses, such as ``saga list``, loads no state machine.
"""

from __future__ import annotations

from typing import Final

# --- the saga ----------------------------------------------------------------------------------------------------

PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"
COMPENSATING: Final = "COMPENSATING"
ESCALATED: Final = "ESCALATED"
COMPLETED: Final = "COMPLETED"
COMPENSATED: Final = "COMPENSATED"
WAIVED: Final = "WAIVED"

SAGA_STATES: Final = (PENDING, RUNNING, COMPENSATING, ESCALATED, COMPLETED, COMPENSATED, WAIVED)
#: A saga in one of these has ended and never changes again.
SAGA_FINAL: Final = frozenset({COMPLETED, COMPENSATED, WAIVED})

# --- a step ------------------------------------------------------------------------------------------------------

WAITING: Final = "WAITING"
SUCCEEDED: Final = "SUCCEEDED"
FAILED: Final = "FAILED"
BLOCKED: Final = "BLOCKED"
IN_DOUBT: Final = "IN_DOUBT"
COMPENSATION_FAILED: Final = "COMPENSATION_FAILED"
RESOLVED: Final = "RESOLVED"
SKIPPED: Final = "SKIPPED"

STEP_STATES: Final = (
    PENDING,
    RUNNING,
    WAITING,
    SUCCEEDED,
    FAILED,
    BLOCKED,
    IN_DOUBT,
    COMPENSATING,
    COMPENSATED,
    COMPENSATION_FAILED,
    ESCALATED,
    RESOLVED,
    SKIPPED,
)
#: Where a step can stay when its saga has ended.
STEP_REST: Final = frozenset({SUCCEEDED, FAILED, BLOCKED, COMPENSATED, RESOLVED, SKIPPED})
