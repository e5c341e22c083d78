"""What time it is: the store's word, not this machine's."""

import time

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.runtime.lease import StoreClock

AN_HOUR_NS = 3600 * 10**9


async def test_a_machine_whose_clock_is_ahead_does_not_stall_its_timers(monkeypatch) -> None:
    """Records bear the store's time and a retry waits for as long as it says, although this clock is an hour ahead."""
    here = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: here() + AN_HOUR_NS)
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


def test_time_never_goes_back_once_the_store_has_spoken(monkeypatch) -> None:
    """Before its first word the clock is this machine's, and binds nobody; after it the clock only goes on."""
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    clock = StoreClock()
    assert clock.now_ms() > 2_000
    clock.set(2_000)
    assert clock.now_ms() == 2_000
    clock.set(1_500)
    assert clock.now_ms() == 2_000
