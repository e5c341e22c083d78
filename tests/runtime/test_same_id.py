"""Two who begin one saga at the same moment in one process."""

import asyncio

import pytest

from saga_engine import Coordinator
from saga_engine.errors import SagaNotFound, SagaOwned
from tests.runtime.test_debts import ONE, give_back, take


async def test_no_submission_returns_before_the_plan_is_journalled(monkeypatch) -> None:
    """Also the second of one id: whoever was told so would lose it in a crash."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        held, asked = asyncio.Event(), asyncio.Event()
        append, head = coordinator.store.append, coordinator.store.head

        async def held_append(*args):
            await held.wait()
            return await append(*args)

        async def told_head(saga_id):
            asked.set()
            return await head(saga_id)

        monkeypatch.setattr(coordinator.store, "append", held_append)
        monkeypatch.setattr(coordinator.store, "head", told_head)
        first = asyncio.create_task(coordinator.submit(ONE, saga_id="s1", detach=True))
        await asyncio.sleep(0)
        second = asyncio.create_task(coordinator.submit(ONE, saga_id="s1", detach=True))
        await asyncio.wait([second, asyncio.create_task(asked.wait())], return_when=asyncio.FIRST_COMPLETED)
        too_early = second.done()
        with pytest.raises(SagaNotFound):
            await head("s1")
        held.set()
        assert not too_early
        assert (await first).saga_id == (await second).saga_id == "s1"


async def test_one_agent_a_session_from_its_first_moment() -> None:
    """The second of two agents that begin one session is turned away, and the first goes on."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:

        async def agent() -> str:
            async with coordinator.session("session-1") as session:
                await session.call("take", item="x")
                return "done"

        results = await asyncio.gather(agent(), agent(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [SagaOwned.__name__, "str"]
