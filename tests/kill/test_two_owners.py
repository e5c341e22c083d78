"""Two processes that both think they own a saga: races for it, and owners that were frozen past their lease."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.kill.conftest import Line, Place
from tests.kill.leases import SHORT_S, until_expired
from tests.kill.polling import opened
from tests.kill.processes import Processes, Running
from tests.kill.world import PLANS, step
from tests.support.servers import DebianRedis, EmbeddedFolder

NewPlace = Callable[[str], Place]

STUMBLES = {"steps": [step(1), step(2, "stumble"), step(3)]}


async def journal(place: Place) -> list[bytes]:
    async with opened(place.url) as store:
        return list(await store.read(place.saga_id))


# --- races ---------------------------------------------------------------------------------------------------------


def drove(told: dict[str, Any]) -> bool:
    """Whether a process wrote anything into the journal."""
    return bool(told["durable"])


def settled(told: dict[str, Any], end: str) -> bool:
    """A process in a race ends with the saga's end, or with the news that another one has it."""
    return told["error"]["code"] == "lease-held" if "error" in told else told["final"]["status"] == end


@pytest.mark.parametrize("state", ["never driven", "owner killed"])
def test_many_processes_resume_the_same_saga(
    processes: Processes, new_place: NewPlace, server_url: str, line: Line, state: str
) -> None:
    """Exactly one drives it; every effect happens once; the others see how it ended, or that it is taken."""
    place = new_place(server_url)
    how = {"variant": "keyed", **place.told}
    if state == "never driven":
        processes.run("detach", plan=PLANS["graph"], **how)
    else:
        assert processes.run("submit", plan=PLANS["graph"], fault="call:3:after", **how).killed
    racing = [processes.start("resume", lease_s=SHORT_S, line_up=str(line.folder), **how) for _ in range(5)]
    line.start(5)
    told = [one.told() for one in racing]

    assert [one for one in told if not settled(one, "COMPENSATED")] == []
    assert sum(map(drove, told)) == 1
    (driver,) = filter(drove, told)
    assert driver["durable"].count("SagaResumed") == 1
    assert place.ledger.compare(driver["final"], PLANS["graph"]) == []
    assert not place.ledger.standing()


def test_many_processes_submit_the_same_saga(
    processes: Processes, new_place: NewPlace, server_url: str, line: Line
) -> None:
    """One id, one plan, many submissions at once: one saga, driven by one."""
    place = new_place(server_url)
    how = {"variant": "bare", "plan": PLANS["fails"], "lease_s": SHORT_S, "line_up": str(line.folder), **place.told}
    racing = [processes.start("submit", **how) for _ in range(5)]
    line.start(5)
    told = [one.told() for one in racing]

    assert [one for one in told if not settled(one, "COMPENSATED")] == []
    (driver,) = filter(drove, told)
    assert driver["durable"][0] == "SagaStarted"
    assert place.ledger.compare(driver["final"], PLANS["fails"]) == []
    assert len(place.ledger.lines(what="sent")) == 5


def test_different_plans_submitted_under_one_id(
    processes: Processes, new_place: NewPlace, server_url: str, line: Line
) -> None:
    """One plan wins; every submission of another one is refused, and nothing of it happens."""
    place = new_place(server_url)
    plans = [{"steps": [{**step(1), "params": {"item": item}}]} for item in "abcd"]
    how = {"variant": "bare", "lease_s": SHORT_S, "line_up": str(line.folder), **place.told}
    racing = [processes.start("submit", plan=plan, **how) for plan in plans]
    line.start(4)
    told = [one.told() for one in racing]

    (driver,) = filter(drove, told)
    winner = plans[told.index(driver)]
    assert sorted(one["error"]["code"] for one in told if one is not driver) == ["saga-exists"] * 3
    assert place.ledger.compare(driver["final"], winner) == []
    assert [line.value for line in place.ledger.lines(what="sent")] == [winner["steps"][0]["params"]]


# --- frozen owners -------------------------------------------------------------------------------------------------

#: (where it froze, the plan, how its process is told to)
FREEZES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "in a call forward": (PLANS["fails"], {"fault": "call:2:before:pause"}),
    "in a call that has happened": (PLANS["fails"], {"fault": "call:2:after:pause"}),
    "in an undo": (PLANS["fails"], {"fault": "call:4:before:pause"}),
    "between intent and call": (PLANS["fails"], {"fault": "append:3:after:pause"}),
    "between intent and undo": (PLANS["fails"], {"fault": "append:4:after:pause"}),
    "before an append": (PLANS["succeeds"], {"fault": "append:3:before:pause"}),
    "in backoff": (STUMBLES, {}),
}


def frozen(processes: Processes, place: Place, where: str, variant: str) -> Running:
    """An owner with a short lease that has stopped there."""
    plan, how = FREEZES[where]
    if where == "in backoff":
        how = {"freeze_in_backoff": str(place.ledger.path.parent / "backoff")}
    running = processes.start("submit", plan=plan, variant=variant, lease_s=SHORT_S, **how, **place.told)
    running.wait_until_frozen()
    return running


@pytest.mark.debian_redis
@pytest.mark.parametrize("where", list(FREEZES))
async def test_a_frozen_owner_is_overtaken(
    processes: Processes, new_place: NewPlace, debian_redis: DebianRedis, where: str
) -> None:
    """Another process finishes the saga; the old one, when it wakes, writes nothing and starts nothing."""
    plan, _ = FREEZES[where]
    end = "COMPENSATED" if plan is PLANS["fails"] else "COMPLETED"
    place = new_place(debian_redis.url)
    old = frozen(processes, place, where, "keyed")
    await until_expired(place)
    new = await asyncio.to_thread(processes.run, "resume", variant="keyed", **place.told)
    assert (new.told["final"]["status"], place.ledger.compare(new.told["final"], plan)) == (end, [])
    written, sent = await journal(place), place.ledger.lines(what="sent")

    old.thaw()
    told = await asyncio.to_thread(old.told)

    assert told["final"]["status"] == end
    assert await journal(place) == written
    assert place.ledger.lines(what="sent") == sent
    assert place.ledger.compare(told["final"], plan) == []
    assert {line.epoch for line in sent} == {1, 2}


@pytest.mark.parametrize("where", ["between intent and call", "between intent and undo"])
async def test_a_frozen_owner_never_makes_the_call_that_it_had_journalled(
    processes: Processes, new_place: NewPlace, server_url: str, where: str
) -> None:
    """Without keys only the lease stands between a woken owner and a second effect: a person had said 'not happened'."""
    place = new_place(server_url)
    old = frozen(processes, place, where, "bare")
    await until_expired(place)
    new = await asyncio.to_thread(processes.run, "resume-all", variant="bare", **place.told)
    assert [question["kind"] for question in new.told["resumed"]["questions"]] != []
    assert new.told["final"]["status"] == "COMPENSATED"
    lines = place.ledger.lines()

    old.thaw()
    told = await asyncio.to_thread(old.told)

    assert told["final"]["status"] == "COMPENSATED"
    assert place.ledger.lines() == lines


@pytest.mark.parametrize("where", list(FREEZES))
async def test_a_frozen_owner_that_nobody_overtook(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, where: str
) -> None:
    """Its lease is over, so it may not simply go on: it takes the saga up from its journal, and finishes it rightly."""
    plan, _ = FREEZES[where]
    place = new_place(embedded.url)
    old = frozen(processes, place, where, "keyed")
    await until_expired(place)
    old.thaw()
    told = await asyncio.to_thread(old.told)

    assert "error" not in told, told["error"]
    assert told["final"]["status"] == ("COMPENSATED" if plan is PLANS["fails"] else "COMPLETED")
    assert place.ledger.compare(told["final"], plan) == []
    assert b'"epoch":2' in b"".join(await journal(place))
    assert {line.epoch for line in place.ledger.lines(what="sent")} == {1, 2}


async def test_a_woken_owner_finds_another_one_at_work(
    processes: Processes, new_place: NewPlace, server_url: str
) -> None:
    """It is told that the saga is owned, and leaves it alone; the new owner finishes."""
    place = new_place(server_url)
    home = place.ledger.path.parent
    plan = {"steps": [step(1), step(2), step(3, "wait")]}
    how = {"variant": "keyed", "lease_s": SHORT_S, **place.told}
    old = processes.start("submit", plan=plan, fault="call:2:before:pause", **how)
    old.wait_until_frozen()
    await until_expired(place)
    os.mkfifo(home / "begun")
    os.mkfifo(home / "gate")
    new = processes.start("resume", **how)
    assert await asyncio.to_thread((home / "begun").read_text) == "begun"

    old.thaw()
    told = await asyncio.to_thread(old.told)
    assert told["error"]["code"] == "lease-held"

    await asyncio.to_thread((home / "gate").write_text, "open")
    final = (await asyncio.to_thread(new.told))["final"]
    assert final["status"] == "COMPLETED"
    assert place.ledger.compare(final, plan) == []
