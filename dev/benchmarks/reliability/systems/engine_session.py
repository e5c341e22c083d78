"""This engine, a session: the agent's loop, call by call. One that was killed is opened again by its id.

An error that leaves the block undoes what it did; where an operator is asked the loop runs again after the answer.
"""

from __future__ import annotations

from typing import Any

from world import steps_of

from saga_engine import CallFailed, Coordinator, NeedsPerson, SagaError
from systems.engine import named, settled, tools


async def play(run: Any) -> None:
    """A session for each task."""
    options: dict[str, Any] = {"on_escalation": (), "settings": None, "lease_s": 2.0}
    async with Coordinator.open(f"embedded://{run.folder / 'sagas'}", tools(run.world), **options) as engine:
        for task in run.tasks:
            saga_id, asked = f"{run.name}-{task['id']}", 0
            while True:
                try:
                    async with engine.session(saga_id) as session:
                        for step, name in steps_of(task):
                            await session.call("act", task=task["id"], step=step, name=name)
                    break
                except NeedsPerson:
                    asked += (await settled(engine, saga_id, run.world, task["id"]))[1]
                except (CallFailed, SagaError):
                    break
            result, more = await settled(engine, saga_id, run.world, task["id"])
            run.told(task, goal=result.status == "COMPLETED", named=named(result.body), asked=asked + more)
