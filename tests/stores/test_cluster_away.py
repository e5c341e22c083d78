"""A process starts while one primary of three is away: it has a lease in the partitions of the others."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, ToolContext, tool
from saga_engine.api.stops import go, stop, stops
from saga_engine.errors import DurabilityInsufficient, SagaError, StopIncomplete, StoreUnavailable
from saga_engine.stores import open_store
from saga_engine.testing.ledger import OutsideLedger
from tests.support.servers import GIVE_UP_S, until
from tests.support.topologies import Cluster, Node, slot

#: Long enough for a busy machine, and short enough to see that a primary is away.
PATIENCE_S = 2.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Three primaries without replicas, which go on without one that hangs."""
    with Cluster(replicas=False, node_timeout_ms=60_000) as cluster:
        for node in cluster.nodes:
            node.settings["cluster-require-full-coverage"] = "no"
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    for node in shared.nodes:
        node.thaw()
        if not node.alive:
            node.start()
        node.ask("CONFIG", "SET", "appendfsync", "always")
    shared.whole()


class World:
    """A namespace of its own, sagas in the queue, and the ledger of what their tools did."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        told = cluster.nodes[0].ask("CLUSTER", "SLOTS")
        nodes = {node.port: node for node in cluster.nodes}
        self.slots = [(first, last, nodes[primary[1]]) for first, last, primary, *_ in told]
        self.namespace = uuid.uuid4().hex
        self.url = f"{cluster.url}?namespace={self.namespace}"
        self.ledger = OutsideLedger(folder / "world.db")
        self.ids = [f"s{number}" for number in range(24)]
        self.plan = {"steps": [{"step_id": n, "tool": "book", "params": {"item": f"i{n}"}} for n in (1, 2)]}

    def tools(self) -> list[Any]:
        @tool(keyed=True)
        async def cancel(ref: str, ctx: ToolContext) -> None:
            raise AssertionError("nothing is undone here")

        @tool(keyed=True, undo="cancel")
        async def book(item: str, ctx: ToolContext) -> dict[str, Any]:
            self.ledger.sent(ctx, "book", {"item": item})
            found: dict[str, Any] = self.ledger.apply(ctx, "book", {"ref": item}, once=True)
            return found

        @tool(keyed=True, undo="cancel")
        async def pack(item: str) -> dict[str, Any]:
            return {"ref": item}

        return [book, pack, cancel]

    def open(self, **options: Any) -> Any:
        return Coordinator.open(self.url, self.tools(), **{"patience_s": PATIENCE_S, "lease_s": 10.0, **options})

    async def queue(self) -> None:
        """All sagas wait for a worker."""
        async with self.open(patience_s=GIVE_UP_S) as coordinator:
            for name in self.ids:
                await coordinator.submit(self.plan, saga_id=name, detach=True)

    def owner(self, key: str) -> Node:
        """The primary of a key, also while it hangs."""
        number = slot(f"{self.namespace}:{key}")
        return next(node for first, last, node in self.slots if first <= number <= last)

    def victim(self, key: str) -> Node:
        """The primary of a key, in a namespace whose format lies on another: nobody starts without that one."""
        node = self.owner(key)
        while self.owner("meta") is node:
            self.namespace = uuid.uuid4().hex
            self.url = f"{self.cluster.url}?namespace={self.namespace}"
        return node

    def home(self, store: Any, name: str) -> Node:
        """The primary of a saga."""
        return self.owner(f"{{p{store.partition_of(name):02}}}:head")

    def split(self, store: Any, away: Node) -> tuple[list[str], list[str]]:
        """The sagas of the primary that is away, and those of the others."""
        there = [name for name in self.ids if self.home(store, name) is away]
        elsewhere = [name for name in self.ids if name not in there]
        assert there
        assert elsewhere
        return there, elsewhere

    def sent(self) -> set[str]:
        return {line.saga_id for line in self.ledger.lines()}


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> World:
    return World(cluster, tmp_path)


async def completed(coordinator: Coordinator, names: list[str]) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        for name in names:
            while True:
                with suppress(StoreUnavailable):  # one that was killed needs a moment to be part of its cluster again
                    assert (await coordinator.wait(name)).status == "COMPLETED"
                    break


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("how", ["freeze", "kill"])
@pytest.mark.parametrize("which", ["{p00}:x", "{d:schedule}:due"])
async def test_a_worker_starts_while_a_primary_is_away(world: World, how: str, which: str) -> None:
    """It drives the sagas of the others to their end, and those of the one that was away when it is back: once each.

    Whatever else lies on that primary: the worker's report and the stops, or the schedules.
    """
    away = world.victim(which)
    await world.queue()
    getattr(away, how)()
    async with world.open() as coordinator:
        there, elsewhere = world.split(coordinator.store, away)
        working = asyncio.create_task(coordinator.work())
        await completed(coordinator, elsewhere)
        assert world.sent() == set(elsewhere)
        with pytest.raises(StoreUnavailable, match=f":{away.port}"):
            await coordinator.submit(world.plan, saga_id=there[0])
        away.thaw() if how == "freeze" else away.start()
        await completed(coordinator, there)
        for name in world.ids:
            assert world.ledger.compare((await coordinator.wait(name)).to_dict()) == []
            assert len(world.ledger.lines(name, what="applied")) == 2
        assert not working.done()
        await ended(working)


async def test_what_was_away_is_verified_before_anything_is_written_to_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back and syncs no more on each write: its sagas wait until that is mended; the others never do."""
    away = world.victim("{p05}:x")
    await world.queue()
    away.ask("CONFIG", "SET", "appendfsync", "everysec")
    away.freeze()
    async with world.open() as coordinator:
        there, elsewhere = world.split(coordinator.store, away)
        working = asyncio.create_task(coordinator.work())
        await completed(coordinator, elsewhere)
        with caplog.at_level(logging.INFO):
            away.thaw()
            await asyncio.to_thread(until, lambda: "appendfsync is everysec" in caplog.text, "it to be found weaker")
        with pytest.raises(DurabilityInsufficient):
            await coordinator.submit(world.plan, saga_id=there[0])
        assert world.sent() == set(elsewhere)
        away.ask("CONFIG", "SET", "appendfsync", "always")
        await completed(coordinator, there)
        assert world.sent() == set(world.ids)
        await ended(working)


async def test_a_stop_holds_while_its_original_cannot_be_read(world: World) -> None:
    """Its copies tell of it: no forward call starts; and a stop that was lifted before holds nothing."""
    away = world.victim("{p00}:x")
    await world.queue()
    async with world.open(patience_s=GIVE_UP_S) as coordinator:
        await stop(coordinator.store, tool="book", by="me")
    away.freeze()
    async with world.open() as coordinator:
        _, elsewhere = world.split(coordinator.store, away)
        working = asyncio.create_task(coordinator.work())
        async with asyncio.timeout(GIVE_UP_S):
            while not all([(await coordinator.history(name))[1:] for name in elsewhere]):  # noqa: ASYNC110 - in the store
                await asyncio.sleep(0.01)
        late = [name for name in map("packs{}".format, range(100)) if world.home(coordinator.store, name) is not away][
            :1
        ]
        packs = {"steps": [{"step_id": n, "tool": "pack", "params": {"item": "x"}} for n in range(1, 6)]}
        await coordinator.submit(packs, saga_id=late[0], detach=True)
        await completed(coordinator, late)
        assert world.sent() == set()
        away.thaw()
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                with suppress(StoreUnavailable):
                    await go(coordinator.store, tool="book")
                    break
        await completed(coordinator, world.ids)
        await ended(working)
    again = World(world.cluster, world.ledger.path.parent)
    again.namespace, again.url, again.ids = world.namespace, world.url, [f"t{number}" for number in range(24)]
    await again.queue()
    away.freeze()
    async with again.open() as coordinator:
        _, elsewhere = again.split(coordinator.store, away)
        working = asyncio.create_task(coordinator.work())
        await completed(coordinator, elsewhere)
        await ended(working)


async def test_a_stop_says_which_partitions_did_not_get_it(world: World) -> None:
    """It holds in the others, and in all of them when it was repeated after the primary was back; so it is with `go`."""
    away = world.victim("{p05}:x")
    while away in {world.owner("meta"), world.owner("{p00}:stops")}:  # the original of the stops is elsewhere, too
        away = world.victim(f"{{p{random.randrange(16):02}}}:x")
    lost = [number for number in range(16) if world.owner(f"{{p{number:02}}}:stops") is away]
    await world.queue()
    away.freeze()
    told = await asyncio.to_thread(saga, "stop", "--json", "--store", world.url)
    assert told.returncode == 1
    error = json.loads(told.stdout)["error"]
    assert (error["code"], error["context"]["partitions"]) == ("stop-incomplete", lost)
    assert f":{away.port}" in error["message"]
    async with world.open() as coordinator:
        _, elsewhere = world.split(coordinator.store, away)
        assert [each.scope for each in await stops(coordinator.store)] == ["all"]
        working = asyncio.create_task(coordinator.work())
        async with asyncio.timeout(GIVE_UP_S):
            while not all([(await coordinator.history(name))[1:] for name in elsewhere]):  # noqa: ASYNC110 - in the store
                await asyncio.sleep(0.01)
        assert world.sent() == set()
        with pytest.raises(StopIncomplete):
            await go(coordinator.store)
        away.thaw()
        async with asyncio.timeout(GIVE_UP_S):
            while (await asyncio.to_thread(saga, "go", "--store", world.url)).returncode:
                pass
        await completed(coordinator, world.ids)
        await ended(working)


def saga(*words: str) -> subprocess.CompletedProcess[str]:
    """A command line of its own, as patient as these tests."""
    patient = {**os.environ, "SAGA_PATIENCE_S": str(PATIENCE_S)}
    command = [sys.executable, "-m", "saga_engine", *words]
    return subprocess.run(command, check=False, env=patient, capture_output=True, text=True)


async def test_one_saga_is_read_while_another_primary_is_away(world: World) -> None:
    """What a command that shows one saga needs; and one of the primary that is away names that primary."""
    away = world.victim("{p05}:x")
    await world.queue()
    away.freeze()
    store = open_store(world.url, patience_s=PATIENCE_S)
    await store.open()
    try:
        there, elsewhere = world.split(store, away)
        assert (await store.head(elsewhere[0])).status == "PENDING"
        with pytest.raises(StoreUnavailable, match=f":{away.port}"):
            await store.head(there[0])
        findings = (await store.promise()).findings
        assert [text for severity, text, _ in findings if severity == "warning" and f":{away.port} does not" in text]
    finally:
        await store.close()


async def test_nobody_starts_without_the_primary_of_the_format(world: World) -> None:
    """Nobody knows what others agree on there meanwhile, and whether they seal: the primary is named."""
    away = world.owner("meta")
    away.freeze()
    with pytest.raises(StoreUnavailable, match=f":{away.port}"):
        async with world.open():
            pass


async def test_a_store_that_could_not_be_opened_keeps_no_connection(world: World) -> None:
    """Whether it was refused by one primary, or did not reach that of the format."""
    first, weak = world.owner("meta"), world.owner("{p05}:x")
    for spoil, mend in (
        (
            lambda: weak.ask("CONFIG", "SET", "appendfsync", "no"),
            lambda: weak.ask("CONFIG", "SET", "appendfsync", "always"),
        ),
        (first.freeze, first.thaw),
    ):
        spoil()
        store = open_store(f"{world.url}&client_name=leaver", patience_s=PATIENCE_S)
        with pytest.raises(SagaError):
            await store.open()
        mend()
        for node in world.cluster.nodes:
            await asyncio.to_thread(
                until, lambda n=node: b"name=leaver" not in n.ask("CLIENT", "LIST"), "no connection"
            )
