"""A server that comes back weaker than it was: found on each new connection, and by workers in their rounds."""

import asyncio
from functools import partial

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import DurabilityInsufficient
from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.kill.polling import eventually
from tests.support.servers import DebianRedis

pytestmark = pytest.mark.debian_redis
LONG_MS = 600_000


@pytest.fixture
def server():
    with DebianRedis() as server:
        yield server


async def begun(server, **options):
    store = open_store(server.url, patience_s=30, **options)
    await store.open()
    await store.open_lease("A", LONG_MS)
    entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]
    return store


@pytest.mark.parametrize(
    ("weak", "found"),
    [
        ({"appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"appendonly": "no"}, "the append-only file is off"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "drops keys when it is full"),
    ],
    ids=["everysec", "no file", "eviction"],
)
async def test_a_server_that_comes_back_weaker_is_refused(server, weak, found):
    """Restarted with another configuration it gets no record; set right, it goes on where it was."""
    store = await begun(server)
    strong = dict(server.settings)
    server.stop()
    server.settings |= weak
    server.start()
    for _ in range(2):
        with pytest.raises(DurabilityInsufficient, match=found):
            await store.append("A", [Entry("s1", 1, 1, [b"r1"])])
    with server.client() as raw:
        assert raw.llen(store._key("journal", "s1")) == (0 if "appendonly" in weak else 1)
        if "appendonly" in weak:
            return
        for name in weak:
            raw.config_set(name, strong.get(name, {"maxmemory": "0"}.get(name, "noeviction")))
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    await store.close()


async def test_a_connection_that_is_made_anew_asks(server):
    """Also without a restart: whoever loses its connection looks again."""
    store = await begun(server)
    with server.client() as raw:
        raw.config_set("appendfsync", "everysec")
        assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
        raw.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(DurabilityInsufficient):
            await store.append("A", [Entry("s1", 2, 1, [b"r2"])])
    await store.close()


async def test_what_was_found_weak_gets_nothing_more(server):
    """A look finds it although no connection was lost: then those that are open end, and none gets a record meanwhile."""
    store = await begun(server)
    with server.client() as raw:
        raw.config_set("appendfsync", "everysec")
        with pytest.raises(DurabilityInsufficient):
            await store.verify()
        with pytest.raises(DurabilityInsufficient):
            await store.append("A", [Entry("s1", 1, 1, [b"r1"])])
        assert raw.llen(store._key("journal", "s1")) == 1
        raw.config_set("appendfsync", "always")
    await store.verify()
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    await store.close()


async def test_relaxed_asks_nobody(server):
    """Who chose a weak server gets no refusal later."""
    store = await begun(server, durability="relaxed")
    with server.client() as raw:
        raw.config_set("appendfsync", "everysec")
        raw.client_kill_filter(_type="normal", skipme=True)
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    await store.verify()
    await store.close()


@tool(effect="read")
async def look() -> dict:
    return {}


#: More rounds than lie between two looks.
ROUNDS = 12


async def test_a_worker_finds_out_in_its_rounds(server, caplog):
    """No connection was lost: a worker asks all the same, takes nothing more, and goes on when the server is set right."""
    faults = Faults()
    async with Coordinator.open(FaultyStore(open_store(server.url), faults), [look]) as coordinator:
        working = asyncio.create_task(coordinator.work())
        await eventually(lambda: _at_work(coordinator), "the worker")
        with server.client() as raw:
            raw.config_set("appendfsync", "everysec")
            # Each round asks once who the owners are; the requests for work that follow a look are refused.
            for point, more in (("work_owners", ROUNDS), ("work_take", 2)):
                until = faults.counts[point] + more
                await eventually(
                    partial(
                        lambda *of: "no work can be had" in caplog.text or faults.counts[of[0]] > of[1], point, until
                    ),
                    f"{point} some times",
                )
            assert "no work can be had" in caplog.text
            assert "appendfsync is everysec" in caplog.text
            raw.config_set("appendfsync", "always")
        await coordinator.submit({"steps": [{"step_id": 1, "tool": "look"}]}, saga_id="s", detach=True)
        assert (await coordinator.wait("s")).status == "COMPLETED"
    await working


async def _at_work(coordinator) -> bool:
    return bool((await coordinator.overview()).reports)
