"""Steps that wait, for time and for events: through the API, on a real store. What the core decides is simulated."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from saga_engine import Coordinator, SagaResult, tool
from saga_engine.errors import EventRefused, StoreUnavailable
from saga_engine.ports import Channel, DueEvent, StoredEvent, Waiter
from saga_engine.runtime import events as delivering
from saga_engine.runtime.events import EventReceipt
from saga_engine.stores import open_store
from saga_engine.testing.faults import Fault, Faults, FaultyStore

DAY = {"step_id": 1, "sleep": "P1D"}
PAID = {"step_id": 1, "wait": {"event": "paid", "schema": {"type": "object", "required": ["sum"]}}}
BOOK = {"step_id": 2, "tool": "book", "params": {"sum": "$output.step_1.sum"}}


@tool(undo="unbook")
async def book(sum: int) -> dict[str, int]:  # noqa: A002 - a param
    """Books."""
    return {"sum": sum}


@tool
async def unbook(sum: int) -> dict[str, int]:  # noqa: A002 - a param
    """Undoes it."""
    return {}


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(steps), **more}


def opened(url: str) -> AbstractAsyncContextManager[Coordinator]:
    return Coordinator.open(url, [book, unbook], on_escalation=())


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - what another task or process has made durable
            await asyncio.sleep(0.005)


async def waiting(engine: Coordinator, saga_id: str, *, released: bool = False) -> None:
    """Wait until a saga does nothing but wait, for whoever looks into the store."""

    async def so() -> bool:
        head = await engine.store.head(saga_id)
        return b'"waits"' in head.summary and not (released and head.owner)

    await until(so)


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


# --- time ------------------------------------------------------------------------------------------------------------


async def test_sagas_that_sleep_take_no_task_and_no_place(url: str) -> None:
    """A worker of two places has sixteen sagas asleep, owns none of them, and drives another one."""
    async with opened(url) as engine:
        worker = asyncio.create_task(engine.work(concurrency=2))
        for number in range(16):
            await engine.submit(plan(DAY), saga_id=f"s{number}", detach=True)
        for number in range(16):
            await waiting(engine, f"s{number}", released=True)
        await until(lambda: drives_nothing(engine))
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("saga s")]
        load = await engine.overview()
        assert (load.queued, load.timed) == (0, 16)
        assert (await engine.run(plan({"step_id": 2, "tool": "book", "params": {"sum": 1}}))).status == "COMPLETED"
        worker.cancel()


async def drives_nothing(engine: Coordinator) -> bool:
    return engine.supervisor.count()[0] == 0


async def test_a_caller_gets_the_end_of_a_saga_that_slept(url: str) -> None:
    """``run`` waits through a sleep, without a task for the saga; the step has no output and no call."""
    async with opened(url) as engine:
        handle = await engine.submit(plan({"step_id": 1, "sleep": 1.2}), saga_id="s")
        await waiting(engine, "s")
        await until(lambda: has_no_task("s"))
        found = await handle.wait()
        assert (found.status, found.steps[0].output, found.steps[0].attempts) == ("COMPLETED", None, 0)
        assert (await kinds(engine, "s"))[1:] == ["StepWaiting", "StepSucceeded", "SagaCompleted"]


async def has_no_task(saga_id: str) -> bool:
    return f"saga {saga_id}" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_all_that_can_go_on_leaves_out_what_only_sleeps(url: str) -> None:
    """``resume --all`` does not wait for sagas that wait; one that its process left behind returns to the queue."""
    async with opened(url) as engine:
        await engine.submit(plan(DAY), saga_id="left")
        await waiting(engine, "left")
    async with opened(url) as engine:
        async with asyncio.timeout(30):
            found = await engine.resume_all()
        assert {saga_id: result.status for saga_id, result in found.items()} in ({}, {"left": "RUNNING"})  # type: ignore[union-attr]
        await until(lambda: drives_nothing(engine))
        assert (await engine.overview()).timed + (await engine.overview()).queued == 1


async def test_a_cancel_ends_a_sleep(url: str) -> None:
    """The sleep is skipped, and what happened before it is undone."""
    booked = {"step_id": 0, "tool": "book", "params": {"sum": 1}}
    async with opened(url) as engine:
        await engine.submit(plan(booked, DAY), saga_id="s")
        await waiting(engine, "s")
        found = await engine.cancel("s")
        assert (found.status, [step.status for step in found.steps]) == ("COMPENSATED", ["COMPENSATED", "SKIPPED"])


# --- events ----------------------------------------------------------------------------------------------------------


async def test_an_event_is_the_output_of_the_step_that_waits(url: str) -> None:
    """Whoever drives the saga is woken; the payload is bound; the same event sent again changes nothing."""
    async with opened(url) as engine, opened(url) as sender:
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await waiting(engine, "s")
        await until(lambda: is_awaited(engine, "s"))
        first = await sender.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (first.event_id, first.repeated, first.saga_id, first.step) == ("e", False, "s", "1")
        found = await handle.wait()
        assert (found.status, found.steps[1].output) == ("COMPLETED", {"sum": 7})
        again = await sender.send_event("paid", "s", {"sum": 8}, event_id="e")
        assert again == EventReceipt("e", "taken", True, "s", "1")
        assert [event.disposition for event in await sender.events("paid", "s")] == ["taken"]


async def is_awaited(engine: Coordinator, key: str) -> bool:
    return await engine.store.event_store().first(Channel("paid", key)) is not None


async def test_a_worker_continues_a_saga_whose_event_comes(url: str) -> None:
    """The saga waits in the store, owned by nobody; the event brings it back to a worker."""
    async with opened(url) as engine:
        worker = asyncio.create_task(engine.work())
        await engine.submit(plan(PAID, BOOK), saga_id="s", detach=True)
        await waiting(engine, "s", released=True)
        assert (await engine.overview()).timed == 0
        await engine.send_event("paid", "s", {"sum": 7})
        assert (await engine.wait("s")).status == "COMPLETED"
        worker.cancel()


async def test_an_early_event_is_kept(url: str) -> None:
    """It is kept for the first saga that waits for it, and for no other."""
    async with opened(url) as engine:
        assert (await engine.send_event("paid", 17, {"sum": 7})).disposition == "kept"
        wait = {"event": "paid", "key": "$input.order"}
        waits = [{"step_id": 1, "wait": {**wait, "timeout_s": seconds}} for seconds in (600, 0.05)]
        found = [await engine.run(plan(each, BOOK, input={"order": 17})) for each in waits]
        assert [result.status for result in found] == ["COMPLETED", "COMPENSATED"]
        assert found[1].steps[0].error is not None
        assert found[1].steps[0].error.error_code == "wait_timed_out"


async def test_a_saga_that_ends_while_the_store_still_learns_that_its_wait_is_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is told beside the call that follows the wait; the saga's end neither loses that nor trips over it."""
    async with opened(url) as engine:
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
        events = type(engine.store.event_store())
        over = events.over

        async def late(self: Any, *given: Any, **more: Any) -> Any:
            await until(lambda: has_ended(engine, "s"))
            return await over(self, *given, **more)

        monkeypatch.setattr(events, "over", late)
        await engine.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (await handle.wait()).status == "COMPLETED"
        assert {event.id: event.disposition for event in await engine.events()} == {"e": "taken"}


async def has_ended(engine: Coordinator, saga_id: str) -> bool:
    return (await engine.store.head(saga_id)).status == "COMPLETED"


async def test_an_event_that_does_not_fit_is_not_consumed(url: str) -> None:
    """Its sender is refused while the step waits. One that came early is refused by the saga, which waits on."""
    async with opened(url) as engine:
        await engine.send_event("paid", "s", {"other": 1}, event_id="early")
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
        with pytest.raises(EventRefused, match='"sum" is a required property'):
            await engine.send_event("paid", "s", {"sun": 7}, event_id="e")
        await engine.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (await handle.wait()).status == "COMPLETED"
        assert {event.id: event.disposition for event in await engine.events()} == {"early": "refused", "e": "taken"}


async def test_who_brings_an_event_after_it_was_refused_brings_nothing(url: str) -> None:
    """A worker found it due while the saga still had it; the store has no payload of it now, and the saga waits on."""
    async with opened(url) as engine:
        await engine.send_event("paid", "s", {"other": 1}, event_id="early")
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
        worker = delivering.Events(engine.store, engine.supervisor, engine._begin_late)
        await worker.bring(DueEvent(Channel("paid", "s"), Waiter("s", "1"), "early"))
        await engine.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (await handle.wait()).status == "COMPLETED"
        assert (await kinds(engine, "s")).count("MessageRefused") == 1


@pytest.mark.parametrize(
    ("name", "key", "event_id"),
    [
        ("a b", "k", None),
        ("", "k", None),
        ("paid", "", None),
        ("paid", "a\n", None),
        ("paid", "k", ""),
        ("paid", True, None),
    ],
)
async def test_what_is_no_event_is_refused(url: str, name: str, key: str, event_id: str | None) -> None:
    """A name, a key or an id that a plan, a command line or a list could not show."""
    async with opened(url) as engine:
        with pytest.raises(EventRefused):
            await engine.send_event(name, key, {}, event_id=event_id)
        assert await engine.events() == []


async def test_a_value_stands_in_for_an_event_that_never_comes(url: str) -> None:
    """``on_timeout`` with a value: the saga goes on with it; an event that comes later is late, and listed so."""
    wait = {"step_id": 1, "wait": {**PAID["wait"], "timeout_s": 0.05, "on_timeout": {"value": {"sum": 0}}}}
    async with opened(url) as engine:
        found = await engine.run(plan(wait, BOOK), saga_id="s")
        assert (found.status, found.steps[1].output) == ("COMPLETED", {"sum": 0})
        assert (await engine.send_event("paid", "s", {"sum": 7}))[1:] == ("late", False, "s", "1", "")
        assert [event.disposition for event in await engine.events()] == ["late"]


async def test_an_event_after_the_cancel_is_late(url: str) -> None:
    """Whoever comes second is told: the saga has turned around, and the event is nobody's."""
    async with opened(url) as engine:
        await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
        assert (await engine.cancel("s")).status == "COMPENSATED"
        assert (await engine.send_event("paid", "s", {"sum": 7})).disposition == "late"


PAYS = {**PAID, "rollback": {"tool": "refund", "params": {"sum": "$output.step_1.sum"}}}


async def test_what_an_event_stands_for_is_undone_in_its_turn(url: str) -> None:
    """The rollback of a wait binds the payload and runs in the order of the undos, once; a time-out has nothing to undo."""
    calls: list[str] = []

    @tool
    async def refund(sum: int) -> dict[str, int]:  # noqa: A002 - a param
        calls.append(f"refund {sum}")
        return {}

    @tool(undo="drop")
    async def keep(what: str) -> dict[str, str]:
        calls.append(what)
        return {}

    @tool
    async def drop(what: str) -> dict[str, str]:
        calls.append(f"drop {what}")
        return {}

    def keeps(step_id: int, what: str) -> dict[str, Any]:
        return {"step_id": step_id, "tool": "keep", "params": {"what": what}}

    never = {"step_id": 3, "wait": {"event": "never", "timeout_s": 0.02}}
    vain = {**PAYS, "wait": {**PAID["wait"], "timeout_s": 0.02, "on_timeout": {"value": {"sum": 0}}}}
    async with Coordinator.open(url, [refund, keep, drop], on_escalation=()) as engine:
        await engine.send_event("paid", "s", {"sum": 7})
        found = await engine.run(plan(keeps(0, "a"), PAYS, keeps(2, "b"), never), saga_id="s")
        assert (found.status, found.body["report"]["compensated"]) == ("COMPENSATED", [0, 1, 2])
        assert calls == ["a", "b", "drop b", "refund 7", "drop a"]
        assert found.body["steps"][1]["compensation"]["tool"] == "refund"
        found = await engine.run(plan(vain, never), saga_id="t")
        assert (found.status, found.body["report"]["clean"], found.steps[0].status) == (
            "COMPENSATED",
            True,
            "SUCCEEDED",
        )
        await engine.send_event("paid", "u", {"sum": 9})
        assert (await engine.run(plan(PAYS), saga_id="u")).status == "COMPLETED"
        undone = await engine.undo("u")
        assert isinstance(undone, SagaResult)
        assert undone.status == "COMPENSATED"
        assert calls[5:] == ["refund 9"]


# --- crashes ---------------------------------------------------------------------------------------------------------


async def test_a_sender_that_dies_loses_no_event(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is in the store, and nobody told the saga: a worker does."""
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    async with opened(url) as engine:
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
        event = StoredEvent("e", b'{"sum":7}')
        await engine.store.event_store().send(Channel("paid", "s"), event, keep_ms=60_000, most=9)
        worker = asyncio.create_task(engine.work())
        assert (await handle.wait()).status == "COMPLETED"
        worker.cancel()


async def test_an_owner_that_dies_before_it_settles_an_event(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has the event, the store does not know: it counts once, and is settled from the journal."""
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    store = FaultyStore(
        open_store(url),
        Faults(
            [Fault("event_over", number, "before", "away") for number in range(1, 9)], actions={"away": unreachable}
        ),
    )
    async with Coordinator.open(store, [book, unbook], on_escalation=()) as engine, opened(url) as other:
        handle = await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(other, "s"))
        await other.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (await handle.wait()).status == "COMPLETED"
        assert [event.disposition for event in await other.events()] == ["held"]
        await tell_again(other)
        assert [event.disposition for event in await other.events()] == ["taken"]
        assert (await kinds(other, "s")).count("StepSucceeded") == 2


async def tell_again(engine: Coordinator) -> None:
    """What a worker does from time to time."""
    events = delivering.Events(engine.store, engine.supervisor, engine._begin_late)
    await events.tell_again(range(engine.store.work().count))


def unreachable(_fault: Fault) -> None:
    raise StoreUnavailable("it cannot be reached")


async def test_a_wait_survives_its_owner(url: str) -> None:
    """Another owner goes on waiting; an event that came between the two is not lost."""
    async with opened(url) as engine:
        await engine.submit(plan(PAID, BOOK), saga_id="s")
        await until(lambda: is_awaited(engine, "s"))
    async with opened(url) as engine:
        await engine.send_event("paid", "s", {"sum": 7})
        assert (await engine.resume("s")).status == "COMPLETED"
