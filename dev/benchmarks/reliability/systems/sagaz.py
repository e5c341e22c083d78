"""sagaz: an action and a compensation for each call, with its retries.

Its storage in memory, as its first pages show; a task whose process was killed begins anew.
"""

from __future__ import annotations

import logging
from typing import Any

logging.disable(logging.CRITICAL)  # it tells of each step, from its import on

from sagaz.core.saga import Saga  # noqa: E402
from world import steps_of  # noqa: E402


class _Work(Saga):
    pass


def _of(run: Any, task: str, step: int, tool: str, left: set[int]) -> tuple[Any, Any]:
    async def act(_: Any) -> Any:
        return run.world.call(task, step, tool)["ref"]

    async def undo(*_: Any) -> None:
        left.add(step)
        run.world.undo(task, step)
        left.discard(step)

    return act, undo


async def play(run: Any) -> None:
    """A saga for each task; it names the steps whose compensation failed."""
    for task in run.tasks:
        saga, left = _Work(name=task["id"]), set()
        for step, tool in steps_of(task):
            act, undo = _of(run, task["id"], step, tool, left)
            await saga.add_step(f"step-{step}", act, undo, max_retries=2)
        try:
            goal = bool((await saga.execute()).success)
        except Exception:  # noqa: BLE001 - the saga has failed, and says which compensations did
            goal = False
        run.told(task, goal=goal, named=left)
