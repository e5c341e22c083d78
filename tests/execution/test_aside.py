"""Long work beside the event loop: it lets the loop have turns, is bounded, and ends when nobody waits for it."""

import asyncio
import threading
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.api import requests
from saga_engine.errors import RequestInvalid
from saga_engine.execution import result
from saga_engine.execution.aside import allowing, aside, context_of_its_own, is_large
from saga_engine.plan.effort import spend
from saga_engine.runtime import journal, undo


@tool(effect="read")
async def look(item: str) -> dict[str, str]:
    return {"seen": item}


def rounds(begun: threading.Event, ended: threading.Event) -> None:
    """Works until it is told to end."""
    try:
        begun.set()
        while True:
            spend()
    finally:
        ended.set()


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


async def test_work_that_nobody_waits_for_ends_and_gives_its_place_back() -> None:
    """Of four, two are at work. All waits are cancelled: the two end at their next round, and the others never begin."""
    begun, ended = [[threading.Event() for _ in range(4)] for _ in range(2)]
    tasks = [asyncio.ensure_future(aside(lambda at=at: rounds(begun[at], ended[at]))) for at in range(4)]  # type: ignore[misc]
    await happens(begun[0])
    await happens(begun[1])
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await happens(ended[0])
    await happens(ended[1])
    assert [event.is_set() for event in begun] == [True, True, False, False]
    assert await aside(lambda: 7) == 7


async def test_bounded_work_holds_up_no_other() -> None:
    """However much is checked and simulated for those who may only read: what is submitted has places of its own."""
    begun = [threading.Event() for _ in range(3)]
    with allowing(1000.0):
        works = [asyncio.ensure_future(aside(lambda at=at: rounds(begun[at], threading.Event()))) for at in range(3)]  # type: ignore[misc]
        await happens(begun[0])
        await happens(begun[1])
    assert await aside(lambda: 7) == 7
    assert not begun[2].is_set()
    for work in works:
        work.cancel()
    await asyncio.wait(works)


async def test_work_beyond_what_is_allowed_is_refused() -> None:
    """It uses its processor time, and is told how much that was; in another context nothing bounds it."""
    with allowing(0.05), pytest.raises(RequestInvalid, match=r"more than 0\.05 s"):
        await aside(lambda: rounds(threading.Event(), threading.Event()))
    assert await aside(spend) is None


async def test_large_plans_are_checked_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever submits one holds up nobody; a small one is worth no thread."""
    here: list[bool] = []
    load = requests.load_checked

    def noted(*args: Any, **options: Any) -> Any:
        here.append(threading.current_thread() is threading.main_thread())
        return load(*args, **options)

    monkeypatch.setattr(requests, "load_checked", noted)
    steps = [{"step_id": k, "tool": "look", "params": {"item": "x"}, "depends_on": []} for k in range(400)]
    assert is_large("x" * 50_000)
    async with Coordinator.open("memory://", [look], durability="relaxed") as engine:
        await engine.submit({"steps": steps})
        await engine.submit({"steps": steps[:5]})
        await engine.simulate({"steps": steps[:5]})
    assert here == [False, True, False]


async def test_large_sagas_are_shown_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long journal is folded, and a large view made, in a thread."""
    here: list[bool] = []

    def noting(inner: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            here.append(threading.current_thread() is threading.main_thread())
            return inner(*args, **options)

        return noted

    monkeypatch.setattr(journal, "state_of", noting(journal.state_of))
    monkeypatch.setattr(result, "view", noting(result.view))
    monkeypatch.setattr(journal, "_LONG", 20)
    monkeypatch.setattr(result, "_MANY", 10)
    steps = [{"step_id": k, "tool": "look", "params": {"item": "x"}} for k in range(15)]
    async with Coordinator.open("memory://", [look], durability="relaxed") as engine:
        for saga_id, many in (("large", steps), ("small", steps[:2])):
            await engine.run({"steps": many}, saga_id=saga_id)
        here.clear()
        assert len((await result.shown(await engine.show("large")))["steps"]) == 15
        assert len((await result.shown(await engine.show("small")))["steps"]) == 2
    assert here == [False, False, True, True]


@tool(undo="unbook")
async def book(item: str) -> dict[str, str]:
    return {"item": item}


@tool
async def unbook(item: str) -> None:
    """Its undo."""


async def test_the_work_of_a_saga_is_bound_by_no_allowance_of_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leaves, and has used all its time, began an undo: it reads a large child, and is done."""
    steps = [{"step_id": at, "tool": "book", "params": {"item": "x"}, "depends_on": []} for at in range(300)]
    plan = {"steps": [{"step_id": "kid", "saga": {"plan": {"steps": steps}}}]}
    assert is_large({"steps": steps})
    async with Coordinator.open("memory://", [book, unbook], durability="relaxed") as engine:
        await engine.run(plan, saga_id="s")
        with allowing(1000.0) as allowance:
            inner = undo.state_of

            def read_and_left(*given: Any) -> Any:
                made = inner(*given)
                allowance.seconds = 0.0
                allowance.give_up()
                return made

            monkeypatch.setattr(undo, "state_of", read_and_left)
            undone = await engine.undo("s")
            assert allowance.left
        assert undone.status == "COMPENSATED"


async def test_a_context_of_its_own_has_no_bounds() -> None:
    """Whatever begins in it is free, while its caller still has his."""
    with allowing(0.0) as allowance:
        allowance.give_up()
        assert await asyncio.create_task(aside(lambda: 7), context=context_of_its_own()) == 7
        with pytest.raises(RequestInvalid, match="nobody waits"):
            await aside(lambda: 7)
