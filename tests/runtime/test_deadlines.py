"""The deadline binds a saga that nobody moves: one that rests over a question, and a session whose agent is idle or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from saga_engine import Coordinator, RetryPolicy, tool
from saga_engine.errors import NeedsPerson, SessionEnded
from saga_engine.execution.result import SagaResult

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()


@tool(undo="undo", retry=ONCE)
async def do(what: str) -> dict:
    if what == "silent":
        raise TimeoutError
    LOG.append(f"do {what}")
    return {"what": what}


@tool(retry=ONCE)
async def undo(what: str) -> dict:
    LOG.append(f"undo {what}")
    return {}


@pytest.fixture(params=["alone", "worker"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Coordinator]:
    """A process that drives what it began, and one that lives beside a worker."""
    async with Coordinator.open("memory://", [do, undo]) as engine:
        work = asyncio.create_task(engine.work()) if request.param == "worker" else None
        yield engine
        if work is not None:
            work.cancel()
            await asyncio.wait([work])


async def reached(engine: Coordinator, saga_id: str) -> SagaResult:
    """The saga, once its deadline is journalled and all that follows from that at once."""
    while True:
        kinds = [record["k"] for record in await engine.history(saga_id)]
        if "DeadlinePassed" in kinds:
            outcome = await engine.show(saga_id)
            if outcome.ended or outcome.status == "ESCALATED":
                return outcome
        await asyncio.sleep(0.01)


async def test_a_saga_that_rests_is_undone_at_its_deadline(engine: Coordinator) -> None:
    """Steps in doubt stay a question; what the saga did before them waits, and forward work is over."""
    steps = [{"step_id": number, "tool": "do", "params": {"what": what}} for number, what in ((1, "a"), (2, "silent"))]
    steps[1]["depends_on"] = []
    outcome = await engine.run({"deadline_s": 1, "steps": steps}, saga_id="s")
    assert outcome.status == "ESCALATED"
    outcome = await reached(engine, "s")
    assert (outcome.status, outcome.report["compensated"]) == ("ESCALATED", [1])
    outcome = await engine.resolve("s", 2, "not-happened")
    assert (outcome.status, outcome.body["error"]["code"]) == ("COMPENSATED", "deadline")


async def test_a_session_whose_agent_is_idle_is_undone_at_its_deadline(engine: Coordinator) -> None:
    """Its agent does nothing for too long, and hears of it at its next call."""
    with pytest.raises(SessionEnded):
        async with engine.session("s", deadline_s=1) as s:
            await s.call(do, what="a")
            outcome = await reached(engine, "s")
            assert (outcome.status, outcome.report["clean"]) == ("COMPENSATED", True)
            await s.call(do, what="late")
    assert LOG == ["do a", "undo a"]


async def test_a_session_whose_agent_is_gone_is_undone_at_its_deadline(engine: Coordinator) -> None:
    """The agent ended in a way that leaves the session open, and does not come back."""
    with pytest.raises(NeedsPerson):
        async with engine.session("s", deadline_s=1) as s:
            await s.call(do, what="a")
            raise NeedsPerson("somebody must look at it")
    outcome = await reached(engine, "s")
    assert (outcome.status, LOG) == ("COMPENSATED", ["do a", "undo a"])


async def test_a_worker_sees_to_the_deadline_of_a_session_that_another_process_left() -> None:
    """The session is given up with the time of its deadline, so that any worker finds it then."""
    from saga_engine.stores import open_store

    store = open_store("memory://")
    async with Coordinator.open(store, [do, undo]) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("s", deadline_s=1) as s:
                await s.call(do, what="a")
                raise NeedsPerson("somebody must look at it")
    async with Coordinator.open(store, [do, undo]) as engine:
        work = asyncio.create_task(engine.work())
        outcome = await reached(engine, "s")
        assert (outcome.status, LOG) == ("COMPENSATED", ["do a", "undo a"])
        work.cancel()
        await asyncio.wait([work])
    await store.close()
