"""Schedules: templates that start by themselves, each tick once."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import PlanInvalid, ScheduleNotFound, SettingInvalid, TemplateNotFound
from saga_engine.execution.schedules import CLAIM_MS, ScheduleBody, Turn, body_of
from saga_engine.execution.timetable import Timetable
from saga_engine.ports import Store
from saga_engine.runtime.ticks import Ticks
from saga_engine.stores import open_store

PLAN = {"steps": [{"step_id": 1, "tool": "charge", "params": {"customer": "$input.customer"}}]}
MINUTE_MS = 60_000


@tool(undo="refund")
async def charge(customer: int) -> dict[str, str]:
    if customer < 0:
        raise TimeoutError
    return {"ref": str(customer)}


@tool
async def refund(ref: str) -> None:
    """Nothing to return."""


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ticks_of(table: Timetable, first: str, count: int) -> list[str]:
    found, at = [], ms(first)
    for _ in range(count):
        following = table.next_after(at)
        assert following is not None
        assert following > at
        at = following
        found.append(f"{datetime.fromtimestamp(at / 1000, UTC):%m-%dT%H:%M}")
    return found


@pytest.fixture
async def store():
    made = open_store("memory://")
    await made.open()
    yield made
    await made.close()


def ticks(coordinator: Coordinator) -> Ticks:
    """What a worker of this coordinator fires."""
    return Ticks(coordinator.store, coordinator._begin_scheduled, coordinator._cancel_scheduled)


async def elapsed(store: Store, name: str, by_ms: int, *, due_ms: int = 1) -> None:
    """So much time has passed since the schedule was written."""
    found = await store.documents().read("schedule", name)
    assert found is not None
    body = body_of(found.body)
    assert body.next_ms is not None
    body.next_ms -= by_ms // MINUTE_MS * MINUTE_MS
    body.writer = "test"
    changed = found._replace(body=msgspec.json.encode(body))
    assert await store.documents().write("schedule", changed, due_ms) is not None


# --- when ----------------------------------------------------------------------------------------------------------


def test_a_time_that_does_not_exist_is_due_after_the_gap() -> None:
    """In spring 02:30 does not exist in Berlin: that tick is at 03:00 there, and the others are where they belong."""
    table = Timetable(cron="30 2 * * *", time_zone="Europe/Berlin")
    assert ticks_of(table, "2026-03-28T00:00Z", 3) == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]
    hourly = Timetable(cron="*/30 * * * *", time_zone="Europe/Berlin")
    assert ticks_of(hourly, "2026-03-29T00:00Z", 4) == ["03-29T00:30", "03-29T01:00", "03-29T01:30", "03-29T02:00"]


def test_a_time_that_exists_twice_is_due_once() -> None:
    """In autumn 02:30 exists twice in Berlin: the first one counts, from wherever one looks."""
    table = Timetable(cron="30 2 * * *", time_zone="Europe/Berlin")
    assert ticks_of(table, "2026-10-24T00:00Z", 3) == ["10-24T00:30", "10-25T00:30", "10-26T01:30"]
    assert ticks_of(table, "2026-10-25T01:10Z", 1) == ["10-26T01:30"]
    assert table.latest(ms("2026-10-20T00:30Z"), ms("2026-10-25T01:45Z")) == ms("2026-10-25T00:30Z")
    hourly = Timetable(cron="*/30 * * * *", time_zone="Europe/Berlin")
    assert ticks_of(hourly, "2026-10-25T00:00Z", 4) == ["10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]


def test_the_latest_tick_is_found_without_counting_those_between() -> None:
    """For a schedule that was not looked at for years, and for one that is due once a year."""
    assert Timetable(cron="* * * * *").latest(ms("2016-01-01T00:00Z"), ms("2026-03-29T12:00:30Z")) == ms(
        "2026-03-29T12:00Z"
    )
    yearly = Timetable(cron="0 6 1 1 *", time_zone="Asia/Tokyo")
    assert yearly.latest(ms("2019-12-31T21:00Z"), ms("2026-06-01T00:00Z")) == ms("2025-12-31T21:00Z")
    every = Timetable(every_s=90, start_ms=0)
    assert [every.next_after(0), every.next_after(90_000), every.latest(90_000, 400_000)] == [90_000, 180_000, 360_000]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "x"},
        {"cron": "* * * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "61 * * * *"},
        {"cron": "0 0 * * *", "time_zone": "Mars/Olympus"},
        {"cron": "0 0 * * *", "time_zone": "../etc/passwd"},
        {"cron": "0 0 * * *", "every_s": 60},
        {},
        {"every_s": -1},
        {"cron": "0 0 * * *", "overlap": "maybe"},
        {"cron": "0 0 * * *", "catch_up": "some"},
        {"cron": "0 0 * * *", "pause_after": -1},
        {"cron": "0 0 * * *", "tags": ["a\nb"]},
        {"cron": "0 0 * * *", "name": "a b"},
    ],
)
async def test_what_cannot_be_a_schedule_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    """With a hint, before anything is stored."""
    async with Coordinator.open(store, [charge, refund]) as coordinator:
        await coordinator.templates.put("renewal", PLAN)
        name = wrong.pop("name", "monthly")
        with pytest.raises(SettingInvalid) as refused:
            await coordinator.schedules.put(name, template="renewal", input={"customer": 1}, **wrong)
        assert refused.value.hint
        with pytest.raises(TemplateNotFound):
            await coordinator.schedules.put("monthly", template="other", every_s=60)
        with pytest.raises(PlanInvalid):
            await coordinator.schedules.put("monthly", template="renewal", every_s=60)
        with pytest.raises(PlanInvalid):
            await coordinator.schedules.put("monthly", template="renewal", every_s=60, check_tools=False)
        assert await coordinator.schedules.list() == []


# --- once ----------------------------------------------------------------------------------------------------------


async def test_workers_that_slept_for_78_minutes_fire_one_tick(store: Store) -> None:
    """The latest one; and those that wake up at the same time begin it once."""
    async with Coordinator.open(store, [charge, refund]) as coordinator:
        await coordinator.templates.put("renewal", PLAN)
        made = await coordinator.schedules.put("s", template="renewal", cron="* * * * *", input={"customer": 1})
        assert made.next_ms is not None
        await ticks(coordinator).fire()
        assert await coordinator.list() == []  # nothing is due yet
        await elapsed(store, "s", 78 * MINUTE_MS)
        await asyncio.gather(*(ticks(coordinator).fire() for _ in range(5)))
        (head,) = await coordinator.list()
        (found,) = (await coordinator.search(tags=["schedule:s"])).sagas
        after = await coordinator.schedules.get("s")
        assert head.saga_id == found.saga_id == after.recent[-1]
        assert (after.begun, after.skipped) == (1, 0)
        assert after.next_ms is not None
        assert after.next_ms > head.created_ms - MINUTE_MS


_KILLED = """
import asyncio, os, signal, sys
from saga_engine import Coordinator
from saga_engine.runtime.ticks import Ticks

async def main(url, after):
    async with Coordinator.open(url) as coordinator:
        async def submit(name, body, saga_id):
            if after:
                await coordinator._begin_scheduled(name, body, saga_id)
            os.kill(os.getpid(), signal.SIGKILL)
        await Ticks(coordinator.store, submit, coordinator._cancel_scheduled).fire()

asyncio.run(main(sys.argv[1], sys.argv[2] == "after"))
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_tick_whose_worker_was_killed_is_begun_once(when: str, tmp_path: Path) -> None:
    """It is killed after its claim, before or after the submission: another worker begins that tick, and no second."""
    url = f"embedded://{tmp_path}"
    wait = {"steps": [{"step_id": 1, "compute": {"value": 1}}]}
    async with Coordinator.open(url) as coordinator:
        store = coordinator.store
        await coordinator.templates.put("renewal", wait)
        await coordinator.schedules.put("s", template="renewal", cron="* * * * *")
        await elapsed(store, "s", MINUTE_MS)
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, url, when)
        assert await killed.wait() == -9
        await ticks(coordinator).fire()  # the claim is fresh: its worker may live
        begun = await coordinator.list()
        assert len(begun) == (when == "after")
        await elapsed(store, "s", 0)  # and now it is not
        await asyncio.gather(*(ticks(coordinator).fire() for _ in range(3)))
        (head,) = await coordinator.list()
        after = await coordinator.schedules.get("s")
        assert (after.begun, after.recent) == (1, (head.saga_id,))
        assert begun in ([], [head])


async def test_a_worker_fires_and_runs_what_is_due(store: Store) -> None:
    """From the tick to the end of its saga, by a worker alone."""
    async with Coordinator.open(store, [charge, refund]) as coordinator:
        await coordinator.templates.put("renewal", PLAN)
        await coordinator.schedules.put("s", template="renewal", cron="* * * * *", input={"customer": 1})
        await elapsed(store, "s", MINUTE_MS)
        work = asyncio.create_task(coordinator.work(concurrency=4))
        async with asyncio.timeout(120):
            while not (found := (await coordinator.schedules.get("s")).recent):  # noqa: ASYNC110 -- the store knows
                await asyncio.sleep(0.01)
            assert (await coordinator.wait(found[0])).completed
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


# --- overlap, pause -------------------------------------------------------------------------------------------------


def body(**fields: Any) -> ScheduleBody:
    return ScheduleBody("t", Timetable(every_s=60), next_ms=60_000, recent=["old"], **fields)


async def taken(given: ScheduleBody, now_ms: int, **statuses: str) -> Turn:
    async def status_of(saga_id: str) -> str | None:
        return statuses.get(saga_id)

    turn = Turn("s", given, now_ms)
    await turn.take(status_of)
    return turn


@pytest.mark.parametrize(
    ("overlap", "begins", "waits", "cancels"),
    [
        ("skip", False, False, False),
        ("buffer-one", False, True, False),
        ("allow", True, False, False),
        ("cancel", False, True, True),
    ],
)
async def test_a_tick_that_meets_an_unfinished_saga(overlap: Any, begins: bool, waits: bool, cancels: bool) -> None:
    """It is skipped, waits, begins beside it, or has it cancelled first. A saga that asks an operator is unfinished."""
    for status in ("RUNNING", "ESCALATED", "PENDING"):
        given = body(overlap=overlap)
        turn = await taken(given, 60_000, old=status)
        assert (given.pending is not None, given.buffered_ms is not None) == (begins, waits)
        assert turn.cancels == ("old" if cancels else None)
        assert given.skipped == (overlap == "skip")
        assert given.next_ms == 120_000
        if waits:
            await taken(given, 120_000, old=status)
            assert given.skipped == 1
            assert given.buffered_ms == (60_000 if overlap == "buffer-one" else 120_000)
            await taken(given, 125_000, old="COMPLETED")
            assert given.pending is not None
            assert given.pending.at_ms == (60_000 if overlap == "buffer-one" else 120_000)
            assert given.buffered_ms is None


@pytest.mark.parametrize(("catch_up", "begun"), [("one", 300_000), ("all", 60_000), ("none", None)])
async def test_missed_ticks(catch_up: Any, begun: int | None) -> None:
    """The latest one happens, or each of them in turn, or none; one that is a few seconds late was not missed."""
    given = body(catch_up=catch_up)
    given.timetable = Timetable(every_s=120, start_ms=-60_000)
    await taken(given, 419_999)
    assert (given.pending and given.pending.at_ms) == begun
    assert given.next_ms == (180_000 if catch_up == "all" else 420_000)
    late = body(catch_up=catch_up)
    await taken(late, 65_000)
    assert late.pending is not None


@pytest.mark.parametrize("overlap", ["skip", "buffer-one", "cancel"])
async def test_missed_ticks_that_are_all_caught_up_have_their_turns(overlap: Any) -> None:
    """None is skipped, cancelled or lost because the one before it runs; what comes meanwhile follows ``overlap``."""
    given, begun, now = body(catch_up="all", overlap=overlap, pause_after=0), [], 310_000
    given.recent = []
    while len(begun) < 5:  # the ticks of the minutes 1 to 5 were missed; each saga takes 90 seconds
        turn = await taken(given, now)
        assert given.pending is not None
        begun.append(given.pending.at_ms)
        turn.begun()
        for later in (0, 10_000, 70_000):
            waiting = await taken(given, now + later, **{given.recent[-1]: "RUNNING"})
            assert (given.pending, waiting.cancels) == (None, None) or len(begun) == 5
            assert given.due_ms(now + later) > now + later
        now += 90_000
    assert begun == [60_000 * minute for minute in range(1, 6)]
    while given.pending is None:
        await taken(given, now, **{given.recent[-1]: "COMPLETED"})
        now += 1_000
    # The saga of minute 5 began at 670 s: of the ticks since 360 s one waited, or none.
    assert given.pending.at_ms == {"skip": 780_000, "buffer-one": 360_000, "cancel": 720_000}[overlap]


async def test_a_schedule_whose_sagas_escalate_pauses_itself() -> None:
    """After three in a row; one that ended well begins the row anew, and a resumed schedule does, too."""
    given = body(overlap="allow")
    given.recent = ["a", "b", "c"]
    await taken(given, 60_000, a="ESCALATED", b="WAIVED", c="ESCALATED")
    assert given.paused
    assert "a, b, c" in given.why
    assert given.pending is None
    assert given.due_ms(60_000) == 0
    given.resumed(500_000)
    await taken(given, 540_000, a="ESCALATED", b="WAIVED", c="ESCALATED")
    assert given.pending is not None
    other = body(overlap="allow")
    other.recent = ["a", "b", "c"]
    await taken(other, 60_000, a="ESCALATED", b="COMPENSATED", c="ESCALATED")
    assert other.pending is not None


async def test_a_tick_that_cannot_be_submitted_is_tried_again_and_given_up() -> None:
    """Others may have the tools; and three ticks that nobody could submit pause the schedule."""
    given = body()
    given.recent = []
    for tick in range(1, 4):
        turn = await taken(given, tick * 60_000)
        assert given.due_ms(0) == CLAIM_MS
        for _ in range(5):
            assert given.pending is not None
            turn.failed("no such tool")
        assert given.pending is None
        assert given.skipped == tick
    assert given.paused
    assert given.why == "no such tool"


async def test_an_operator_pauses_resumes_triggers_fills_back_and_deletes(store: Store) -> None:
    """What was missed in a pause does not happen, and a tick that happened is not filled back again."""
    async with Coordinator.open(store, [charge, refund]) as coordinator:
        schedules = coordinator.schedules
        await coordinator.templates.put("renewal", PLAN)
        await schedules.put("s", template="renewal", cron="0 3 * * *", time_zone="Asia/Tokyo", input={"customer": 1})
        assert (await schedules.pause("s")).next_ms is None
        await elapsed(store, "s", 2000 * MINUTE_MS)
        await ticks(coordinator).fire()
        assert await coordinator.list() == []
        resumed = await schedules.resume("s")
        assert resumed.next_ms is not None
        await ticks(coordinator).fire()
        assert await coordinator.list() == []
        triggered = await schedules.trigger("s")
        assert (await schedules.get("s")).recent == (triggered,)
        day = datetime(2026, 3, 1, tzinfo=UTC)
        before = await schedules.ticks("s", day, day + timedelta(days=3))
        with pytest.raises(SettingInvalid, match="more than 2 ticks"):
            await schedules.backfill("s", day, day + timedelta(days=3), limit=2)
        ids = await schedules.backfill("s", day, day + timedelta(days=3))
        after = await schedules.ticks("s", day, day + timedelta(days=3))
        assert [(tick.saga_id, tick.begun) for tick in before] == [(saga_id, False) for saga_id in ids]
        assert [(tick.saga_id, tick.begun) for tick in after] == [(saga_id, True) for saga_id in ids]
        assert ids == ["s-20260301T180000Z", "s-20260302T180000Z", "s-20260303T180000Z"]
        assert await schedules.backfill("s", day, day + timedelta(days=3)) == ids
        assert {head.saga_id for head in (await coordinator.search(tags=["schedule:s"])).sagas} == {triggered, *ids}
        with pytest.raises(SettingInvalid):
            await schedules.backfill("s", day, day + timedelta(days=3000))
        await schedules.delete("s")
        for gone in (schedules.get, schedules.pause, schedules.resume, schedules.trigger, schedules.delete):
            with pytest.raises(ScheduleNotFound):
                await gone("s")


async def test_an_interval_that_is_put_again_keeps_its_rhythm() -> None:
    """A repeated request moves no tick; another interval begins anew."""
    async with Coordinator.open("memory://", [charge, refund], durability="relaxed") as coordinator:
        await coordinator.templates.put("renewal", PLAN)
        put = {"template": "renewal", "check_tools": False, "input": {"customer": 1}}
        await coordinator.schedules.put("hourly", every_s=3600, **put)
        documents = coordinator.store.documents()
        there = await documents.read("schedule", "hourly")
        assert there is not None
        body = body_of(there.body)
        earlier = msgspec.structs.replace(body.timetable, start_ms=body.timetable.start_ms - 5000)  # put 5 s ago
        body.timetable = earlier
        assert await documents.write("schedule", there._replace(body=msgspec.json.encode(body))) is not None
        again = await coordinator.schedules.put("hourly", every_s=3600, **put)
        assert (again.next_ms - earlier.start_ms) % 3_600_000 == 0
        other = await coordinator.schedules.put("hourly", every_s=1800, **put)
        assert (other.next_ms - earlier.start_ms) % 1_800_000 != 0
