"""A real cluster: three primaries with a replica each. The store is the same, wherever its partitions lie."""

import asyncio
import gc
import uuid
import warnings
from contextlib import asynccontextmanager

import pytest
from redis.crc import key_slot

from saga_engine import Coordinator, tool
from saga_engine.errors import DurabilityInsufficient, StoreRefused, StoreUnavailable
from saga_engine.ports import Ack, Acquired, Creation, Entry, Hint
from saga_engine.stores import hints, open_store
from saga_engine.stores.addresses import Address
from saga_engine.stores.client import Calls
from saga_engine.stores.cluster import ClusterConnector, ClusterPool
from saga_engine.stores.connection import TransientError
from saga_engine.testing.conformance import StoreConformance
from saga_engine.testing.guard_conformance import GuardConformance
from tests.stores.permissions import DOCS, documented_rules
from tests.support.servers import GIVE_UP_S, until
from tests.support.topologies import Cluster, Node, slot

LONG_MS = 600_000


@pytest.fixture(scope="module")
def valkeys():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def redises():
    with Cluster(debian=True, replicas=False) as cluster:
        yield cluster


async def opened(url, namespace=None, **options):
    """A store that is open; one with little patience may need several tries on a busy machine."""
    store = open_store(f"{url}?namespace={namespace or uuid.uuid4().hex}", **options)
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                await store.open()
                return store
            except StoreUnavailable:
                await asyncio.sleep(0)


class TestCluster(StoreConformance):
    @pytest.fixture
    async def store(self, valkeys):
        store = await opened(valkeys.url, durability="replicated:1")
        yield store
        await store.close()


@pytest.mark.debian_redis
class TestDebianCluster(StoreConformance):
    @pytest.fixture
    async def store(self, redises):
        store = await opened(redises.url)
        yield store
        await store.close()


class TestGuards(GuardConformance):
    @pytest.fixture
    async def store(self, valkeys):
        store = await opened(valkeys.url, durability="replicated:1")
        yield store
        await store.close()


# --- where things lie ---


@pytest.mark.parametrize(
    "key", ["saga:{p07}:head:x", "saga:{t:pay}:breaker", "a{}b", "{a}{b}", "{{a}}", "a}b{c", "ü{ü}", ""]
)
def test_keys_are_sent_to_the_slots_of_the_servers(valkeys, key):
    """Every key is looked for where the servers put it, whatever its braces."""
    assert key_slot(key.encode()) == valkeys.nodes[0].ask("CLUSTER", "KEYSLOT", key)


async def begin(store, *names, owner="A"):
    await store.open_lease(owner, LONG_MS)
    entries = [Entry(name, 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True)) for name in names]
    assert (await store.append(owner, entries)).acks == [Ack("ok")] * len(names)


async def test_one_commit_for_sagas_of_all_partitions(valkeys):
    """A group commit is cut by partition and put together again: each entry gets its own ack, in order."""
    store = await opened(valkeys.url)
    names = [f"s{n}" for n in range(100)]
    await begin(store, *names)
    entries = [Entry(name, n % 3, 1 + n % 2, [b"r1"]) for n, name in enumerate(names)]
    wanted = [Ack("fenced") if n % 2 else Ack("ok") if n % 3 == 1 else Ack("conflict") for n in range(100)]
    assert (await store.append("A", entries)).acks == wanted
    for name, ack in zip(names, wanted, strict=True):
        assert list(await store.read(name)) == ([b"r0", b"r1"] if ack == Ack("ok") else [b"r0"])
    assert {head.saga_id for head in await store.list("RUNNING")} == set(names)
    assert len({store._key("head", name)[:40] for name in names}) == 16
    assert {valkeys.owner(slot(store._key("head", name))) for name in names} == set(valkeys.primaries())
    await store.close()


async def test_scripts_that_a_node_forgot(valkeys):
    """A node that lost its scripts is taught again, also in the middle of a commit that goes to all of them."""
    store = await opened(valkeys.url)
    names = [f"s{n}" for n in range(50)]
    await begin(store, *names)
    valkeys.primaries()[0].ask("SCRIPT", "FLUSH")
    assert (await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])).acks == [Ack("ok")] * 50
    await store.close()


# --- what may be given as an address ---


async def test_a_single_server_is_no_cluster():
    """An address of the wrong kind is told apart at once, both ways round, with the address to write."""
    with Node() as node:
        with pytest.raises(StoreRefused, match="not part of a cluster") as caught:
            await opened(f"redis+cluster://127.0.0.1:{node.port}")
        assert "redis://" in caught.value.hint


async def test_a_node_of_a_cluster_is_no_single_server(valkeys):
    """``redis://`` to a node of a cluster is refused with the address to write."""
    with pytest.raises(DurabilityInsufficient, match="one node of a cluster") as caught:
        await opened(valkeys.first[0].url)
    assert "redis+cluster://" in caught.value.hint
    store = open_store(valkeys.first[0].url, durability="relaxed")
    with pytest.raises(StoreRefused, match=r"MOVED|CROSSSLOT") as refused:
        for number in range(50):
            await store.post(f"s{number}", b"m") if number else await store.open_lease("A", LONG_MS)
    assert "redis+cluster://" in refused.value.hint
    await store.close()


async def test_one_seed_is_enough_and_dead_ones_are_passed_over(valkeys):
    """The rest of the cluster is found from any node, a replica as well."""
    store = await opened(f"redis+cluster://127.0.0.1:1,127.0.0.1:{valkeys.nodes[5].port}")
    await begin(store, *(f"s{n}" for n in range(20)))
    await store.close()


async def test_nobody_there():
    """Patience ends with the address and a hint."""
    store = open_store("redis+cluster://127.0.0.1:1,127.0.0.1:2", patience_s=0.3)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert caught.value.hint
    assert "127.0.0.1:1,127.0.0.1:2" in str(caught.value)


async def test_every_primary_is_asked_what_it_keeps(valkeys):
    """A cluster keeps what its weakest primary keeps, and the finding says which one that is."""
    weak = valkeys.primaries()[1]
    weak.ask("CONFIG", "SET", "appendfsync", "everysec")
    try:
        with pytest.raises(DurabilityInsufficient, match=f":{weak.port}: appendfsync is everysec"):
            await opened(valkeys.url)
    finally:
        weak.ask("CONFIG", "SET", "appendfsync", "always")
    store = await opened(valkeys.url, durability="replicated:1")
    assert (await store.promise()).level == "replicated:1"
    await store.close()


async def test_passwords_of_a_cluster():
    """User and password count for every node, are never shown, and a wrong one is a refusal at once."""
    with Cluster(replicas=False) as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "requirepass", "geheim")
        address = cluster.url.removeprefix("redis+cluster://")
        store = await opened(f"redis+cluster://:geheim@{address}")
        await begin(store, *(f"s{n}" for n in range(20)))
        assert "geheim" not in store.url
        await store.close()
        for url in (f"redis+cluster://:falsch@{address}", cluster.url):
            with pytest.raises(StoreRefused, match="does not let us in") as caught:
                await opened(url)
            assert "falsch" not in f"{caught.value}{caught.value.to_dict()}"


@pytest.mark.parametrize("less", [(), ("-evalsha",)], ids=["all", "without-evalsha"])
async def test_the_documented_user_of_a_cluster(valkeys, less):
    """The rules of docs/stores.md, with those for clusters, are enough at the highest level; EVALSHA is not needed."""
    rules = [*documented_rules().split(), "+cluster|slots", "+cluster|info"]
    assert all(rule in DOCS.read_text() for rule in rules)
    for node in valkeys.nodes:
        node.ask("ACL", "SETUSER", "engine", "reset", "on", ">geheim", "~saga:*", *rules, *less)
    store = open_store(valkeys.url.replace("://", "://engine:geheim@"), durability="replicated:1")
    await store.open()
    await begin(store, *(f"s{n}" for n in range(20)))
    await store.renew("A", LONG_MS)
    await store.guard_store().claim("pay", "digest", "s1", LONG_MS)
    assert len(await store.list()) == 20
    await store.close_lease("A")
    await store.close()


# --- slots that move ---


@pytest.fixture
def mover(valkeys):
    """The slot of partition 3 of a namespace, and another primary for it."""
    namespace = uuid.uuid4().hex
    number = slot(f"{namespace}:{{p03}}:head:x")
    source = valkeys.owner(number)
    target = next(node for node in valkeys.primaries() if node is not source)
    yield namespace, number, source, target
    if valkeys.owner(number) is not source:
        valkeys.begin_move(number, source)
        valkeys.end_move(number, target, source)
    until(valkeys.settled, "the cluster to settle")


def names_in(store, partition, count):
    found = []
    number = 0
    while len(found) < count:
        if f"{{p{partition:02}}}" in store._key("head", f"s{number}"):
            found.append(f"s{number}")
        number += 1
    return found


async def test_a_slot_that_has_moved_is_followed(valkeys, mover):
    """After a move the next call finds the new place (MOVED), and nothing is lost on the way."""
    namespace, number, source, target = mover
    store = await opened(valkeys.url, namespace)
    names = names_in(store, 3, 5)
    await begin(store, *names)
    await store.post(names[0], b"m1")
    valkeys.begin_move(number, target)
    valkeys.end_move(number, source, target)
    assert (await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])).acks[1:] == [Ack("ok")] * 4
    assert list(await store.messages(names[0])) == [b"m1"]
    assert (await store.renew("A", LONG_MS)).alive
    assert len(await store.list("RUNNING")) == 5
    await store.close()


@pytest.mark.parametrize("share", [3, *(pytest.param(share, marks=pytest.mark.slow) for share in (0, 1000))])
async def test_nothing_runs_on_half_of_a_slot(valkeys, mover, share):
    """While keys of a partition lie in two places its sagas wait, whichever keys have gone; its lease lives on."""
    namespace, number, source, target = mover
    store = await opened(valkeys.url, namespace, patience_s=GIVE_UP_S)
    hasty = await opened(valkeys.url, namespace, patience_s=0.1)
    (name,) = names_in(store, 3, 1)
    await begin(store, name)
    await store.open_lease("B", LONG_MS)
    await store.post(name, b"m1")
    valkeys.begin_move(number, target)
    valkeys.move_keys(number, source, target, share) if share else None
    try:
        for call in (
            hasty.append("A", [Entry(name, 1, 1, [b"r1"], "COMPENSATING", b"sum")]),
            hasty.acquire(name, "B"),
            hasty.post(name, b"m2"),
            hasty.release(name, 1),
            hasty.head(name),
        ):
            with pytest.raises(StoreUnavailable):
                await call
        assert (await store.renew("A", LONG_MS)).alive
        waiting = asyncio.create_task(store.append("A", [Entry(name, 1, 1, [b"r1"], "COMPENSATING", b"sum")]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
    finally:
        valkeys.end_move(number, source, target)
    assert (await waiting).acks == [Ack("ok", messages=1)]
    assert list(await store.read(name)) == [b"r0", b"r1"]
    assert list(await store.messages(name)) == [b"m1"]
    head = await store.head(name)
    assert (head.status, head.epoch, head.owner, head.summary) == ("COMPENSATING", 1, "A", b"sum")
    assert [found.saga_id for found in await store.list()] == [name]
    assert await store.list("RUNNING") == []
    await hasty.close()
    await store.close()


async def test_a_lease_that_ended_on_the_way_stays_ended(valkeys, mover):
    """The plain renewal of a slot on its way brings no lease back either."""
    namespace, number, source, target = mover
    store = await opened(valkeys.url, namespace)
    await store.open_lease("A", LONG_MS)
    valkeys.begin_move(number, target)
    valkeys.move_keys(number, source, target)
    try:
        with target.client(single_connection_client=True) as client:
            client.execute_command("ASKING")
            client.delete(f"{namespace}:{{p03}}:lease:A")
        assert not (await store.renew("A", LONG_MS)).alive
    finally:
        valkeys.end_move(number, source, target)
    await store.close()


# --- nodes that die ---


@pytest.fixture
def frail(valkeys):
    yield valkeys
    valkeys.whole()


async def test_a_primary_that_dies_is_replaced(frail):
    """A call made while a primary is dead waits for its replica, and finds there all that was acknowledged."""
    store = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S)
    names = [f"s{n}" for n in range(50)]
    await begin(store, *names)
    frail.primaries()[0].kill()
    # Each primary waits for its own replicas: the dead one has none left once its replica has taken over.
    await store.close()
    store = await opened(frail.url, store._namespace, durability="relaxed", patience_s=GIVE_UP_S)
    assert (await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])).acks == [Ack("ok")] * 50
    for name in names:
        assert list(await store.read(name)) == [b"r0", b"r1"]
    assert await store.acquire(names[0], "A") == Acquired(2, 2, [])
    await store.close()


async def test_a_primary_that_hangs_is_replaced(frail):
    """A frozen primary is as good as a dead one, and when it wakes up it is believed no more."""
    store = await opened(frail.url, durability="replicated:1", patience_s=GIVE_UP_S)
    names = [f"s{n}" for n in range(50)]
    await begin(store, *names)
    await store.close()
    store = await opened(frail.url, store._namespace, durability="fsync", patience_s=GIVE_UP_S)
    hanging = frail.primaries()[0]
    hanging.freeze()
    assert (await store.append("A", [Entry(name, 1, 1, [b"r1"]) for name in names])).acks == [Ack("ok")] * 50
    hanging.thaw()
    assert (await store.append("A", [Entry(name, 2, 1, [b"r2"]) for name in names])).acks == [Ack("ok")] * 50
    for name in names:
        assert list(await store.read(name)) == [b"r0", b"r1", b"r2"]
    await store.close()


@pytest.fixture(scope="module")
def patient_cluster():
    """Its nodes do not notice for a long time that one hangs, and go on without it."""
    with Cluster(replicas=False, node_timeout_ms=60_000) as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


async def test_sagas_of_other_nodes_do_not_wait(patient_cluster):
    """While one primary hangs, entries of the others are acknowledged; its own follow, or fail, by themselves."""
    store = await opened(patient_cluster.url, patience_s=GIVE_UP_S)
    names = [f"s{n}" for n in range(50)]
    await begin(store, *names)
    hanging = patient_cluster.primaries()[0]
    lost = {n for n, name in enumerate(names) if patient_cluster.owner(slot(store._key("head", name))) is hanging}
    hanging.freeze()
    try:
        reply = await store.append_apart("A", [Entry(name, 1, 1, [b"r1"]) for name in names])
        assert set(reply.late) == lost
        assert [ack.code for ack in reply.acks] == ["late" if n in lost else "ok" for n in range(50)]
        hasty = await opened_as(store, patient_cluster.url, patience_s=0.5)
        others = [name for n, name in enumerate(names) if n not in lost]
        one = names[min(lost)]
        mixed = await hasty.append_apart("A", [Entry(others[0], 2, 1, [b"r2"]), Entry(one, 2, 1, [b"r2"])])
        assert mixed.acks[0] == Ack("ok")
        with pytest.raises(StoreUnavailable):
            await mixed.late[1]
        with pytest.raises(StoreUnavailable):
            await hasty.append_apart("A", [Entry(one, 2, 1, [b"r2"])])
        await hasty.close()
    finally:
        hanging.thaw()
    assert set(await asyncio.gather(*reply.late.values())) == {Ack("ok")}
    assert list(await store.read(one))[:2] == [b"r0", b"r1"]
    await store.close()


async def opened_as(store, url, **options):
    """Another client of the same namespace, which knows the partitions without asking all of them."""
    return open_store(f"{url}?namespace={store._namespace}", **options)


@tool(undo="give_back")
async def take(x: int) -> dict:
    return {"x": x}


@tool
async def give_back(x: int) -> dict:
    return {}


async def test_a_node_that_hangs_stops_no_saga_of_another(patient_cluster):
    """Sagas whose journals lie elsewhere end while it hangs; its own end when it is back."""
    url = f"{patient_cluster.url}?namespace={uuid.uuid4().hex}"
    plan = {"steps": [{"step_id": n, "tool": "take", "params": {"x": n}} for n in range(5)]}
    async with Coordinator.open(url, [take, give_back], patience_s=GIVE_UP_S, lease_s=120) as coordinator:
        first = await coordinator.submit(plan, saga_id="first")
        await first.wait()
        hanging = patient_cluster.primaries()[0]
        key = coordinator.store._key
        ids = [f"s{n}" for n in range(40)]
        there = [name for name in ids if patient_cluster.owner(slot(key("head", name))) is hanging]
        elsewhere = [name for name in ids if name not in there]
        hanging.freeze()
        try:
            begun = {name: asyncio.create_task(coordinator.run(plan, saga_id=name)) for name in ids}
            done = await asyncio.gather(*(begun[name] for name in elsewhere))
            assert {outcome.status for outcome in done} == {"COMPLETED"}
            assert not any(begun[name].done() for name in there)
        finally:
            hanging.thaw()
        assert {(await begun[name]).status for name in there} == {"COMPLETED"}


@tool(undo="give_back")
async def take_slowly(x: int, idempotency_key: str) -> dict:
    await GATE.wait()
    return {"x": x}


GATE = asyncio.Event()


async def test_an_outage_of_one_node_that_outlives_the_lease_costs_its_own_sagas_only(patient_cluster, caplog):
    """Those of other nodes go on under their own epochs and can be begun; its own go on when it is back."""
    url = f"{patient_cluster.url}?namespace={uuid.uuid4().hex}"
    plan = {"steps": [{"step_id": n, "tool": "take_slowly", "params": {"x": n}} for n in range(3)]}
    GATE.clear()
    async with Coordinator.open(url, [take_slowly, give_back], patience_s=1.0, lease_s=6.0) as coordinator:
        hanging = patient_cluster.primaries()[0]
        key = coordinator.store._key
        ids = [f"s{n}" for n in range(40)]
        there = [name for name in ids if patient_cluster.owner(slot(key("head", name))) is hanging]
        elsewhere = [name for name in ids if name not in there]
        handles = {name: await coordinator.submit(plan, saga_id=name) for name in ids}
        working = asyncio.create_task(coordinator.work())
        hanging.freeze()
        try:
            await asyncio.to_thread(until, lambda: "lease lost in" in caplog.text, "the shares to be lost")
            GATE.set()
            done = await asyncio.gather(*(handles[name].wait() for name in elsewhere))
            assert {outcome.status for outcome in done} == {"COMPLETED"}
            for name in elsewhere:
                assert [r for r in await coordinator.history(name) if r["k"] == "SagaResumed"] == []
            assert (await coordinator.run(plan, saga_id=_beside(elsewhere, coordinator))).completed
        finally:
            hanging.thaw()
        for name in there:
            async with asyncio.timeout(GIVE_UP_S):
                assert (await coordinator.wait(name)).status == "COMPLETED"
            assert len([r for r in await coordinator.history(name) if r["k"] == "SagaResumed"]) >= 1
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _beside(names, coordinator):
    """The name of a new saga in a partition of one of these."""
    partitions = {coordinator.store.partition_of(name) for name in names}
    return next(name for n in range(1000) if coordinator.store.partition_of(name := f"new{n}") in partitions)


async def test_a_cluster_that_is_down(frail):
    """Without a majority nothing is written (CLUSTERDOWN, dead nodes); when it is back, calls go on."""
    store = await opened(frail.url, patience_s=GIVE_UP_S)
    await begin(store, "s1")
    for node in frail.primaries()[:2]:
        node.kill()
    for node in [each for each in frail.nodes if each.alive and each not in frail.primaries()]:
        node.kill()
    left = [node for node in frail.nodes if node.alive]
    until(lambda: b"state:fail" in left[0].ask("CLUSTER", "INFO"), "the last one to notice")
    hasty = open_store(f"{frail.url}?namespace={store._namespace}", patience_s=0.3)
    with pytest.raises(StoreUnavailable):
        await hasty.append("A", [Entry("s1", 1, 1, [b"r1"])])
    await hasty.close()
    frail.whole()
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    await store.close()


async def test_a_refusal_leaves_no_call_half_made():
    """One node refuses us while another is away: that is told without waiting for the other, and no call is dropped."""
    away, refusing = Address("away", 1), Address("refusing", 1)

    class Half(ClusterPool):
        def _shares(self, commands):
            return {away: [0], refusing: [1]}, {}

        async def _at(self, address, commands, replicas):
            return [TransientError(ConnectionError("away")) if address is away else StoreRefused("no", hint=None)]

        async def call(self, args, *, replicas=0):
            await asyncio.Event().wait()

    connector = ClusterConnector("redis+cluster", "h", {})
    connector._stale = False
    calls = Calls(connector, patience_s=GIVE_UP_S, replicas=0)
    pool = Half(connector, patience_s=GIVE_UP_S, width=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(StoreRefused):
            await calls.run_many("owners", [(["a"], []), (["b"], [])], pool)
        left = list(calls._settling)
        assert len(left) == 1  # the call to the other node goes on by itself
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        gc.collect()  # (what other tests have left behind goes as well, and is no matter of this one's)
    assert [str(warning.message) for warning in told if "never awaited" in str(warning.message)] == []


# --- hints of work ---


async def heard_of(hint, heard):
    """Wait until it is in the list."""
    async with asyncio.timeout(GIVE_UP_S):
        while hint not in heard:  # noqa: ASYNC110 - what another task hears
            await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(url, namespace=None):
    """A store, and what a worker on it hears."""
    store, heard = await opened(url, namespace or uuid.uuid4().hex, patience_s=GIVE_UP_S), []
    task = asyncio.create_task(store.work().listen(range(store.work().count), heard.append))
    try:
        await heard_of(Hint(), heard)
        yield store, heard
    finally:
        task.cancel()
        await asyncio.wait([task])
        await store.close()


@pytest.fixture
def soon(monkeypatch):
    """A subscription that broke is made anew soon."""
    monkeypatch.setattr(hints, "_PAUSES_S", (0.05, 0.2))


async def test_a_worker_hears_of_work_on_every_node(valkeys):
    """A saga that becomes due in any partition, wherever that lies, is hinted at; and so is one with messages."""
    async with listening(valkeys.url) as (store, heard):
        names = [f"s{number}" for number in range(20)]
        await begin(store, *names)
        for name in names:
            await store.post(name, b"m")
            await heard_of(Hint("A", name), heard)
        for name in names:
            heard.clear()
            await store.release(name, 1, due_ms=1)
            await heard_of(Hint(), heard)


@pytest.mark.usefixtures("soon")
async def test_hints_follow_a_slot_that_moves(valkeys, mover):
    """The server ends the subscription of a slot that it gives away; the next one is at the new place."""
    namespace, number, source, target = mover
    async with listening(valkeys.url, namespace) as (store, heard):
        (name,) = names_in(store, 3, 1)
        await begin(store, name)
        heard.clear()
        valkeys.begin_move(number, target)
        valkeys.end_move(number, source, target)
        await heard_of(None, heard)
        await heard_of(Hint(), heard)
        await store.post(name, b"m")
        await heard_of(Hint("A", name), heard)


@pytest.mark.usefixtures("soon")
async def test_hints_come_from_the_replica_that_takes_over(frail):
    """A primary dies; its partitions are heard again from its replica, and what was posted meanwhile is there."""
    async with listening(frail.url) as (store, heard):
        names = [f"s{number}" for number in range(20)]
        await begin(store, *names)
        heard.clear()
        frail.primaries()[0].kill()
        await heard_of(None, heard)
        heard.clear()
        for name in names:
            await store.post(name, b"lost or not")
        await heard_of(Hint(), heard)
        for name in names:
            await store.post(name, b"m")
        for name in names:
            await heard_of(Hint("A", name), heard)
            assert await store.messages(name) == [b"lost or not", b"m"]
