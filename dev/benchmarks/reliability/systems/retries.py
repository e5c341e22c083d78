"""A loop with three attempts and an idempotency key for each call; a failure is undone call by call, in reverse."""

from __future__ import annotations

from functools import partial
from typing import Any

from world import Refused, World, steps_of


def attempts(call: Any) -> Any:
    """Three attempts; a refusal ends them."""
    for left in (2, 1, 0):
        try:
            return call()
        except Refused:
            raise
        except Exception:
            if not left:
                raise
    return None


def _answered(world: World, task: str, step: int, tool: str, key: str) -> str:
    return str(world.call(task, step, tool, key)["ref"])


def play(run: Any) -> None:
    """Call after call; the first failure undoes those that answered."""
    for task in run.tasks:
        done: list[int] = []
        try:
            for step, tool in steps_of(task):
                key = f"{run.name}-{task['id']}-{step}"
                attempts(partial(_answered, run.world, task["id"], step, tool, key))
                done.append(step)
        except Exception:  # noqa: BLE001 - whatever it is, what answered is undone
            left = set()
            for step in reversed(done):
                try:
                    attempts(partial(run.world.undo, task["id"], step))
                except Exception:  # noqa: BLE001 - it is told, and the others are undone
                    left.add(step)
            run.told(task, goal=False, named=left)
        else:
            run.told(task, goal=True)
