"""What a process that was killed leaves in the store is cleared away by the next one, also where no worker ever runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from saga_engine import Coordinator, tool
from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store
from tests.kill.polling import eventually
from tests.support.servers import DebianRedis, until

pytestmark = pytest.mark.debian_redis
LONG_MS = 600_000

#: Drives a saga, has a message for it, and is killed in the middle of a step.
KILLED = """
import asyncio, os, signal, sys
from saga_engine import Coordinator, tool

@tool(undo="give_back", keyed=True)
async def take(x: int) -> dict:
    if sys.argv[2] == "first":
        await STORE.post("s1", b"mail that nobody reads")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": x}

@tool
async def give_back(x: int) -> dict:
    return {}

async def main():
    global STORE
    async with Coordinator.open(sys.argv[1], [take, give_back], lease_s=1) as coordinator:
        STORE = coordinator.store
        await coordinator.run({"steps": [{"step_id": 1, "tool": "take", "params": {"x": 1}}]}, saga_id="s1")

asyncio.run(main())
"""


@tool(undo="give_back", keyed=True)
async def take(x: int) -> dict:
    return {"x": x}


@tool
async def give_back(x: int) -> dict:
    return {}


TOOLS = [take, give_back]
PLAN = {"steps": [{"step_id": 1, "tool": "take", "params": {"x": 1}}]}


@pytest.fixture
def server():
    with DebianRedis() as server:
        yield server


@pytest.fixture
def raw(server, tmp_path):
    """A look into a store in which a process was killed."""
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(program), server.url, "first"], cwd=root, env={"PYTHONPATH": str(root)}, check=False
    )
    assert done.returncode == -9
    with server.client() as client:
        until(lambda: not client.keys("saga:*}:lease:*"), "the lease of the dead one to end")
        yield client


def left(raw):
    """The keys that an owner leaves, other than those of live leases."""
    alive = {key.partition(b"lease:")[2] for key in raw.keys("saga:*}:lease:*")}
    known = {name for key in raw.keys("saga:*}:owners") for name in raw.smembers(key)}
    keys = raw.keys("saga:*}:wake:*") + raw.keys("saga:*}:taken:*")
    named = {key.decode().split("}:")[1].split(":", 1)[1].encode() for key in keys}
    return (known | named) - alive


async def test_the_next_process_clears_it_away(server, raw):
    """It drives another saga and is no worker: owner and messages of the dead one go, and its saga waits in the queue."""
    assert left(raw)
    async with Coordinator.open(server.url, TOOLS) as coordinator:
        assert (await coordinator.run(PLAN, saga_id="s2")).completed
        await eventually(lambda: not left(raw), "the dead owner to be forgotten")
        assert (await coordinator.store.head("s1")).owner == ""
        assert (await coordinator.store.work().overview()).queued == 1


async def test_resume_all_clears_it_away(server, raw):
    """It goes on with the saga of the dead one, and nothing of it is left after that."""
    gone = left(raw)
    assert gone
    async with Coordinator.open(server.url, TOOLS) as coordinator:
        results = await coordinator.resume_all()
        assert results["s1"].completed
        assert not left(raw) & gone


async def test_who_lives_is_left_alone(server, raw):
    """An owner whose lease lives keeps its messages and its sagas."""
    store = open_store(server.url)
    await store.open()
    await store.open_lease("A", LONG_MS)
    await store.append("A", [Entry("theirs", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))])
    await store.post("theirs", b"m")
    async with Coordinator.open(server.url, TOOLS) as coordinator:
        assert (await coordinator.run(PLAN, saga_id="s2")).completed
        await eventually(lambda: not left(raw), "the dead owner to be forgotten")
    assert list((await store.renew("A", LONG_MS)).wakes) == ["theirs"]
    assert (await store.head("theirs")).owner == "A"
    await store.close()
