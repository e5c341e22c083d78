"""``replicated:N``: acknowledged means on the disk of the server and of N replicas, whatever is repeated, wherever."""

import asyncio
import uuid

import pytest

from saga_engine.errors import DurabilityInsufficient, SettingInvalid, StoreUnavailable
from saga_engine.ports import Ack, Acquired, Creation, Entry
from saga_engine.stores import open_store
from saga_engine.stores.connection import beside, key_of
from tests.cli.conftest import Cli
from tests.support.servers import GIVE_UP_S, DebianRedis, until
from tests.support.topologies import Node, Replicated, synced

LONG_MS = 600_000
CREATION = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))


@pytest.fixture(scope="module")
def pair():
    with Replicated(1) as pair:
        yield pair


@pytest.fixture
def replica(pair):
    """The replica, to be frozen; it is well again after the test."""
    (replica,) = pair.replicas
    yield replica
    replica.thaw()
    until(lambda: synced(pair.primary, 1), "the replica to catch up")


#: The patience of many stores that all connect at once: a machine that is busy needs a while for that.
CROWDED_S = 4.0


class World:
    """One namespace, seen through a store that waits long, and through hasty ones with connections of their own."""

    def __init__(self, pair):
        self.pair = pair
        self.namespace = uuid.uuid4().hex
        self.stores = []

    def store(self, patience_s=1.0, durability="replicated:1"):
        url = f"{self.pair.url}?namespace={self.namespace}"
        store = open_store(url, durability=durability, patience_s=patience_s)
        self.stores.append(store)
        return store


@pytest.fixture
async def world(pair):
    world = World(pair)
    yield world
    for store in world.stores:
        await store.close()


@pytest.fixture
async def store(world):
    store = world.store(GIVE_UP_S)
    await store.open()
    await store.open_lease("A", LONG_MS)
    assert (await store.append("A", [CREATION])).acks == [Ack("ok")]
    return store


VERBS = {
    "append": lambda store: store.append("A", [Entry("s1", 1, 1, [b"r1"])]),
    "create": lambda store: store.append("A", [CREATION._replace(saga_id="s2")]),
    "acquire": lambda store: store.acquire("s1", "A"),
    "release": lambda store: store.release("s1", 1),
    "open a lease": lambda store: store.open_lease("B", LONG_MS),
    "renew": lambda store: store.renew("A", LONG_MS),
    "post": lambda store: store.post("s1", b"m1"),
    "claim": lambda store: store.guard_store().claim("pay", "digest", "s1", LONG_MS),
    "remember": lambda store: store.guard_store().remember("pay", "known", "s1", b"result", LONG_MS),
    "queue": lambda store: store.guard_store().take("room", ["t1"], LONG_MS),
    "tally": lambda store: store.guard_store().tally_set("spent", "s1", "7", LONG_MS),
}


async def unconfirmed(stores):
    """Call every verb, each on a store of its own; returns those that did not say that the replica lacks it."""
    calls = [call(store) for call, store in zip(VERBS.values(), stores, strict=True)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    return {
        verb: said
        for verb, said in zip(VERBS, found, strict=True)
        if not (isinstance(said, StoreUnavailable) and "0 of 1 replicas" in str(said) and "replicas" in said.hint)
    }


async def test_nothing_that_others_rely_on_counts_without_the_replica(store, world, replica):
    """Each verb says 'not now' while the replica is away, also when it is repeated and finds its own work.

    Over a connection that never wrote, or only read, WAITAOF alone says yes at once: it has nothing to wait for.
    """
    await store.guard_store().claim("pay", "known", "s1", LONG_MS)
    replica.freeze()
    assert await unconfirmed([world.store(patience_s=CROWDED_S) for _ in VERBS]) == {}
    assert await unconfirmed([world.store(patience_s=CROWDED_S) for _ in VERBS]) == {}
    warm = [world.store(patience_s=CROWDED_S) for _ in VERBS]
    for other in warm:
        await other.head("s1")
    assert await unconfirmed(warm) == {}
    replica.thaw()
    assert list(await store.messages("s1")) == [b"m1"]
    assert (await store.append("A", [Entry("s1", 1, 3, [b"r1"])])).acks[0].code == "fenced"


async def test_what_was_refused_for_now_is_applied_once(store, world, replica):
    """The append that could not be confirmed is confirmed by its repeat, and its records are there once."""
    replica.freeze()
    entry = Entry("s1", 1, 1, [b"r1"], "COMPENSATING", b"sum")
    with pytest.raises(StoreUnavailable):
        await world.store().append("A", [entry])
    waiting = asyncio.create_task(store.append("A", [entry]))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    replica.thaw()
    assert (await waiting).acks == [Ack("ok")]
    assert list(await store.read("s1")) == [b"r0", b"r1"]
    assert list(await store.read("s1")) == replica.client().lrange(store._key("journal", "s1"), 0, -1)


async def test_reads_do_not_wait(store, world, replica):
    """Looking is possible without any replica, and so is everything at the level ``fsync``."""
    replica.freeze()
    hasty = world.store()
    assert (await hasty.head("s1")).length == 1
    assert list(await hasty.read("s1")) == [b"r0"]
    assert [head.saga_id for head in await hasty.list()] == ["s1"]
    assert list(await hasty.messages("s1")) == []
    assert await hasty.guard_store().counters(["pay"]) == {"pay": {}}
    lower = world.store(durability="fsync")
    await lower.open()
    assert (await lower.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]


async def test_it_is_quick_when_all_is_well(store, pair):
    """A replica that syncs each write confirms it within the attempt: no call waits for a report of once a second."""
    with pair.primary.client() as client:
        before = client.info("commandstats")["cmdstat_waitaof"]["calls"]
        for seq in range(1, 51):
            assert (await store.append("A", [Entry("s1", seq, 1, [b"r"])])).acks == [Ack("ok")]
        stats = client.info("commandstats")
    # One question for each append: none had to be asked a second time.
    assert stats["cmdstat_waitaof"]["calls"] - before == 50


async def test_a_failed_over_replica_has_all_of_it(pair, store):
    """What was acknowledged is on the replica's disk: killed and started again as a primary, it has every record."""
    with Replicated(1) as doomed:
        owner = open_store(doomed.url, durability="replicated:1")
        await owner.open()
        await owner.open_lease("A", LONG_MS)
        await owner.append("A", [CREATION])
        for seq in range(1, 21):
            await owner.append("A", [Entry("s1", seq, 1, [b"r%d" % seq])])
        doomed.primary.kill()
        (heir,) = doomed.replicas
        heir.kill()
        heir.settings.pop("replicaof")
        heir.start()
        new = open_store(heir.url)
        await new.open()
        assert list(await new.read("s1")) == [b"r%d" % n for n in range(21)]
        assert await new.acquire("s1", "A") == Acquired(2, 21, [])
        await owner.close()
        await new.close()


def test_doctor_tells_the_level(pair, tmp_path):
    """`saga doctor` says what was asked for and what is kept, and asking for too much is a finding with the reason."""
    cli = Cli(tmp_path)
    good = cli("doctor", "--json", "--store", pair.url, env={"SAGA_DURABILITY": "replicated:1", "SAGA_PATIENCE_S": "1"})
    assert (good.json["store"]["level"], good.json["store"]["asked_for"]) == ("replicated:1", "replicated:1")
    assert any("disks of 1 replica" in finding["text"] for finding in good.json["findings"])
    poor = cli("doctor", "--json", "--store", pair.url, env={"SAGA_DURABILITY": "replicated:2", "SAGA_PATIENCE_S": "1"})
    assert any("1 of 2 replicas are attached" in finding["text"] for finding in poor.json["findings"])
    assert poor.code == 1


# --- what is refused ---


async def test_a_server_without_replicas():
    """Nobody to wait for: refused when it is opened, with the number."""
    with Node() as alone:
        store = open_store(alone.url, durability="replicated:1", patience_s=1.0)
        with pytest.raises(DurabilityInsufficient, match="0 of 1 replicas are attached") as caught:
            await store.open()
        assert caught.value.hint
        assert (await store.promise()).level == "relaxed"
        await store.close()


async def test_more_replicas_than_there_are(pair):
    """Two are asked for and one is there."""
    store = open_store(pair.url, durability="replicated:2", patience_s=1.0)
    with pytest.raises(DurabilityInsufficient, match="1 of 2 replicas are attached"):
        await store.open()
    await store.close()


async def test_a_replica_that_writes_no_file():
    """A replica in memory only confirms nothing, and the hint names the settings."""
    with Replicated(1, appendonly="no") as pair:
        until(lambda: pair.primary.ask("INFO", "replication")["connected_slaves"] == 1, "the replica to attach")
        store = open_store(pair.url, durability="replicated:1", patience_s=1.0)
        with pytest.raises(DurabilityInsufficient, match="do not confirm") as caught:
            await store.open()
        assert "on every replica: CONFIG SET appendonly yes" in caught.value.hint
        await store.close()


@pytest.mark.slow
async def test_a_replica_that_syncs_every_second():
    """Slower, and just as good: what it confirms is on its disk."""
    with Replicated(1, appendfsync="everysec") as pair:
        store = open_store(pair.url, durability="replicated:1", patience_s=GIVE_UP_S)
        await store.open()
        await store.open_lease("A", LONG_MS)
        assert (await store.append("A", [CREATION])).acks == [Ack("ok")]
        await store.close()


@pytest.mark.debian_redis
async def test_a_server_that_cannot_say():
    """Redis 7.0 has no WAITAOF: memory of replicas is not taken for their disk."""
    with DebianRedis() as server:
        store = open_store(server.url, durability="replicated:1", patience_s=1.0)
        with pytest.raises(DurabilityInsufficient, match="no WAITAOF") as caught:
            await store.open()
        assert "7.2" in caught.value.hint
        await store.close()


@pytest.mark.parametrize(
    "level", ["replicated", "replicated:", "replicated:0", "replicated:10", "replicated:x", "Fsync"]
)
def test_levels_that_mean_nothing(level):
    """A typing error does not lower the guard."""
    with pytest.raises(SettingInvalid):
        open_store("redis://h", durability=level)


@pytest.mark.parametrize("url", ["memory://", "embedded://.saga"])
def test_stores_without_replicas(url):
    """Where there can be no replica, asking for one is a mistake in the settings."""
    with pytest.raises(SettingInvalid, match="no replicas"):
        open_store(url, durability="replicated:1")


@pytest.mark.parametrize(
    ("command", "key", "mark"),
    [
        (
            [b"EVALSHA", b"x", 2, "saga:{p03}:journal:s", "saga:{p03}:head:s"],
            b"saga:{p03}:journal:s",
            b"saga:{p03}:mark",
        ),
        ([b"EVALSHA", b"x", 1, "saga:meta"], b"saga:meta", b"saga:{saga:meta}:mark"),
        ([b"EVAL", b"x", 1, "a-b:{t:{pay}}:stats"], b"a-b:{t:{pay}}:stats", b"a-b:{t:{pay}:mark"),
        (["HGET", "saga:{p03}:head:s", "status"], b"saga:{p03}:head:s", b"saga:{p03}:mark"),
    ],
)
def test_a_mark_lies_beside_what_it_marks(command, key, mark):
    """In the same namespace (for permissions) and in the same slot (for clusters)."""
    from redis.crc import key_slot

    assert key_of(command) == key
    assert beside(key, b"mark") == mark
    assert key_slot(key) == key_slot(mark)
    assert key_of([b"EVAL", b"x", 0, "owner"]) is None
    assert key_of(["INFO"]) is None


async def test_large_values_of_temporal_wait_for_replicas(world, store, replica):
    """The history holds nothing but their digest, so they are kept as safely as a journal."""
    values = world.store().value_store()
    await values.put("d" * 64, b"large", 60_000)
    assert await values.get("d" * 64) == b"large"
    replica.freeze()
    with pytest.raises(StoreUnavailable, match="did not confirm"):
        await values.put("e" * 64, b"large", 60_000)
