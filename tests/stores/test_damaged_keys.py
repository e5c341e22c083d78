"""Somebody with raw access writes keys of a wrong type: one saga's damage is one saga's."""

import asyncio

import pytest

from saga_engine import Coordinator
from saga_engine.errors import SagaError, StoreRefused
from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store
from tests.servers import DebianRedis
from tests.stores.taking import give_back, take

pytestmark = pytest.mark.debian_redis
LONG_MS = 600_000
BAD, GOOD = "bad", ("good1", "good2", "good3")


@pytest.fixture(scope="module")
def server():
    with DebianRedis() as server:
        yield server


@pytest.fixture
def raw(server):
    with server.client() as client:
        yield client
        client.flushall()


async def begun(server):
    store = open_store(server.url, patience_s=30)
    await store.open()
    await store.open_lease("A", LONG_MS)
    entries = [Entry(name, 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True)) for name in (BAD, *GOOD)]
    assert (await store.append("A", entries)).acks == [Ack("ok")] * 4
    return store


def overwrite(raw, key):
    raw.delete(key)
    raw.set(key, b"\xff of somebody else")


@pytest.mark.parametrize("kind", ["journal", "head"])
@pytest.mark.parametrize("at", [0, 2])
async def test_a_group_commit_stands_for_the_others(server, raw, kind, at):
    """The damaged saga's entry is refused; those before and after it in the same commit are added, and told so."""
    store = await begun(server)
    overwrite(raw, store._key(kind, BAD))
    names = list(GOOD)
    names.insert(at, BAD)
    reply = await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])
    assert [ack.code for ack in reply.acks] == ["late" if name == BAD else "ok" for name in names]
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        await reply.late[at]
    for name in GOOD:
        assert list(await store.read(name)) == [b"r0", b"r1"]
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        await store.append("A", [Entry(BAD, 1, 1, [b"r1"])])
    await store.close()


@pytest.mark.parametrize("kind", ["journal", "head", "messages"])
async def test_the_queue_serves_the_others(server, raw, kind):
    """A request for work, the look after a dead owner, a sweep and a list pass over what cannot be read."""
    store = await begun(server)
    work = store.work()
    everywhere = range(work.count)
    overwrite(raw, store._key(kind, BAD))
    await store.close_lease("A")
    await work.reclaim("A", everywhere)
    raw.zadd(store._key("head", BAD).partition("head:")[0] + "due", {BAD: 1})
    await store.open_lease("B", LONG_MS)
    taken = [saga.saga_id for saga in (await work.take("B", "n", 10, everywhere)).sagas]
    assert sorted(taken) == sorted(GOOD)
    assert {head.saga_id for head in await store.list()} == set(GOOD)
    with pytest.raises(SagaError):
        await store.acquire(BAD, "B")
    await store.close()


async def test_garbage_in_one_journal_stops_one_saga(server, raw):
    """A worker goes on with the sagas beside one whose journal holds foreign bytes."""
    plan = {"steps": [{"step_id": 1, "tool": "take", "params": {"x": 1}}]}
    async with Coordinator.open(server.url, [take, give_back]) as coordinator:
        for name in (BAD, *GOOD):
            await coordinator.submit(plan, saga_id=name, detach=True)
        raw.lset(coordinator.store._key("journal", BAD), 0, b"\xff\x00[1]")
        working = asyncio.create_task(coordinator.work())
        for name in GOOD:
            assert (await coordinator.wait(name)).status == "COMPLETED"
        with pytest.raises(SagaError) as caught:
            await coordinator.show(BAD)
        assert caught.value.code == "journal-unreadable"
    await working
