"""A store that is away for longer than its clients are patient stops sagas; they go on by themselves."""

import asyncio
import logging

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import LeaseLost, StoreRefused, StoreUnavailable
from saga_engine.runtime import resumptions
from tests.kill.polling import eventually
from tests.support.servers import GIVE_UP_S

MADE: list[int] = []


@tool(undo="unmake", keyed=True)
async def make(number: int) -> dict:
    MADE.append(number)
    return {"number": number}


@tool
async def unmake(number: int) -> dict:
    return {"number": number}


def plan(steps: int) -> dict:
    return {"steps": [{"step_id": n, "tool": "make", "params": {"number": n}} for n in range(steps)]}


@pytest.fixture(autouse=True)
def soon(monkeypatch) -> None:
    """The pause between two tries is no law."""
    monkeypatch.setattr(resumptions, "RESUME_AGAIN_S", 0.05)
    MADE.clear()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreRefused("full"), LeaseLost("fenced")])
async def test_a_saga_that_an_outage_stopped_says_so_and_goes_on(monkeypatch, caplog, error) -> None:
    """Nobody waits for it and no worker is there: it is named in the log, and driven on when the store is back."""
    async with Coordinator.open("memory://", [make, unmake]) as coordinator:
        append, down = coordinator.store.append, []

        async def failing(owner, entries):
            if len(MADE) == 2 or down:
                down.append(1)
                raise error
            return await append(owner, entries)

        monkeypatch.setattr(coordinator.store, "append", failing)
        with caplog.at_level(logging.WARNING, "saga_engine"):
            await coordinator.submit(plan(4), saga_id="s1")
            await eventually(lambda: "saga s1 has stopped" in caplog.text, "a line in the log")
        assert (await coordinator.show("s1")).status == "RUNNING"
        monkeypatch.setattr(coordinator.store, "append", append)
        async with asyncio.timeout(30):
            assert (await coordinator.wait("s1")).completed
    assert sorted(set(MADE)) == [0, 1, 2, 3]


async def test_a_submission_that_the_store_never_got_begins_nothing_later(monkeypatch) -> None:
    """The caller was told that it is not known; the store knows nothing of it when it is back, and nothing runs."""
    async with Coordinator.open("memory://", [make, unmake]) as coordinator:
        append = coordinator.store.append

        async def failing(owner, entries):
            raise StoreUnavailable("away")

        monkeypatch.setattr(coordinator.store, "append", failing)
        with pytest.raises(StoreUnavailable):
            await coordinator.run(plan(1), saga_id="s1")
        monkeypatch.setattr(coordinator.store, "append", append)
        supervisor = coordinator.supervisor
        await eventually(
            lambda: "s1" not in supervisor.resumptions and supervisor.find("s1") is None, "the one try to end"
        )
        assert await coordinator.list() == []
    assert MADE == []


async def test_a_session_is_left_to_its_agent_after_an_outage(monkeypatch) -> None:
    """The agent hears of the outage; its session is not driven behind its back."""
    async with Coordinator.open("memory://", [make, unmake]) as coordinator:
        append = coordinator.store.append

        async def failing(owner, entries):
            raise StoreUnavailable("away")

        with pytest.raises(StoreUnavailable):
            async with coordinator.session("s1") as session:
                await session.call(make, number=1)
                monkeypatch.setattr(coordinator.store, "append", failing)
                await session.call(make, number=2)
        monkeypatch.setattr(coordinator.store, "append", append)
        assert "s1" not in coordinator.supervisor.resumptions
        async with coordinator.session("s1") as session:
            await session.call(make, number=1)
    assert MADE == [1]


async def test_a_lease_whose_renewal_breaks_is_lost_and_that_is_said(monkeypatch, caplog) -> None:
    """No error ends the renewal silently: it is logged, nothing goes on under the lease, and another one takes over."""
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(undo="unmake", keyed=True)
    async def wait(number: int) -> dict:
        begun.set()
        await gate.wait()
        return {"number": number}

    async with Coordinator.open("memory://", [wait, unmake], lease_s=1.0) as coordinator:
        renew = coordinator.store.renew

        async def broken(*_):
            monkeypatch.setattr(coordinator.store, "renew", renew)
            raise RuntimeError("a defect")

        with caplog.at_level(logging.WARNING, "saga_engine"):
            handle = await coordinator.submit({"steps": [{**plan(1)["steps"][0], "tool": "wait"}]}, saga_id="s1")
            await begun.wait()
            first = (await coordinator.supervisor.lease()).owner
            begun.clear()
            monkeypatch.setattr(coordinator.store, "renew", broken)
            async with asyncio.timeout(GIVE_UP_S):
                await begun.wait()  # under another lease
        assert (await coordinator.supervisor.lease()).owner != first
        assert "RuntimeError: a defect" in caplog.text
        gate.set()
        assert (await handle.wait()).completed
