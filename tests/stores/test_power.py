"""Power loss. A killed process leaves its writes in the kernel's page cache, so no kill shows what a power cut would take.

What decides is the order of the server's system calls: the record is written to the append-only file, the file is synced,
and only then is the reply sent. strace shows that order. What it cannot show is that the drive obeys.
"""

import os
import re
import shutil
import signal
import subprocess
import uuid

import pytest

from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store
from tests.support.servers import GIVE_UP_S, DebianRedis, EmbeddedFolder

LONG_MS = 600_000
_CALLS = "trace=write,writev,pwrite64,pwritev,fsync,fdatasync,sync_file_range,sendto,sendmsg"


def need_strace():
    """Skip at a desk without strace; fail in CI, where it must be."""
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing in CI")
        pytest.skip("strace is not installed")


class Traced:
    """The system calls of a running server, as long as the block lasts."""

    def __init__(self, pid, log):
        need_strace()
        self._log = log
        command = ["strace", "-f", "-y", "-s", "65536", "-e", _CALLS, "-o", str(log), "-p", str(pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        said = self._process.stderr.readline()
        if "attached" not in said:
            self._process.wait(GIVE_UP_S)
            if os.environ.get("CI") == "true":
                pytest.fail(f"strace may not look at the server: {said}")
            pytest.skip(f"strace may not look at the server: {said}")
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGINT)
        self._process.stderr.read()
        self._process.wait(GIVE_UP_S)
        self._process.stderr.close()

    def order(self, record):
        """What became of a record, in order: ``written`` to the append-only file, ``synced``, ``told`` to the client."""
        found = []
        for line in self._log.read_text(errors="replace").splitlines():
            call = re.search(r"(\w+)\((\d+)<([^>]*)>", line)
            if call is None:
                continue
            in_file = "appendonly" in call[3]
            if in_file and "sync" not in call[1] and record in line:
                found.append("written")
            elif found and in_file and "sync" in call[1]:
                found.append("synced")
            elif found and not in_file and re.match("UNIX|socket|TCP", call[3]):
                return [*found, "told"]
        return found


async def orders(url, pid, folder):
    """For each of some records that were appended and acknowledged, the order of what was done."""
    store = open_store(f"{url}?namespace={uuid.uuid4().hex}", durability="relaxed")
    await store.open()
    await store.open_lease("A", LONG_MS)
    await store.append("A", [Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))])
    records = [f"record-{number}-{uuid.uuid4().hex}" for number in range(1, 6)]
    with Traced(pid, folder / "trace") as traced:
        for number, record in enumerate(records, 1):
            assert (await store.append("A", [Entry("s1", number, 1, [record.encode()])])).acks == [Ack("ok")]
    await store.close()
    return [traced.order(record) for record in records]


async def test_what_is_acknowledged_was_synced_before(tmp_path):
    """The embedded server answers an append only when the record is written and its file synced: a power cut loses nothing."""
    with EmbeddedFolder(tmp_path / "saga") as folder:
        keeper = open_store(folder.url)
        await keeper.open()
        assert await orders(folder.url, folder.pid, tmp_path) == [["written", "synced", "told"]] * 5
        await keeper.close()


@pytest.mark.debian_redis
async def test_a_server_that_passes_as_durable_syncs_before_it_answers(tmp_path):
    """The settings that the store demands of a server are those under which it syncs first."""
    with DebianRedis() as server:
        store = open_store(server.url)
        await store.open()  # it is not refused
        assert (await store.promise()).level == "fsync"
        await store.close()
        assert await orders(server.url, server.pid, tmp_path) == [["written", "synced", "told"]] * 5


@pytest.mark.debian_redis
async def test_a_server_that_is_refused_answers_first(tmp_path):
    """Under ``appendfsync no``, which only ``relaxed`` accepts, the reply comes before any sync: the test can tell."""
    with DebianRedis(appendfsync="no") as server:
        assert await orders(server.url, server.pid, tmp_path) == [["written", "told"]] * 5
