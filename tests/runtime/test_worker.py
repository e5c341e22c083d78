"""Workers of one process: what they take, what they give back, and what becomes of sagas that nobody drives."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.errors import Interrupted, QueueFull, SagaNotFound, SettingInvalid, StoreRefused, StoreUnavailable
from saga_engine.ports import Escalation, Question, Taking
from saga_engine.runtime import audit
from saga_engine.runtime import worker as working
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.kill.polling import eventually

ONCE = RetryPolicy(max_attempts=1)
#: Longer than a worker keeps a waiting saga in memory.
LATER = RetryPolicy(max_attempts=2, base_s=2.3, max_s=2.3, jitter=False)

AN_HOUR_MS = 3_600_000

LOG: list[str] = []
GATES: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    LOG.clear()
    GATES.clear()
    yield
    for gate in GATES.values():
        gate.set()


@tool(undo="unbook", retry=ONCE)
async def book(item: str) -> dict:
    LOG.append(f"book {item}")
    return {"ref": item}


@tool
async def unbook(ref: str) -> dict:
    LOG.append(f"unbook {ref}")
    return {}


@tool(undo="unbook", timeout_s=600, retry=ONCE)
async def block(item: str) -> dict:
    """Say that it has begun, and wait at its gate."""
    LOG.append(f"begun {item}")
    await GATES.setdefault(item, asyncio.Event()).wait()
    LOG.append(f"block {item}")
    return {"ref": item}


@tool(undo="unbook", retry=LATER)
async def tarry(item: str, ctx: ToolContext) -> dict:
    """Not done at the first attempt."""
    LOG.append(f"try {item}")
    if ctx.attempt == 1:
        raise ToolError("later", error_code="busy", retryable=True)
    return {"ref": item}


@tool(undo="unbook", retry=ONCE)
async def lose(item: str) -> dict:
    """It happens, and its answer is lost."""
    LOG.append(f"lose {item}")
    raise ConnectionError("the line is dead")


TOOLS = [book, unbook, block, tarry, lose]


def plan(*names: str) -> dict[str, Any]:
    return {
        "steps": [{"step_id": at + 1, "tool": name, "params": {"item": f"{name}{at}"}} for at, name in enumerate(names)]
    }


@pytest.fixture
async def store():
    """One store for all coordinators of a test."""
    store = open_store("memory://")
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def worker(store: Any, tools: Any = TOOLS, *, how: dict[str, Any] | None = None, **options: Any):
    """A coordinator that works; it stops with the block."""
    async with Coordinator.open(store, tools, **options) as coordinator:
        task = asyncio.create_task(coordinator.work(**(how or {})))
        await asyncio.sleep(0)  # it has begun
        yield coordinator
    await task


async def submit(store: Any, *sagas: tuple[str, dict[str, Any]], tools: Any = TOOLS) -> None:
    async with Coordinator.open(store, tools) as coordinator:
        for saga_id, body in sagas:
            await coordinator.submit(body, saga_id=saga_id, detach=True)


async def ended(store: Any, *saga_ids: str) -> set[str]:
    """Wait for the end, or the rest, of each; how they stand."""
    async with Coordinator.open(store, TOOLS) as coordinator, asyncio.timeout(30):
        return {(await coordinator.wait(saga_id)).status for saga_id in saga_ids}


async def begun(item: str) -> None:
    await eventually(lambda: f"begun {item}" in LOG, f"the call of {item}")


# --- taking ----------------------------------------------------------------------------------------------------------


async def test_submitted_sagas_are_driven_to_their_end(store) -> None:
    """A detached submission calls nothing; a worker does, each step once, and reports what it did."""
    await submit(store, *((f"s{number}", plan("book", "book")) for number in range(20)))
    assert LOG == []
    async with Coordinator.open(store, TOOLS) as coordinator:
        task = asyncio.create_task(coordinator.work(concurrency=4))
        assert await ended(store, *(f"s{number}" for number in range(20))) == {"COMPLETED"}
    report = await task
    assert (report.taken, report.ended, report.begun, report.driving) == (20, {"COMPLETED": 20}, 40, 0)
    assert Counter(LOG) == {"book book0": 20, "book book1": 20}


async def test_no_more_at_a_time_than_told(store) -> None:
    """What a worker has no room for waits in the store, for others."""
    await submit(store, *((f"s{number}", plan("block")) for number in range(5)))
    async with worker(store, how={"concurrency": 2}) as first:
        await eventually(lambda: len(LOG) == 2, "two calls")
        await eventually(lambda: _reported(first, driving=2), "the report")
        assert (await first.overview()).queued == 3
        async with worker(store):
            await eventually(lambda: len(LOG) == 5, "the other three")
            GATES["block0"].set()
            assert await ended(store, *(f"s{number}" for number in range(5))) == {"COMPLETED"}


async def _reported(coordinator: Coordinator, **wanted: Any) -> bool:
    reports = [json.loads(body) for body in (await coordinator.overview()).reports.values()]
    return any(all(report[name] == value for name, value in wanted.items()) for report in reports)


async def test_long_sagas_leave_their_room_to_others(store) -> None:
    """All but one place are taken by calls that take for ever: the last place goes on serving, saga after saga."""
    await submit(store, *((f"long{number}", plan("block")) for number in range(7)))
    async with worker(store, how={"concurrency": 8}) as coordinator:
        await eventually(lambda: len(LOG) == 7, "the long calls")
        await submit(store, ("last", plan("book", "block")))
        await begun("block1")
        await eventually(lambda: _reported(coordinator, driving=8), "the report")
        short = [f"short{number}" for number in range(3)]
        await submit(store, *((saga_id, plan("book")) for saga_id in short))
        GATES["block1"].set()
        assert await ended(store, "last", *short) == {"COMPLETED"}
        GATES["block0"].set()


async def test_partitions_divide_the_sagas(store) -> None:
    """A worker serves the parts that it is told and no others."""
    ids = [f"s{number}" for number in range(64)]
    await submit(store, *((saga_id, plan("book")) for saga_id in ids))
    count = store.work().count
    async with Coordinator.open(store, TOOLS) as one, Coordinator.open(store, TOOLS) as other:
        tasks = [
            asyncio.create_task(one.work(partitions=range(count // 2))),
            asyncio.create_task(other.work(partitions=range(count // 2, count))),
        ]
        assert await ended(store, *ids) == {"COMPLETED"}
    reports = [await task for task in tasks]
    assert sum(report.taken for report in reports) == 64
    assert all(report.taken > 0 for report in reports)
    assert len(LOG) == 64


@pytest.mark.parametrize("how", [{"concurrency": 0}, {"partitions": []}, {"partitions": [-1]}, {"partitions": [99]}])
async def test_a_worker_that_could_not_work_says_so(store, how) -> None:
    """No room, no partitions or partitions that are not there are refused at once."""
    async with Coordinator.open(store, TOOLS) as coordinator:
        with pytest.raises(SettingInvalid):
            await coordinator.work(**how)


# --- lost answers ----------------------------------------------------------------------------------------------------


async def test_a_lost_answer_to_a_request_loses_no_saga(store) -> None:
    """What the request had taken is driven at once, under the epoch that it got: nobody waits for a lease to end."""
    await submit(store, ("s1", plan("book")), ("s2", plan("book")))
    async with worker(FaultyStore(store, Faults("work_take:1:after:raise"))) as coordinator:
        assert await ended(store, "s1", "s2") == {"COMPLETED"}
        for saga_id in ("s1", "s2"):
            assert (await coordinator.history(saga_id))[1]["epoch"] == 1
    assert LOG == ["book book0"] * 2


class Deaf:
    """A store whose answers to requests for work are lost from some moment on."""

    def __init__(
        self, store: Any, error: type[Exception] = StoreUnavailable, *, heals_at_the_stop: bool = False
    ) -> None:
        self._store = store
        self._error = error
        self._heals_at_the_stop = heals_at_the_stop
        self.asked = 0
        self.heals = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def work(self) -> Any:
        return _DeafWork(self._store.work(), self)

    def stopped(self) -> None:
        """A worker that stops asks once more, for what the requests without an answer took."""
        if self._heals_at_the_stop:
            self.heals.set()

    async def answer(self, taking: Taking) -> Taking:
        self.asked += 1
        if not self.heals.is_set():
            raise self._error("injected", hint="")
        return taking


class _DeafWork:
    def __init__(self, work: Any, deaf: Deaf) -> None:
        self._work = work
        self._deaf = deaf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    async def take(self, owner: str, nonce: str, limit: int, partitions: Any) -> Taking:
        if not limit:
            self._deaf.stopped()
        return await self._deaf.answer(await self._work.take(owner, nonce, limit, partitions))


@pytest.mark.parametrize("heals", [True, False])
async def test_a_worker_that_stops_before_it_got_its_answer_leaves_nothing_behind(store, heals, monkeypatch) -> None:
    """What the unanswered request took is given back, or found by others among what a gone owner left."""
    if heals:
        monkeypatch.setattr(working, "_GIVE_BACK_S", 60.0)  # however slow this machine is
    await submit(store, ("s1", plan("book")))
    deaf = Deaf(store, heals_at_the_stop=heals)
    async with worker(deaf):
        await eventually(lambda: deaf.asked >= 2, "the lost answers")
        assert (await store.head("s1")).owner != ""
    if heals:
        assert (await store.head("s1")).owner == ""
    async with worker(store):
        assert await ended(store, "s1") == {"COMPLETED"}
    assert LOG == ["book book0"]


class Slow(Deaf):
    """A store that has taken the sagas, and whose answer is on its way."""

    async def answer(self, taking: Taking) -> Taking:
        self.asked += len(taking.sagas)
        if taking.sagas:
            await self.heals.wait()
        return taking


async def test_a_worker_that_is_cancelled_while_it_asks(store) -> None:
    """It waits for the answer, and gives back what came with it, although its coordinator stays open."""
    await submit(store, ("s1", plan("book")))
    slow = Slow(store)
    async with Coordinator.open(slow, TOOLS) as coordinator:
        task = asyncio.create_task(coordinator.work())
        await eventually(lambda: slow.asked == 1, "the request")
        task.cancel()
        slow.heals.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.head("s1")).owner == ""
        assert (await coordinator.overview()).queued == 1
    assert LOG == []


@pytest.mark.parametrize("error", [StoreUnavailable, StoreRefused])
async def test_an_outage_is_waited_out(store, error, caplog) -> None:
    """However long it lasts, the worker goes on afterwards; the outage is told once, not with each request."""
    await submit(store, ("s1", plan("book")))
    deaf = Deaf(store, error)
    async with worker(deaf):
        await eventually(lambda: deaf.asked >= 4, "the requests")
        deaf.heals.set()
        assert await ended(store, "s1") == {"COMPLETED"}
    assert [record.message for record in caplog.records if "no work can be had" in record.message] != []
    assert len([record for record in caplog.records if record.name == "saga_engine.worker"]) == 2


async def test_a_lost_answer_to_an_acquire_leaves_the_saga_to_workers(store, monkeypatch) -> None:
    """Whoever meant to drive it is told that the store is away; it is released with the lease, and no audit needs to find it."""
    monkeypatch.setattr(audit, "EVERY_S", 3600.0)
    await submit(store, ("s1", plan("book")))
    async with Coordinator.open(FaultyStore(store, Faults("acquire:1:after:raise")), TOOLS) as coordinator:
        with pytest.raises(StoreUnavailable):
            await coordinator.resume("s1")
    async with worker(store):
        assert await ended(store, "s1") == {"COMPLETED"}


# --- timers ----------------------------------------------------------------------------------------------------------


async def test_a_long_wait_is_spent_in_the_store(store) -> None:
    """While a step backs off, no process holds its saga; when its time has come a worker goes on with it."""
    await submit(store, ("s1", plan("tarry", "book")))
    async with worker(store) as coordinator:
        await eventually(lambda: _timed(coordinator), "the saga to go back")
        head = await store.head("s1")
        assert (head.owner, head.status) == ("", "RUNNING")
        await eventually(lambda: _reported(coordinator, driving=0, returned=1), "the report")
        assert await ended(store, "s1") == {"COMPLETED"}
    assert LOG == ["try tarry0", "try tarry0", "book book1"]


async def _timed(coordinator: Coordinator) -> bool:
    return (await coordinator.overview()).timed == 1


async def test_somebody_who_waits_in_the_workers_own_process_gets_the_end(store) -> None:
    """`resume` of a saga that the worker drives keeps it here until it ends; a timer does not end the wait."""
    await submit(store, ("s1", plan("block", "tarry")), ("s2", plan("tarry")))
    async with worker(store) as coordinator:
        await begun("block0")
        waiting = asyncio.create_task(coordinator.resume("s1"))
        await asyncio.sleep(0)
        GATES["block0"].set()
        assert (await waiting).status == "COMPLETED"
        assert (await coordinator.submit(plan("tarry"), saga_id="s2")).saga_id == "s2"


async def test_an_approval_expires_with_nobody_but_a_worker(store) -> None:
    """The question's time is a timer of the queue: the call is denied, and the saga goes on to its end."""
    rule = {"name": "ask", "tools": ["book"], "verdict": "ask", "expires_s": 1.0}
    await submit(store, ("s1", plan("book")))
    async with worker(store, policy={"rules": [rule]}) as coordinator:
        await eventually(lambda: _status(store, "COMPENSATED"), "the end")
        body = (await coordinator.show("s1")).body
        assert body["steps"][0]["error"]["error_code"] == "approval_expired"
    assert LOG == []


async def _status(store: Any, status: str, saga_id: str = "s1") -> bool:
    return (await store.head(saga_id)).status == status


async def test_people_are_reminded_with_nobody_but_a_worker(store) -> None:
    """A saga that waits for an answer costs no process anything, and people hear of it again."""
    heard: list[int] = []

    async def hook(question: Question) -> None:
        heard.append(question.round)

    await submit(store, ("s1", plan("lose")))
    async with worker(store, on_escalation=Escalation(hooks=[hook], remind_s=0.2)):
        await eventually(lambda: len(heard) >= 3, "two reminders")
    assert heard[:3] == [0, 1, 2]


@pytest.mark.parametrize("down_in_round", [0, 1])
async def test_people_are_told_at_last(store, down_in_round) -> None:
    """The line to people is down for longer than a worker keeps a saga: alert and reminder are tried again from the queue."""
    heard: list[int] = []
    tried: list[int] = []

    async def hook(question: Question) -> None:
        tried.append(question.round)
        if question.round == down_in_round and tried.count(question.round) < 4:
            raise ConnectionError("the line is dead")
        heard.append(question.round)

    await submit(store, ("s1", plan("lose")))
    remind_s = 0.2 if down_in_round else 3600.0
    async with worker(store, on_escalation=Escalation(hooks=[hook], remind_s=remind_s)) as coordinator:
        await eventually(lambda: down_in_round in heard, "the alert")
        await eventually(lambda: _released(store), "the rest")
        assert (await coordinator.show("s1")).status == "ESCALATED"
    assert tried.count(down_in_round) == 4


async def _released(store: Any) -> bool:
    return (await store.head("s1")).owner == ""


# --- what cannot be driven here ---------------------------------------------------------------------------------------


async def test_a_saga_whose_tool_is_missing_is_left_for_another_worker(store) -> None:
    """It goes back exactly as it was, and the worker that has the tool drives it; the reason is told once."""
    await submit(store, ("s1", plan("book")), ("s2", plan("book")))
    async with worker(store, [tarry, unbook]) as blind:
        await eventually(lambda: _reported(blind, refused=2, driving=0), "the refusals")
        assert len(await blind.history("s1")) == 1
        async with worker(store):
            assert await ended(store, "s1", "s2") == {"COMPLETED"}
    assert LOG == ["book book0"] * 2


# --- messages ------------------------------------------------------------------------------------------------------------


async def test_an_answer_is_heard_by_the_worker_that_drives(store) -> None:
    """A cancel from elsewhere reaches the saga's owner, which undoes it."""
    await submit(store, ("s1", plan("book", "block", "book")))
    async with worker(store):
        await begun("block1")
        async with Coordinator.open(store, TOOLS) as other:
            assert (await other.cancel("s1")).status == "RUNNING"
        await until_told(store, "s1")
        GATES["block1"].set()
        assert await ended(store, "s1") == {"COMPENSATED"}
    assert LOG == ["book book0", "begun block1", "block block1", "unbook block1", "unbook book0"]


async def until_told(store: Any, saga_id: str) -> None:
    """Until the owner has heard of its messages: the answer to a renewal brings the news. The second one is to be sure."""
    left_ms = [(await store.head(saga_id)).owner_ttl_ms]

    async def renewed_twice() -> bool:
        left_ms.append((await store.head(saga_id)).owner_ttl_ms)
        return sum(later > earlier for earlier, later in itertools.pairwise(left_ms)) >= 2

    await eventually(renewed_twice, "two renewals of the lease")


async def test_an_answer_and_a_worker_at_the_same_time(store) -> None:
    """Whoever decides acts on it; a worker that comes for the saga meanwhile changes nothing about its end."""
    for number in range(5):
        await submit(store, (f"s{number}", plan("lose", "book")))
    async with worker(store) as coordinator:
        assert await ended(store, *(f"s{number}" for number in range(5))) == {"ESCALATED"}
        async with Coordinator.open(store, TOOLS) as other:
            for number in range(5):
                person = other if number % 2 else coordinator
                outcome = await person.resolve(f"s{number}", 1, "happened", output={"ref": "x"}, by="ada")
                assert outcome.status == "COMPLETED"
    assert Counter(LOG) == {"lose lose0": 5, "book book1": 5}


# --- the end of a worker ----------------------------------------------------------------------------------------------


async def test_a_worker_that_stops_hands_over(store) -> None:
    """The call in flight is journalled, the saga is in the queue at once, and another worker does the rest, once."""
    await submit(store, ("s1", plan("book", "block", "book")))
    async with Coordinator.open(store, TOOLS) as coordinator:
        task = asyncio.create_task(coordinator.work())
        await begun("block1")
        closing = asyncio.create_task(coordinator.close())
        await task
        assert not closing.done()
        GATES["block1"].set()
        await closing
        load = await coordinator.overview()
        assert (load.queued, dict(load.owners)) == (1, {})
        assert [line for line in LOG if "book2" in line] == []
    async with worker(store):
        assert await ended(store, "s1") == {"COMPLETED"}
    assert LOG == ["book book0", "begun block1", "block block1", "book book2"]


async def test_a_lease_that_was_lost_is_opened_again(store) -> None:
    """The worker does nothing more with what it had; it asks anew, and gets it back from the queue."""
    await submit(store, ("s1", plan("block", "book")))
    async with worker(store) as coordinator:
        await begun("block0")
        owner = (await store.head("s1")).owner
        await store.close_lease(owner)
        await eventually(lambda: _overtaken(store), "the second owner")
        assert (await store.head("s1")).owner != owner
        questions = (await coordinator.wait("s1")).body["questions"]
        assert [question["kind"] for question in questions] == ["in-doubt"]


async def _overtaken(store: Any) -> bool:
    return (await store.head("s1")).epoch >= 2


# --- back-pressure ----------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_and_journals_nothing(store) -> None:
    """Submissions for workers stop at the limit; what is driven here is none of the queue's, and room comes again."""
    async with Coordinator.open(store, TOOLS, queue_limit=store.work().count) as coordinator:
        taken, refused = [], []
        for number in range(200):
            try:
                taken.append((await coordinator.submit(plan("book"), saga_id=f"s{number}", detach=True)).saga_id)
            except QueueFull:
                refused.append(f"s{number}")
        assert 1 <= len(taken) <= store.work().count
        with pytest.raises(SagaNotFound):
            await coordinator.show(refused[0])
        assert (await coordinator.run(plan("book"), saga_id="here")).completed
        async with worker(store):
            assert await ended(store, *taken) == {"COMPLETED"}
            await coordinator.submit(plan("book"), saga_id=refused[0], detach=True)
            assert await ended(store, refused[0]) == {"COMPLETED"}


async def test_nobody_works_for_a_coordinator_that_is_closed(store) -> None:
    """It would take sagas that nobody gives back."""
    async with Coordinator.open(store, TOOLS) as coordinator:
        pass
    with pytest.raises(Interrupted):
        await coordinator.work()
    assert dict((await store.work().overview()).owners) == {}


async def test_an_idle_worker_asks_a_few_times_a_second(store) -> None:
    """Nothing to do costs next to nothing: requests grow apart, and none asks for a saga by name."""
    faulty = FaultyStore(store, Faults())
    async with worker(faulty) as coordinator:
        await eventually(lambda: faulty.faults.counts["work_take"] >= 6, "some requests")
        loop = asyncio.get_running_loop()
        since, before = loop.time(), faulty.faults.counts["work_take"]
        await eventually(lambda: faulty.faults.counts["work_take"] >= before + 4, "four more")
        assert loop.time() - since >= 0.7  # a machine may be slow, never fast
        assert (await coordinator.overview()).queued == 0
    assert faulty.faults.counts["read"] == 0


# --- owners that seem dead -------------------------------------------------------------------------------------------


async def test_a_dead_process_whose_lease_is_renewed_keeps_its_sagas(store, caplog) -> None:
    """On a clone of its machine the owner lives on: it is left alone until its lease is renewed no more."""
    await submit(store, ("s1", plan("book")))
    code = "from saga_engine.execution.owner import this_process; print(this_process())"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    owner = (await process.communicate())[0].decode().strip()
    await store.open_lease(owner, AN_HOUR_MS)
    await store.acquire("s1", owner)

    async def renew() -> None:
        while True:
            await store.renew(owner, AN_HOUR_MS)
            await asyncio.sleep(0.3)

    clone = asyncio.create_task(renew())
    async with worker(store) as coordinator:
        await eventually(lambda: "its lease is renewed" in caplog.text, "two rounds")
        assert (await store.head("s1")).owner == owner
        assert LOG == []
        clone.cancel()
        assert (await coordinator.wait("s1")).status == "COMPLETED"
