"""Connections that break around an append: the journal holds each record once, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.errors import StoreUnavailable
from saga_engine.stores import open_store
from saga_engine.stores.scripts import script
from saga_engine.testing.faults import Action, Faults, FaultyStore
from saga_engine.testing.proxy import CuttingProxy
from tests.kill.conftest import Place
from tests.kill.laws import breaches
from tests.kill.processes import Processes
from tests.kill.world import ENDS, PLANS, TOOLS, World
from tests.support.servers import EmbeddedFolder

NewPlace = Callable[[str], Place]


@pytest.fixture
def socket_url(server_url: str, request: pytest.FixtureRequest) -> str:
    """Both servers by their sockets: the proxy forwards bytes and starts nothing."""
    if server_url.startswith("unix"):
        return server_url
    folder: EmbeddedFolder = request.getfixturevalue("embedded")
    return f"unix://{folder.record['socket']}"


def numbers() -> Iterator[int]:
    return iter(range(1, 100))


@pytest.mark.parametrize("plan", list(PLANS))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_append_whose_reply_is_lost(new_place: NewPlace, socket_url: str, plan: str, when: Any) -> None:
    """Applied or not: the append is asked again, acknowledged once, and the saga does not notice."""
    cuts = 0
    async with CuttingProxy(socket_url) as proxy:
        for number in numbers():
            place = new_place(proxy.url)
            reached = await run_with_a_cut(
                place, plan, number, lambda _: proxy.cut(when, matching=script("append").sha)
            )
            if not reached:
                break
            cuts += 1
            assert proxy.made == cuts
    assert cuts > len(PLANS[plan]["steps"])


async def run_with_a_cut(place: Place, plan: str, number: int, cut: Action) -> bool:
    """Run the plan and cut the line at the ``number``-th append; returns whether there was one."""
    durable: list[str] = []
    World.ledger = place.ledger
    World.faults = Faults(f"append:{number}:before:cut", actions={"cut": cut})
    store = FaultyStore(open_store(place.url), World.faults)
    observers = [lambda _, record: durable.append(type(record).__name__)]
    async with Coordinator.open(store, TOOLS["bare"], observers=observers) as coordinator:
        outcome = await coordinator.run(PLANS[plan], saga_id=place.saga_id)
        history = await coordinator.history(place.saga_id)
    await store.close()
    assert outcome.status == ENDS[plan]
    assert place.ledger.compare(outcome, PLANS[plan]) == []
    assert [record["k"] for record in history] == durable
    assert {step["attempts"] for step in outcome.body["steps"]} == {1}
    return bool(World.faults.fired)


@pytest.mark.parametrize("variant", ["keyed", "bare"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_append_that_was_given_up(
    processes: Processes, new_place: NewPlace, server_url: str, when: str, variant: str
) -> None:
    """The engine may never learn that its append was applied: then it stops, and the journal tells the next process."""
    tried = 0
    for number in numbers():
        place = new_place(server_url)
        World.ledger = place.ledger
        World.faults = Faults(f"append:{number}:{when}:raise")
        store = FaultyStore(open_store(place.url), World.faults)
        async with Coordinator.open(store, TOOLS[variant]) as coordinator:
            try:
                await coordinator.run(PLANS["fails"], saga_id=place.saga_id)
            except StoreUnavailable:
                tried += 1
            else:
                break
        await store.close()
        told = processes.run("resume-all", variant=variant, **place.told).told
        found = breaches(plan="fails", variant=variant, told=told, ledger=place.ledger, saga_id=place.saga_id)
        assert (number, found) == (number, [])
    assert tried >= 5
