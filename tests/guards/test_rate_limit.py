"""Bulkheads and rates: how many at once in a process, how many in a period in all of them."""

import asyncio
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import StoreUnavailable
from saga_engine.guards.bulkhead import Places
from saga_engine.guards.waiting import Waiting, Word
from saga_engine.tools.decorator import tool
from saga_engine.tools.limits import parse_rate
from tests.guards.world import RealClock, Stage, guard, poll, step


def code(outcome):
    assert isinstance(outcome, NotDone)
    return outcome.error.error_code, outcome.retryable


# --- bulkheads -------------------------------------------------------------------------------------------------------


async def test_max_concurrency_bounds_the_calls_of_one_tool(store):
    """Requirement B2: never more at once in a process, in the order of arrival, also through two registries."""
    stage = Stage()

    @tool(max_concurrency=2)
    async def act(who: int):
        return await stage.enter(who)

    both = [guard(store, act), guard(store, act)]
    calls = [asyncio.create_task(both[who % 2].call("act", {"who": who}, step())) for who in range(6)]
    for who in range(6):
        await stage.until(who)
        stage.let_out(who)
    assert await asyncio.gather(*calls) == [Done(who) for who in range(6)]
    assert stage.most == 2
    assert stage.order == list(range(6))
    for tools in both:
        await tools.close()


async def test_waits_for_a_place_end_and_leave_it_to_others(store):
    """A deadline, a cancellation and the end of the engine end a wait, and no place is lost by any of them."""
    stage = Stage()

    @tool(max_concurrency=1)
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"who": "a"}, step()))
    await stage.until("a")
    late = await tools.call("act", {"who": "late"}, step(deadline_ms=RealClock().now_ms() + 5))
    assert code(late) == ("deadline", False)
    gone = asyncio.create_task(tools.call("act", {"who": "gone"}, step()))
    last = asyncio.create_task(tools.call("act", {"who": "z"}, step()))
    await asyncio.sleep(0)
    gone.cancel()
    stage.let_out("a")
    assert await first == Done("a")
    await stage.until("z")
    assert gone.cancelled()
    stopped = asyncio.create_task(tools.call("act", {"who": "stopped"}, step(direction="compensate")))
    await asyncio.sleep(0)
    tools.stop_waiting()
    assert code(await stopped) == ("interrupted", True)
    assert code(await tools.call("act", {"who": "after"}, step())) == ("interrupted", True)
    stage.let_out("z")
    assert await last == Done("z")
    free = asyncio.create_task(tools.call("act", {"who": "free"}, step()))
    await stage.until("free")
    stage.let_out("free")
    assert await free == Done("free")
    assert stage.order == ["a", "z", "free"]
    await tools.close()


async def test_a_place_that_comes_with_the_cancellation_is_handed_on():
    """A waiter that is given a place and cancelled in the same moment does not take the place with it."""
    places, waiting, counts = Places(1), Waiting(RealClock()), Counter()
    assert await places.enter(waiting, step(), counts) is Word.TURN
    second, third = (asyncio.create_task(places.enter(waiting, step(), counts)) for _ in range(2))
    await asyncio.sleep(0)
    places.leave()
    second.cancel()  # Its turn is settled and not yet taken.
    assert await third is Word.TURN
    assert second.cancelled()
    places.leave()
    assert await places.enter(waiting, step(), counts) is Word.TURN


def test_places_hold_in_one_event_loop_after_another(tmp_path):
    """A tool that was limited in a loop that has ended is limited, and free, in the next."""
    from saga_engine.stores import open_store

    @tool(max_concurrency=1)
    async def act():
        await asyncio.sleep(0)
        return 1

    async def main():
        opened = open_store("memory://")
        await opened.open()
        tools = guard(opened.guard_store(), act)
        try:
            return await asyncio.gather(*(tools.call("act", {}, step()) for _ in range(3)))
        finally:
            await tools.close()
            await opened.close()

    assert asyncio.run(main()) == asyncio.run(main()) == [Done(1)] * 3


# --- rates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pace"),
    [
        ("10/s", (100_000, 1)),
        ("1/d", (86_400_000_000, 1)),
        ("5/min", (12_000_000, 1)),
        ("100/h", (39_560_440, 10)),
        ("1000/d", (95_893_452, 100)),
    ],
)
def test_a_rate_is_a_pace_and_a_burst(text, pace):
    """A tenth at once, the others spread evenly."""
    assert parse_rate(text) == pace


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/sec", "10 / s", "1e3/s", "٣/s", "9999999/s", 10, None]
)
def test_what_is_no_rate_is_refused(text):
    """A rate that is not understood limits nothing, so it is an error."""
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@given(
    calls=st.integers(1, 300),
    period=st.sampled_from(["s", "min", "h", "d"]),
    gaps=st.lists(st.floats(0, 1.5), min_size=1, max_size=400),
)
def test_no_period_holds_more_calls_than_the_rate_says(calls, period, gaps):
    """Law: under GCRA with this pace, any window of one period holds at most so many calls, however they come."""
    interval_us, burst = parse_rate(f"{calls}/{period}")
    period_us = {"s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}[period]
    now_us = arrival_us = 0
    window = deque()
    for gap in gaps:
        now_us += int(gap * interval_us)
        arrival_us = max(arrival_us, now_us)
        moment_us = max(arrival_us - (burst - 1) * interval_us, now_us)
        arrival_us += interval_us
        now_us = moment_us
        window.append(moment_us)
        while window[0] <= moment_us - period_us:
            window.popleft()
        assert len(window) <= calls


async def test_calls_are_spread_over_all_processes(watched):
    """Law: the rate is reserved in the store under the tool's name, in both directions; only an undo does not wait."""

    @tool(rate="3/s")
    async def act():
        return asyncio.get_running_loop().time()

    both = [guard(watched, act), guard(watched, act)]
    for number in range(4):
        direction = "compensate" if number == 2 else "forward"
        done = await both[number % 2].call("act", {}, step(direction=direction))
        asked_s, wait_ms = watched.replies["reserve"]
        kept = done.output - asked_s >= wait_ms / 1000 - 0.002  # the loop rounds timers to its clock's resolution
        assert kept or direction == "compensate"
    assert wait_ms > 0
    assert {args for verb, args in watched.asked if verb == "reserve"} == {("act", 333_334, 1, None)}
    for tools in both:
        await tools.close()


async def test_a_moment_after_the_deadline_is_not_waited_for(store):
    """Law: what cannot come in time reserves nothing and calls nothing."""

    @tool(rate="1/h")
    async def act():
        return 1

    tools = guard(store, act)
    assert await tools.call("act", {}, step()) == Done(1)
    assert code(await tools.call("act", {}, step(deadline_ms=RealClock().now_ms() + 60_000))) == ("deadline", False)
    assert await tools.call("act", {}, step(direction="compensate")) == Done(1)  # no rate holds an undo
    tools.stop_waiting()
    await tools.close()


async def test_a_call_that_waits_for_its_moment_is_interrupted(store):
    """Law: who closes the engine waits for no rate; the call was not made."""

    @tool(rate="1/min")
    async def act():
        return 1

    tools = guard(store, act)
    assert await tools.call("act", {}, step()) == Done(1)
    waits = asyncio.create_task(tools.call("act", {}, step()))

    async def waiting():
        return bool(tools._waiting._turns)

    await poll(waiting)
    tools.stop_waiting()
    assert code(await waits) == ("interrupted", True)
    assert code(await tools.call("act", {}, step())) == ("interrupted", True)
    await tools.close()


async def test_an_unknown_rate_lets_nothing_through(watched):
    """A store that cannot be asked has promised nothing: not done, to be tried again."""
    called = []

    @tool(rate="1/h")
    async def act():
        called.append(1)

    watched.broken["reserve"] = StoreUnavailable("away")
    tools = guard(watched, act)
    assert code(await tools.call("act", {}, step())) == ("store_unavailable", True)
    assert not called
    await tools.close()
