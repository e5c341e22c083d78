"""Virtual time (``saga_engine.testing.virtual_time``): everything jumps together, and nothing that is under way is late."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.ports.machine_clock import MachineClock, machine_clock
from saga_engine.stores import open_store
from saga_engine.testing.virtual_time import new_virtual_event_loop, run_in_virtual_time
from saga_engine.tools.threads import start_in_thread

A_DAY_S = 86_400.0
#: More than any of these tests takes, and less than what it waits for.
AN_HOUR_S = 3_600.0


@pytest.mark.virtual_time
async def test_all_clocks_jump_together() -> None:
    """A sleep of a day takes no time, and the loop, the engine's clocks and the store's are a day later."""
    store = open_store("memory://")
    await store.open()
    before_ms = await store.open_lease("me", 2 * 86_400_000)
    began_s, read = time.monotonic(), (machine_clock.time, machine_clock.monotonic, machine_clock.boottime)
    then, now_ns = [clock() for clock in read], machine_clock.time_ns()
    await asyncio.sleep(A_DAY_S)
    assert time.monotonic() - began_s < AN_HOUR_S
    for clock, at in zip(read, then, strict=True):
        assert A_DAY_S <= clock() - at < A_DAY_S + AN_HOUR_S
    assert A_DAY_S <= (machine_clock.time_ns() - now_ns) / 1e9 < A_DAY_S + AN_HOUR_S
    renewal = await store.renew("me", 5_000)
    assert renewal.alive
    assert A_DAY_S * 1000 <= renewal.now_ms - before_ms < (A_DAY_S + AN_HOUR_S) * 1000
    await asyncio.sleep(6)
    assert not (await store.renew("me", 5_000)).alive
    await store.close()


@pytest.mark.virtual_time
async def test_timers_ring_in_their_order() -> None:
    """A jump goes to the next timer and no further."""
    rang: list[str] = []
    loop = asyncio.get_running_loop()
    for name, at_s in (("late", 3 * A_DAY_S), ("soon", 1.0), ("later", A_DAY_S)):
        loop.call_later(at_s, rang.append, name)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * A_DAY_S):
            await asyncio.Event().wait()
    assert rang == ["soon", "later"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("start", ["executor", "tool"])
async def test_a_thread_is_waited_for(start: str) -> None:
    """While a job is in a thread, time is real: it is not timed out by a jump, however short its own work is."""
    go = threading.Event()
    asyncio.get_running_loop().call_soon(threading.Timer(0.05, go.set).start)
    async with asyncio.timeout(AN_HOUR_S):
        if start == "executor":
            assert await asyncio.to_thread(go.wait)
        else:
            assert (await start_in_thread(go.wait)).value
    async with asyncio.timeout(2 * A_DAY_S):
        await asyncio.sleep(A_DAY_S)  # and it jumps again


@pytest.mark.virtual_time
async def test_a_socket_is_waited_for() -> None:
    """While the loop has a socket, its answer is not timed out by a jump."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(served, "127.0.0.1", 0) as server, asyncio.timeout(AN_HOUR_S):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"here\n")
        assert await reader.readline() == b"here\n"
        writer.close()
        await writer.wait_closed()


@pytest.mark.virtual_time
async def test_a_saga_waits_for_its_next_attempt() -> None:
    """Its records are as far apart as the retry says, and its lease, far shorter, has been renewed meanwhile."""

    @tool(effect="read", retry=RetryPolicy(max_attempts=2, base_s=30, max_s=30, jitter=False))
    async def flaky() -> dict:
        if not calls:
            calls.append(1)
            raise ToolError("busy", error_code="busy", retryable=True)
        return {}

    calls: list[int] = []
    async with Coordinator.open("memory://", [flaky], lease_s=6) as coordinator:
        outcome = await coordinator.run({"steps": [{"step_id": 1, "tool": "flaky"}]})
        times = [record["at"] for record in await coordinator.history(outcome.saga_id)]
    assert outcome.completed
    assert max(times) - min(times) >= 30_000


def test_the_real_time_is_back_when_the_loop_is_closed() -> None:
    """Nothing of virtual time is left in the process, and two loops cannot each have their own."""
    from fakeredis import _helpers

    async def one_day() -> float:
        await asyncio.sleep(A_DAY_S)
        with pytest.raises(RuntimeError, match="in virtual time already"):
            new_virtual_event_loop()
        assert _helpers.current_time() / 1000 > time.time() + AN_HOUR_S
        return machine_clock.time()

    assert run_in_virtual_time(one_day()) > time.time() + AN_HOUR_S
    real = MachineClock()
    assert (machine_clock.time, machine_clock.time_ns, machine_clock.monotonic) == (
        real.time,
        real.time_ns,
        real.monotonic,
    )
    assert abs(machine_clock.boottime() - real.boottime()) < AN_HOUR_S
    assert _helpers.current_time() / 1000 < time.time() + AN_HOUR_S
