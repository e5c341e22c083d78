"""A worker: it runs workflows from their histories, and makes their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, Worker

from saga_engine.temporal.activities import Activities

#: How long a stopped worker waits for calls in flight, in seconds; a call that takes longer is in doubt then.
DRAIN_S: Final = 900.0
#: How many workflow tasks run concurrently. They are short, and all in one interpreter.
_PLAYERS: Final = 16


async def work(
    client: Client,
    task_queue: str,
    flow: type,
    activities: Activities,
    *,
    concurrency: int,
    cached: int,
    lease_s: float,
    stopped: asyncio.Event,
    begun: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Serve a task queue until ``stopped`` is set; then take nothing more and wait for the calls in flight.

    ``begun`` is called when it serves, ``stopping`` when it ends, before it waits for calls.
    """
    with ThreadPoolExecutor(_PLAYERS, thread_name_prefix="saga-workflow") as players:
        worker = Worker(
            client,
            task_queue=task_queue,
            workflows=[flow],
            activities=activities.all(),
            workflow_task_executor=players,
            # As many as there are threads: a turn that waited for one would count as a deadlock.
            max_concurrent_workflow_tasks=_PLAYERS,
            max_concurrent_activities=concurrency,
            max_cached_workflows=cached,
            # The SDK sends fewer heartbeats than it is asked for; it must send enough.
            max_heartbeat_throttle_interval=timedelta(seconds=lease_s / 4),
            default_heartbeat_throttle_interval=timedelta(seconds=lease_s / 4),
            # A saga is first offered to the worker that has it in its cache, for no longer than a silent worker keeps a
            # call.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=min(lease_s, 10.0)),
            graceful_shutdown_timeout=timedelta(seconds=DRAIN_S),
        )
        serving = asyncio.create_task(worker.run(), name="saga-temporal-worker")
        ending = asyncio.create_task(stopped.wait())
        begun()
        try:
            await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            stopping()
            if not serving.done():
                await worker.shutdown()
            await serving


async def replay(flow: type, histories: Sequence[WorkflowHistory], converter: DataConverter | None = None) -> None:
    """Replay histories; raises if today's workflow would decide differently.

    ``converter``: that of a client with the store of these sagas, if they have large values.
    """
    replayer = Replayer(workflows=[flow], data_converter=converter or DataConverter.default)
    for history in histories:
        await replayer.replay_workflow(history)
