"""Temporal: a workflow with a saga in code on the test server, which outlives its worker; retries and keys.

An activity whose worker was killed is tried again after its time-out.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from world import steps_of

RUN: Any = None
_OPTIONS = {
    "start_to_close_timeout": timedelta(seconds=2),
    "retry_policy": RetryPolicy(
        maximum_attempts=3, initial_interval=timedelta(milliseconds=10), non_retryable_error_types=["Refused"]
    ),
}


@activity.defn
def call(task: str, step: int, tool: str) -> str:
    return RUN.world.call(task, step, tool, f"{activity.info().workflow_id}-{step}")["ref"]


@activity.defn
def undo(task: str, step: int) -> None:
    RUN.world.undo(task, step)


@workflow.defn
class Work:
    @workflow.run
    async def run(self, task: str, steps: list[list[Any]]) -> dict[str, Any]:
        done: list[int] = []
        try:
            for step, tool in steps:
                await workflow.execute_activity(call, args=[task, step, tool], **_OPTIONS)
                done.append(step)
        except Exception:  # noqa: BLE001 - whatever it is, what answered is undone
            left = []
            for step in reversed(done):
                try:
                    await workflow.execute_activity(undo, args=[task, step], **_OPTIONS)
                except Exception:  # noqa: BLE001 - it is told, and the others are undone
                    left.append(step)
            return {"goal": False, "left": left}
        return {"goal": True, "left": []}


async def play(run: Any) -> None:
    """A workflow for each task."""
    global RUN  # noqa: PLW0603 - activities are functions of a module
    RUN = run
    from concurrent.futures import ThreadPoolExecutor

    client = await _client(os.environ["SCORE_TEMPORAL"])
    with ThreadPoolExecutor(4) as threads:
        worker = Worker(
            client,
            task_queue=run.name,
            workflows=[Work],
            activities=[call, undo],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=0,
        )
        async with worker:
            for task in run.tasks:
                told = await client.execute_workflow(
                    Work.run,
                    args=[task["id"], [list(each) for each in steps_of(task)]],
                    id=f"{run.name}-{task['id']}",
                    task_queue=run.name,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                )
                run.told(task, goal=told["goal"], named=set(told["left"]))


async def _client(address: str) -> Client:
    for _ in range(100):
        try:
            return await Client.connect(address)
        except (RuntimeError, OSError):
            await asyncio.sleep(0.1)
    raise RuntimeError("the test server does not answer")
