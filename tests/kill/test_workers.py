"""Workers that are killed, frozen and told to stop: others go on with their sagas, and the world agrees."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.core.states import SAGA_FINAL
from tests.kill import points
from tests.kill.conftest import Place
from tests.kill.gates import Gate
from tests.kill.polling import eventually, opened
from tests.kill.processes import Processes
from tests.kill.teams import Team, breaches
from tests.kill.worker_child import TOOLS
from tests.kill.world import PLANS, step
from tests.support.servers import GIVE_UP_S, DebianRedis, EmbeddedFolder, until

NewPlace = Callable[[str], Place]

#: A short lease, in seconds: those that freeze are waited out. One that lives must keep it on a busy machine, too.
SHORT_S = 3.0


async def submit(place: Place, plan: dict[str, Any], *saga_ids: str, variant: str = "keyed") -> None:
    """Leave sagas to workers; by default the one of the place."""
    async with Coordinator.open(place.url, TOOLS[variant]) as coordinator:
        for saga_id in saga_ids or (place.saga_id,):
            await coordinator.submit(plan, saga_id=saga_id, detach=True)


async def finals(place: Place, *saga_ids: str) -> list[dict[str, Any]]:
    """The sagas when each has ended or rests."""
    async with Coordinator.open(place.url) as coordinator, asyncio.timeout(GIVE_UP_S):
        return [dict((await coordinator.wait(saga_id)).body) for saga_id in saga_ids or (place.saga_id,)]


async def history(place: Place) -> list[dict[str, Any]]:
    async with Coordinator.open(place.url) as coordinator:
        return await coordinator.history(place.saga_id)


# --- killed ----------------------------------------------------------------------------------------------------------

#: A worker that drives the plan that fails writes six times and calls five times.
FAULTS = [
    *(f"{point}:{number}:{when}" for point, count in (("append", 6), ("call", 5)) for number in range(1, count + 1)
      for when in ("before", "after")),
    "work_take:1:before",
    "work_take:1:after",
]  # fmt: skip


async def killed_once(team: Team, fault: str) -> list[str]:
    """One worker dies there; another one does the rest."""
    place = team.place
    await submit(place, PLANS["fails"])
    team.start("first", fault=fault)
    await asyncio.to_thread(team.killed, "first")
    second = team.begin("second")
    (final,) = await finals(place)
    told = await asyncio.to_thread(team.end, "second")
    epochs = [record["epoch"] for record in await history(place) if record["k"] == "SagaResumed"]
    found = breaches(place, "fails", final, 1)
    if epochs != sorted(set(epochs)):
        found.append(f"the epochs are {epochs}")
    if "error" in told:
        found.append(f"the second worker ended with {told['error']}")
    async with opened(place.url) as store:
        load = await store.work().overview()
    if load.queued or load.timed or any(f"/{second.pid}/" in owner for owner in load.owners):
        found.append(f"left behind: {load}")
    return found


@pytest.mark.seeds
async def test_a_worker_killed_anywhere(new_team: Callable[[str], Team], server_url: str) -> None:
    """Wherever it dies, another worker goes on at once: the saga ends as its plan says, and nothing happens twice."""
    found: dict[str, list[str]] = {}

    async def some(faults: Sequence[str]) -> None:
        for fault in faults:
            team = new_team(server_url)
            try:
                found[fault] = await killed_once(team, fault)
            except AssertionError as error:
                found[fault] = [str(error)]

    parts = [FAULTS[1::9], FAULTS[4::9], FAULTS[7::9]] if points.SOME else [FAULTS[at::3] for at in range(3)]
    await asyncio.gather(*(some(part) for part in parts))
    assert len(found) == sum(map(len, parts))
    assert {fault: what for fault, what in found.items() if what} == {}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["work_owners", "work_reclaim"])
async def test_a_worker_killed_while_it_looks_after_the_dead(
    new_team: Callable[[str], Team], embedded: EmbeddedFolder, point: str, when: str
) -> None:
    """Half of the way through the dead one's sagas is no state of its own: the next worker goes the rest."""
    team = new_team(embedded.url)
    await submit(team.place, PLANS["fails"])
    team.start("first", fault="call:3:after")
    await asyncio.to_thread(team.killed, "first")
    team.start("second", fault=f"{point}:1:{when}")
    await asyncio.to_thread(team.killed, "second")
    team.begin("third")
    (final,) = await finals(team.place)
    await asyncio.to_thread(team.end, "third")
    assert breaches(team.place, "fails", final, 1) == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_while_it_hands_over(new_team: Callable[[str], Team], server_url: str, when: str) -> None:
    """SIGTERM, the call in flight is journalled, and it dies with the release: the saga goes on elsewhere all the same."""
    team = new_team(server_url)
    gate = Gate(team.place)
    plan = {"steps": [step(1), step(2, "wait"), step(3)]}
    await submit(team.place, plan)
    team.begin("first", fault=f"release:1:{when}")
    await asyncio.to_thread(gate.wait_for_the_call)
    await asyncio.to_thread(team.stop, "first")
    await asyncio.to_thread(gate.open)
    await asyncio.to_thread(team.killed, "first")
    team.start("second")
    (final,) = await finals(team.place)
    assert final["status"] == "COMPLETED"
    assert team.place.ledger.compare(final, plan) == []
    assert Counter(line.step_id for line in team.place.ledger.lines(what="sent")) == {"1": 1, "2": 1, "3": 1}


@pytest.mark.debian_redis
async def test_a_dead_workers_sagas_are_taken_over_at_once(
    new_team: Callable[[str], Team], debian_redis: DebianRedis
) -> None:
    """On its machine it is provably dead, so nobody waits for its lease; all of its sagas go on."""
    team = new_team(debian_redis.url)
    ids = [f"{team.place.saga_id}-{number}" for number in range(30)]
    await submit(team.place, PLANS["succeeds"], *ids)
    team.start("first", fault="call:25:after", lease_s=3600)
    await asyncio.to_thread(team.killed, "first")
    team.start("second")
    for final in await finals(team.place, *ids):
        assert breaches(team.place, "succeeds", final, 1) == []


# --- told to stop ----------------------------------------------------------------------------------------------------


async def test_sigterm_in_the_middle_of_a_call(new_team: Callable[[str], Team], server_url: str) -> None:
    """The call's result is journalled, the saga goes on in another worker, nothing is sent twice, nothing is left."""
    team = new_team(server_url)
    gate = Gate(team.place)
    plan = {"steps": [step(1), step(2, "wait"), step(3)]}
    await submit(team.place, plan)
    team.begin("first")
    await asyncio.to_thread(gate.wait_for_the_call)
    await asyncio.to_thread(team.stop, "first")
    team.begin("second")
    await asyncio.to_thread(gate.open)
    first = await asyncio.to_thread(team.end, "first")
    (final,) = await finals(team.place)
    second = await asyncio.to_thread(team.end, "second")

    assert final["status"] == "COMPLETED"
    assert team.place.ledger.compare(final, plan) == []
    assert Counter(line.step_id for line in team.place.ledger.lines(what="sent")) == {"1": 1, "2": 1, "3": 1}
    kinds = [[kind for _, kind in told["durable"]] for told in (first, second)]
    assert kinds[0].count("StepSucceeded") == 2
    assert kinds[1] == ["SagaResumed", "StepIntended", "StepSucceeded", "SagaCompleted"]
    async with opened(team.place.url) as store:
        assert dict((await store.work().overview()).owners) == {}


# --- frozen ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    ["work_take:1:after:pause", "append:1:before:pause", "append:2:after:pause", "call:2:before:pause"],
    ids=["with what it has just taken", "before its first record", "between intent and call", "in a call"],
)
async def test_a_frozen_worker_is_overtaken(new_team: Callable[[str], Team], server_url: str, fault: str) -> None:
    """When it wakes, its sagas are others': it writes nothing and sends nothing for them, and works on with new ones."""
    team = new_team(server_url)
    place = team.place
    await submit(place, PLANS["fails"])
    old = team.start("old", fault=fault, lease_s=SHORT_S)
    await asyncio.to_thread(old.wait_until_frozen)
    team.begin("new", lease_s=SHORT_S)
    (final,) = await finals(place)
    await asyncio.to_thread(team.end, "new")
    assert breaches(place, "fails", final, 1) == []
    written, sent = await history(place), place.ledger.lines(what="sent")

    old.thaw()
    another = f"{place.saga_id}-b"
    await submit(place, PLANS["fails"], another)
    (later,) = await finals(place, another)
    told = await asyncio.to_thread(team.end, "old")

    assert breaches(place, "fails", later, 0) == []
    assert await history(place) == written
    assert place.ledger.lines(place.saga_id, what="sent") == [line for line in sent if line.saga_id == place.saga_id]
    # (Its report may have been made just before: what it drains when it is told to stop is not counted there.)
    assert [ended for ended in told["durable"] if ended[1] == "SagaCompensated"] == [[another, "SagaCompensated"]]


# --- many at once ----------------------------------------------------------------------------------------------------


async def test_two_workers_race_for_two_hundred_sagas(new_team: Callable[[str], Team], server_url: str) -> None:
    """Each saga has one driver at a time and every effect happens once, whoever takes what."""
    team = new_team(server_url)
    ids = [f"{team.place.saga_id}-{number}" for number in range(200)]
    await submit(team.place, PLANS["succeeds"], *ids)
    for name in ("one", "other"):
        team.begin(name, concurrency=20)
    bodies = await finals(team.place, *ids)
    told = [await asyncio.to_thread(team.end, name) for name in ("one", "other")]
    assert {body["status"] for body in bodies} == {"COMPLETED"}
    sent = Counter((line.saga_id, line.step_id) for line in team.place.ledger.lines(what="sent"))
    assert len(sent) == 600
    assert set(sent.values()) == {1}
    assert sum(one["report"]["taken"] for one in told) == 200
    assert sum(one["report"]["ended"].get("COMPLETED", 0) for one in told) == 200


# --- lost answers, outages, timers, messages --------------------------------------------------------------------------


async def test_a_lost_answer_is_asked_for_again(new_team: Callable[[str], Team], server_url: str) -> None:
    """What the request had taken is driven under that very epoch: nobody waited for a lease to end."""
    team = new_team(server_url)
    ids = [f"{team.place.saga_id}-{number}" for number in range(5)]
    await submit(team.place, PLANS["fails"], *ids)
    team.start("w", fault="work_take:1:after:raise", lease_s=3600)
    for final in await finals(team.place, *ids):
        assert breaches(team.place, "fails", final, 0) == []
    assert {line.epoch for line in team.place.ledger.lines(what="sent")} == {1}


@pytest.mark.debian_redis
async def test_the_store_is_away_and_comes_back(processes: Processes, new_team: Callable[[str], Team]) -> None:
    """The worker outlives an outage that is longer than its patience and its lease, and goes on by itself."""
    with DebianRedis() as server:
        team = new_team(server.url)
        await submit(team.place, PLANS["fails"])
        team.begin("w", patience_s=2.0, lease_s=SHORT_S)
        (before,) = await finals(team.place)
        server.kill()
        await asyncio.to_thread(_patience_is_over, team)
        server.start()
        another = f"{team.place.saga_id}-b"
        await submit(team.place, PLANS["fails"], another)
        (after,) = await finals(team.place, another)
        told = await asyncio.to_thread(team.end, "w")
        assert [breaches(team.place, "fails", final, 0) for final in (before, after)] == [[], []]
        assert told["report"]["ended"] == {"COMPENSATED": 2}


def _patience_is_over(team: Team) -> None:
    """Wait until the worker says that its lease is lost: it is longer than its patience."""
    until((team.folder / "lost-w").exists, "the end of the lease")
    assert not team._workers["w"].has_ended()


@pytest.mark.debian_redis
async def test_a_timer_outlives_its_worker(new_team: Callable[[str], Team], debian_redis: DebianRedis) -> None:
    """A saga that backs off belongs to nobody; its worker dies, and another one goes on when the time has come."""
    team = new_team(debian_redis.url)
    plan = {"steps": [step(1), step(2, "dawdle"), step(3)]}
    await submit(team.place, plan)
    first = team.start("first")
    async with opened(team.place.url) as store:

        async def waits() -> bool:
            return (await store.work().overview()).timed == 1

        await eventually(waits, "the saga to wait in the store")
        assert (await store.head(team.place.saga_id)).owner == ""
    first.kill()
    await asyncio.to_thread(team.killed, "first")
    team.start("second")
    (final,) = await finals(team.place)
    assert final["status"] == "COMPLETED"
    assert team.place.ledger.compare(final, plan) == []
    assert Counter(line.step_id for line in team.place.ledger.lines(what="sent")) == {"1": 1, "2": 2, "3": 1}


async def test_an_answer_whose_sender_dies_is_read_by_a_worker(
    processes: Processes, new_team: Callable[[str], Team], embedded: EmbeddedFolder
) -> None:
    """Whoever posts acts on it; this one was killed right after, and nobody owns the saga."""
    team = new_team(embedded.url)
    plan = {"steps": [step(1, "lose"), step(2)]}
    await submit(team.place, plan, variant="bare")
    team.start("w", variant="bare")
    (asked,) = await finals(team.place)
    (question,) = asked["questions"]
    told = team.place.told
    ended = await asyncio.to_thread(processes.run, "post", player="workers", question=question["question_id"], **told)
    assert ended.killed

    async def over() -> bool:
        return (await store.head(team.place.saga_id)).status in SAGA_FINAL

    async with opened(team.place.url) as store:
        await eventually(over, "the end of the saga")
    (final,) = await finals(team.place)
    assert final["status"] == "COMPLETED"
    assert team.place.ledger.compare(final, plan) == []
