"""Sealed sagas whose processes are killed: who has the key goes on, who lacks it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.privacy.cipher import is_sealed
from tests.kill.conftest import Place
from tests.kill.matrix import Matrix, NewPlace, all_ways, judged, killed_once
from tests.kill.polling import eventually, opened
from tests.kill.processes import Processes
from tests.kill.teams import Team, breaches
from tests.kill.worker_child import TOOLS
from tests.kill.world import PLANS, keys_of
from tests.support.servers import GIVE_UP_S, EmbeddedFolder

K1, K2 = bytes(range(32)).hex(), bytes(range(32, 64)).hex()
OLD, BOTH, NEW = {"k1": K1}, {"k1": K1, "k2": K2}, {"k2": K2}
TURNED = {"k2": K2, "k1": K1}


async def stored(place: Place) -> list[bytes]:
    """The saga's records as they lie in the store."""
    async with opened(place.url) as store:
        return list(await store.read(place.saga_id))


async def submit(place: Place, keys: dict[str, str], *saga_ids: str) -> None:
    async with Coordinator.open(place.url, TOOLS["keyed"], privacy=keys_of(keys)) as coordinator:
        for saga_id in saga_ids:
            await coordinator.submit(PLANS["fails"], saga_id=saga_id, detach=True)


async def final(place: Place, keys: dict[str, str], saga_id: str) -> dict[str, Any]:
    async with Coordinator.open(place.url, privacy=keys_of(keys)) as coordinator, asyncio.timeout(GIVE_UP_S):
        return dict((await coordinator.wait(saga_id)).body)


@pytest.mark.parametrize("variant", ["keyed", "bare"])
def test_killed_anywhere_on_a_sealed_store(
    processes: Processes, new_place: NewPlace, server_url: str, variant: str
) -> None:
    """The kill matrix: whatever moment a process dies at, one with the key ends the saga as its plan says."""
    matrix = Matrix(processes, new_place, server_url, "fails", variant, keys=OLD)
    steps = len(PLANS["fails"]["steps"])
    judged(all_ways(lambda way: killed_once(matrix, way)), at_least=2 * (steps + 1) + 2 * steps)
    records = asyncio.run(stored(matrix.last))
    assert records
    assert all(map(is_sealed, records))


#: Before the first call, between calls, in a call, and on the way back.
FAULTS = ["append:1:before", "append:3:after", "call:2:after", "append:5:before"]


async def killed_beside_a_blind_one(team: Team, fault: str) -> list[str]:
    """One worker dies there; one without the saga's key takes the saga and leaves it; a third one ends it."""
    place = team.place
    await submit(place, NEW, "mine")  # (so that the store's own key is wrapped by k2)
    await submit(place, BOTH, place.saga_id)
    team.start("first", fault=fault, keys=BOTH)
    await asyncio.to_thread(team.killed, "first")
    before, lines = await stored(place), place.ledger.lines(place.saga_id)
    team.begin("blind", keys=NEW, offer_again_ms=200)
    await eventually((team.folder / "refused-blind").exists, "the worker without the key to take the saga")
    found = [] if (await final(place, NEW, "mine"))["status"] == "COMPENSATED" else ["the other saga has not ended"]
    if await stored(place) != before or place.ledger.lines(place.saga_id) != lines:
        found.append("the worker without the key did something")
    team.begin("second", keys=BOTH)
    ended = await final(place, BOTH, place.saga_id)
    blind, second = await asyncio.to_thread(team.end, "blind"), await asyncio.to_thread(team.end, "second")
    found += breaches(place, "fails", ended, 1)
    if "error" in blind or "error" in second:
        found.append(f"a worker ended: {blind} {second}")
    if not any("key-missing" in line and "the key k1" in line for line in blind["refused"]):
        found.append(f"the key is not named: {blind['refused']}")
    if {saga_id for saga_id, _ in blind["durable"]} - {"mine"}:
        found.append(f"it wrote: {blind['durable']}")
    return found


async def test_a_worker_without_the_key_leaves_a_killed_ones_saga(
    new_team: Callable[[str], Team], embedded: EmbeddedFolder
) -> None:
    """It names the key, changes nothing and goes on with its other sagas; a worker with the key goes on with this one."""

    async def one(fault: str) -> tuple[str, list[str]]:
        return fault, await killed_beside_a_blind_one(new_team(embedded.url), fault)

    found = dict([await one(fault) for fault in FAULTS])
    assert {fault: what for fault, what in found.items() if what} == {}


def test_a_rotation_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """Killed at each of its writes, and repeated: every saga opens at every moment, and in the end without the old key."""
    reached = 0
    for when in ("before", "after"):
        number = 1
        while True:
            place = new_place(embedded.url)
            asyncio.run(submit(place, OLD, "s1", "s2", "s3"))
            how = {"player": "workers", "keys": TURNED, "retire": ["k1"], **place.told}
            ended = processes.run("rewrap", **how, fault=f"seal_replace:{number}:{when}")
            assert asyncio.run(readable(place, TURNED)) == 3
            if not ended.killed:
                assert ended.told["retired"] == ["k1"]
                break
            assert processes.run("rewrap", **how).told == {"failed": {}, "retired": ["k1"]}
            assert asyncio.run(readable(place, NEW)) == 3
            number += 1
            reached += 1
    assert reached >= 10


async def readable(place: Place, keys: dict[str, str]) -> int:
    async with Coordinator.open(place.url, privacy=keys_of(keys)) as coordinator:
        return sum([len(await coordinator.history(saga_id)) == 1 for saga_id in ("s1", "s2", "s3")])
