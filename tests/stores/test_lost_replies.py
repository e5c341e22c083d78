"""Connections that break, servers that hang or are away: nothing is written twice, nothing acknowledged is lost."""

# ruff: noqa: ASYNC110 -- what is waited for happens in a server or in another room's private parts

import asyncio
import uuid

import pytest

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.ports import Ack, Acquired, Creation, Entry
from saga_engine.stores import open_store
from saga_engine.testing.proxy import CuttingProxy
from tests.support.servers import GIVE_UP_S, DebianRedis

pytestmark = pytest.mark.debian_redis

LONG_MS = 600_000


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
async def proxy(request, debian_redis):
    async with CuttingProxy(debian_redis.url, tcp=request.param) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy):
    store = open_store(f"{proxy.url}?namespace={uuid.uuid4().hex}", patience_s=20)
    await store.open()
    await store.open_lease("A", LONG_MS)
    entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]
    yield store
    proxy.restore()
    await store.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 4])
async def test_a_lost_append_is_applied_once(store, proxy, when, times):
    """Whether the request or the answer was lost, the append is acknowledged once and its records are there once."""
    await store.post("s1", b"m1")
    await store.post("s1", b"m2")
    proxy.cut(when, times=times)
    entry = Entry("s1", 1, 1, [b"r1", b"r2"], "ESCALATED", b"sum", release=True, consumed=2)
    assert (await store.append("A", [entry])).acks == [Ack("ok", released=True)]
    assert proxy.made == times
    assert list(await store.read("s1")) == [b"r0", b"r1", b"r2"]
    assert list(await store.messages("s1")) == []
    assert (await store.head("s1")).owner == ""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_creation_is_one_saga(store, proxy, when):
    """The creator whose answer was lost is told that it has the saga, not that the name is taken."""
    proxy.cut(when)
    entry = Entry("s2", 0, 0, [b"r0"], "RUNNING", creation=Creation("d2", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]
    assert list(await store.read("s2")) == [b"r0"]
    assert proxy.made == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_post_waits_once(store, proxy, when):
    """A message whose answer was lost is not put in twice."""
    await store.post("s1", b"m1")
    proxy.cut(when)
    assert (await store.post("s1", b"m2")).messages == 2
    assert list(await store.messages("s1")) == [b"m1", b"m2"]
    assert proxy.made == 1


async def test_a_lost_acquire_makes_one_more_epoch(store, proxy):
    """The owner that asks again has the greatest epoch, so it can write."""
    # The server knows the script from here on, so the answer that is lost is the answer of one that ran.
    assert await store.acquire("s1", "A") == Acquired(2, 1, [])
    proxy.cut("after")
    assert await store.acquire("s1", "A") == Acquired(4, 1, [])
    assert (await store.append("A", [Entry("s1", 1, 4, [b"r1"])])).acks == [Ack("ok")]


async def test_a_cancelled_call_does_not_mix_up_answers(store, debian_redis):
    """The connection of a call that was given up is not used again: nobody reads another's answer."""
    debian_redis.freeze()
    try:
        given_up = asyncio.create_task(store.head("s1"))
        async with asyncio.timeout(30):
            while not store._calls.others._slots.free < 8:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    finally:
        debian_redis.thaw()
    assert list(await store.messages("s1")) == []
    assert (await store.head("s1")).saga_id == "s1"


async def test_scripts_that_the_server_forgot(store, debian_redis):
    """A server that lost its scripts (a restart, SCRIPT FLUSH) is taught again."""
    with debian_redis.client() as client:
        client.script_flush()
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]


async def test_an_outage_within_patience_is_not_seen(debian_redis):
    """A call that was made while the server was away succeeds when it is back."""
    async with CuttingProxy(debian_redis.url) as proxy:
        store = open_store(f"{proxy.url}?namespace={uuid.uuid4().hex}", patience_s=30)
        await store.open()
        proxy.outage()
        call = asyncio.create_task(store.open_lease("A", LONG_MS))
        while proxy.refused == 0:
            await asyncio.sleep(0)
        proxy.restore()
        assert await call > 0
        await store.close()


async def at_last(call):
    """What a call gets from a server that is there: this machine may need longer than the patience of these tests."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                continue


async def test_an_outage_beyond_patience(debian_redis):
    """Patience ends: the error says which store, and what to do."""
    async with CuttingProxy(debian_redis.url) as proxy:
        store = open_store(f"{proxy.url}?namespace={uuid.uuid4().hex}", patience_s=0.3)
        await at_last(store.open)
        proxy.outage()
        with pytest.raises(StoreUnavailable) as caught:
            await store.open_lease("A", LONG_MS)
        assert caught.value.hint
        assert proxy.url in str(caught.value)
        proxy.restore()
        assert await at_last(lambda: store.open_lease("A", LONG_MS)) > 0
        await store.close()


async def test_a_server_that_hangs(debian_redis):
    """A frozen server is as good as one that is away."""
    store = open_store(f"{debian_redis.url}?namespace={uuid.uuid4().hex}", patience_s=0.3)
    await at_last(store.open)
    debian_redis.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            await store.open_lease("A", LONG_MS)
    finally:
        debian_redis.thaw()
    await store.close()


async def test_a_server_that_restarts_keeps_what_it_acknowledged():
    """A power cut of the server between two appends: the second is added to all that was acknowledged."""
    with DebianRedis() as server:
        store = open_store(server.url)
        await store.open()
        await store.open_lease("A", LONG_MS)
        await store.append("A", [Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))])
        server.kill()
        server.start()
        assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
        assert list(await store.read("s1")) == [b"r0", b"r1"]
        await store.close()


async def test_refusals_of_the_server_change_nothing():
    """A full server, a wrong key and a missing permission are refusals with a hint; the journal stays as it was."""
    with DebianRedis() as server:
        store = open_store(server.url)
        await store.open()
        await store.open_lease("A", LONG_MS)
        await store.append("A", [Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))])
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(StoreRefused, match="OOM") as full:
                await store.append("A", [Entry("s1", 1, 1, [b"r1"])])
            client.config_set("maxmemory", "0")
            (journal,) = client.keys("saga:*:journal:s1")
            client.rename(journal, "kept")
            client.set(journal, "no list")
            with pytest.raises(StoreRefused, match="WRONGTYPE") as wrong:
                await store.append("A", [Entry("s1", 1, 1, [b"r1"])])
            client.rename("kept", journal)
            client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-rpush"])
            with pytest.raises(StoreRefused) as denied:
                await store.append("A", [Entry("s1", 1, 1, [b"r1"])])
        assert all(error.value.hint for error in (full, wrong, denied))
        assert list(await store.read("s1")) == [b"r0"]
        await store.close()
