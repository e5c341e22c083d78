"""A saga in a workflow of Temporal's own test server."""

import asyncio
import contextlib
import socket
import subprocess

from desk import STORE, TOOLS, book, go, unbook, undone

from saga_engine.api.temporal import TemporalCoordinator, serve


async def main() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen([TOOLS / "temporal-test-server", str(port)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            await asyncio.sleep(0.05)
        url, tools, stopped = f"temporal://127.0.0.1:{port}/default", [book, unbook], asyncio.Event()
        worker = asyncio.create_task(serve(url, tools, store=STORE, task_queue="t", stopped=stopped))
        async with TemporalCoordinator.open(url, tools, store=STORE, task_queue="t") as coordinator:
            await undone(coordinator, "s")
        stopped.set()
        await worker
    finally:
        server.kill()
        server.wait()
    return "a saga in a workflow is undone"


go(main)
