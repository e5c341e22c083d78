"""What the gateway adds to a call, counted and not timed: it must not grow with the calls that were made before."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest

from saga_engine.sources.mcp import McpServer
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.gateway.agents import agent, engine

SERVER = Path(__file__).with_name("evil_server.py")
#: Set while the store is asked what the clock makes due: a slow machine is asked more often.
BY_THE_CLOCK: ContextVar[bool] = ContextVar("by_the_clock", default=False)


class Timed(Faults):
    """No faults; what is asked by the clock is marked as such."""

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        token = BY_THE_CLOCK.set(BY_THE_CLOCK.get() or point == "renew" or point.startswith("work_"))
        try:
            with super().at(point):
                if not BY_THE_CLOCK.get():
                    ASKED[point] += 1
                yield
        finally:
            BY_THE_CLOCK.reset(token)


ASKED: Counter[str] = Counter()


class Work:
    """How many functions were called, Python's and C's."""

    def __init__(self) -> None:
        self.calls = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _event(self, _frame: object, event: str, _arg: object) -> None:
        if event in ("call", "c_call") and not BY_THE_CLOCK.get():
            self.calls += 1


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
async def test_the_last_call_of_a_session_costs_what_the_tenth_did(tmp_path: Path, count: int) -> None:
    """The same commands of the store and the same work, the agent's client and the client of the server included."""
    file = tmp_path / "tools.json"
    file.write_text(json.dumps({"tools": [{"name": "act", "inputSchema": {"type": "object"}}], "answers": {}}))
    command = [sys.executable, "-I", "-S", str(SERVER), str(file)]
    store = FaultyStore(open_store("memory://"), Timed())
    asked: list[Counter[str]] = []
    work: list[int] = []
    source = McpServer("desk", command=command, tools={"act": {"ask": False}})
    async with engine(source, store=store) as coordinator, agent(coordinator) as it:
        for _ in range(count):
            ASKED.clear()
            counter = Work()
            with counter.counted():
                assert not (await it.call("act")).is_error
            asked.append(Counter(ASKED))
            work.append(counter.calls)
    early, late = slice(9, 30), slice(-21, None)
    assert all(each == asked[9] for each in asked[9:]), (asked[9], asked[-1])
    assert asked[9]["append"] == 2, asked[9]
    assert statistics.median(work[late]) < 1.05 * statistics.median(work[early])
