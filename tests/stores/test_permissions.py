"""The permissions that the docs name are enough."""

import pytest

from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store
from tests.stores.permissions import documented_rules
from tests.support.servers import DebianRedis


@pytest.mark.debian_redis
async def test_the_documented_user_can_do_everything():
    """A user with the rules of docs/stores.md, and no others, passes the check and can use every verb."""
    rules = documented_rules()
    with DebianRedis(tcp=True) as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "engine", "on", ">geheim", "~saga:*", *rules.split())
        store = open_store(f"redis://engine:geheim@127.0.0.1:{server.port}")
        await store.open()
        assert (await store.promise()).level == "fsync"
        await store.open_lease("A", 60_000)
        entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", values={"v": b"1"}, creation=Creation("d", owned=True))
        assert (await store.append("A", [entry])).acks[0].code == "ok"
        await store.post("s1", b"m")
        await store.renew("A", 60_000)
        await store.acquire("s1", "A")
        await store.values("s1", ["v"])
        await store.messages("s1")
        await store.read("s1")
        await store.release("s1", 2)
        await store.acquire("s1", "A")
        final = Entry("s1", 1, 3, [b"end"], "COMPLETED", b"{}", release=True, consumed=1, keep_ms=60_000)
        assert (await store.append("A", [final])).acks[0].code == "ok"
        assert len(await store.list()) == 1
        await store.close_lease("A")
        await store.close()
