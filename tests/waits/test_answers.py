"""Answers to one wait (callback URLs), and what competes with them. Deaths: tests/kill; any order: tests/support/wait_races.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.core.messages import Message, answer
from saga_engine.core.records import MessageRefused
from saga_engine.errors import EventRefused
from saga_engine.ports import Channel, DueEvent, StoredEvent, Waiter
from saga_engine.runtime import events as delivering
from saga_engine.runtime.events import Events
from saga_engine.runtime.journal import read_records, state_of

REFUNDS: list[int] = []
#: Of several sagas that wait for the same event.
PAID = Channel("paid", "17")
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was refunded yet, and what workers look after is looked at without a delay."""
    REFUNDS.clear()
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    yield
    REFUNDS.clear()


@tool
async def refund(sum: int) -> dict[str, Any]:  # noqa: A002 - a param
    """Gives the money back."""
    REFUNDS.append(sum)
    return {}


def plan(**more: Any) -> dict[str, Any]:
    late = {"tool": "refund", "params": {"sum": "$output.step_1.sum"}}
    return {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "17", "on_late": late, **more}}]}


def opened(url: str) -> Any:
    return Coordinator.open(url, [refund], on_escalation=())


async def registered(engine: Coordinator) -> None:
    """Until the store knows of a wait that nothing is held for."""
    async with asyncio.timeout(60):
        while await engine.store.event_store().first(PAID) is None:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)


async def an_hour_passes(engine: Coordinator) -> None:
    """For the sagas of this process. It has a lease, whose begin would set its clock."""
    await engine.supervisor.lease()
    engine.supervisor.clock.set(engine.supervisor.clock.now_ms() + HOUR_MS)


async def left_waiting(url: str, body: dict[str, Any]) -> None:
    """The saga waits, and no process drives it."""
    async with opened(url) as engine:
        await engine.submit(body, saga_id="s")
        await registered(engine)


async def tell_again(engine: Coordinator) -> None:
    """What a worker does from time to time."""
    events = Events(engine.store, engine.supervisor, engine._begin_late)
    for _ in range(2):
        await events.tell_again(range(engine.store.work().count))


async def began(engine: Coordinator) -> list[str]:
    """The sagas that handle late events; they have ended well."""
    found = [head.saga_id for head in (await engine.search(tags=["late-event"])).sagas]
    assert {(await engine.wait(saga_id)).status for saga_id in found} <= {"COMPLETED"}
    return found


async def dispositions(engine: Coordinator) -> list[str]:
    return [event.disposition for event in await engine.events()]


async def test_an_answer_in_the_moment_of_the_time_out_is_late(tmp_path: Path) -> None:
    """Its sender found the step waiting, and its owner that the time was over: the payment goes back, once.

    Neither the saga that waits for the same event nor the one that comes next gets it.
    """
    url = f"embedded://{tmp_path}"
    await left_waiting(url, plan(timeout_s=3600))
    async with opened(url) as engine:
        other = await engine.submit(plan(), saga_id="other")
        assert await engine.answer_wait("s", 1, {"sum": 7}) == ""
        await an_hour_passes(engine)
        assert (await engine.resume("s")).status == "COMPENSATED"
        assert [each["code"] for each in await engine.history("s") if each["k"] == "MessageRefused"] == ["event-late"]
        await tell_again(engine)
        (late,) = await began(engine)
        assert await engine.answer_wait("s", 1, {"sum": 7}) == late
        with pytest.raises(EventRefused, match="has had another answer"):
            await engine.answer_wait("s", 1, {"sum": 8})
        await tell_again(engine)
        assert (await began(engine), REFUNDS, await dispositions(engine)) == ([late], [7], ["handled"])
        await registered(engine)
        await engine.answer_wait("other", 1, {"sum": 5})
        assert (await other.wait()).status == "COMPLETED"
        assert REFUNDS == [7]


async def test_an_answer_without_an_on_late_in_the_moment_of_the_time_out_is_listed(tmp_path: Path) -> None:
    """Nothing is left for it: it is late, and who repeats it is told so. The next wait does not get it."""
    url = f"embedded://{tmp_path}"
    body: dict[str, Any] = {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "17", "timeout_s": 3600}}]}
    await left_waiting(url, body)
    async with opened(url) as engine:
        await engine.answer_wait("s", 1, {"sum": 7})
        await an_hour_passes(engine)
        assert (await engine.resume("s")).status == "COMPENSATED"
        assert await dispositions(engine) == ["late"]
        with pytest.raises(EventRefused, match="no more"):
            await engine.answer_wait("s", 1, {"sum": 7})
        await engine.submit(body, saga_id="next")
        await registered(engine)


async def test_one_wait_has_one_answer(tmp_path: Path) -> None:
    """Of two that are sent before the saga decides the first counts; the same again is no second one."""
    url = f"embedded://{tmp_path}"
    await left_waiting(url, plan())
    async with opened(url) as engine, opened(url) as another:
        assert await engine.answer_wait("s", 1, {"sum": 7}) == ""
        assert await another.answer_wait("s", 1, {"sum": 7}) == ""
        with pytest.raises(EventRefused, match="has had another answer"):
            await another.answer_wait("s", 1, {"sum": 8})
        found = await engine.resume("s")
        assert (found.status, found.steps[0].output) == ("COMPLETED", {"sum": 7})
        assert await another.answer_wait("s", 1, {"sum": 7}) == ""
        with pytest.raises(EventRefused, match="had its end"):
            await another.answer_wait("s", 1, {"sum": 8})
        await tell_again(engine)
        assert (await began(engine), await dispositions(engine)) == ([], ["taken"])


async def test_an_answer_is_held_before_the_store_knows_of_the_wait(tmp_path: Path) -> None:
    """Its owner ends between the record of the wait and the word to the store: an event by name is not in its place."""
    url = f"embedded://{tmp_path}"
    await left_waiting(url, plan())
    async with opened(url) as engine:
        await engine.store.event_store().over(PAID, Waiter("s", "1"), keep_ms=HOUR_MS)
        await engine.answer_wait("s", 1, {"sum": 7})
        assert (await engine.send_event("paid", 17, {"sum": 8})).disposition == "late"
        found = await engine.resume("s")
        assert (found.status, found.steps[0].output) == ("COMPLETED", {"sum": 7})


async def test_an_answer_to_a_wait_that_holds_an_event_is_refused_until_that_is_decided(tmp_path: Path) -> None:
    """The event came first. If nobody has told the store that the wait is over, both are late."""
    url = f"embedded://{tmp_path}"
    await left_waiting(url, plan())
    async with opened(url) as engine:
        await engine.send_event("paid", 17, {"sum": 7})
        with pytest.raises(EventRefused, match="has not decided"):
            await engine.answer_wait("s", 1, {"sum": 8})
        found = await engine.resume("s")
        assert (found.status, found.steps[0].output) == ("COMPLETED", {"sum": 7})
        await engine.run(plan(timeout_s=0.01), saga_id="t")
        events, waiter = engine.store.event_store(), Waiter("t", "1")
        await events.register(PAID, waiter, b"", keep_ms=HOUR_MS)  # as if its owner had ended just before
        await events.send(PAID, StoredEvent("e", b'{"sum":5}'), keep_ms=HOUR_MS, most=9)
        late = await engine.answer_wait("t", 1, {"sum": 6})
        await tell_again(engine)
        assert (len(await began(engine)), late in await began(engine), sorted(REFUNDS)) == (2, True, [5, 6])
        assert sorted(await dispositions(engine)) == ["handled", "handled", "taken"]


async def test_a_step_that_waits_again_may_be_answered_again(tmp_path: Path) -> None:
    """Each of its waits has one answer. What was held for the wait before is not taken, however late it is brought."""
    url = f"embedded://{tmp_path}"
    body = {**plan(timeout_s=3600), "on_failure": "pause"}
    async with opened(url) as engine:
        await engine.submit(body, saga_id="s")
        await registered(engine)
        await an_hour_passes(engine)
        engine.supervisor.notify("s")
        assert (await engine.wait("s")).status == "ESCALATED"
        late = await engine.answer_wait("s", 1, {"sum": 7})
        assert (await engine.wait(late)).status == "COMPLETED"
        await engine.resolve("s", 1, "retry", wait=False)
        engine.supervisor.resume("s")
        await registered(engine)
        state = state_of(await read_records(engine.store, "s"))
        event = Message(id="e", kind="event", step="1", event="paid", key="17", nth=1, output={"sum": 9})
        assert isinstance(answer(state, event, state.at), MessageRefused)  # its sender was suspended meanwhile
        assert await engine.answer_wait("s", 1, {"sum": 7}) == ""
        assert (await engine.wait("s")).status == "COMPLETED"
        await tell_again(engine)
        assert (await began(engine), REFUNDS) == ([late], [7])
        assert await dispositions(engine) == ["taken", "handled"]


async def test_a_journal_that_was_read_too_early_settles_no_wait(tmp_path: Path) -> None:
    """The event is held for a wait that the journal, as a worker sees it, does not have yet: it stays held."""
    url = f"embedded://{tmp_path}"
    async with opened(url) as engine:
        await engine.submit(plan(timeout_s=3600), saga_id="s")
        await registered(engine)
        events = engine.store.event_store()
        await events.address(PAID, Waiter("s", "1", 2), StoredEvent("e", b'{"sum":5}'), keep_ms=HOUR_MS)
        assert not await Events(engine.store, engine.supervisor, engine._begin_late)._settled(
            DueEvent(PAID, Waiter("s", "1", 2), "e")
        )
        assert await dispositions(engine) == ["held"]


async def test_an_answer_to_a_wait_that_never_began_is_handled_once_the_saga_has_ended() -> None:
    """It was on its way when the saga was cancelled: it is refunded, and held for nobody."""

    def fail() -> None:
        """Refuse."""
        raise PermissionError("no")

    body = plan(timeout_s=60)
    body["steps"] = [{"step_id": 0, "tool": "fail", "kind": "irreversible"}, body["steps"][0]]
    async with Coordinator.open("memory://never-began", [refund, tool(fail, not_done=PermissionError)]) as engine:
        assert (await engine.run(body, saga_id="s")).status == "COMPENSATED"
        events = engine.store.event_store()
        receipt = await events.address(PAID, Waiter("s", "1", 1), StoredEvent("e1", b'{"sum": 7}'), keep_ms=HOUR_MS)
        assert receipt.disposition == "held"
        await tell_again(engine)
        assert len(await began(engine)) == 1
        assert [each.disposition for each in await engine.events("paid", "17")] == ["handled"]
    assert REFUNDS == [7]
