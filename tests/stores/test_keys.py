"""What lies in the server: which keys there are, which of them expire, and that a saga's keys share one slot."""

import hashlib
import uuid

import pytest

from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store

pytestmark = pytest.mark.debian_redis

LONG_MS = 600_000


@pytest.fixture
def namespace():
    return uuid.uuid4().hex


@pytest.fixture
async def store(debian_redis, namespace):
    store = open_store(f"{debian_redis.url}?namespace={namespace}")
    await store.open()
    await store.open_lease("A", LONG_MS)
    yield store
    await store.close()


@pytest.fixture
def raw(debian_redis, namespace):
    with debian_redis.client(decode_responses=True) as client:
        yield client


async def begin(store, *ids):
    entries = [Entry(i, 0, 0, [b"r0"], "RUNNING", values={"v": b"1"}, creation=Creation("d", owned=True)) for i in ids]
    assert set((await store.append("A", entries)).acks) == {Ack("ok")}
    for saga_id in ids:
        await store.post(saga_id, b"m")


def of(raw, namespace, saga_id):
    """The four keys of a saga."""
    return sorted(raw.keys(f"{namespace}:*:{saga_id}"))


async def test_live_sagas_never_expire_and_finished_ones_do(store, raw, namespace):
    """Not one key of a live saga has a TTL; every key of a finished one has the same; a lease always has one."""
    await begin(store, "s1")
    keys = of(raw, namespace, "s1")
    assert [key.split(":")[2] for key in keys] == ["head", "journal", "messages", "values"]
    assert [raw.ttl(key) for key in keys] == [-1] * 4
    assert all(raw.ttl(key) > 0 for key in raw.keys(f"{namespace}:*:lease:A"))
    await store.append("A", [Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, keep_ms=LONG_MS)])
    ends = [raw.pexpiretime(key) for key in keys]
    assert min(ends) > 0
    # Before version 7.2 a server reads its clock anew for each command of a script.
    assert max(ends) - min(ends) < LONG_MS / 2
    assert all(0 < raw.pttl(key) <= LONG_MS for key in keys)


async def test_the_messages_of_a_finished_saga_go_with_it(store, raw, namespace):
    """A message that comes too late makes no key that stays for ever."""
    await begin(store, "s1")
    await store.append("A", [Entry("s1", 1, 1, [b"end"], "COMPLETED", release=True, consumed=1, keep_ms=LONG_MS)])
    await store.post("s1", b"late")
    assert all(raw.pttl(key) > 0 for key in of(raw, namespace, "s1"))


async def test_an_append_to_a_finished_saga_keeps_it(store, raw, namespace):
    """Nothing is appended to a finished saga; if something is, it is kept rather than lost."""
    await begin(store, "s1")
    await store.append("A", [Entry("s1", 1, 1, [b"end"], "COMPLETED", keep_ms=LONG_MS)])
    assert (await store.append("A", [Entry("s1", 2, 1, [b"more"])])).acks[0].code == "ok"
    assert [raw.ttl(key) for key in of(raw, namespace, "s1")] == [-1] * 4
    assert raw.keys(f"{namespace}:*:expiry") == []


async def test_index_entries_of_what_has_gone_are_purged(store, raw, namespace):
    """A saga that ends clears away index entries whose sagas are over, even if nobody ever lists."""
    ids = [f"s{number}" for number in range(40)]
    await begin(store, *ids)
    (head,) = raw.keys(f"{namespace}:*:head:s0")
    tag = head.removesuffix("head:s0")
    neighbour = next(i for i in ids[1:] if raw.exists(f"{tag}head:{i}"))
    await store.append("A", [Entry("s0", 1, 1, [b"end"], "COMPLETED", keep_ms=LONG_MS)])
    # As it is when the time has come: the keys are gone, the entries are not.
    raw.delete(*of(raw, namespace, "s0"))
    raw.zadd(f"{tag}expiry", {"s0": 1})
    assert raw.zscore(f"{tag}index:COMPLETED", "s0")
    await store.append("A", [Entry(neighbour, 1, 1, [b"end"], "WAIVED", keep_ms=LONG_MS)])
    assert raw.zscore(f"{tag}index:COMPLETED", "s0") is None
    assert raw.zrange(f"{tag}expiry", 0, -1) == [neighbour]


async def test_wrong_index_entries_do_not_hide_right_ones(store, raw, namespace):
    """Entries of sagas that have gone are dropped from a list, which then shows what lay behind them."""
    await begin(store, "old")
    await begin(store, *(f"gone{number}" for number in range(10)))
    for number in range(10):
        raw.delete(*of(raw, namespace, f"gone{number}"))
    assert [head.saga_id for head in await store.list("RUNNING", limit=3)] == ["old"]


async def test_the_keys_of_a_saga_share_a_slot(store, raw, namespace):
    """Every key but the store's meta has a partition's hash tag, and all of one saga the same."""
    await begin(store, *(f"s{number}" for number in range(64)))
    keys = [key for key in raw.keys(f"{namespace}:*") if key != f"{namespace}:meta"]
    tags = {key.split("}")[0] for key in keys}
    assert tags == {f"{namespace}:{{p{number:02d}" for number in range(16)}
    for number in range(64):
        assert len({key.split("}")[0] for key in of(raw, namespace, f"s{number}")}) == 1


async def test_namespaces_do_not_meet(debian_redis, store):
    """Two engines on one server with different namespaces see nothing of each other."""
    await begin(store, "s1")
    other = open_store(f"{debian_redis.url}?namespace={uuid.uuid4().hex}")
    await other.open()
    assert await other.list() == []
    await other.close()


async def test_an_id_is_in_one_index_only(store, raw, namespace):
    """The index moves with the status in the same script, so no look is needed to put it right."""
    await begin(store, "s1")
    for seq, status in enumerate(["COMPENSATING", "ESCALATED", "WAIVED"], start=1):
        await store.append("A", [Entry("s1", seq, 1, [b"r"], status)])
        assert [key.split(":")[-1] for key in raw.keys(f"{namespace}:*:index:*")] == [status]


async def test_leftovers_are_no_part_of_a_new_saga(store, raw, namespace):
    """What an earlier saga of the same name left behind (its head was deleted by hand, say) does not come back."""
    await begin(store, "s1")
    raw.delete(*raw.keys(f"{namespace}:*:head:s1"))
    entry = Entry("s1", 0, 0, [b"new"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]
    assert list(await store.read("s1")) == [b"new"]
    assert list(await store.messages("s1")) == []
    assert [key.split(":")[2] for key in of(raw, namespace, "s1")] == ["head", "journal"]


async def test_a_lease_that_ended_somewhere_has_ended(store, raw, namespace):
    """One partition without the lease is enough, and then no other partition is extended."""
    leases = sorted(raw.keys(f"{namespace}:*:lease:A"))
    raw.delete(leases[-1])
    assert (await store.renew("A", 2 * LONG_MS)).alive is False
    assert all(raw.pttl(lease) <= LONG_MS for lease in leases)


async def test_large_group_commits_are_cut(store):
    """No script call carries more than 16 MB, unless one entry alone does; the order stays."""
    entries = [Entry(f"s{n}", 1, 1, [b"x" * 5_000_000]) for n in range(7)]
    entries.append(Entry("s7", 1, 1, [b"r"], values={"v": b"x" * 20_000_000}))
    calls = [[key.split(":")[-1] for key in keys[::2]] for keys, _ in store._commits.cut("A", entries)]
    assert calls == [["s0", "s1", "s2"], ["s3", "s4", "s5"], ["s6"], ["s7"]]


async def test_the_keys_of_guards(store, raw, namespace):
    """Each tool, resource, rate and tally has a slot of its own; arbitrary names are hashed; only statistics stay."""
    guards = store.guard_store()
    await guards.claim("pay.v2", "d", "s1:step:f:0", LONG_MS)
    await guards.breaker_outcome("pay.v2", failed=True, failures=3, open_ms=LONG_MS)
    await guards.count("pay.v2", {"calls": 1})
    await guards.keep_good("find", "d", b"1", LONG_MS)
    await guards.take("user:{u1}", ["s1:step"], LONG_MS)
    await guards.reserve("pay.v2", 1000 * LONG_MS, 1, None)
    await guards.tally_set("limit\ns1", "s1:step:f:0", "1", LONG_MS)
    names = ("user:{u1}", "pay.v2", "limit\ns1")
    resource, rate, tally = (hashlib.sha256(name.encode()).hexdigest()[:32] for name in names)
    kept = "{t:pay.v2}:stats"
    expected = {
        "{t:pay.v2}:dedupe:d": "hash",
        "{t:pay.v2}:owner:s1:step:f:0": "hash",
        "{t:pay.v2}:breaker": "hash",
        kept: "hash",
        "{t:find}:good:d": "hash",
        f"{{r:{resource}}}:queue": "zset",
        f"{{r:{resource}}}:alive": "zset",
        f"{{rate:{rate}}}": "string",
        f"{{y:{tally}}}": "hash",
    }
    keys = {key.removeprefix(f"{namespace}:"): key for key in raw.keys(f"{namespace}:*")}
    there = {name: raw.type(key) for name, key in keys.items() if not name.startswith("{p") and name != "meta"}
    assert there == expected
    assert [name for name in expected if raw.pttl(keys[name]) == -1] == [kept]


async def test_a_dead_owner_is_fenced_before_its_sagas_are_looked_for(store, raw, namespace):
    """What a killed process had sent and the server has not read yet changes nothing that was already looked at."""
    await begin(store, "s1")
    for tag in store._tags:
        await store._run("reclaim", [f"{tag}owners"], ["A", 0, "PENDING", 0, 500])
    assert raw.keys(f"{namespace}:*:lease:A") == []
    late = Entry("s2", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    acks = (await store.append("A", [Entry("s1", 1, 1, [b"late"], "PENDING"), late])).acks
    assert [ack.code for ack in acks] == ["fenced", "fenced"]


async def test_the_index_keeps_nothing_of_an_earlier_saga(store, raw, namespace):
    """Its head is gone, and nobody searched or purged before a saga with its name begins: only the new terms are there."""
    entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry._replace(terms=["*", "tag:old"])])).acks == [Ack("ok")]
    raw.delete(*raw.keys(f"{namespace}:*:journal:s1"), *raw.keys(f"{namespace}:*:head:s1"))
    assert (await store.append("A", [entry._replace(terms=["*", "tag:new"])])).acks == [Ack("ok")]
    [index] = raw.keys(f"{namespace}:*:search")
    assert {member.split("\0")[0] for member in raw.zrange(index, 0, -1)} == {"*", "tag:new"}
    assert raw.zcard(index) == len(["*", "tag:new"])
