"""A schedule whose ticks happen while workers are killed: every second one saga of a template.

When the run ends, it is paused. Then each tick whose turn had come has one saga, and no other saga has its name.
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine import Coordinator
from saga_engine.execution.schedules import body_of, occurrence_id

NAME: Final = "chaos-tick"
PLAN: Final[dict[str, Any]] = {
    "steps": [
        {
            "step_id": "s0",
            "tool": "book_keyed",
            "params": {"item": "i0", "luck": "lost,busy,ok"},
            "rollback": {"tool": "undo_keyed", "params": {"ref": "$output.step_s0.ref"}},
        },
        {"step_id": "b0", "sleep": 0.2},
        {
            "step_id": "s1",
            "tool": "book_probed",
            "params": {"item": "i1", "luck": "cut,ok"},
            "rollback": {"tool": "undo_probed", "params": {"ref": "$output.step_s1.ref"}},
        },
    ],
}


async def begin(coordinator: Coordinator) -> int:
    """Begin the schedule; returns the time of its first tick."""
    await coordinator.templates.put(NAME, PLAN)
    made = await coordinator.schedules.put(
        NAME, template=NAME, every_s=1, overlap="allow", catch_up="all", pause_after=0
    )
    assert made.next_ms is not None
    return made.next_ms


async def ticks(coordinator: Coordinator, first_ms: int) -> list[str]:
    """The ids of the sagas of all ticks whose turn has come; empty while one of them is only claimed."""
    there = await coordinator.store.documents().read("schedule", NAME)
    assert there is not None
    body = body_of(there.body)
    if body.pending is not None or body.next_ms is None:
        return []
    return [occurrence_id(NAME, at_ms) for at_ms in range(first_ms, body.next_ms, 1000)]
