"""A saga that only waits for a timer has no task: its state, an alarm, and whoever waits for it."""

import asyncio

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core.records import Record, StepIntended
from saga_engine.errors import Interrupted
from tests.kill.polling import eventually
from tests.runtime.sleeping import CALLS, PLAN, TOOLS, asleep, cancel


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


async def test_a_saga_that_waits_for_a_timer_has_no_task() -> None:
    """An hour's backoff costs no task; a cancel wakes the saga, and whoever waited for it hears of its end."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        assert "saga s1" not in {task.get_name() for task in asyncio.all_tasks()}
        assert (await coordinator.store.head("s1")).owner_ttl_ms > 0
        await coordinator.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"
    assert CALLS == ["book hotel", "try car", "cancel hotel"]


async def test_news_from_another_process_wakes_it() -> None:
    """The owner sleeps, and hears of its messages with the next renewal of its lease."""
    async with (
        Coordinator.open("memory://asleep", TOOLS) as coordinator,
        Coordinator.open("memory://asleep", TOOLS) as other,
    ):
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        await other.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"
        assert "SagaResumed" not in [record["k"] for record in await other.history("s1")]


async def test_a_coordinator_that_closes_gives_sleepers_up() -> None:
    """They go into the queue at once, and whoever waits is told that the saga was interrupted."""
    async with Coordinator.open("memory://given-up", TOOLS) as other:
        async with Coordinator.open("memory://given-up", TOOLS) as coordinator:
            handle = await coordinator.submit(PLAN, saga_id="s1")
            await asleep(coordinator, "s1")
        with pytest.raises(Interrupted):
            await handle.wait()
        assert (await other.store.head("s1")).owner == ""
        assert (await other.overview()).queued == 1


async def test_a_lease_that_is_lost_wakes_it() -> None:
    """It takes itself up again from its journal under the next lease, and goes back to sleep."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        before = await coordinator.store.head("s1")
        await coordinator.store.close_lease(before.owner)

        async def taken_up() -> bool:
            return (await coordinator.store.head("s1")).epoch == before.epoch + 1

        await eventually(taken_up, "the saga to be taken up again")
        await asleep(coordinator, "s1")
        await coordinator.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"
    assert CALLS == ["book hotel", "try car", "cancel hotel"]


async def test_it_wakes_by_itself_when_its_time_has_come() -> None:
    """The retry is made although nobody stirs, and the state is the one that fell asleep: no journal is read."""
    tries = []

    @tool(keyed=True, undo="cancel", retry=RetryPolicy(max_attempts=2, base_s=1.2, max_s=1.2, jitter=False))
    async def soon(item: str) -> dict:
        tries.append(item)
        if len(tries) == 1:
            raise ToolError("busy", error_code="busy", retryable=True)
        return {"item": item}

    async with Coordinator.open("memory://", [cancel, soon]) as coordinator:
        handle = await coordinator.submit({"steps": [{"step_id": 1, "tool": "soon", "params": {"item": "x"}}]})
        await asleep(coordinator, handle.saga_id)
        outcome = await handle.wait()
        history = await coordinator.history(handle.saga_id)
    assert outcome.completed
    assert tries == ["x", "x"]
    assert "SagaResumed" not in [record["k"] for record in history]


async def test_a_lease_that_is_lost_while_it_wakes_loses_nobody() -> None:
    """Alarm and loss come together, as to a process that was frozen: the saga goes on, and whoever waits hears of it."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        lease = await coordinator.supervisor.lease()
        await coordinator.store.close_lease(lease.owner)
        coordinator.supervisor.notify("s1")
        lease.lose()
        await coordinator.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"


async def test_a_call_whose_intent_is_durable_is_made_although_the_coordinator_closes() -> None:
    """Left alone it would be in doubt, and a tool that can tell nothing of its calls would need a person for it."""
    intended = asyncio.Event()

    def stop_here(_saga_id: str, record: Record) -> None:
        if isinstance(record, StepIntended):
            intended.set()
            coordinator.supervisor.stop()

    made = []

    @tool(undo="cancel")
    async def bare(item: str) -> dict:
        made.append(item)
        return {"item": item}

    plan = {"steps": [{"step_id": n, "tool": "bare", "params": {"item": str(n)}} for n in (1, 2)]}
    async with Coordinator.open("memory://intent", [cancel, bare], observers=[stop_here]) as coordinator:
        await coordinator.submit(plan, saga_id="s1")
        await intended.wait()
    assert made == ["1"]
    async with Coordinator.open("memory://intent", [cancel, bare]) as other:
        shown = await other.show("s1")
        assert [step["status"] for step in shown.body["steps"]] == ["SUCCEEDED", "PENDING"]
        assert (await other.resume("s1")).completed
    assert made == ["1", "2"]
