"""Checks and simulations take processor time for callers who may only read: bounded, counted, and given up."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.ports import PlannerAnswer, PlannerRequest
from saga_engine.tools.threads import calls_in_threads
from tests.server.harness import BOOK, TOOLS, WAIT, serving
from tests.support.journals import until


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


class Silent:
    """A model that never answers."""

    model = "silent"

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def ask(self, _: PlannerRequest) -> PlannerAnswer:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        raise AssertionError


@pytest.mark.parametrize("what", ["a model", "a saga"])
async def test_what_waits_for_somebody_ends_with_its_caller(what: str) -> None:
    """A request for a plan, and one that waits for the end of a saga."""
    planner = Silent()
    async with Coordinator.open("memory://", TOOLS, durability="relaxed", planner=planner) as engine:
        await engine.submit(WAIT, saga_id="s")
        async with serving(engine) as server:
            api = await server.api()
            asks = api("POST", "/v1/plan", {"goal": "a room"}) if what == "a model" else api.get("/v1/sagas/s", wait=60)
            asking = asyncio.create_task(asks)
            await (planner.asked.wait() if what == "a model" else until(lambda: server.desk.waits._open))
            asking.cancel()
            await (planner.left.wait() if what == "a model" else until(lambda: not server.desk.waits._open))
            await asyncio.wait([asking])


async def test_checks_and_simulations_are_counted() -> None:
    """A token that has as many as it may is refused; another one is served."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine, serving(engine) as server:
        one, other = await server.api("read", "submit"), await server.api("read", name="Bob")
        identity = await server.desk.tokens.identity(one.headers["authorization"].removeprefix("Bearer "))
        assert identity is not None
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(server.desk.place(server.desk.works, identity))
            for path in ("/v1/simulate", "/v1/check"):
                refused = await one("POST", path, {"plan": BOOK})
                assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
            large = {"steps": [*BOOK["steps"], {**BOOK["steps"][0], "step_id": 2, "params": {"item": "x" * 300_000}}]}
            assert (await one("POST", "/v1/sagas", {"plan": large})).status_code == 429
            wide = {"plan": BOOK, "input": {"items": ["x"] * 3_000}}
            assert (await one("POST", "/v1/sagas", wide)).status_code == 429
            assert (await one("POST", "/v1/sagas", {"plan": BOOK})).status_code == 202
            assert (await other.post("/v1/simulate", {"plan": BOOK}, status=200))["clean"] is True
        assert (await one.post("/v1/check", {"plan": BOOK}, status=200))["valid"] is True


async def test_a_check_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is large in it: a small plan may bind a large input in each of its steps."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine, serving(engine) as server:
        on_the_loop: list[bool] = []
        genuine = engine.check

        def check(*args: Any, **given: Any) -> Any:
            on_the_loop.append(threading.current_thread() is threading.main_thread())
            return genuine(*args, **given)

        monkeypatch.setattr(engine, "check", check)
        api = await server.api()
        assert (await api.post("/v1/check", {"plan": BOOK}, status=200))["valid"] is True
    assert on_the_loop == [False]


async def test_who_leaves_in_the_middle_of_a_request_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    """Half a body, or no request at all: anybody can send it as often as he likes, and the log has no line about it."""
    with caplog.at_level(logging.WARNING):
        async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine, serving(engine) as server:
            api = await server.api()
            host, port = server.url.removeprefix("http://").split(":")
            head = f"POST /v1/check HTTP/1.1\r\nhost: localhost\r\nauthorization: {api.headers['authorization']}\r\n"
            head += "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
            for data in (head.encode(), "GET /schlüssel HTTP/1.1\r\n\r\n".encode()):
                for _ in range(20):
                    _, writer = await asyncio.open_connection(host, int(port))
                    writer.write(data)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            await until(lambda: not server.listener.server_state.connections - {None})
            assert (await api.post("/v1/check", {"plan": BOOK}, status=200))["valid"] is True
    assert [record.getMessage() for record in caplog.records] == []
