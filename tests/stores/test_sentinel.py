"""A real Sentinel trio over a primary and two replicas: the store follows whoever is primary."""

import asyncio
import uuid

import pytest

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.ports import Ack, Acquired, Creation, Entry, Hint
from saga_engine.stores import hints, open_store
from saga_engine.testing.conformance import StoreConformance
from saga_engine.testing.guard_conformance import GuardConformance
from tests.stores.permissions import DOCS, documented_rules
from tests.support.servers import GIVE_UP_S, until
from tests.support.topologies import SentinelTrio

LONG_MS = 600_000


@pytest.fixture(scope="module")
def trio():
    with SentinelTrio() as trio:
        yield trio


async def opened(url, **options):
    store = open_store(f"{url}?namespace={uuid.uuid4().hex}", **options)
    await store.open()
    return store


class TestSentinel(StoreConformance):
    @pytest.fixture
    async def store(self, trio):
        store = await opened(trio.url, durability="replicated:2")
        yield store
        await store.close()


class TestGuards(GuardConformance):
    @pytest.fixture
    async def store(self, trio):
        store = await opened(trio.url)
        yield store
        await store.close()


async def begin(store, *names):
    await store.open_lease("A", LONG_MS)
    entries = [Entry(name, 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True)) for name in names]
    assert (await store.append("A", entries)).acks == [Ack("ok")] * len(names)


async def test_a_name_that_no_sentinel_knows(trio):
    """Patience ends with the name that nobody knows."""
    store = open_store(trio.url.replace("/trio", "/quartet"), patience_s=0.3)
    with pytest.raises(StoreUnavailable, match="quartet"):
        await store.open()


async def test_dead_sentinels_are_passed_over(trio):
    """One Sentinel that answers is enough; none is an outage."""
    alive = trio.sentinels[2].port
    store = await opened(f"redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:{alive}/trio")
    await begin(store, "s1")
    await store.close()
    store = open_store("redis+sentinel://127.0.0.1:1,127.0.0.1:2/trio", patience_s=0.3)
    with pytest.raises(StoreUnavailable, match="no Sentinel answers"):
        await store.open()


@pytest.fixture
def frail():
    with SentinelTrio() as trio:
        yield trio


async def test_the_primary_dies(frail):
    """The store asks the Sentinels until they name another, and finds there all that was acknowledged."""
    store = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S)
    names = [f"s{n}" for n in range(20)]
    await begin(store, *names)
    old = frail.primary
    old.kill()
    assert (await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])).acks == [Ack("ok")] * 20
    assert frail.primary is not old
    for name in names:
        assert list(await store.read(name)) == [b"r0", b"r1"]
    assert await store.acquire(names[0], "A") == Acquired(2, 2, [])
    await store.close()


async def test_an_orderly_failover_is_followed(frail):
    """A primary that is told to become a replica answers READONLY from then on: it is left for the new one."""
    store = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S)
    await begin(store, "s1")
    old = frail.primary
    frail.sentinels[0].ask("SENTINEL", "FAILOVER", frail.NAME)
    await asyncio.to_thread(until, lambda: frail.primary is not old, "the fail-over")
    for seq in range(1, 5):
        assert (await store.append("A", [Entry("s1", seq, 1, [b"r"])])).acks == [Ack("ok")]
    assert len(await store.read("s1")) == 5
    await store.close()


async def test_a_primary_that_hangs_is_left(frail):
    """A frozen primary is replaced; thawed, it is not believed, and nothing that it alone has counts."""
    store = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S)
    await begin(store, "s1")
    old = frail.primary
    old.freeze()
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    old.thaw()
    assert (await store.append("A", [Entry("s1", 2, 1, [b"r2"])])).acks == [Ack("ok")]
    assert list(await store.read("s1")) == [b"r0", b"r1", b"r2"]
    await store.close()


async def heard_of(hint, heard):
    """Wait until it is in the list."""
    async with asyncio.timeout(GIVE_UP_S):
        while hint not in heard:  # noqa: ASYNC110 - what another task hears
            await asyncio.sleep(0.005)


async def test_hints_of_work_come_from_the_new_primary(frail, monkeypatch):
    """A worker that listens to a primary that dies is told that it does not, and then hears the one that took over."""
    monkeypatch.setattr(hints, "_PAUSES_S", (0.05, 0.2))
    store, heard = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S), []
    listening = asyncio.create_task(store.work().listen(range(store.work().count), heard.append))
    await heard_of(Hint(), heard)
    await begin(store, "s1", "s2")
    frail.primary.kill()
    await heard_of(None, heard)
    heard.clear()
    await store.post("s1", b"lost or not")
    await heard_of(Hint(), heard)
    await store.post("s2", b"m")
    await heard_of(Hint("A", "s2"), heard)
    assert await store.messages("s1") == [b"lost or not"]
    listening.cancel()
    await asyncio.wait([listening])
    await store.close()


async def test_the_documented_user_behind_sentinels(trio):
    """The rules of docs/stores.md, with that for Sentinels, are enough."""
    rules = [*documented_rules().split(), "+role"]
    assert "also `+role`" in DOCS.read_text()
    for server in trio.servers:
        server.ask("ACL", "SETUSER", "engine", "on", ">geheim", "~saga:*", *rules)
    address = trio.url.removeprefix("redis+sentinel://")
    store = open_store(f"redis+sentinel://engine:geheim@{address}", durability="replicated:2")
    await store.open()
    await begin(store, "s1")
    await store.close()


async def test_passwords_of_servers_and_of_sentinels():
    """Servers and Sentinels have passwords of their own; none is shown, and a wrong one is a refusal at once."""
    with SentinelTrio() as trio:
        for server in trio.servers:
            server.ask("CONFIG", "SET", "masterauth", "geheim")
            server.ask("CONFIG", "SET", "requirepass", "geheim")
        for sentinel in trio.sentinels:
            sentinel.ask("SENTINEL", "SET", trio.NAME, "auth-pass", "geheim")
            sentinel.ask("ACL", "SETUSER", "default", ">tief")
        address = trio.url.removeprefix("redis+sentinel://")
        store = await opened_with(f"redis+sentinel://:geheim@{address}", "tief")
        await begin(store, "s1")
        assert "geheim" not in store.url
        assert "tief" not in store.url
        await store.close()
        for url, deep in (
            (f"redis+sentinel://:falsch@{address}", "tief"),
            (f"redis+sentinel://:geheim@{address}", "flach"),
        ):
            with pytest.raises(StoreRefused, match="does not let us in") as caught:
                await opened_with(url, deep)
            assert not any(word in f"{caught.value}{caught.value.to_dict()}" for word in ("falsch", "flach", "tief"))


async def opened_with(url, deep):
    store = open_store(f"{url}?sentinel_password={deep}")
    await store.open()
    return store
