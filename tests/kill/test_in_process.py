"""Cancellation inside one process: of a wait, of the coordinator, of everything at once (pitfalls 1, 14, 20, 21)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from saga_engine import Coordinator
from saga_engine.core.records import Record, StepIntended
from saga_engine.errors import StoreUnavailable
from saga_engine.ports import Store
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.ledger import Line
from tests.kill.conftest import Place
from tests.kill.gates import Gate
from tests.kill.laws import in_doubt
from tests.kill.polling import eventually
from tests.kill.processes import Processes
from tests.kill.world import TOOLS, World, step

NewPlace = Callable[[str], Place]

PLAN = {"steps": [step(1), step(2, "wait"), step(3)]}
LAST = {"steps": [step(1), step(2, "wait")]}


@pytest.fixture
def place(new_place: NewPlace, server_url: str) -> Place:
    """A place whose ledger the tools of this process write."""
    place = new_place(server_url)
    World.ledger, World.folder, World.faults = place.ledger, Path(place.ledger.path).parent, Faults()
    return place


@pytest.fixture
def gate(place: Place) -> Gate:
    return Gate(place)


def sent(place: Place) -> list[str]:
    return [line.step_id for line in place.ledger.lines(what="sent")]


def effects(place: Place) -> list[Line]:
    """What the gated step has done."""
    return [line for line in place.ledger.lines(what="applied") if line.step_id == "2"]


async def test_cancelling_a_wait_leaves_the_saga_running(place: Place, gate: Gate) -> None:
    """`asyncio.wait_for(coordinator.run(…))` gives up waiting, not the saga: the call goes on, and so do the steps."""
    async with Coordinator.open(place.url, TOOLS["bare"]) as coordinator:
        waiting = asyncio.create_task(coordinator.run(PLAN, saga_id=place.saga_id))
        await asyncio.to_thread(gate.wait_for_the_call)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await coordinator.show(place.saga_id)).status == "RUNNING"
        await asyncio.to_thread(gate.open)
        outcome = await (await coordinator.submit(PLAN, saga_id=place.saga_id)).wait()
    assert outcome.status == "COMPLETED"
    assert sent(place) == ["1", "2", "3"]
    assert place.ledger.compare(outcome, PLAN) == []


async def test_closing_the_coordinator_awaits_the_call_in_flight(place: Place, gate: Gate) -> None:
    """The call's result is journalled, nothing more is started, the saga is given up, and another process goes on."""
    async with Coordinator.open(place.url, TOOLS["bare"]) as coordinator:
        await coordinator.submit(PLAN, saga_id=place.saga_id)
        await asyncio.to_thread(gate.wait_for_the_call)
        closing = asyncio.create_task(coordinator.close())
        await eventually(lambda: coordinator.supervisor.closing, "the coordinator to begin closing")
        assert not closing.done()
        await asyncio.to_thread(gate.open)
        await closing
    assert sent(place) == ["1", "2"]

    async with Coordinator.open(place.url, TOOLS["bare"]) as other:
        history = await other.history(place.saga_id)
        assert [record["k"] for record in history[-2:]] == ["StepIntended", "StepSucceeded"]
        assert (await other.store.head(place.saga_id)).owner == ""
        outcome = await other.resume(place.saga_id)
    assert outcome.status == "COMPLETED"
    assert sent(place) == ["1", "2", "3"]
    assert place.ledger.compare(outcome, PLAN) == []


@pytest.mark.parametrize("plan", [PLAN, LAST], ids=["in the middle", "the last step"])
async def test_a_call_that_is_cancelled_in_flight_is_in_doubt(place: Place, gate: Gate, plan: dict) -> None:
    """The task is cancelled hard while the request is out: the effect happens all the same. Nothing claims otherwise."""
    async with Coordinator.open(place.url, TOOLS["bare"]) as coordinator:
        handle = await coordinator.submit(plan, saga_id=place.saga_id)
        await asyncio.to_thread(gate.wait_for_the_call)
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"saga {place.saga_id}"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handle.wait()
    await asyncio.to_thread(gate.open)

    async with Coordinator.open(place.url, TOOLS["bare"]) as other:
        assert in_doubt(await other.history(place.saga_id)) == {("2", "forward")}
        outcome = await other.resume(place.saga_id)
        assert (outcome.status, outcome.report["clean"], outcome.report["unresolved"]) == ("ESCALATED", False, [2])
        assert sent(place) == ["1", "2"]  # asked about, not called again
        # The request was out: its thread, which nobody can kill, still makes it happen.
        await eventually(lambda: effects(place), "the effect of the abandoned call")
        outcome = await other.resolve(place.saga_id, 2, "happened", output=effects(place)[0].output)
    assert outcome.status == "COMPLETED"
    assert place.ledger.compare(outcome, plan) == []


def test_a_program_that_ends_in_mid_call(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """`asyncio.run` ends and cancels all tasks while a call is in flight: it is in doubt, and a person is asked."""
    place = new_place(server_url)
    gate = Gate(place)
    # The program itself waits until the call is out; its thread may end with it before it reaches the gate.
    told = processes.start("abandon", plan=PLAN, variant="bare", **place.told).told()
    assert told["abandoned"]
    gate.open_for_good()

    resumed = processes.run("resume-all", variant="bare", **place.told).told
    assert in_doubt(resumed["before"]) == {("2", "forward")}
    assert [question["kind"] for question in resumed["resumed"]["questions"]] == ["in-doubt"]
    assert resumed["resumed"]["report"]["clean"] is False
    assert resumed["final"]["status"] == "COMPENSATED"
    assert place.ledger.compare(resumed["final"], PLAN) == []


async def test_a_message_for_a_saga_that_stops_does_not_keep_it_from_stopping(place: Place, gate: Gate) -> None:
    """A message that comes while parallel calls in flight are awaited waits for whoever goes on with the saga."""
    plan = {"steps": [step(1) | {"depends_on": []}, step(2, "wait") | {"depends_on": []}]}
    async with Coordinator.open(place.url, TOOLS["keyed"]) as other:
        manager = Coordinator.open(place.url, TOOLS["keyed"])
        coordinator = await manager.__aenter__()
        await coordinator.submit(plan, saga_id=place.saga_id)
        await asyncio.to_thread(gate.wait_for_the_call)
        closing = asyncio.create_task(manager.__aexit__(None, None, None))
        await eventually(lambda: coordinator.supervisor.find(place.saga_id).driver.stopping, "the saga to stop")
        await other.cancel(place.saga_id)
        coordinator.supervisor.notify(place.saga_id)
        await asyncio.sleep(0)
        gate.open()
        await closing
        outcome = await other.resume(place.saga_id)
    assert outcome.status == "COMPENSATED"


class SlowToRelease(FaultyStore):
    """A store that is away when a saga is to be given up, and says so only when asked to."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        super().__init__(inner, faults)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def release(self, saga_id: str, epoch: int, due_ms: int = 0) -> None:
        self.asked.set()
        await self.answer.wait()
        await super().release(saga_id, epoch, due_ms)


async def test_a_lease_that_is_lost_while_a_saga_is_given_up(place: Place) -> None:
    """In an outage both happen at about the same time. Whoever waits is told of the outage, not of a cancellation."""
    store = SlowToRelease(open_store(place.url), Faults("append:2:before:raise"))
    async with Coordinator.open(store, TOOLS["bare"]) as coordinator:
        handle = await coordinator.submit({"steps": [step(1)]}, saga_id=place.saga_id)
        await store.asked.wait()
        (await coordinator.supervisor.lease()).lose()
        store.answer.set()
        with pytest.raises(StoreUnavailable):
            await handle.wait()
    await store.close()


async def test_a_lease_that_is_over_here_before_it_is_over_on_the_server(place: Place) -> None:
    """This process always believes the earlier end: it opens another lease instead of trying its luck with the old one."""
    intents = []

    def listen(_saga_id: str, record: Record) -> None:
        if isinstance(record, StepIntended) and record.step == "1":
            intents.append(record.attempt)
            if len(intents) == 1:
                lease.share_of(place.saga_id).valid_until_s = 0.0

    async with Coordinator.open(place.url, TOOLS["keyed"], lease_s=3.0, observers=[listen]) as coordinator:
        lease = await coordinator.supervisor.lease()
        outcome = await coordinator.run({"steps": [step(1)]}, saga_id=place.saga_id)
    assert (outcome.status, intents) == ("COMPLETED", [1, 2])
    assert [line.attempt for line in place.ledger.lines(what="sent")] == [2]
