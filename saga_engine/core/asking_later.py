"""When the engine asks a model again that could not be reached, before it asks an operator or turns around. Pure.

The delay is in the record (``PlannerGaveUp.delay_ms``), so a later engine with other delays reads the same journal.
"""

from __future__ import annotations

from typing import Final

#: What says that the model could not be asked. Another time may help; of an answer without steps it would not.
UNREACHED: Final = "model_unreachable"
#: After which the model is asked again: once for each, then no more for this step.
DELAYS_MS: Final[tuple[int, ...]] = (30_000, 120_000, 600_000)
#: How long a request that is due is left for a process that has a planner.
WAIT_FOR_PLANNER_MS: Final = 600_000


def delay_ms(error_code: str, times: int) -> int:
    """The delay after which a model that failed with this error is asked again for the nth time; 0: it is not."""
    return DELAYS_MS[times] if error_code == UNREACHED and times < len(DELAYS_MS) else 0
