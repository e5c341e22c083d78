"""The keyring is rotated beside live processes, killed half way and repeated; what a retired key wraps is refused."""

import asyncio
import base64
import uuid

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import KeyMissing, KeyRefused, SealBroken, SettingInvalid, StoreUnavailable
from saga_engine.ports import Creation, Entry
from saga_engine.privacy import sealed_store
from saga_engine.privacy.keyring import Keyring, add_to_file, keys_from_file, made
from saga_engine.privacy.rotation import rotate, uses
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore

K1, K2, K3 = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
OLD = {"k1": K1}
BOTH = {"k2": K2, "k1": K1}
NEW = {"k2": K2}
LONG_MS = 600_000


@pytest.fixture
def url(shared_folder):
    return f"{shared_folder.url}?namespace={uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    """What the store says of keys, and a source of keys, are read at each need."""
    monkeypatch.setattr(sealed_store, "FRESH_S", 0.0)
    monkeypatch.setattr("saga_engine.privacy.keyring._AGAIN_S", 0.0)


async def opened(url, keys, faults=None) -> SealedStore:
    inner = open_store(url) if faults is None else FaultyStore(open_store(url), Faults(faults))
    store = SealedStore(inner, None if keys is None else Keyring(keys))
    await store.open()
    return store


def begun(saga_id: str) -> Entry:
    return Entry(saga_id, 0, 0, [b'{"k":"a","at":1}'], "RUNNING", b'{"goal":"g"}', creation=Creation("d", owned=True))


async def with_sagas(url, keys, *saga_ids) -> SealedStore:
    store = await opened(url, keys)
    await store.open_lease("A", LONG_MS)
    reply = await store.append("A", [begun(saga_id) for saga_id in saga_ids])
    assert {ack.code for ack in reply.acks} == {"ok"}
    return store


async def no_wait(_seconds: float) -> None:
    """Nobody begins a saga meanwhile."""


async def of_keys(store) -> dict:
    return {use.name: (use.state, use.sagas, use.store) for use in (await uses(store))[0]}


# --- rewrapping ------------------------------------------------------------------------------------------------------


async def test_every_data_key_is_wrapped_by_the_current_key(url):
    """Then the old key can be removed: payloads, and what sagas share, open with the new one alone. Again, it does nothing."""
    ids = [f"s{number}" for number in range(70)]
    old = await with_sagas(url, OLD, *ids)
    both = await opened(url, BOTH)
    assert await of_keys(both) == {"k2": ("current", 0, False), "k1": ("ready", 70, True)}
    assert await rotate(both, retire=["k1"], wait=no_wait) == (70, {}, ["k1"])
    assert await of_keys(both) == {"k2": ("current", 70, True), "k1": ("retired", 0, False)}
    assert await rotate(both) == (0, {}, [])
    new = await opened(url, NEW)
    for saga_id in ids:
        assert await new.read(saga_id) == [b'{"k":"a","at":1}']
    for store in (old, both, new):
        await store.close()


@pytest.mark.parametrize(
    "fault", [f"seal_replace:{number}:{when}" for number in (2, 3, 5, 9) for when in ("before", "after")]
)
async def test_a_rotation_that_ends_half_way_is_repeated(url, fault):
    """The store is readable with both keys after each of its writes, whether its answer came or not."""
    ids = [f"s{number}" for number in range(6)]
    old = await with_sagas(url, OLD, *ids)
    broken = await opened(url, BOTH, f"{fault}:raise")
    with pytest.raises(StoreUnavailable):
        await rotate(broken, retire=["k1"], wait=no_wait)
    both = await opened(url, BOTH)
    for saga_id in ids:
        assert await both.read(saga_id)
    assert (await rotate(both, retire=["k1"], wait=no_wait)).failed == {}
    new = await opened(url, NEW)
    assert [len(await new.read(saga_id)) for saga_id in ids] == [1] * 6
    for store in (old, broken, both, new):
        await store.close()


async def test_two_rotations_at_once(url):
    """One to each of two keys, many times: each data key is wrapped by one of them, and nothing is lost."""
    ids = [f"s{number}" for number in range(40)]
    old = await with_sagas(url, OLD, *ids)
    two, three = await opened(url, {**BOTH, "k3": K3}), await opened(url, {"k3": K3, **BOTH})
    found = await asyncio.gather(rotate(two), rotate(three), rotate(two), rotate(three))
    assert all(not each.failed for each in found)
    assert sum(use[1] for name, use in (await of_keys(two)).items() if name != "k1") == 40
    for saga_id in ids:
        assert await two.read(saga_id) == await three.read(saga_id)
    for store in (old, two, three):
        await store.close()


async def test_a_saga_whose_key_is_missing_is_named_and_nothing_is_retired(url):
    """The others are wrapped anew; with the key back, the rest is."""
    old = await with_sagas(url, OLD, "s1", "s2")
    third = await opened(url, {"k3": K3, **OLD})
    await third.append("A", [begun("s3")])
    both = await opened(url, BOTH)
    found = await rotate(both, retire=["k1"], wait=no_wait)
    assert (found.rewrapped, found.retired, list(found.failed)) == (2, (), ["s3"])
    assert isinstance(found.failed["s3"], KeyMissing)
    assert (await of_keys(both))["k1"] == ("retiring", 0, False)
    all_keys = await opened(url, {**BOTH, "k3": K3})
    assert (await rotate(all_keys, retire=["k1", "k3"], wait=no_wait)) == (1, {}, ["k1", "k3"])
    for store in (old, third, both, all_keys):
        await store.close()


async def test_a_key_is_retired_only_if_it_wraps_nothing_here(url):
    """The current key cannot be retired, nor one that nobody knows."""
    store = await with_sagas(url, OLD, "s1")
    for name in ("k1", "k9"):
        with pytest.raises(SettingInvalid):
            await rotate(store, retire=[name], wait=no_wait)
    await store.close()


# --- retired keys ----------------------------------------------------------------------------------------------------


async def test_a_wrapping_that_is_put_back_is_refused_by_name(url, shared_folder):
    """Of a saga, by live processes and new ones that still have the old key; its operator may accept it."""
    old = await with_sagas(url, OLD, "s1", "s2")
    raw, space = shared_folder.raw(), url.partition("namespace=")[2]
    (head,) = [key for key in raw.scan_iter(match=f"{space}:*") if key.endswith(b"}:head:s1")]
    before = raw.hget(head, "key")
    live = await opened(url, BOTH)
    assert await live.read("s1")
    await rotate(await opened(url, BOTH), retire=["k1"], wait=no_wait)
    raw.hset(head, "key", before)
    await live.refresh(at_once=True)
    for store in (live, await opened(url, BOTH)):
        with pytest.raises(KeyRefused, match="k1 was retired"):
            await store.read("s1")
        assert await store.read("s2")
    found = await rotate(live)
    assert (found.rewrapped, list(found.failed)) == (0, ["s1"])
    assert await rotate(live, only=["s1"]) == (1, {}, ())
    assert await live.read("s1")
    await old.close()
    await live.close()


async def test_the_stores_own_key_that_is_put_back_is_refused(url, shared_folder):
    """Live processes know what they have read; for new ones the removed key is missing, by its name."""
    old = await with_sagas(url, OLD, "s1")
    meta = f"{url.partition('namespace=')[2]}:meta"
    raw = shared_folder.raw()
    before = raw.hget(meta, "key")
    live = await opened(url, BOTH)
    await rotate(live, retire=["k1"], wait=no_wait)
    raw.hset(meta, "key", before)
    with pytest.raises(KeyRefused, match="k1"):
        await live.refresh(at_once=True)
    with pytest.raises(KeyMissing, match="k1"):
        await opened(url, NEW)
    raw.hset(meta, "key", b"")
    with pytest.raises(SealBroken):
        await live.refresh(at_once=True)
    await old.close()
    await live.close()


async def test_a_process_with_the_old_keyring_begins_nothing_more(url):
    """It is refused by name; with the new keyring in its source it goes on without a restart. Sagas that it has go on."""
    source = dict(OLD)
    store = await opened(url, lambda: dict(source))
    await store.open_lease("A", LONG_MS)
    await store.append("A", [begun("s1")])
    both = await opened(url, BOTH)
    await rotate(both, retire=["k1"], wait=no_wait)
    with pytest.raises((KeyRefused, KeyMissing)):
        await store.append("A", [begun("s2")])
    reply = await store.append("A", [Entry("s1", 1, 1, [b'{"k":"b","at":2}'])])
    assert [ack.code for ack in reply.acks] == ["ok"]
    source.clear()
    source.update(BOTH)
    await store.append("A", [begun("s2")])
    new = await opened(url, NEW)
    assert await new.read("s2")
    with pytest.raises(KeyRefused, match="k1, was retired"):
        await opened(url, OLD)
    for each in (store, both, new):
        await each.close()


async def test_what_was_begun_while_a_key_retires_is_wrapped_anew(url):
    """A process that had not heard yet begins a saga with it: the second walk finds it."""
    store = await opened(url, OLD)
    await store.open_lease("A", LONG_MS)
    late = begun("late")
    stale = Keyring(OLD).new("late")

    async def meanwhile(_seconds: float) -> None:
        await store.inner.append("A", [late._replace(creation=Creation("d", owned=True, key=stale.wrapped))])

    both = await opened(url, BOTH)
    assert await rotate(both, retire=["k1"], wait=meanwhile) == (1, {}, ["k1"])
    assert (await of_keys(both))["k2"] == ("current", 1, True)
    await store.close()
    await both.close()


async def test_a_store_that_cannot_be_asked_holds_up_no_saga(url):
    """What it says of keys is used as it was known."""
    store = await opened(url, OLD, "seal_replace:2:before:raise")
    await store.open_lease("A", LONG_MS)
    assert [ack.code for ack in (await store.append("A", [begun("s1")])).acks] == ["ok"]
    await store.close()


# --- beside a live engine --------------------------------------------------------------------------------------------


@tool(undo="back")
async def go(n: int) -> dict[str, int]:
    return {"n": n}


@tool
async def back(n: int) -> dict[str, int]:
    return {}


async def test_a_rotation_beside_live_workers(url):
    """Sagas begin and end while every key is wrapped anew, many times; all of them end as they should."""
    plan = {"steps": [{"step_id": step, "tool": "go", "params": {"n": step}} for step in (1, 2, 3)]}
    rings = [BOTH, {"k1": K1, "k2": K2}]
    async with Coordinator.open(url, [go, back], privacy=OLD | NEW) as engine:
        rotating = asyncio.create_task(turn(url, rings))
        for number in range(60):
            assert (await engine.run(plan, saga_id=f"s{number}")).status == "COMPLETED"
        rotating.cancel()
        await asyncio.wait([rotating])
        assert rotating.cancelled()
    both = await opened(url, BOTH)
    await rotate(both, retire=["k1"], wait=no_wait)
    async with Coordinator.open(url, [go, back], privacy=NEW) as engine:
        assert {(await engine.show(f"s{number}")).status for number in range(60)} == {"COMPLETED"}
        assert (await engine.undo("s7")).status == "COMPENSATED"
    await both.close()


async def turn(url, rings):
    """Wrap anew with one keyring and the other, until cancelled."""
    stores = [await opened(url, ring) for ring in rings]
    while True:
        for store in stores:
            assert not (await rotate(store)).failed


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_new_key_goes_to_the_end_of_its_file(tmp_path):
    """The file is made for its owner alone; what was in it stays, remarks too; a name is used once."""
    file = tmp_path / "saga.keys"
    add_to_file(file, made("k1"))
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("# ours\n" + file.read_text().rstrip())
    add_to_file(file, made("k2"))
    assert file.read_text().startswith("# ours\nk1:")
    keys = keys_from_file(file)()
    assert list(keys) == ["k1", "k2"]
    assert {len(key) for key in keys.values()} == {32}
    with pytest.raises(SettingInvalid, match="already"):
        add_to_file(file, made("k1"))
    with pytest.raises(SettingInvalid):
        made("no name")
    assert base64.b64decode(made("k3").partition(":")[2]) != base64.b64decode(made("k3").partition(":")[2])
    assert [path.name for path in tmp_path.iterdir()] == ["saga.keys"]
