"""What time it is: the store's word, not this machine's."""

import asyncio
import time

import fakeredis
import pytest
from fakeredis.commands_mixins import server_mixin

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import Interrupted
from saga_engine.execution.clock import StoreClock
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.stores import open_store
from saga_engine.stores.in_memory import _SHARED
from tests.kill.polling import eventually

AN_HOUR_NS = 3600 * 10**9


async def test_a_machine_whose_clock_is_ahead_does_not_stall_its_timers(monkeypatch) -> None:
    """Records bear the store's time and a retry waits for as long as it says, although this clock is an hour ahead."""
    here = time.time_ns
    monkeypatch.setattr(machine_clock, "time_ns", lambda: here() + AN_HOUR_NS)
    calls = []

    @tool(effect="read", retry=RetryPolicy(max_attempts=2, base_s=0.01, max_s=0.01))
    async def flaky() -> dict:
        calls.append(1)
        if len(calls) == 1:
            raise ToolError("busy", error_code="busy", retryable=True)
        return {}

    async with Coordinator.open("memory://", [flaky]) as coordinator:
        outcome = await coordinator.run({"steps": [{"step_id": 1, "tool": "flaky"}]})
        history = await coordinator.history(outcome.saga_id)
    assert outcome.completed
    assert all(record["at"] < (here() + AN_HOUR_NS // 2) // 1_000_000 for record in history)


def test_small_steps_are_held_and_great_ones_are_followed(monkeypatch) -> None:
    """Before its first word the clock is this machine's, and binds nobody. Then it goes on, unless the store steps back.

    (It was never to go back: after one answer of a server that was an hour ahead all timers stood still for an hour.)
    """
    monkeypatch.setattr(machine_clock, "monotonic", lambda: 5.0)
    clock = StoreClock()
    assert clock.now_ms() > 20_000
    clock.set(20_000)
    assert clock.now_ms() == 20_000
    clock.set(19_500)
    assert clock.now_ms() == 20_000
    clock.set(2_000)
    assert clock.now_ms() == 2_000


def test_a_saga_from_the_future_has_a_time_that_goes_on(monkeypatch) -> None:
    """Its time is never before its last record, and passes as fast as any; its queue is on the store's clock."""
    here = 5.0
    monkeypatch.setattr(machine_clock, "monotonic", lambda: here)
    clock = StoreClock()
    clock.set(20_000)
    assert clock.now_after("s", 90_000) == 90_000
    here += 2.0
    assert clock.now_after("s", 90_000) == 92_000
    assert clock.in_store(93_000, 92_000) == 23_000
    assert clock.now_after("s", 95_000) == 95_000
    clock.set(96_000)
    assert clock.now_after("s", 95_000) == 96_000
    assert clock.in_store(97_000, 96_000) == 97_000


class WrongTime:
    """The time module as the fake server sees it: ahead for as long as it is told so."""

    ahead_s = 0.0

    def time(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def server_time(monkeypatch) -> WrongTime:
    wrong = WrongTime()
    monkeypatch.setattr(server_mixin, "time", wrong)
    return wrong


@pytest.mark.parametrize("queued", [False, True], ids=["driven here", "through the queue"])
async def test_a_store_that_was_an_hour_ahead_stalls_no_timer(server_time, queued) -> None:
    """A retry that was recorded by a clock from the future happens after its own delay, not an hour later."""
    server_time.ahead_s = 3600
    calls = []

    @tool(effect="read", retry=RetryPolicy(max_attempts=2, base_s=2.5, max_s=2.5, jitter=False))
    async def flaky() -> dict:
        calls.append(1)
        if len(calls) == 1:
            raise ToolError("busy", error_code="busy", retryable=True)
        return {}

    def put_right(_: str, record: object) -> None:
        if type(record).__name__ == "StepRetryScheduled":
            server_time.ahead_s = 0

    plan = {"steps": [{"step_id": 1, "tool": "flaky"}]}
    async with asyncio.timeout(60), Coordinator.open("memory://", [flaky], observers=[put_right]) as coordinator:
        if queued:
            working = asyncio.create_task(coordinator.work())
        handle = await coordinator.submit(plan, saga_id="s", detach=queued)
        assert (await coordinator.wait("s") if queued else await handle.wait()).status == "COMPLETED"
        assert server_time.ahead_s == 0
        assert len(calls) == 2
    if queued:
        await working


async def test_a_session_left_after_a_step_back_is_due_on_the_stores_clock(server_time) -> None:
    """The deadline of an open session whose records are from the future is queued on the store's clock as it is now."""
    server_time.ahead_s = 3600
    name = "left-after-a-step-back"

    @tool(effect="read")
    async def look() -> dict:
        return {}

    def put_right(_: str, record: object) -> None:
        if type(record).__name__ == "StepSucceeded":
            server_time.ahead_s = 0

    async with Coordinator.open(f"memory://{name}", [look], observers=[put_right], lease_s=3) as coordinator:
        with pytest.raises(Interrupted):
            async with coordinator.session("s", deadline_s=600) as session:
                await session.call("look")
                clock = coordinator.supervisor.clock
                await eventually(lambda: clock.now_ms() < time.time() * 1000 + 60_000, "a renewal after the step")
                raise Interrupted("the agent stops, and leaves its work open")

        async def released() -> bool:
            return (await coordinator.store.work().overview()).timed == 1

        await eventually(released, "the release of the session")
        async with fakeredis.FakeAsyncRedis(server=_SHARED[name]) as raw:
            (due,) = [
                score
                async for key in raw.scan_iter("saga:*:due")
                for _, score in await raw.zrange(key, 0, -1, withscores=True)
            ]
    assert due < (time.time() + 700) * 1000


async def test_leases_end_in_time_although_the_clock_stepped_back() -> None:
    """A server whose clock went back by an hour would keep the lease of one that died for an hour more."""
    store = open_store("memory://stepped-back")
    await store.open()
    await store.open_lease("dead", 5_000)
    await store.open_lease("me", 5_000)
    async with fakeredis.FakeAsyncRedis(server=_SHARED["stepped-back"]) as raw:
        now_ms = (await raw.time())[0] * 1000
        for number in range(16):
            await raw.set(f"saga:{{p{number:02}}}:clock", now_ms + 3_600_000)
            await raw.pexpire(f"saga:{{p{number:02}}}:lease:dead", 3_600_000 + 10)
            await raw.zadd(f"saga:{{p{number:02}}}:due", {"later": now_ms + 3_600_000 + 7_000, "soon": now_ms + 500})
    assert (await store.renew("me", 5_000)).alive
    work = store.work()

    async def over() -> bool:
        return (await work.owners(range(16)))["dead"] == 0

    await eventually(over, "the end of the lease")
    assert (await work.owners(range(16)))["me"] > 0
    async with fakeredis.FakeAsyncRedis(server=_SHARED["stepped-back"]) as raw:
        scores = dict(await raw.zrange("saga:{p03}:due", 0, -1, withscores=True))
        assert scores[b"soon"] == now_ms + 500
        assert scores[b"later"] < now_ms + 60_000
    await store.close()


@pytest.fixture
async def guards(request, server_time):
    """Guards of a server that is an hour ahead."""
    store = open_store(f"memory://{request.node.name}")
    await store.open()
    server_time.ahead_s = 3600
    yield store.guard_store()
    await store.close()


async def test_a_breaker_that_opened_in_the_future_lets_a_trial_through(guards, server_time) -> None:
    """It is open for ``open_s`` and no longer, and so is a trial whose process died, whatever the clock did."""
    await guards.breaker_outcome("pay", failed=True, failures=1, open_ms=600_000)
    assert not await guards.breaker_trial("pay", 600_000)
    server_time.ahead_s = 0
    assert (await guards.breakers(["pay"]))["pay"] == (1, True, 0)
    server_time.ahead_s = 3600 + 601
    assert await guards.breaker_trial("pay", 600_000)
    assert not await guards.breaker_trial("pay", 600_000)
    server_time.ahead_s = 0
    assert await guards.breaker_trial("pay", 600_000)
    assert not await guards.breaker_trial("pay", 600_000)


async def test_a_rate_makes_nobody_wait_for_the_clock(guards, server_time) -> None:
    """What was reserved before the step counts after it, and no more than that."""
    interval_us, burst = 60_000_000, 2
    first, second, third = [await guards.reserve("r", interval_us, burst, None) for _ in range(3)]
    assert (first, second) == (0, 0)
    assert 0 < third <= 60_000  # the whole minute, if no millisecond has passed since the first
    server_time.ahead_s = 0
    wait_ms = await guards.reserve("r", interval_us, burst, None)
    assert 60_000 < wait_ms <= 120_000
    assert await guards.reserve("r", interval_us, burst, wait_ms) == -1


async def test_a_place_in_a_queue_ends_with_its_lease(guards, server_time) -> None:
    """The ticket of a process that died on another machine is dropped after its lease, not an hour later."""
    assert await guards.take("r", ["dead 50 elsewhere/b/1/2/3/n"], 50) == "dead 50 elsewhere/b/1/2/3/n"
    server_time.ahead_s = 0

    async def ours() -> bool:
        return await guards.take("r", ["ours 5000 here/b/1/2/3/n"], 5_000) == "ours 5000 here/b/1/2/3/n"

    await eventually(ours, "the end of the dead ticket")


async def test_a_timer_that_is_early_is_set_again() -> None:
    """What this process knows of the store's time goes back after its timer was set: the question still expires."""
    ask = {
        "step_id": "which",
        "ask": {"question": "Which?", "options": ["a"], "expires_s": 1, "on_timeout": {"value": "a"}},
    }
    async with asyncio.timeout(60), Coordinator.open("memory://") as coordinator:
        clock = coordinator.supervisor.clock
        assert (await coordinator.run({"steps": [ask]}, saga_id="s")).status == "ESCALATED"
        clock.set(clock.now_ms() - 400)  # a response that was long on its way
        async for record in coordinator.follow("s"):
            if record["k"] == "ApprovalExpired":
                break
        else:
            raise AssertionError("it ended without")
