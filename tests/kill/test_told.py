"""A saga has ended, and its process is killed before it told those who wait for that: they hear it all the same.

Nobody else looks at a child that has ended: it stands in the queue until somebody has told. An undo that takes it in
between, and may be killed as well, leaves it there. An event that the store holds stands in a queue of its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.polling import due_now, eventually, lease_runs_out, opened
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace
from tests.support.servers import EmbeddedFolder

CHILD = {"plan": {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "b"}}]}}
PARENT = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}, {"step_id": 2, "saga": CHILD}]}
#: Nobody pays in time, and the saga completes; what comes later is refunded.
REFUND = {"tool": "refund", "params": {"sum": "$output.step_2.sum", "of": "$output.step_1.ref"}}
WAIT = {"event": "paid", "timeout_s": 1000, "on_timeout": "continue", "on_late": REFUND}
UNPAID = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}, {"step_id": 2, "wait": WAIT}]}
#: Who takes the ended saga before a worker tells what follows: nobody, an undo, or one that is killed at a place.
TAKERS = ["", "undo", "acquire:1:after", "append:1:after"]


class Stage:
    """A place, and the processes that play their parts in it."""

    def __init__(self, processes: Processes, new_place: NewPlace, url: str) -> None:
        self.processes = processes
        self.place: Place = new_place(url)

    def run(self, part: str, **more: Any) -> Any:
        return self.processes.run(part, player="told", **{**self.place.told, **more})

    async def taken(self, saga_id: str, taker: str) -> bool:
        """Somebody undoes the saga that has ended, and perhaps dies; its time in the queue comes, if it is there."""
        if taker:
            ended = self.run("undo", of=saga_id, fault=taker if ":" in taker else "")
            assert ended.killed == (":" in taker), ended.told
        async with opened(self.place.url) as store:
            if (await store.head(saga_id)).owner:
                await lease_runs_out(self.place.url, saga_id)
        return await due_now(self.place.url, saga_id)


@pytest.mark.parametrize("taker", TAKERS)
async def test_a_parent_hears_the_end_of_a_child_whose_process_is_killed_before_it_tells(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, taker: str
) -> None:
    """The parent goes on, and the end counts once; nothing but that tells it."""
    stage = Stage(processes, new_place, embedded.url)
    parent, child = stage.place.saga_id, f"{stage.place.saga_id}.2"
    assert stage.run("submit", plan=PARENT, ends=[parent], fault="post:1:before").killed
    async with opened(stage.place.url) as store:
        assert ((await store.head(child)).status, (await store.head(parent)).owner) == ("COMPLETED", "")
    assert await stage.taken(child, taker), "nobody would look for it any more"
    records = stage.run("work", ends=[parent]).told["history"][parent]
    assert [record["status"] for record in records if record["k"] == "ChildEnded"] == ["COMPLETED"]
    assert records[-1]["k"] == "SagaCompleted"


@pytest.mark.parametrize("taker", TAKERS)
async def test_what_is_done_about_a_late_event_begins_although_the_process_of_the_wait_is_killed(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, taker: str
) -> None:
    """The store does not know that the wait is over, and holds an answer for it: the refund is made, once."""
    stage = Stage(processes, new_place, embedded.url)
    saga_id = stage.place.saga_id
    assert stage.run("submit", plan=UNPAID, ends=[saga_id], fault="event_register:1:after").killed
    assert stage.run("moment", fault="event_over:1:before").killed
    async with opened(stage.place.url) as store:
        assert (await store.head(saga_id)).status == "COMPLETED"
    await stage.taken(saga_id, taker)
    worker = processes.start("work", player="told", **{**stage.place.told, "ends": ["never"]})

    def refunds() -> list[Any]:
        return [line.value for line in stage.place.ledger.lines() if (line.what, line.tool) == ("applied", "refund")]

    await eventually(refunds, "the refund")
    worker.kill()
    worker.wait()
    assert refunds() == [{"sum": 7, "of": "a"}]
