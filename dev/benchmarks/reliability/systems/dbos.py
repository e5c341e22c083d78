"""DBOS: a workflow whose steps have retries and keys, and which undoes in code; in SQLite.

A workflow that was killed is recovered when DBOS is launched again.
"""

from __future__ import annotations

import logging
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from world import Refused, steps_of

RUN: Any = None


def _may_retry(error: BaseException) -> bool:
    return not isinstance(error, Refused)


_RETRY = {"retries_allowed": True, "max_attempts": 3, "interval_seconds": 0.01, "backoff_rate": 1.0}


@DBOS.step(should_retry=_may_retry, **_RETRY)
def call(task: str, step: int, tool: str) -> str:
    return RUN.world.call(task, step, tool, f"{DBOS.workflow_id}-{step}")["ref"]


@DBOS.step(should_retry=_may_retry, **_RETRY)
def undo(task: str, step: int) -> None:
    RUN.world.undo(task, step)


@DBOS.workflow()
def work(task: str, steps: list[tuple[int, str]]) -> dict[str, Any]:
    done: list[int] = []
    try:
        for step, tool in steps:
            call(task, step, tool)
            done.append(step)
    except Exception:  # noqa: BLE001 - whatever it is, what answered is undone
        left = []
        for step in reversed(done):
            try:
                undo(task, step)
            except Exception:  # noqa: BLE001 - it is told, and the others are undone
                left.append(step)
        return {"goal": False, "left": left}
    return {"goal": True, "left": []}


def play(run: Any) -> None:
    """A workflow for each task."""
    global RUN  # noqa: PLW0603 - steps are functions of a module
    RUN = run
    logging.disable(logging.CRITICAL)
    DBOS(
        config=DBOSConfig(
            name="score",
            system_database_url=f"sqlite:///{run.folder / 'dbos.sqlite'}",
            log_level="CRITICAL",
            application_version="1",
            executor_id="score",
            run_admin_server=False,
        )
    )
    DBOS.launch()
    try:
        for task in run.tasks:
            with SetWorkflowID(f"{run.name}-{task['id']}"):
                told = DBOS.start_workflow(work, task["id"], list(steps_of(task))).get_result()
            run.told(task, goal=told["goal"], named=set(told["left"]))
    finally:
        DBOS.destroy()
