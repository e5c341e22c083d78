"""A primary dies, or a slot moves, while sagas run: what was acknowledged, and at which level it is still there."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.client import Monitor

from saga_engine import Coordinator, ToolContext, tool
from saga_engine.core.state import State
from saga_engine.errors import JournalConflict
from saga_engine.runtime.journal import look
from saga_engine.stores import open_store
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.driving import Drive
from tests.kill.polling import eventually
from tests.support.servers import GIVE_UP_S, until
from tests.support.topologies import Cluster, Node, SentinelTrio, slot


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Whole again after each test."""
    yield shared_cluster
    shared_cluster.whole()


@pytest.fixture
def trio() -> Iterator[SentinelTrio]:
    with SentinelTrio() as trio:
        yield trio


@pytest.fixture
def drives() -> Iterator[list[Drive]]:
    drives: list[Drive] = []
    yield drives
    for drive in drives:
        drive.kill()


def nothing_is_wrong(drive: Drive, told: dict[str, Any]) -> None:
    """No saga noticed, nothing acknowledged is gone, and the world is as the reports say."""
    assert told["errors"] == {}
    assert len(told["finals"]) > 10
    assert drive.lost() == {}
    assert drive.disagreements(told["finals"]) == {}


#: What the primary sees after the cut and before anything that is written after it.
_CUT = "the replicas are cut off"


def cut_off(primary: Node, replicas: list[Node]) -> None:
    """Have the primary alone get what is written from now on, and wait until it has answered for one such append.

    The answer is that of the append's own WAITAOF: no replica has it. Nobody may rely on what was appended.
    """
    with primary.client(socket_timeout=GIVE_UP_S) as client, client.monitor() as monitor:
        for replica in replicas:
            replica.freeze()  # all of them first: one that runs would be back at once
        client.client_kill_filter(_type="replica")
        until(lambda: client.info("replication")["connected_slaves"] == 0, "the lines to the replicas to end")
        client.echo(_CUT)
        while monitor.next_command()["command"] != f"ECHO {_CUT}":
            pass
        # The engine closes a connection that answers 'too few'. It may also have given up waiting: hence the second.
        closed = 0
        while closed < 2 and not _is_answered(client, _asks_alone(monitor)):
            closed += 1


def _asks_alone(monitor: Monitor) -> str:
    """The connection that has sent an append, and then WAITAOF for it."""
    appended = set()
    while True:
        seen = monitor.next_command()
        connection, command = f"{seen['client_address']}:{seen['client_port']}", seen["command"]
        if seen["client_type"] == "lua":
            continue
        if command.startswith("EVALSHA") and "}:journal:" in command:
            appended.add(connection)
        elif command.startswith("WAITAOF") and connection in appended:
            return connection


def _is_answered(client: redis.Redis, connection: str) -> bool:
    """Wait until a connection has the answer to its WAITAOF, or is closed: then it is unknown, and false."""
    found: list[dict[str, str]] = []

    def waits_no_more() -> bool:
        found[:] = [each for each in client.client_list() if each["addr"] == connection]
        return not (found and found[0]["cmd"] == "waitaof" and "b" in found[0]["flags"])

    until(waits_no_more, "the answer for an append that the primary alone has")
    return bool(found)


def test_a_primary_of_a_cluster_is_killed(cluster: Cluster, tmp_path: Path, drives: list[Drive]) -> None:
    """``replicated:1``: a primary dies with writes that its replica lacks; that one takes over, and no saga notices."""
    drive = Drive(cluster, tmp_path, durability="replicated:1")
    drives.append(drive)
    drive.start()
    drive.goes_on()
    dead = cluster.primaries()[0]
    heir = cluster.replica_of(dead)
    cut_off(dead, [heir])
    dead.kill()
    heir.thaw()
    # The heir has no replica until the dead one is back as one: nothing can be acknowledged without it.
    until(lambda: dead not in cluster.primaries() and len(cluster.primaries()) == 3, "the fail-over")
    dead.start()
    drive.goes_on()
    nothing_is_wrong(drive, drive.end())


def test_the_primary_of_sentinels_is_killed(trio: SentinelTrio, tmp_path: Path, drives: list[Drive]) -> None:
    """``replicated:2`` of two: whichever replica is promoted has everything; sagas go on once both are back."""
    drive = Drive(trio, tmp_path, durability="replicated:2")
    drives.append(drive)
    drive.start()
    drive.goes_on()
    dead = trio.primary
    replicas = [node for node in trio.servers if node is not dead]
    cut_off(dead, replicas)
    dead.kill()
    for replica in replicas:
        replica.thaw()
    until(lambda: trio.primary is not dead, "the fail-over")
    # The Sentinels would tell it in a while.
    dead.settings["replicaof"] = f"127.0.0.1 {trio.primary.port}"
    dead.start()
    drive.goes_on()
    nothing_is_wrong(drive, drive.end())


def test_a_slot_moves_under_running_sagas(cluster: Cluster, tmp_path: Path, drives: list[Drive]) -> None:
    """A partition goes from one primary to another, key by key, and back: its sagas wait, then follow (MOVED)."""
    drive = Drive(cluster, tmp_path, durability="replicated:1", lease_s=5.0)
    drives.append(drive)
    number = slot(f"{drive.namespace}:{{p03}}:head:x")
    home = cluster.owner(number)
    away = next(node for node in cluster.primaries() if node is not home)
    drive.start()
    drive.goes_on()
    for source, target in ((home, away), (away, home)):
        cluster.begin_move(number, target)
        cluster.move_keys(number, source, target, 20)
        cluster.end_move(number, source, target)
        drive.goes_on()
    nothing_is_wrong(drive, drive.end())


def test_fsync_alone_may_lose_and_never_does_twice(cluster: Cluster, tmp_path: Path, drives: list[Drive]) -> None:
    """``fsync``: what the replica lacked is gone; what is left is resumed, and no effect happens twice."""
    drive = Drive(cluster, tmp_path, durability="fsync", goes_on=True)
    drives.append(drive)
    drive.start()
    drive.goes_on()
    dead = cluster.primaries()[0]
    heir = cluster.replica_of(dead)
    heir.fall_behind(dead)
    drive.goes_on(400)
    dead.kill()
    heir.thaw()
    until(lambda: heir in cluster.primaries(), "the fail-over")
    drive.goes_on()
    drive.end()
    dead.start()
    lost = drive.lost()
    assert sum(lost.values()) > 0
    drive.start(resume=True)
    told = drive.end()
    assert told["errors"] == {}
    # A saga whose very start is gone is unknown; one that has lost its end goes on from what is left, with its keys.
    complete = {saga_id: body for saga_id, body in told["finals"].items() if saga_id not in lost}
    assert drive.disagreements(complete) == {}
    for saga_id in told["finals"].keys() & lost.keys():
        body = told["finals"][saga_id]
        assert body["status"] in ("COMPLETED", "COMPENSATED")
        # A request may be sent again, because nobody knows that it was; with its key, so nothing happens twice.
        assert not [text for text in drive.ledger.compare(body) if "was sent" not in text]


async def test_a_driver_notices_that_its_journal_went_back(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever goes on where the journal no longer is stops, leaves no hole, and the saga is taken up from what is left."""
    ledger = OutsideLedger(tmp_path / "world.db")
    gates = {"one": asyncio.Event(), "two": asyncio.Event()}

    @tool(keyed=True)
    async def cancel(ref: str, ctx: ToolContext) -> None:
        raise AssertionError("nothing is undone here")

    @tool(keyed=True, undo="cancel")
    async def book(item: str, ctx: ToolContext) -> dict:
        ledger.sent(ctx, "book", {"item": item})
        if item in gates:
            await gates[item].wait()
        return ledger.apply(ctx, "book", {"ref": item}, once=True)

    items = ["a", "one", "b", "c", "two", "d"]
    steps = [{"step_id": at, "tool": "book", "params": {"item": item}} for at, item in enumerate(items, 1)]
    namespace = uuid.uuid4().hex
    opened = open_store(f"{cluster.url}?namespace={namespace}", patience_s=GIVE_UP_S)

    def arrived(item: str) -> bool:
        return any(line.value == {"item": item} for line in ledger.lines("trip"))

    async with Coordinator.open(opened, [book, cancel], lease_s=120.0) as coordinator:
        handle = await coordinator.submit({"steps": steps}, saga_id="trip")
        await eventually(lambda: arrived("one"), "the first gate")
        dead = await asyncio.to_thread(cluster.owner, slot(opened._key("head", "trip")))
        heir = await asyncio.to_thread(cluster.replica_of, dead)
        await asyncio.to_thread(until, cluster.settled, "the replica to have it all")
        known = list(await opened.read("trip"))
        heir.fall_behind(dead)
        gates["one"].set()
        await eventually(lambda: arrived("two"), "the second gate")
        acknowledged = list(await opened.read("trip"))
        assert len(acknowledged) > len(known)
        dead.kill()
        heir.thaw()
        await asyncio.to_thread(until, lambda: heir in cluster.primaries(), "the fail-over")
        gates["two"].set()
        with pytest.raises(JournalConflict):
            await handle.wait()
        assert list(await opened.read("trip")) == known
        outcome = await coordinator.resume("trip")
        assert outcome.status == "COMPLETED"
        state: State = await look(opened, "trip", full=True)
        assert state.status == "COMPLETED"
        assert list(await opened.read("trip"))[: len(known)] == known
    applied = [line.step_id for line in ledger.lines("trip", what="applied")]
    assert applied == ["1", "2", "3", "4", "5", "6"]
