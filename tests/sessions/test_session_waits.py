"""Sessions whose agents sleep and wait for events: through the API, also over the death of the agent's process."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, sync_session, tool
from saga_engine.errors import PlanInvalid, SessionDiverged
from saga_engine.ports import Channel

REFUNDED: list[int] = []


@tool
async def refund(sum: int) -> dict[str, int]:  # noqa: A002 - a param
    """Gives the money back."""
    REFUNDED.append(sum)
    return {}


@tool(effect="read")
async def look() -> dict[str, int]:
    """Reads."""
    return {}


REFUND = ("refund", {"sum": "$output.sum"})


@pytest.fixture(autouse=True)
def fresh() -> None:
    REFUNDED.clear()


async def test_an_agent_sleeps_and_waits_and_what_came_is_undone_with_its_session(tmp_path: Path) -> None:
    """The payload is returned; what the event stands for is undone by the tool that the agent named, once."""
    url = f"embedded://{tmp_path}"
    async with Coordinator.open(url, [refund], on_escalation=()) as engine:
        await engine.send_event("paid", "s", {"sum": 7})
        with pytest.raises(ZeroDivisionError):
            async with engine.session("s") as session:
                await session.sleep(0.01)
                assert await session.wait_for("paid", undo=REFUND) == {"sum": 7}
                assert await session.wait_for("paid", timeout_s=0.01, on_timeout={"value": 0}, undo=REFUND) == 0
                with pytest.raises(CallFailed) as caught:
                    await session.wait_for("paid", timeout_s=0.01)
                assert caught.value.error_code == "wait_timed_out"
                raise ZeroDivisionError
        shown = await engine.show("s")
        statuses = [step["status"] for step in shown.body["steps"]]
        assert (shown.status, statuses) == ("COMPENSATED", ["SUCCEEDED", "COMPENSATED", "SUCCEEDED", "FAILED"])
        assert REFUNDED == [7]


async def test_an_agent_waits_for_several_events(tmp_path: Path) -> None:
    """The first one says which it was; all are in the agent's order, and the undo binds one of them."""
    async with Coordinator.open(f"embedded://{tmp_path}", [refund], on_escalation=()) as engine:
        for name, key, number in (("paid.bank", "s", 1), ("ready", "ada", 2), ("ready", 7, 3)):
            await engine.send_event(name, key, {"sum": number})
        with pytest.raises(ZeroDivisionError):
            async with engine.session("s") as session:
                first = await session.wait_for(first=["paid.card", {"event": "paid.bank"}])
                assert first == {"event": "paid.bank", "key": "s", "payload": {"sum": 1}}
                both = [{"event": "ready", "key": 7}, {"event": "ready", "key": "ada"}]
                undo = ("refund", {"sum": "$output[0].payload.sum"})
                found = await session.wait_for(all_of=both, undo=undo)
                assert [each["payload"]["sum"] for each in found] == [3, 2]
                raise ZeroDivisionError
        assert (await engine.show("s")).status == "COMPENSATED"
        assert REFUNDED == [3]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"event": "a b"}, "name of an event"),
        ({"event": "paid", "undo": ("none", {})}, "there is no tool"),
        ({"event": "paid", "undo": ("look", {})}, "only reads"),
        ({"event": "paid", "undo": ("refund", {"sum": "$output.["})}, "path"),
        ({"event": "paid", "timeout_s": 1, "on_timeout": "continue"}, "belongs to plans"),
    ],
)
async def test_what_no_agent_can_wait_for_is_refused(body: dict[str, Any], message: str) -> None:
    """Nothing of it is recorded, and the error says what is wrong."""
    async with Coordinator.open("memory://", [refund, look], on_escalation=()) as engine:
        with pytest.raises(PlanInvalid, match=message):
            async with engine.session("s") as session:
                await session.wait_for(**body)
        with pytest.raises(TypeError):
            async with engine.session("t") as session:
                await session.sleep()


_AGENT = """
import sys
from saga_engine import sync_session
from tests.sessions.test_session_waits import agent

agent(sys.argv[1])
"""


def agent(url: str, event: str = "paid") -> Any:
    """An agent that blocks: it sleeps, then waits."""
    with sync_session("s", store=url, tools=[refund]) as session:
        session.sleep("PT0S")
        return session.wait_for(event, undo=REFUND)


async def test_an_agent_that_was_killed_waits_on(tmp_path: Path) -> None:
    """The event comes while no process lives: the agent that runs again gets it, and an agent that differs does not."""
    url = f"embedded://{tmp_path}"
    async with Coordinator.open(url, [refund], on_escalation=()) as engine:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _AGENT, url)
        async with asyncio.timeout(60):
            while await engine.store.event_store().first(Channel("paid", "s")) is None:  # noqa: ASYNC110 - of a process
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await engine.send_event("paid", "s", {"sum": 9})
    assert await asyncio.to_thread(agent, url) == {"sum": 9}
    with pytest.raises(SessionDiverged):
        await asyncio.to_thread(agent, url, "other")
    async with Coordinator.open(url, [refund], on_escalation=()) as engine:
        assert (await engine.undo("s")).status == "COMPENSATED"  # type: ignore[union-attr]
    assert REFUNDED == [9]


async def test_an_event_that_comes_too_late_for_an_agent_is_given_back_once(tmp_path: Path) -> None:
    """After the time-out of an agent's wait, its ``on_late`` runs once for each event; a repeat begins nothing."""
    url = f"embedded://{tmp_path}"
    async with Coordinator.open(url, [refund, look], on_escalation=()) as engine:
        async with engine.session("s") as session:
            with pytest.raises(CallFailed):
                await session.wait_for("paid", timeout_s=0.01, on_late=REFUND)
            for wrong in (("nobody", {}), ("look", {}), ("refund", {"sum": "$output.step_9.sum["})):
                with pytest.raises(PlanInvalid):
                    await session.wait_for("paid", on_late=wrong)
        late = await engine.send_event("paid", "s", {"sum": 7}, event_id="e1")
        assert late.disposition == "handled"
        assert (await engine.send_event("paid", "s", {"sum": 7}, event_id="e1")).repeated
        handled = await engine.resume(late.late_saga)
        assert (handled.status, REFUNDED) == ("COMPLETED", [7])
        assert (await engine.show("s")).status == "COMPLETED"


async def test_the_event_of_an_agent_whose_session_is_undone_is_given_back(tmp_path: Path) -> None:
    """An agent that gave up while it waited: what comes for it then is given back, by a saga of its own."""
    async with Coordinator.open(f"embedded://{tmp_path}", [refund], on_escalation=()) as engine:
        with pytest.raises(TimeoutError):
            async with engine.session("s") as session:
                async with asyncio.timeout(0.2):
                    await session.wait_for("paid", on_late=REFUND)
        assert (await engine.show("s")).status == "COMPENSATED"
        late = await engine.send_event("paid", "s", {"sum": 9})
        assert (await engine.resume(late.late_saga)).status == "COMPLETED"
        assert REFUNDED == [9]
