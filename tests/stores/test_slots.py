"""Calls that wait for a connection: back-pressure is no outage, and an outage is found as soon as without a queue."""

import asyncio

import pytest

from saga_engine.errors import StoreUnavailable
from saga_engine.stores import open_store
from saga_engine.stores.connection import Connector, Pool

LONG_MS = 600_000
PATIENCE_S = 10.0
#: Less than an attempt may take.
SLOW_S = 4.0


class Server(Connector):
    """A server that takes ``SLOW_S`` for each call, while it answers."""

    url, hint = "test://", "none"

    def __init__(self):
        self.answers, self.silent = True, False
        self.asked = []
        self.before_an_answer = []

    async def connect(self):
        return self

    async def call(self, args):
        self.asked.append(args[0])
        await asyncio.sleep(SLOW_S)
        if not self.answers:
            self.silent = True
            await asyncio.Event().wait()
        for callback in self.before_an_answer:
            asyncio.get_running_loop().call_soon(callback)
        return args[0]

    async def close(self):
        pass


def now():
    return asyncio.get_running_loop().time()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def pool(server):
    return Pool(server, patience_s=PATIENCE_S, width=1)


@pytest.mark.virtual_time
async def test_a_wait_behind_answered_calls_is_no_outage(pool):
    """Twenty calls over one connection wait for eight times the patience, and each gets its answer."""
    began_s = now()
    assert await asyncio.gather(*(pool.call([number]) for number in range(20))) == [*range(20)]
    assert now() - began_s >= 2 * PATIENCE_S  # (the case is what it claims to be)


@pytest.mark.virtual_time
@pytest.mark.parametrize("answered", [0, 3])
async def test_an_outage_ends_the_wait_of_all(pool, server, answered):
    """Once the server answers nobody, those who wait give up with the one that was sent, with the patience."""
    calls = [asyncio.create_task(pool.call([number])) for number in range(answered + 6)]
    if answered:
        await asyncio.gather(*calls[:answered])
    server.answers = False
    began_s = now()
    told = await asyncio.gather(*calls[answered:], return_exceptions=True)
    assert [type(each) for each in told] == [StoreUnavailable] * 6
    assert now() - began_s <= PATIENCE_S + 1
    server.answers = True
    assert await pool.call(["again"]) == "again"


@pytest.mark.virtual_time
async def test_one_that_gives_up_waiting_takes_no_slot(pool, server):
    """A call that is cancelled while it waits, or at its turn, holds up no other."""
    _, second, third, fourth = (
        asyncio.create_task(pool.call([name])) for name in ("first", "second", "third", "fourth")
    )
    server.before_an_answer.append(third.cancel)
    await asyncio.sleep(0)
    second.cancel()
    assert await fourth == "fourth"
    assert server.asked == ["first", "fourth"]
    assert (second.cancelled(), third.cancelled()) == (True, True)


async def test_a_busy_loop_is_no_outage(server, monkeypatch):
    """A loop that did nothing for as long as the patience has not read the answer: that says nothing of the server."""
    monkeypatch.setattr(f"{__name__}.SLOW_S", 0)
    loop = asyncio.get_running_loop()
    ahead_s, real = 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + ahead_s)
    pool = Pool(server, patience_s=PATIENCE_S, width=1)
    server.answers = False
    calls = [asyncio.create_task(pool.call([number])) for number in range(2)]
    async with asyncio.timeout(30):
        while not server.silent:  # noqa: ASYNC110 - what the pool does
            await asyncio.sleep(0)
    ahead_s, server.answers = 3 * PATIENCE_S, True
    assert await asyncio.gather(*calls) == [0, 1]


async def test_a_lease_is_renewed_before_all_other_calls(tmp_path):
    """The lease of a process, and its places in queues, are kept while all its other connections are taken."""
    store = open_store(f"embedded://{tmp_path}/store", patience_s=600)
    await store.open()
    await store.open_lease("A", LONG_MS)
    waiting = [asyncio.create_task(store._calls.others.call(["BLPOP", f"nothing{n}", 0])) for n in range(20)]
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        assert (await store.renew("A", LONG_MS)).alive
        assert await store.guard_store().take("room", ["t1"], LONG_MS) == "t1"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await store.close()
