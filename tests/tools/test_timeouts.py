"""Alarms that share a timer ring in time, once, and only for calls that are still under way."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from saga_engine.core.effects import Done
from saga_engine.tools import timeouts
from saga_engine.tools.timeouts import Alarm
from tests.tools.calls import call


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on only when it is told to: what is due then runs at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.03

    def time(self) -> float:
        return self.now


def rings(left_s: float, *steps: float) -> list[bool]:
    """Whether an alarm of ``left_s`` has rung after each step of the clock."""
    loop = Clockwork()
    found = []

    async def body() -> None:
        sleeper = asyncio.ensure_future(asyncio.Event().wait())
        alarm = Alarm(sleeper)
        alarm.set(left_s)
        for step in steps:
            loop.now += step
            for _ in range(3):
                await asyncio.sleep(0)
            found.append(alarm.rang)
        sleeper.cancel()

    try:
        loop.run_until_complete(body())
    finally:
        loop.close()
    return found


@pytest.mark.parametrize("left_s", [0.5, 1.0, 2.5, 30.0])
def test_never_early_and_at_most_a_tenth_late(left_s: float) -> None:
    """Just before its time it is silent; a tenth of a second after it has rung."""
    assert rings(left_s, left_s - 0.001, 0.102) == [False, True]


def test_what_has_ended_is_left_alone() -> None:
    """A call that ended before its time is not cancelled, its neighbours in the same slot are."""
    loop = Clockwork()

    async def body() -> tuple[bool, bool]:
        tasks = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2)]
        first, second = (Alarm(task) for task in tasks)
        first.set(5.0)
        second.set(5.0)
        assert len(timeouts._SLOTS[loop]) == 1
        first.stop()
        loop.now += 6
        for _ in range(3):
            await asyncio.sleep(0)
        assert timeouts._SLOTS[loop] == {}
        tasks[0].cancel()
        return first.rang, second.rang

    try:
        assert loop.run_until_complete(body()) == (False, True)
    finally:
        loop.close()


async def test_an_answer_that_came_in_time_counts_although_the_loop_was_held_up():
    """Another call blocks the event loop past the time-out: the answer is there, and is read."""
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)

    async def act():
        first = await reader.readline()
        return (first + await reader.readline()).decode()

    async def block():
        there.sendall(b"booked\nA1\n")
        time.sleep(0.3)  # noqa: ASYNC251 - somebody else's blocking code is what this is about

    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: asyncio.ensure_future(block()))
    outcome = await call(act, timeout_s=0.1)
    writer.close()
    there.close()
    assert outcome == Done("booked\nA1\n")
