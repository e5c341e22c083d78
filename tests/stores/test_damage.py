"""Somebody with raw access writes to keys: one saga's damage is one saga's, and keys that sagas share are mended."""

import asyncio
import logging

import pytest

from saga_engine import Coordinator
from saga_engine.cli import run
from saga_engine.errors import JournalUnreadable, SagaError, StoreRefused
from saga_engine.ports import SWEEP_START, Ack, Creation, Entry, Query
from saga_engine.stores import open_store
from tests.stores.taking import give_back, take
from tests.support.servers import DebianRedis

pytestmark = pytest.mark.debian_redis
LONG_MS = 600_000
BAD, GOOD = "bad", ("good1", "good2", "good3")
PLAN = {"steps": [{"step_id": 1, "tool": "take", "params": {"x": 1}}]}
#: Each kind of key that the sagas of a partition share.
SHARED = ["due", "expiry", "search", "index:RUNNING", "index:PENDING", "owners", "wake:A", "taken:A", "clock"]


@pytest.fixture(scope="module")
def server():
    with DebianRedis() as server:
        yield server


@pytest.fixture
def raw(server):
    with server.client() as client:
        yield client
        client.flushall()


async def opened(server, owner="A"):
    store = open_store(server.url, patience_s=30)
    await store.open()
    await store.open_lease(owner, LONG_MS)
    return store


async def begun(server):
    store = await opened(server)
    whole = Creation("d", owned=True)
    entries = [
        Entry(name, 0, 0, [b"r0"], "RUNNING", b"{}", creation=whole, terms=["*", "tool:book"]) for name in (BAD, *GOOD)
    ]
    asking = b'{"questions": [{"step_id": 1}]}'
    entries[1] = entries[1]._replace(asks=True, summary=asking)
    assert (await store.append("A", entries)).acks == [Ack("ok")] * 4
    return store


def tag(store, saga_id=BAD):
    return store._key("", saga_id).removesuffix(f":{saga_id}")


def overwrite(raw, key):
    raw.delete(key)
    raw.hset(key, "of", b"\xff somebody else")


def overwrite_with_text(raw, key):
    """Also where a hash is expected."""
    raw.delete(key)
    raw.set(key, b"\xff of somebody else")


async def swept(store, owner):
    at, orphans, damaged = SWEEP_START, 0, []
    while True:
        found = await store.work().sweep(owner, at)
        at, orphans = found.at, orphans + found.orphans
        damaged += found.damaged
        if at == SWEEP_START:
            return orphans, damaged


# --- keys of one saga ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["journal", "head"])
@pytest.mark.parametrize("at", [0, 2])
async def test_a_group_commit_stands_for_the_others(server, raw, kind, at):
    """The damaged saga's entry is refused; those before and after it in the same commit are added, and told so."""
    store = await begun(server)
    overwrite_with_text(raw, store._key(kind, BAD))
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
    overwrite_with_text(raw, store._key(kind, BAD))
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
    async with Coordinator.open(server.url, [take, give_back]) as coordinator:
        for name in (BAD, *GOOD):
            await coordinator.submit(PLAN, saga_id=name, detach=True)
        raw.lset(coordinator.store._key("journal", BAD), 0, b"\xff\x00[1]")
        working = asyncio.create_task(coordinator.work())
        for name in GOOD:
            assert (await coordinator.wait(name)).status == "COMPLETED"
        with pytest.raises(SagaError) as caught:
            await coordinator.show(BAD)
        assert caught.value.code == "journal-unreadable"
    await working


# --- keys that sagas share -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHARED)
async def test_every_verb_mends_what_it_meets(server, raw, kind):
    """All verbs do their work, whatever shared key is damaged, and the sagas of all partitions are taken after it."""
    store = await begun(server)
    work = store.work()
    everywhere = range(work.count)
    verbs = ["renew", "post", "release", "acquire", "end", "sweep", "list", "search", "overview", "owners", "close"]
    for verb in [*verbs, "take"]:
        overwrite(raw, tag(store) + kind)
        if verb == "renew":
            assert (await store.renew("A", LONG_MS)).alive
        elif verb == "post":
            await store.post(BAD, b"m")
            assert list((await store.renew("A", LONG_MS)).wakes) == [BAD]
        elif verb == "release":
            await store.release(BAD, 1, 1)
        elif verb == "acquire":
            assert (await store.acquire(BAD, "A")).epoch == 2
        elif verb == "end":
            one = Entry(BAD, 1, 2, [b"r1"], "COMPENSATING", consumed=1, summary=b"{}", release=True, due_ms=1)
            assert (await store.append("A", [one])).acks == [Ack("ok", released=True)]
        elif verb == "sweep":
            await swept(store, "A")
        elif verb == "list":
            assert {head.saga_id for head in await store.list()} == {BAD, *GOOD}
        elif verb == "search":
            assert {head.saga_id for head in (await store.search(Query(["tool:book"])))[0]} == {BAD, *GOOD}
            assert [head.saga_id for head in (await store.search(Query(asks=True)))[0]] == [GOOD[0]]
        elif verb == "overview":
            assert (await work.overview()).queued == 1
        elif verb == "owners":
            assert set(await work.owners(everywhere)) == {"A"}
        elif verb == "close":
            await store.close_lease("A")
            await store.open_lease("B", LONG_MS)
            await work.reclaim("A", everywhere)
        else:
            taken = [saga.saga_id for saga in (await work.take("B", "n", 10, everywhere)).sagas]
            assert sorted(taken) == sorted([BAD, *GOOD])
    await store.close()


async def test_lost_indexes_are_rebuilt_on_request(server, raw, capsys):
    """No verb can notice that keys are gone: `saga doctor --rebuild` adds what is missing, from the sagas' own keys."""
    store = await begun(server)
    await store.release(BAD, 1, 1)
    for key in raw.keys("*}:search") + raw.keys("*}:index:*") + raw.keys("*}:owners") + raw.keys("*}:due"):
        raw.delete(key)
    assert (await store.search(Query(["tool:book"])))[0] == await store.list() == []
    for _ in range(2):  # repeating it changes nothing
        assert await asyncio.to_thread(run, ["doctor", "--rebuild", "--store", server.url]) == 0
        assert "its indexes were rebuilt" in capsys.readouterr().out
        found = (await store.search(Query(["tool:book"])))[0]
        assert sorted(head.saga_id for head in found) == sorted([BAD, *GOOD])
        assert [head.saga_id for head in (await store.search(Query(asks=True)))[0]] == [GOOD[0]]
        assert len(await store.list()) == len(found)
    raw.delete(tag(store, GOOD[1]) + f"terms:{GOOD[1]}")
    await asyncio.to_thread(run, ["doctor", "--rebuild", "--store", server.url])
    assert f"a search does not find 1 saga: {GOOD[1]}" in capsys.readouterr().out  # its journal cannot be read
    work = store.work()
    assert set(await work.owners(range(work.count))) == {"A"}
    await store.open_lease("B", LONG_MS)
    assert [saga.saga_id for saga in (await work.take("B", "n", 10, range(work.count))).sagas] == [BAD]
    await store.close()


async def test_what_was_in_the_way_is_told_and_kept(server, raw, caplog, capsys):
    """The log names the key; doctor says before the mending what is wrong, and after it what was set aside."""
    store = await begun(server)
    key = tag(store) + "due"
    overwrite(raw, key)
    assert await asyncio.to_thread(run, ["doctor", "--store", server.url]) == 1
    assert key in capsys.readouterr().out
    with caplog.at_level(logging.ERROR, "saga_engine"):
        await store.work().take("A", "n", 1, range(store.work().count))
    assert key in caplog.text
    assert raw.hget(tag(store) + "damaged:due", "of") == b"\xff somebody else"
    await asyncio.to_thread(run, ["doctor", "--store", server.url])
    assert tag(store) + "damaged:due" in capsys.readouterr().out
    await store.close()


async def test_what_a_dead_mender_left_is_finished(server, raw):
    """A process died between setting an index aside and rebuilding it: the next one that has a lease rebuilds it."""
    store = await begun(server)
    raw.delete(tag(store) + "index:RUNNING")
    raw.set(tag(store) + "mending", "1")
    await store.work().mend()
    assert {head.saga_id for head in await store.list("RUNNING")} == {BAD, *GOOD}
    assert not raw.exists(tag(store) + "mending")
    await store.close()


async def test_a_rebuild_that_was_cut_off_is_finished(server, raw, monkeypatch):
    """The process that was to rebuild died at its first read: the next one that mends does it."""
    store = await begun(server)
    raw.delete(tag(store) + "index:RUNNING")

    async def dies(*_, **__):
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(store.work()._mender, "_mend", dies)
        with pytest.raises(asyncio.CancelledError):
            await store.work().rebuild()
    assert BAD not in {head.saga_id for head in await store.list("RUNNING")}
    await store.work().mend()
    assert {head.saga_id for head in await store.list("RUNNING")} == {BAD, *GOOD}
    await store.close()


async def test_an_end_whose_shared_keys_are_damaged_is_an_end(server, raw):
    """The commit in which the damage is met stands whole: records, status, indexes and the queue."""
    store = await begun(server)
    for kind in SHARED:
        overwrite(raw, tag(store) + kind)
    end = Entry(BAD, 1, 1, [b"end"], "COMPLETED", summary=b"{}", release=True, keep_ms=LONG_MS)
    others = [Entry(name, 1, 1, [b"r1"]) for name in GOOD]
    reply = await store.append("A", [others[0], end, *others[1:]])
    assert reply.now_ms > 0
    assert [ack.code for ack in reply.acks] == ["ok"] * 4
    assert [head.saga_id for head in await store.list("COMPLETED")] == [BAD]
    assert {head.saga_id for head in await store.list("RUNNING")} == set(GOOD)
    assert raw.zscore(tag(store) + "expiry", BAD)
    await store.close()


@pytest.mark.parametrize(
    "garbage",
    [{"epoch": "x"}, {"epoch": None}, {"owner": None}, {"status": None}, {"created_ms": "x"}, {"digest": None}],
    ids=str,
)
async def test_garbage_in_a_head_is_one_sagas(server, raw, garbage):
    """Queue, sweep and list serve the others; what asks for the damaged saga gets an error that says so."""
    store = await begun(server)
    work = store.work()
    for field, value in garbage.items():
        raw.hdel(store._key("head", BAD), field) if value is None else raw.hset(store._key("head", BAD), field, value)
    reply = await store.append("A", [Entry(name, 1, 1, [b"r1"], "COMPENSATING") for name in (BAD, *GOOD)])
    assert [ack.code for ack in reply.acks[1:]] == ["ok"] * 3
    assert {head.saga_id for head in await store.list()} == set(GOOD)
    with pytest.raises(JournalUnreadable, match="head of saga bad is damaged"):
        await store.head(BAD)
    _, damaged = await swept(store, "A")
    fatal = not {"created_ms", "digest"} & set(garbage)
    assert damaged == ([BAD] if fatal else [])
    await store.close_lease("A")
    await work.reclaim("A", range(work.count))
    raw.zadd(tag(store) + "due", {BAD: 1})
    await store.open_lease("B", LONG_MS)
    if fatal:
        with pytest.raises(JournalUnreadable, match="damaged"):
            await store.acquire(BAD, "B")
    taken = {saga.saga_id for saga in (await work.take("B", "n", 10, range(work.count))).sagas}
    assert taken - {BAD} == set(GOOD)
    await store.close()


async def test_garbage_among_the_members_is_passed_over(server, raw):
    """Foreign members and scores of queue and index hide no saga; one that would never be due is found."""
    store = await begun(server)
    work = store.work()
    for name in GOOD:
        await store.release(name, 1, LONG_MS)
    for number in range(work.count):
        its = f"saga:{{p{number:02}}}:"
        raw.zadd(its + "due", {b"\xff\xfe": 1, "": 2, "nobody": 3})
        raw.zadd(its + "index:RUNNING", {b"\xff\xfe": float("inf"), "": 1.5, "nobody": 1e300})
        raw.set(its + "clock", "soon")
    raw.zadd(tag(store, GOOD[0]) + "due", {GOOD[0]: float("inf")})
    assert {head.saga_id for head in await store.list()} == {BAD, *GOOD}
    assert (await swept(store, "A")) == (1, [])
    taken = [saga.saga_id for saga in (await work.take("A", "n", 10, range(work.count))).sagas]
    assert GOOD[0] in taken
    assert (await store.renew("A", LONG_MS)).alive
    await store.close()


async def test_workers_go_on(server, raw):
    """Damage to the shared keys of a partition under live workers: all sagas there and elsewhere end."""
    async with Coordinator.open(server.url, [take, give_back]) as coordinator:
        working = asyncio.create_task(coordinator.work())
        for turn, kind in enumerate(kind for kind in SHARED if not kind.endswith(":A")):
            names = [f"{name}{turn}" for name in GOOD]
            for name in names:
                await coordinator.submit(PLAN, saga_id=name, detach=True)
                overwrite(raw, tag(coordinator.store, name) + kind)
            for name in names:
                assert (await coordinator.wait(name)).status == "COMPLETED"
    await working


async def test_a_resource_that_is_damaged_is_refused_by_name(server, raw):
    """What must not be forgotten is never rebuilt out of nothing: the error names the key and what to do."""
    store = await opened(server)
    guards = store.guard_store()
    await guards.take("room", ["t"], LONG_MS)
    (key,) = raw.keys("*}:queue")
    overwrite(raw, key)
    with pytest.raises(StoreRefused) as caught:
        await guards.take("room", ["t"], LONG_MS)
    assert key.decode() in caught.value.message
    assert "restore the key" in caught.value.hint
    assert await guards.take("other room", ["t"], LONG_MS) == "t"
    await store.close()
