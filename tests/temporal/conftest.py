"""One Temporal server for all tests of a process; each test has a task queue, and so its workers, for itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine.api.temporal import SagaWorkflow, TemporalCoordinator, serve
from saga_engine.temporal.worker import replay
from tests.temporal.server import TemporalServer, detecting_deadlocks

_numbers = itertools.count(1)
#: How long a worker may be silent in these tests. None of them waits for that, and no busy machine lasts so long.
LEASE_S = 60.0


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """A turn may take as long as a loaded machine needs for it."""
    with detecting_deadlocks(None):
        yield


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    with TemporalServer() as server:
        yield server


class Place:
    """A task queue of its own, with ids of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.number = next(_numbers)
        self.queue = f"q{self.number}"
        self.started: list[str] = []

    def saga_id(self, name: str) -> str:
        return f"{name}-{self.number}"

    @asynccontextmanager
    async def worker(self, tools: Any, **options: Any) -> AsyncIterator[asyncio.Event]:
        """A worker in this process, drained at the end of the block.

        Without a cache each turn of a saga is played from its history, which finds what is not deterministic. (And the
        test server loses what it had put aside for the cache of a worker that is gone.)
        """
        stopped, begun = asyncio.Event(), asyncio.Event()
        options = {
            "lease_s": LEASE_S,
            "patience_s": LEASE_S,
            "cached": 0,
            "stopped": stopped,
            "begun": begun.set,
        } | options
        work = asyncio.create_task(serve(self.url, tools, task_queue=self.queue, **options))
        both = [work, asyncio.create_task(begun.wait())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield stopped
        finally:
            stopped.set()
            both[1].cancel()
            await work

    @asynccontextmanager
    async def client(self, tools: Any = (), **options: Any) -> AsyncIterator[TemporalCoordinator]:
        options = {"lease_s": LEASE_S, "task_queue": self.queue} | options
        async with TemporalCoordinator.open(self.url, tools, **options) as coordinator:
            yield coordinator

    @asynccontextmanager
    async def both(self, tools: Any, *, store: Any = None, **options: Any) -> AsyncIterator[TemporalCoordinator]:
        """A worker and a client with the same tools."""
        ours = {name: options.pop(name) for name in ("events", "observers", "patience_s", "limits") if name in options}
        if "secrets" in options:
            ours["secrets"] = options["secrets"]
        async with self.worker(tools, store=store, **options), self.client(tools, store=store, **ours) as coordinator:
            yield coordinator

    async def histories(self, coordinator: TemporalCoordinator, saga_id: str) -> list[Any]:
        """Temporal's own history of each run of a saga, the last first."""
        client = coordinator.sagas.client
        run_id: str | None = None
        found = []
        while True:
            history = await client.get_workflow_handle(saga_id, run_id=run_id).fetch_history()
            found.append(history)
            first = history.events[0].workflow_execution_started_event_attributes
            if not first.continued_execution_run_id:
                return found
            run_id = first.continued_execution_run_id

    async def replayed(self, coordinator: TemporalCoordinator, saga_id: str) -> list[Any]:
        """Play every run of a saga again: today's workflow must do what it did. Returns the histories."""
        found = await self.histories(coordinator, saga_id)
        await replay(SagaWorkflow, found, coordinator.sagas.client.data_converter)
        return found


@pytest.fixture
def place(temporal: TemporalServer) -> Place:
    return Place(temporal.url)


@pytest.fixture
def new_place(temporal: TemporalServer) -> Callable[[], Place]:
    return lambda: Place(temporal.url)
