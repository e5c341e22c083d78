"""Two who begin one saga at the same moment in one process."""

import asyncio

import pytest

from saga_engine import Coordinator
from saga_engine.errors import LeaseHeld, QueueFull, SagaNotFound
from saga_engine.ports import Ack, AppendReply
from tests.kill.polling import eventually
from tests.runtime.taking import ONE, give_back, take


@pytest.mark.parametrize("detach", [False, True])
async def test_no_submission_returns_before_the_plan_is_journalled(monkeypatch, detach) -> None:
    """Also the second of one id: whoever was told so would lose it in a crash."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        held, asked = asyncio.Event(), asyncio.Event()
        append = coordinator.store.append

        async def held_append(*args):
            asked.set()
            await held.wait()
            return await append(*args)

        monkeypatch.setattr(coordinator.store, "append", held_append)
        first = asyncio.create_task(coordinator.submit(ONE, saga_id="s1", detach=detach))
        await asyncio.sleep(0)
        second = asyncio.create_task(coordinator.submit(ONE, saga_id="s1", detach=detach))
        await asyncio.sleep(0)
        await asked.wait()
        with pytest.raises(SagaNotFound):
            await coordinator.store.head("s1")
        too_early = first.done() or second.done()
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
    assert sorted(type(result).__name__ for result in results) == [LeaseHeld.__name__, "str"]


async def test_who_runs_what_somebody_else_is_just_detaching_gets_its_end() -> None:
    """`run` waits until the saga is in the queue and takes it out again; observers see its first record once."""
    seen: list[str] = []

    def observe(saga_id, record) -> None:
        seen.append(type(record).__name__)

    async with Coordinator.open("memory://", [take, give_back], observers=[observe]) as coordinator:
        detached, outcome, again = await asyncio.gather(
            coordinator.submit(ONE, saga_id="s1", detach=True),
            coordinator.run(ONE, saga_id="s1"),
            coordinator.run(ONE, saga_id="s1"),
        )
        assert outcome.completed
        assert again.completed
        assert detached.saga_id == "s1"
        await eventually(lambda: "SagaCompleted" in seen, "the observer to see the end")
    assert seen.count("SagaStarted") == 1
    assert seen[0] == "SagaStarted"


async def test_who_runs_what_did_not_fit_into_the_queue_runs_it_all_the_same(monkeypatch) -> None:
    """The detached submission is refused; the other one does not need the queue."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        append = coordinator.store.append

        async def full(owner, entries):
            reply = await append(owner, [entry for entry in entries if entry.creation is None or entry.creation.owned])
            acks = iter(reply.acks)
            refused = [entry.creation is not None and not entry.creation.owned for entry in entries]
            return AppendReply(reply.now_ms, [Ack("full") if no else next(acks) for no in refused])

        monkeypatch.setattr(coordinator.store, "append", full)
        detached, outcome = await asyncio.gather(
            coordinator.submit(ONE, saga_id="s1", detach=True),
            coordinator.run(ONE, saga_id="s1"),
            return_exceptions=True,
        )
    assert isinstance(detached, QueueFull)
    assert outcome.completed


async def test_resuming_what_is_just_being_detached_waits_until_it_is_there() -> None:
    """The handle of the one who resumes ends with the saga, and not with its arrival in the queue."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        submitting = asyncio.create_task(coordinator.submit(ONE, saga_id="s1", detach=True))
        await asyncio.sleep(0)
        assert not submitting.done()
        assert (await coordinator.resume("s1")).completed
        await submitting
