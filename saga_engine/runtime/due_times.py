"""When a saga that this process releases needs a worker."""

from __future__ import annotations

from typing import Any

from saga_engine.core.state import State

#: A due time in the distant past: the saga needs a worker now.
AT_ONCE = 1
#: When a saga is offered again that this process cannot drive, and another one perhaps can.
OFFER_AGAIN_MS = 60_000


def queued_again(state: State, now_ms: int) -> int:
    """When a resting saga needs a worker: its deadline, an approval that expires, a reminder. 0: never."""
    due_ms = state.next_overdue()
    if due_ms is None:
        return 0
    return due_ms if due_ms > now_ms else now_ms + OFFER_AGAIN_MS  # a reminder, and no hook here to notify


def told_in_head(state: State) -> tuple[Any, ...]:
    """What a saga's head says about open questions and waits: when it changes, the head is written anew."""
    waits = tuple(wait.due for wait in state.steps_waiting()) if state.only_waits() else ()
    return tuple(state.questions), state.next_overdue(), waits
