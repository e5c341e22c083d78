"""Long sessions: what is recorded is not done again, and neither a restart nor a call gets dearer than it must."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, Session, tool
from saga_engine.plan import session_steps as plan_calls
from saga_engine.runtime import journal
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

ONCE = RetryPolicy(max_attempts=1)
NAMES = itertools.count()
CALLED: Counter[str] = Counter()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    CALLED["book"] += 1
    return {"what": what}


@tool(retry=ONCE)
async def unbook(what: str) -> dict:
    CALLED["unbook"] += 1
    return {}


TOOLS = [book, unbook]


@pytest.fixture(autouse=True)
def fresh() -> None:
    CALLED.clear()


async def agent(s: Session, first: int, last: int) -> None:
    for number in range(first, last + 1):
        assert await s.call(book, what=f"b{number}") == {"what": f"b{number}"}


async def live(url: str, count: int) -> Counter[str]:
    """A life that ends without a word; returns what it asked of the store."""
    store = FaultyStore(open_store(url), Timed())
    async with Coordinator.open(store, TOOLS) as engine:
        manager = engine.session("long")
        s = await manager.__aenter__()
        await agent(s, 1, count)
        s.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    return store.faults.counts


#: Set while a store is asked what the clock makes due: its lease is renewed, its work is swept.
BY_THE_CLOCK: ContextVar[bool] = ContextVar("by_the_clock", default=False)


def is_by_the_clock(verb: str) -> bool:
    return verb == "renew" or verb.startswith("work_")


class Timed(Faults):
    """No faults; what is asked by the clock, and every task that this begins, is marked as such."""

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        token = BY_THE_CLOCK.set(BY_THE_CLOCK.get() or is_by_the_clock(point))
        try:
            with super().at(point):
                yield
        finally:
            BY_THE_CLOCK.reset(token)


class Work:
    """How many functions were called, Python's and C's: a measure of work that no slow machine changes.

    What a ``Timed`` store is asked by the clock is not counted: a slow machine is asked more often.
    """

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

    def _event(self, _frame: Any, event: str, _arg: Any) -> None:
        if event in ("call", "c_call") and not BY_THE_CLOCK.get():
            self.calls += 1


def test_a_restart_of_a_thousand_calls_makes_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing outside is called, nothing is written for what is recorded, and each call is compiled a fixed number of times."""
    url = f"memory://scale-{next(NAMES)}"
    asyncio.run(live(url, 1000))
    assert CALLED == {"book": 1000}
    compiled: list[str] = []
    genuine = plan_calls.compile_call

    def counting(*args: Any, **named: Any) -> Any:
        compiled.append(args[1])
        return genuine(*args, **named)

    monkeypatch.setattr("saga_engine.core.plan_growth.compile_call", counting)
    asked = asyncio.run(live(url, 1000))
    assert CALLED == {"book": 1000}
    assert asked["append"] == 1  # that another process took over
    assert asked["read"] <= 3
    assert len(compiled) <= 3 * 1000


def test_the_cost_of_a_restart_grows_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the calls are twice the work, not four times: all of it, counted in one thread."""
    monkeypatch.setattr(journal, "_LONG", 1_000_000)

    def restart(count: int) -> int:
        url = f"memory://scale-{next(NAMES)}"
        asyncio.run(live(url, count))
        work = Work()
        with work.counted():
            asyncio.run(live(url, count))
        return work.calls

    restart(5)  # what is imported or compiled once is not counted
    small, middle, large = restart(200), restart(400), restart(800)
    assert large - middle < 2.2 * (middle - small)
    assert CALLED["book"] == 5 + 200 + 400 + 800


def test_each_call_costs_the_same() -> None:
    """The thousandth call asks as much of the store, and of the processor, as the hundredth."""
    url = f"memory://scale-{next(NAMES)}"

    async def measured() -> tuple[list[Counter[str]], list[int]]:
        store = FaultyStore(open_store(url), Timed())
        asked: list[Counter[str]] = []
        work: list[int] = []
        async with Coordinator.open(store, TOOLS) as engine, engine.session("long") as s:
            for start in range(1, 1000, 100):
                before, counter = Counter(store.faults.counts), Work()
                with counter.counted():
                    await agent(s, start, start + 99)
                batch = store.faults.counts - before
                # The lease is renewed, and the store swept, by the clock and not by the call.
                asked.append(Counter({name: count for name, count in batch.items() if not is_by_the_clock(name)}))
                work.append(counter.calls)
        return asked, work

    asked, work = asyncio.run(measured())
    assert all(batch["append"] == 200 for batch in asked), asked
    assert all(sum(batch.values()) == 200 for batch in asked), asked
    assert work[9] < 1.1 * work[1]


def test_a_thousand_calls_are_undone_in_linear_time() -> None:
    """Each undo is one call and two appends at most, whatever came before it."""
    url = f"memory://scale-{next(NAMES)}"

    async def undone(count: int, name: str) -> int:
        work, store = Work(), FaultyStore(open_store(url), Timed())
        async with Coordinator.open(store, TOOLS) as engine, engine.session(name) as s:
            point = s.savepoint()
            await agent(s, 1, count)
            with work.counted():
                await s.rollback(point)
        return work.calls

    small, middle, large = (asyncio.run(undone(count, f"n{count}")) for count in (100, 200, 400))
    assert large - middle < 2.3 * (middle - small)
    assert CALLED == {"book": 700, "unbook": 700}


def test_hundreds_of_calls_side_by_side() -> None:
    """A model may ask for any number at once: each is made once, and the journal does not grow with their square."""
    url = f"memory://scale-{next(NAMES)}"

    async def wide() -> int:
        async with Coordinator.open(url, TOOLS) as engine:
            async with engine.session("wide") as s:
                found = await asyncio.gather(*(s.call(book, what=f"w{number}") for number in range(500)))
                assert found == [{"what": f"w{number}"} for number in range(500)]
                await s.call(book, what="last")
            history = await engine.history("wide")
        calls = [record for record in history if record["k"] == "CallAdded"]
        assert [record["params"]["what"] for record in calls[:500]] == [f"w{number}" for number in range(500)]
        assert calls[500]["after"] == [record["step"] for record in history if record["k"] == "StepSucceeded"][484:500]
        return sum(len(record.get("after", ())) for record in calls[:500])

    assert asyncio.run(wide()) == 0


def test_waves_of_calls_grow_neither_the_journal_nor_the_work_with_their_square() -> None:
    """Each call of a wave names a bounded number of calls of the wave before: bytes and work for a call stay the same."""

    async def waves(count: int) -> tuple[int, int, int]:
        """Edges and bytes of the journal, and the work of the second wave."""
        url, work = f"memory://scale-{next(NAMES)}", Work()
        async with Coordinator.open(url, TOOLS) as engine:
            async with engine.session("waves") as s:
                await asyncio.gather(*(s.call(book, what="w") for _ in range(count)))
                with work.counted():
                    await asyncio.gather(*(s.call(book, what="w") for _ in range(count)))
            history = await engine.history("waves")
            size = sum(len(line) for line in await engine.store.read("waves"))
        return sum(len(record.get("after", ())) for record in history), size, work.calls

    asyncio.run(waves(5))  # what is imported or compiled once is not counted
    small, large = asyncio.run(waves(100)), asyncio.run(waves(400))
    assert large[0] == 4 * small[0]
    assert large[1] < 4.3 * small[1]  # numbers of calls get longer
    assert large[2] < 5 * small[2]


def test_what_a_call_came_after_is_known_from_the_bounded_list_and_the_journal() -> None:
    """The calls that are named, and all that had happened before the last of them, are those that it came after."""
    url = f"memory://scale-{next(NAMES)}"

    async def wide() -> list[dict[str, Any]]:
        async with Coordinator.open(url, TOOLS) as engine:
            async with engine.session("wide") as s:
                for _ in range(3):
                    await asyncio.gather(*(s.call(book, what="w") for _ in range(40)))
                point = s.savepoint()
                await asyncio.gather(*(s.call(book, what="gone") for _ in range(3)))
                await s.rollback(point)
                await s.call(book, what="last")
            return await engine.history("wide")

    happened: list[str] = []
    stands: list[str] = []
    for record in asyncio.run(wide()):
        if record["k"] == "StepSucceeded" and record.get("direction", "forward") == "forward":
            happened.append(record["step"])
            stands.append(record["step"])
        elif record["k"] == "PartialCompensationRequested":
            stands = [step for step in stands if step not in record["steps"]]
        elif record["k"] == "CallAdded" and happened:
            after = record["after"]
            assert 0 < len(after) <= 16
            assert set(after) <= set(stands)
            assert stands[-1] in after, record["step"]
    assert len(happened) == 124
