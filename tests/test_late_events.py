"""Events that come after the time-out or the undo, and the call that a plan has for them: once, whatever dies."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import PlanInvalid
from saga_engine.ports import Channel, DueEvent, Waiter
from saga_engine.runtime import events as delivering
from saga_engine.runtime.events import late_id

PAID = {
    "event": "paid",
    "on_late": {"tool": "refund", "params": {"sum": "$output.step_1.sum", "why": "{$input.who}: {$$key}"}},
}


def refunds(folder: Path) -> list[Any]:
    """The tools of a process: a refund is one line of a file for its idempotency key."""

    @tool
    def refund(sum: int, why: str, idempotency_key: str) -> dict[str, Any]:  # noqa: A002 - a param
        """Gives the money back."""
        with (folder / "refunds").open("a") as file:
            file.write(f"{idempotency_key[:0]}{sum} {why}\n")
        return {}

    return [refund]


def plan(**wait: Any) -> dict[str, Any]:
    return {"input": {"who": "$output.ada"}, "steps": [{"step_id": 1, "wait": {**PAID, **wait}}]}


async def armed(engine: Coordinator) -> None:
    """Wait until the step waits, for whoever looks into the store."""
    async with asyncio.timeout(60):
        while await engine.store.event_store().first(Channel("paid", "s")) is None:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)


async def tell_again(engine: Coordinator) -> None:
    """What a worker does from time to time."""
    events = delivering.Events(engine.store, engine.supervisor, engine._begin_late)
    await events.tell_again(range(engine.store.work().count))


LATE = late_id(DueEvent(Channel("paid", "s"), Waiter("s", "1"), "e"))


async def test_the_payment_that_arrives_after_the_undo_is_refunded_once(tmp_path: Path) -> None:
    """A saga of its own makes the call, with the values of the first one, as data; repeats of the event change nothing."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.submit(plan(), saga_id="s")
        await armed(engine)
        assert (await engine.cancel("s")).status == "COMPENSATED"
        late = await engine.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (late.disposition, late.late_saga) == ("late", LATE)
        assert (await engine.wait(LATE)).status == "COMPLETED"
        assert (await engine.send_event("paid", "s", {"sum": 7}, event_id="e")).disposition == "taken"
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"
        second = await engine.send_event("paid", "s", {"sum": 8}, event_id="e2")
        assert (await engine.wait(second.late_saga)).status == "COMPLETED"
        assert [head.saga_id for head in (await engine.search(tags=["late-event"])).sagas] == [second.late_saga, LATE]


async def test_an_event_after_the_time_out_is_handled_and_one_in_time_is_not(tmp_path: Path) -> None:
    """The saga may have completed without the event. An event that was taken has no late call."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        vain = plan(timeout_s=0.02, on_timeout={"value": {"sum": 0}})
        assert (await engine.run(vain, saga_id="s")).status == "COMPLETED"
        late = await engine.send_event("paid", "s", {"sum": 7})
        assert (await engine.wait(late.late_saga)).status == "COMPLETED"
        await engine.send_event("paid", "t", {"sum": 1})
        assert (await engine.run(plan(), saga_id="t")).status == "COMPLETED"
        assert (await engine.send_event("paid", "t", {"sum": 2})).late_saga == ""
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"


async def test_a_late_call_that_cannot_be_made_is_a_question(tmp_path: Path) -> None:
    """A payload without what the call binds: nothing is called, and an operator is asked."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.run(plan(timeout_s=0.02), saga_id="s")
        late = await engine.send_event("paid", "s", {"other": 7})
        rests = await engine.wait(late.late_saga)
        assert (rests.status, rests.body["questions"][0]["kind"]) == ("ESCALATED", "ask")
        assert (await engine.send_event("paid", "s", {"other": 7})).late_saga != late.late_saga
        assert (await engine.resolve(late.late_saga, "on_late", "handled")).status == "COMPLETED"
        assert not (tmp_path / "refunds").exists()


@pytest.mark.parametrize(
    ("late", "code"),
    [
        ({"tool": "none"}, "tool-unknown"),
        ({"tool": "look"}, "wait-invalid"),
        ({"tool": "refund", "params": {"sum": 1, "why": "$secret.KEY"}}, "wait-invalid"),
        ({"tool": "refund", "params": {"sum": "$output.step_9.x", "why": ""}}, "binding-unknown-step"),
        ({"tool": "refund", "params": {"sum": 1}}, "params-invalid"),
    ],
)
async def test_what_no_late_call_can_be_is_a_problem_of_the_plan(late: Any, code: str, tmp_path: Path) -> None:
    """It is found before anything runs."""

    @tool(effect="read")
    def look() -> None:
        """Reads."""

    async with Coordinator.open("memory://", [*refunds(tmp_path), look], on_escalation=()) as engine:
        with pytest.raises(PlanInvalid) as caught:
            await engine.run(plan(on_late=late))
        assert code in {problem.code for problem in caught.value.problems}


_KILLED = """
import asyncio, os, pathlib, signal, sys
from saga_engine import Coordinator
from tests.test_late_events import refunds

async def main(url, folder, when):
    async with Coordinator.open(url, refunds(pathlib.Path(folder)), on_escalation=()) as coordinator:
        begin = coordinator._begin_late
        async def dies(plan, saga_id):
            if when != "before":
                await begin(plan, saga_id)
            if when == "called":
                await coordinator.wait(saga_id)
            os.kill(os.getpid(), signal.SIGKILL)
        coordinator._begin_late = dies
        await coordinator.send_event("paid", "s", {"sum": 7}, event_id="e")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("when", ["before", "begun", "called"])
async def test_a_late_payment_is_refunded_once_although_its_receiver_is_killed(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed before the saga of the refund is durable, after that, or after the refund: others bring it to its end."""
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    url = f"embedded://{tmp_path}/store"
    async with Coordinator.open(url, refunds(tmp_path), on_escalation=()) as engine:
        assert (await engine.run(plan(timeout_s=0.02), saga_id="s")).status == "COMPENSATED"
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, url, str(tmp_path), when)
        assert await killed.wait() == -9
        for _ in range(2):
            await tell_again(engine)
        worker = asyncio.create_task(engine.work())
        assert (await engine.wait(LATE)).status in ("COMPLETED", "ESCALATED")
        worker.cancel()
        assert [event.disposition for event in await engine.events()] == ["taken"]
        assert len((tmp_path / "refunds").read_text().splitlines()) == 1
