"""What a server promises is read from the server, and one that keeps less than it should is refused."""

import pytest

from saga_engine.errors import DurabilityInsufficient, JournalUnreadable, SettingInvalid, StoreRefused
from saga_engine.stores import open_store
from saga_engine.stores.durability import ServerFacts, verify
from tests.support.servers import DebianRedis

pytestmark = pytest.mark.debian_redis

GOOD = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no", "maxmemory": "0"}


@pytest.fixture(scope="module")
def server():
    with DebianRedis() as server:
        yield server


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"appendfsync": "everysec"}, "CONFIG SET appendfsync always"),
        ({"appendfsync": "no"}, "CONFIG SET appendfsync always"),
        ({"appendonly": "no"}, "CONFIG SET appendonly yes"),
        ({"no-appendfsync-on-rewrite": "yes"}, "CONFIG SET no-appendfsync-on-rewrite no"),
        ({"maxmemory": "1gb", "maxmemory-policy": "allkeys-lru"}, "CONFIG SET maxmemory-policy noeviction"),
    ],
)
async def test_a_weak_server_is_refused(server, settings, hint):
    """Each weakness alone is enough, and the hint names the command that mends it; `relaxed` goes on."""
    with server.client() as client:
        before = {name: client.config_get(name)[name] for name in settings}
        for name, value in settings.items():
            client.config_set(name, value)
        try:
            strict = open_store(server.url)
            with pytest.raises(DurabilityInsufficient) as caught:
                await strict.open()
            assert hint in caught.value.hint
            assert (await strict.promise()).level == "relaxed"
            await strict.close()
            relaxed = open_store(server.url, durability="relaxed")
            await relaxed.open()
            assert await relaxed.open_lease("A", 1000) > 0
            await relaxed.close()
        finally:
            for name, value in before.items():
                client.config_set(name, value)


async def test_a_strong_server_is_accepted(server):
    """Append-only file, fsync always and no eviction: that is `fsync`; noeviction with a limit is too."""
    with server.client() as client:
        client.config_set("maxmemory", "1gb")
        client.config_set("maxmemory-policy", "noeviction")
    store = open_store(server.url)
    await store.open()
    promise = await store.promise()
    assert promise.level == "fsync"
    assert promise.server.startswith("Redis 7.")
    assert [severity for severity, _, _ in promise.findings] == ["ok"]
    await store.close()


async def test_a_replica_is_refused():
    """Journals are written to the primary; a relaxed store is told by the server itself."""
    with DebianRedis(replicaof="127.0.0.1 1", replica_serve_stale_data="yes") as replica:
        with pytest.raises(DurabilityInsufficient, match="replica"):
            await open_store(replica.url).open()
        with pytest.raises(StoreRefused) as caught:
            await open_store(replica.url, durability="relaxed").open()
        assert "primary" in caught.value.hint


@pytest.mark.parametrize("rename", [True, False], ids=["unknown command", "no permission"])
async def test_a_server_that_cannot_be_asked(rename):
    """Where CONFIG is not allowed nothing is assumed: refused, with the way on."""
    with DebianRedis(**({"rename_command": 'CONFIG ""'} if rename else {})) as server:
        if not rename:
            with server.client() as client:
                client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
        with pytest.raises(DurabilityInsufficient, match="cannot be verified") as caught:
            await open_store(server.url).open()
        assert 'durability = "relaxed"' in caught.value.hint
        store = open_store(server.url, durability="relaxed")
        await store.open()
        await store.close()


async def test_passwords():
    """The right password opens, a wrong one is a refusal at once, and no password is ever shown."""
    with DebianRedis(tcp=True, requirepass="geheim") as server:
        address = server.tcp_url.removeprefix("redis://")
        store = open_store(f"redis://:geheim@{address}")
        await store.open()
        assert store.url == f"redis://:***@{address}"
        await store.close()
        for url in (f"redis://:falsch@{address}", f"redis://{address}"):
            with pytest.raises(StoreRefused, match="does not let us in") as caught:
                await open_store(url).open()
            assert "falsch" not in f"{caught.value}{caught.value.to_dict()}"


async def test_a_newer_format_is_not_touched(server):
    """A store written by a later engine is refused, and the number of partitions is the one it was made with."""
    with server.client() as client:
        client.hset("later:meta", mapping={"format": 2, "partitions": 16})
        with pytest.raises(JournalUnreadable):
            await open_store(f"{server.url}?namespace=later").open()
        client.hset("small:meta", mapping={"format": 1, "partitions": 3})
        store = open_store(f"{server.url}?namespace=small")
        await store.open()
        await store.open_lease("A", 60_000)
        assert sorted(client.keys("small:*:lease:A")) == [b"small:{p%02d}:lease:A" % n for n in range(3)]
        await store.close()


def test_an_unknown_level_is_no_level():
    """A typing error in the settings does not lower the guard."""
    with pytest.raises(SettingInvalid):
        open_store("memory://", durability="fsnyc")


@pytest.mark.parametrize(
    ("info", "level", "severity"),
    [
        ({"redis_version": "6.0.16"}, "relaxed", "error"),
        ({"redis_version": "6.2.7"}, "fsync", "warning"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"}, "fsync", "ok"),
        ({"redis_version": "7.0.1", "aof_last_write_status": "err"}, "relaxed", "error"),
    ],
)
def test_versions_and_the_last_write(info, level, severity):
    """Too old is refused, untested is said, and a server whose last write failed keeps nothing."""
    promise = verify("redis://h", [ServerFacts(info, GOOD)])
    assert promise.level == level
    assert severity in {found for found, _, _ in promise.findings}


def test_a_door_without_a_lock_is_mentioned():
    """No password beyond this machine is a warning, and no reason to refuse."""
    promise = verify("redis://h", [ServerFacts({}, GOOD, open_door=True)])
    assert promise.level == "fsync"
    assert [severity for severity, _, _ in promise.findings] == ["ok", "warning"]
    assert open_store("redis://far.example")._open_door is True
    assert open_store("redis://:secret@far.example")._open_door is False
    assert open_store("redis://localhost")._open_door is False


def test_nearly_full_is_mentioned():
    """A server that refuses writes when full says so before it is."""
    limited = GOOD | {"maxmemory": "1000", "maxmemory-policy": "noeviction"}
    promise = verify("redis://h", [ServerFacts({"used_memory": "900"}, limited)])
    assert [severity for severity, _, _ in promise.findings] == ["ok", "warning"]
