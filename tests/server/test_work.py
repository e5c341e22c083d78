"""Checks and simulations take processor time for callers who may only read: bounded, counted, and given up."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

from saga_engine import Coordinator
from saga_engine.tools.threads import calls_in_threads
from tests.server.harness import BOOK, TOOLS, serving, until


async def test_a_simulation_ends_with_its_caller() -> None:
    """Who closes the connection leaves no work behind, whether it was at work or waited for a place."""
    many = [{"step_id": k, "tool": "book", "params": {"item": "x"}, "depends_on": []} for k in range(3000)]
    body = json.dumps({"plan": {"steps": many}}).encode()
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine, serving(engine) as server:
        api = await server.api("read")
        head = f"POST /v1/simulate HTTP/1.1\r\nhost: localhost\r\nauthorization: {api.headers['authorization']}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        host, port = server.url.removeprefix("http://").split(":")
        writers = []
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + body)
            await writer.drain()
            writers.append(writer)
        await until(lambda: server.desk.works._open.total() == 3 and calls_in_threads() == 2)
        for writer in writers:
            writer.close()
        await until(lambda: not server.desk.works._open and not calls_in_threads())
        assert (await api.post("/v1/simulate", {"plan": BOOK}, status=200))["clean"] is True


async def test_checks_and_simulations_are_counted() -> None:
    """A token that has as many as it may is refused; another one is served."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine, serving(engine) as server:
        one, other = await server.api("read"), await server.api("read", name="Bob")
        identity = await server.desk.tokens.identity(one.headers["authorization"].removeprefix("Bearer "))
        assert identity is not None
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(server.desk.place(server.desk.works, identity))
            for path in ("/v1/simulate", "/v1/check"):
                refused = await one("POST", path, {"plan": BOOK})
                assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
            assert (await other.post("/v1/simulate", {"plan": BOOK}, status=200))["clean"] is True
        assert (await one.post("/v1/check", {"plan": BOOK}, status=200))["valid"] is True
