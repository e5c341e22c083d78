"""This engine, a plan: a step for each call. A saga that was killed is taken up by its id."""

from __future__ import annotations

from typing import Any

from world import steps_of

from saga_engine import Coordinator
from systems.engine import named, settled, tools


async def play(run: Any) -> None:
    """A saga for each task."""
    options: dict[str, Any] = {"on_escalation": (), "settings": None, "lease_s": 2.0}
    async with Coordinator.open(f"embedded://{run.folder / 'sagas'}", tools(run.world), **options) as engine:
        for task in run.tasks:
            steps = [
                {
                    "step_id": step,
                    "tool": "act",
                    "params": {"task": task["id"], "step": step, "name": name},
                    **({"depends_on": [step - 1]} if step > 1 else {}),
                }
                for step, name in steps_of(task)
            ]
            saga_id = f"{run.name}-{task['id']}"
            await engine.run({"steps": steps}, saga_id=saga_id)
            result, asked = await settled(engine, saga_id, run.world, task["id"])
            run.told(task, goal=result.status == "COMPLETED", named=named(result.body), asked=asked)
