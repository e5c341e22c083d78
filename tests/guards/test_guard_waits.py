"""A guard that refuses a call holds its step; it uses up no attempt, and no step waits without end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from saga_engine import BreakerPolicy, CallFailed, Coordinator, RetryPolicy, ToolError, tool
from saga_engine.guards import breakers
from saga_engine.plan.operator_limits import Limits
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.stores import open_store

pytestmark = pytest.mark.virtual_time

#: ``guard_wait_s`` in these tests.
LONGEST_S = 60
ONCE = RetryPolicy(max_attempts=1)


class Bank:
    """A world whose bank is away until it is ``back``; ``reached`` names whose calls got there, ``at`` when."""

    def __init__(self, open_s: float = 30) -> None:
        self.back = False
        self.reached: list[str] = []
        self.at: list[float] = []
        self.log: list[str] = []
        self.breaker = BreakerPolicy(failures=1, open_s=open_s)

    def tools(self) -> list[Any]:
        @tool(undo="cancel")
        async def order(item: str) -> dict[str, str]:
            self.log.append(f"order {item}")
            return {"item": item}

        @tool(tolerates_absence=True)
        async def cancel(item: str) -> None:
            self.log.append(f"cancel {item}")

        @tool(undo="cancel", breaker=self.breaker, retry=ONCE)
        async def charge(item: str, idempotency_key: str) -> dict[str, str]:
            self.reached.append(item)
            self.at.append(machine_clock.monotonic())
            if not self.back:
                raise ConnectionRefusedError("nobody there")
            return {"item": item}

        @tool(undo="cancel")
        async def invoice(item: str) -> dict[str, str]:
            self.log.append(f"invoice {item}")
            return {"item": item}

        @tool(undo="cancel", rate="1/h", retry=ONCE)
        async def fax(item: str) -> dict[str, str]:
            self.log.append(f"fax {item}")
            return {"item": item}

        @tool(undo="unsend")
        async def send(item: str) -> dict[str, str]:
            return {"item": item}

        @tool(rate="1/h", breaker=BreakerPolicy(failures=1, open_s=7200), tolerates_absence=True)
        async def unsend(item: str) -> None:
            self.log.append(f"unsend {item}")

        @tool(undo="cancel", max_concurrency=1, timeout_s=600, retry=ONCE)
        async def long(item: str) -> dict[str, str]:
            await asyncio.sleep(3 * LONGEST_S)
            return {"item": item}

        @tool(undo="cancel")
        async def fail() -> dict[str, str]:
            raise ToolError("no", error_code="no")

        return [order, cancel, charge, invoice, fax, send, unsend, long, fail]


def opened(bank: Bank, store: Any = "memory://", guard_wait_s: float = LONGEST_S) -> Any:
    limits = {"guard_wait_s": guard_wait_s}
    return Coordinator.open(store, bank.tools(), durability="relaxed", limits=limits, lease_s=3600)


def plan(*steps: dict[str, Any] | str, item: str = "x", **fields: Any) -> dict[str, Any]:
    listed = [{"tool": step} if isinstance(step, str) else step for step in steps]
    made = [
        {"step_id": number, "params": {} if step["tool"] == "fail" else {"item": item}, **step}
        for number, step in enumerate(listed, 1)
    ]
    return {"steps": made, **fields}


def paying(item: str = "x", **fields: Any) -> dict[str, Any]:
    return plan("order", "charge", item=item, **fields)


async def records(coordinator: Any, saga_id: str, kind: str) -> list[dict[str, Any]]:
    return [record for record in await coordinator.history(saga_id) if record["k"] == kind]


async def trip(coordinator: Any) -> None:
    """One failure opens the breaker."""
    assert (await coordinator.run(plan("charge", item="first"))).status == "COMPENSATED"


async def held(coordinator: Any, saga_id: str) -> None:
    """A guard has refused a call of the saga."""
    async for record in coordinator.follow(saga_id):
        if record["k"] == "StepRetryScheduled":
            return


async def test_sagas_wait_for_a_service_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: an open breaker undoes nothing and uses up no attempt; then the calls go, in order and one after the other."""
    monkeypatch.setattr(breakers, "_APART_S", 5.0)  # a slow machine is not that slow
    bank = Bank()
    async with opened(bank) as coordinator:
        await trip(coordinator)
        sagas = []
        for number in range(8):
            sagas.append(await coordinator.submit(paying(f"s{number}")))
            await held(coordinator, sagas[-1].saga_id)
        bank.back = True
        for saga in sagas:
            assert (await saga.wait()).status == "COMPLETED"
            assert len(await records(coordinator, saga.saga_id, "StepIntended")) > 2  # order, and charge twice or more
            for record in await records(coordinator, saga.saga_id, "StepRetryScheduled"):
                assert (record["counted"], record["error"]["error_code"]) == (False, "breaker_open")
    assert bank.reached[1:] == [f"s{number}" for number in range(8)]
    assert all(later > earlier for earlier, later in zip(bank.at[1:], bank.at[2:], strict=False))


async def test_a_step_waits_no_longer_than_the_limit() -> None:
    """Law: a step whose breaker stays open fails as not done after ``guard_wait_s``, or at the deadline before that."""
    bank = Bank(open_s=7200)
    async with opened(bank) as coordinator:
        await trip(coordinator)
        for fields, longest_s, code in (({}, LONGEST_S, "breaker_open"), ({"deadline_s": 20}, 20, None)):
            result = await coordinator.run(paying(**fields), saga_id=f"for-{longest_s}")
            assert result.status == "COMPENSATED"
            first, *_ = await records(coordinator, result.saga_id, "StepRetryScheduled")
            turned = await records(coordinator, result.saga_id, "CompensationStarted")
            waited_ms = turned[0]["at"] - first["at"]
            assert longest_s * 500 < waited_ms <= longest_s * 1000 + 1000
            if code is not None:
                assert result.body["steps"][1]["error"]["error_code"] == code
        assert bank.reached == ["first"]
        assert bank.log == ["order x", "cancel x"] * 2


async def test_the_operator_says_how_long() -> None:
    """``guard_wait_s = 0``: a refusal is final at once. By default it is a quarter of an hour."""
    assert Limits().guard_wait_s == 900
    bank = Bank(open_s=7200)
    async with opened(bank, guard_wait_s=0) as coordinator:
        await trip(coordinator)
        result = await coordinator.run(paying())
        assert not await records(coordinator, result.saga_id, "StepRetryScheduled")
        assert result.body["steps"][1]["error"]["error_code"] == "breaker_open"


async def test_the_time_counts_over_all_owners() -> None:
    """Law: whoever takes the saga over, its step waits no longer in all: the wait begins in the journal."""
    bank = Bank(open_s=7200)
    store = open_store("memory://", durability="relaxed")
    async with opened(bank, store) as coordinator:
        await trip(coordinator)
        await coordinator.submit(paying(), saga_id="s")
        await held(coordinator, "s")
        await asyncio.sleep(LONGEST_S / 2)
    async with opened(bank, store) as coordinator:
        assert (await coordinator.resume("s")).status == "COMPENSATED"
        first, *_ = await records(coordinator, "s", "StepRetryScheduled")
        turned = await records(coordinator, "s", "CompensationStarted")
        assert turned[0]["at"] - first["at"] <= LONGEST_S * 1000 + 1000
    await store.close()


@pytest.mark.parametrize("tool_name", ["charge", "fax"])
async def test_a_fallback_is_taken_at_once(tool_name: str) -> None:
    """Law: a step with another way does not wait for its guard: it takes that way in the same moment."""
    bank = Bank()
    async with opened(bank) as coordinator:
        await trip(coordinator)
        await coordinator.run(plan("fax"))
        steps = {"tool": tool_name, "fallback": {"tool": "invoice"}}
        result = await coordinator.run(plan(steps))
        assert result.status == "COMPLETED"
        assert not await records(coordinator, result.saga_id, "StepRetryScheduled")
        began, chose = [
            (await records(coordinator, result.saga_id, kind))[0] for kind in ("StepIntended", "FallbackChosen")
        ]
        assert chose["at"] - began["at"] < 1000
    assert bank.log[-1] == "invoice x"


@pytest.mark.parametrize("tool_name", ["fax", "long"])
async def test_a_rate_and_a_bulkhead_hold_a_call_no_longer(tool_name: str) -> None:
    """Law: a turn that does not come within ``guard_wait_s`` is a refusal: no attempt, and the step was not done."""
    bank = Bank()
    async with opened(bank) as coordinator:
        first = await coordinator.submit(plan(tool_name))
        result = await coordinator.run(plan("order", tool_name))
        assert result.status == "COMPENSATED"
        assert result.body["steps"][1]["error"]["error_code"] == "guard_wait"
        assert (await first.wait()).status == "COMPLETED"


async def test_no_undo_is_held() -> None:
    """Law: neither an open breaker nor a rate whose next moment is an hour away holds an undo."""
    bank = Bank()
    async with opened(bank) as coordinator:
        for _ in range(2):
            began_s = machine_clock.monotonic()
            assert (await coordinator.run(plan("send", "fail"))).status == "COMPENSATED"
            assert machine_clock.monotonic() - began_s < LONGEST_S
    assert bank.log == ["unsend x"] * 2


async def test_a_stop_is_no_refusal() -> None:
    """A stop waits for an operator, however long: ``guard_wait_s`` is not about it."""
    from saga_engine.api.stops import go, stop

    bank = Bank()
    async with opened(bank) as coordinator:
        await stop(coordinator.store, by="kim")
        saga = await coordinator.submit(paying())
        await asyncio.sleep(LONGEST_S + 1)
        bank.back = True
        await go(coordinator.store)
        assert (await saga.wait()).status == "COMPLETED"


@pytest.mark.parametrize("door", ["plan", "session", "each", "finally", "child"])
async def test_every_door_waits(door: str) -> None:
    """Law: whatever makes a call, a refusal by a guard holds it, and it goes when the service is back."""
    bank = Bank()
    async with opened(bank) as coordinator:
        await trip(coordinator)

        async def comes_back() -> None:
            await asyncio.sleep(LONGEST_S / 4)
            bank.back = True

        back = asyncio.create_task(comes_back())
        if door == "session":
            async with coordinator.session("s") as session:
                await session.call("charge", item="s")
        else:
            charge = {"step_id": "c", "tool": "charge", "params": {"item": "s"}}
            body: dict[str, Any] = {"steps": [charge]}
            if door == "each":
                body = {"steps": [{**charge, "params": {"item": "$item"}, "each": {"of": ["s"]}}]}
            elif door == "finally":
                last = {"step_id": "c", "tool": "charge", "params": {"item": "s"}}
                body = {"steps": plan("order")["steps"], "finally": [last]}
            elif door == "child":
                body = {"steps": [{"step_id": "k", "saga": {"plan": body}}]}
            result = await coordinator.run(body)
            assert result.status == "COMPLETED", result.body["error"]
        await back
    assert bank.reached == ["first", "s"]


async def test_a_session_may_be_tighter() -> None:
    """An agent that chooses for itself what to do instead is told at once."""
    bank = Bank()
    async with opened(bank) as coordinator:
        await trip(coordinator)
        async with coordinator.session("s", limits={"guard_wait_s": 0}) as session:
            with pytest.raises(CallFailed) as failed:
                await session.call("charge", item="s")
            assert failed.value.error_code == "breaker_open"


async def test_one_line_says_that_a_breaker_opens_and_one_that_it_closes(caplog: pytest.LogCaptureFixture) -> None:
    """However many calls it refuses meanwhile."""
    caplog.set_level(logging.INFO, "saga_engine.guards")
    bank = Bank()
    async with opened(bank) as coordinator:
        await trip(coordinator)
        sagas = [await coordinator.submit(paying(f"s{number}")) for number in range(5)]
        for saga in sagas:
            await held(coordinator, saga.saga_id)
        bank.back = True
        for saga in sagas:
            await saga.wait()
    lines = [record.getMessage() for record in caplog.records if "breaker of tool charge" in record.getMessage()]
    assert ["open" in line for line in lines] == [True, False]
    assert "closed" in lines[1]
