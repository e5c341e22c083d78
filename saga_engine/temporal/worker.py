"""A worker: it plays workflows from their histories, and makes their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, Worker

from saga_engine.temporal.activities import Hands

#: How long calls in flight are awaited when a worker is stopped, in seconds; what takes longer is in doubt then.
DRAIN_S: Final = 900.0
#: How many workflow tasks are played side by side. They are short, and all in one interpreter.
_PLAYERS: Final = 16


async def work(
    client: Client,
    task_queue: str,
    flow: type,
    hands: Hands,
    *,
    concurrency: int,
    cached: int,
    lease_s: float,
    stopped: asyncio.Event,
    begun: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Serve a task queue until ``stopped`` is set; then take nothing more and await the calls in flight.

    ``begun`` is called when it serves, ``stopping`` when it ends, before calls are awaited.
    """
    with ThreadPoolExecutor(_PLAYERS, thread_name_prefix="saga-workflow") as players:
        worker = Worker(
            client,
            task_queue=task_queue,
            workflows=[flow],
            activities=hands.all(),
            workflow_task_executor=players,
            # As many as there are threads: a turn that waited for one would count as a deadlock.
            max_concurrent_workflow_tasks=_PLAYERS,
            max_concurrent_activities=concurrency,
            max_cached_workflows=cached,
            # The SDK sends fewer heartbeats than it is given; it must send enough.
            max_heartbeat_throttle_interval=timedelta(seconds=lease_s / 4),
            default_heartbeat_throttle_interval=timedelta(seconds=lease_s / 4),
            # A saga is first offered to the worker that has it in its cache, for no longer than a silent one counts.
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
    """Play histories again; raises if today's workflow would do otherwise than it did.

    ``converter``: that of a client with the store of these sagas, where they have large values.
    """
    replayer = Replayer(workflows=[flow], data_converter=converter or DataConverter.default)
    for history in histories:
        await replayer.replay_workflow(history)
