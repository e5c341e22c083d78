"""A process that is killed while its call waits for a guard, and one that is killed right after the wait.

The tool has neither key nor probe: of a call in doubt only a person can say whether it happened.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import pytest

from tests.kill.polling import eventually, opened, ticket_runs_out
from tests.kill.processes import Processes, Running
from tests.kill.scenarios import NewPlace, Place
from tests.kill.world import step
from tests.support.servers import EmbeddedFolder

HOLD = {"step_id": 1, "tool": "hold", "params": {"room": "blue"}}
ALONE: dict[str, Any] = {"steps": [HOLD]}
#: Beside another step a call has a task of its own, and what is to be written goes with whatever else there is.
BESIDE: dict[str, Any] = {"steps": [HOLD, {**step(2), "depends_on": []}]}


async def kinds(place: Place, saga_id: str) -> list[str]:
    """The kinds of a saga's records so far."""
    async with opened(place.url) as store:
        if not any(head.saga_id == saga_id for head in await store.list()):
            return []
        return [str(msgspec.json.decode(data)["k"]) for data in await store.read(saga_id)]


class Room:
    """A saga that holds the room until it is told to leave, and another one that waits for it."""

    def __init__(self, processes: Processes, place: Place) -> None:
        self.processes = processes
        self.place = place
        self.home = place.ledger.path.parent
        self.how = {"player": "growing", "variant": "bare", **place.told}
        os.mkfifo(self.home / "gate-a")
        os.mkfifo(self.home / "begun-a")

    async def occupied(self) -> Running:
        """The first saga is in."""
        holder = self.processes.start("submit", **{**self.how, "plan": ALONE, "saga_id": "a"})
        assert await asyncio.to_thread((self.home / "begun-a").read_text) == "begun"
        return holder

    async def wanted(self, plan: dict[str, Any], fault: str = "") -> Running:
        """The second saga waits, and that is in its journal."""
        waiter = self.processes.start("submit", **{**self.how, "plan": plan, "saga_id": "b", "fault": fault})

        async def written() -> bool:
            assert not waiter.has_ended(), waiter.wait()
            return "StepQueued" in await kinds(self.place, "b")

        await eventually(written, "the mark of a call that waits")
        return waiter

    async def emptied(self, holder: Running) -> None:
        """The first saga leaves."""
        await asyncio.to_thread((self.home / "gate-a").write_text, "go")
        assert (await asyncio.to_thread(holder.told))["final"]["status"] == "COMPLETED"

    async def died(self, waiter: Running) -> None:
        """The second saga's process has been killed, and its place in the queue is not kept any longer."""
        assert (await asyncio.to_thread(waiter.wait)).killed
        await ticket_runs_out(self.place.url, "room:blue", "b")

    async def resumed(self, plan: dict[str, Any]) -> dict[str, Any]:
        """What came of the second saga when somebody went on with it."""
        case = {**self.how, "plan": plan, "saga_id": "b"}
        return (await asyncio.to_thread(self.processes.run, "resume-all", **case)).told

    def sent(self) -> int:
        """How often the second saga's call was made."""
        return len([line for line in self.place.ledger.lines("b", what="sent") if line.tool == "hold"])


@pytest.mark.parametrize("plan", [ALONE, BESIDE], ids=["alone", "beside"])
async def test_a_call_that_only_waited_when_its_process_was_killed_is_not_in_doubt(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: dict[str, Any]
) -> None:
    """Nobody is asked about it, and it is made once by whoever goes on."""
    room = Room(processes, new_place(embedded.url))
    holder = await room.occupied()
    waiter = await room.wanted(plan)
    waiter.kill()
    await room.died(waiter)
    await room.emptied(holder)
    told = await room.resumed(plan)
    assert told["resumed"]["status"] == "COMPLETED"
    assert "StepBegun" not in [record["k"] for record in told["before"]]
    assert not {"StepInDoubt", "StepEscalated"} & {record["k"] for record in told["history"]}
    assert room.sent() == 1


async def test_a_wait_that_has_just_begun_leaves_no_doubt(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Killed in the moment in which it is durable that the call waits: it was not made, and nobody is asked."""
    room = Room(processes, new_place(embedded.url))
    holder = await room.occupied()
    waiter = processes.start("submit", **{**room.how, "plan": ALONE, "saga_id": "b", "fault": "append:2:after"})
    await room.died(waiter)
    await room.emptied(holder)
    told = await room.resumed(ALONE)
    assert [record["k"] for record in told["before"]] == ["SagaStarted", "StepIntended", "StepQueued"]
    assert told["resumed"]["status"] == "COMPLETED"
    assert room.sent() == 1


async def test_the_mark_that_it_begins_decides(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Killed right before the call's beginning is durable, it was not made. Killed right after, nobody can tell."""
    before = Room(processes, new_place(embedded.url))
    holder = await before.occupied()
    waiter = await before.wanted(ALONE, "append:3:before")
    await before.emptied(holder)
    await before.died(waiter)
    told = await before.resumed(ALONE)
    assert [record["k"] for record in told["before"]][-1] == "StepQueued"
    assert told["resumed"]["status"] == "COMPLETED"
    assert before.sent() == 1

    after = Room(processes, new_place(embedded.url))
    holder = await after.occupied()
    waiter = await after.wanted(ALONE, "append:3:after")
    await after.emptied(holder)
    await after.died(waiter)
    told = await after.resumed(ALONE)
    assert [record["k"] for record in told["before"]][-1] == "StepBegun"
    assert [question["kind"] for question in told["resumed"]["questions"]] == ["in-doubt"]
    assert after.sent() == 0
