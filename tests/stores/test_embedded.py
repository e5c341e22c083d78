"""The life of an embedded server: found or started, shared, killed at any moment, stopped by the last one out."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC240 -- a test may look at files and start processes as it goes

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from saga_engine.errors import StoreUnavailable
from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store
from tests.support.servers import EmbeddedFolder, until

LONG_MS = 600_000

#: A process of its own that uses a store: opens it, says so, and leaves when it is told to.
CLIENT = """
import asyncio, sys
from saga_engine.stores import open_store

async def main(url):
    store = open_store(url, patience_s=30)
    await store.open()
    await store.open_lease("C", 600_000)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


def client(folder):
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, folder.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def leave(process):
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


async def opened(folder, **options):
    store = open_store(folder.url, patience_s=30, **options)
    await store.open()
    return store


async def begun(folder):
    store = await opened(folder)
    await store.open_lease("A", LONG_MS)
    entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]
    return store


async def test_it_is_durable_and_private(folder):
    """No TCP port, a socket only its user can reach, fsync always, and nothing of it under version control."""
    store = await opened(folder)
    assert (await store.promise()).level == "fsync"
    address = Path(folder.record["socket"])
    assert len(os.fsencode(address)) <= 107
    assert address.parent.stat().st_mode & 0o777 == 0o700
    assert address.stat().st_mode & 0o077 == 0
    with redis.Redis(unix_socket_path=str(address)) as client:
        assert client.config_get("port", "appendfsync", "save") == {"port": "0", "appendfsync": "always", "save": ""}
    assert (folder.path / ".gitignore").read_text() == "*\n"
    assert os.getsid(folder.pid) != os.getsid(0)
    await store.close()


async def test_it_gets_no_secrets(folder, monkeypatch):
    """The server outlives the command that started it and inherits none of its environment's secrets."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    store = await opened(folder)
    assert b"SOME_API_KEY" not in Path(f"/proc/{folder.pid}/environ").read_bytes()
    await store.close()


async def test_the_last_one_out_stops_it(folder):
    """While anybody uses it it stays, in this process or another; after the last it is gone, socket and all."""
    one, two = await begun(folder), await opened(folder)
    pid, address = folder.pid, Path(folder.record["socket"])
    await one.close()
    assert folder.servers() == [pid]
    assert list(await two.read("s1")) == [b"r0"]
    await two.close()
    assert folder.servers() == []
    assert folder.record is None
    assert not address.parent.exists()
    again = await opened(folder)
    assert list(await again.read("s1")) == [b"r0"]
    await again.close()


async def test_a_store_that_was_never_opened_starts_nothing(folder):
    """Closing what was not opened is no reason to start a server."""
    await open_store(folder.url).close()
    assert not folder.path.exists()


def test_processes_that_race_to_start_it(folder):
    """Four at once: one server, all four on it, none left after the last."""
    processes = [client(folder) for _ in range(4)]
    assert [process.stdout.readline() for process in processes] == ["open\n"] * 4
    assert len(folder.servers()) == 1
    for process in processes:
        leave(process)
    assert folder.servers() == []


async def test_stores_of_one_process_that_race(folder):
    """The same inside a process, where locks are easily shared by mistake."""
    stores = await asyncio.gather(*(opened(folder) for _ in range(6)))
    assert folder.servers() == [folder.pid]
    await asyncio.gather(*(store.close() for store in stores))
    until(lambda: len(folder.servers()) <= 1, "at most one server")
    last = await opened(folder)
    await last.close()
    assert folder.servers() == []


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(folder):
    """Whenever the server dies, the next append starts it again and continues the journal."""
    store = await begun(folder)
    for number in range(1, 6):
        folder.kill()
        entry = Entry("s1", number, 1, [b"r%d" % number])
        assert (await store.append("A", [entry])).acks == [Ack("ok")]
    assert list(await store.read("s1")) == [b"r%d" % number for number in range(6)]
    await store.close()
    assert folder.servers() == []


async def test_a_server_killed_amid_appends_loses_nothing(folder):
    """Kills at any moment of a stream of appends: every append is acknowledged and there once."""
    store = await begun(folder)
    done = 0

    async def write():
        nonlocal done
        for number in range(1, 201):
            (ack,) = (await store.append("A", [Entry("s1", number, 1, [b"r%d" % number])])).acks
            assert ack.code == "ok"
            done = number

    writing = asyncio.create_task(write())
    for mark in (20, 70, 130):
        while done < mark and not writing.done():
            await asyncio.sleep(0)
        for pid in folder.servers():
            os.kill(pid, signal.SIGKILL)
    await writing
    assert list(await store.read("s1")) == [b"r%d" % number for number in range(201)]
    await store.close()


async def test_a_killed_client_leaves_the_server_running(folder):
    """The next process attaches to the server that is there, and as the last one stops it."""
    process = client(folder)
    assert process.stdout.readline() == "open\n"
    pid = folder.pid
    process.kill()
    process.communicate()
    assert folder.servers() == [pid]
    store = await opened(folder)
    assert folder.pid == pid
    assert (await store.renew("C", LONG_MS)).alive
    await store.close()
    assert folder.servers() == []


async def test_a_deep_folder(tmp_path):
    """A path far longer than a socket's may be, with spaces and letters of any script."""
    deep = tmp_path.joinpath(*(["a folder with a fairly long name, Größe 大"] * 6))
    with EmbeddedFolder(deep) as folder:
        store = await begun(folder)
        await store.close()
        store = await opened(folder)
        assert list(await store.read("s1")) == [b"r0"]
        await store.close()


async def test_a_relative_folder(tmp_path):
    """A relative path starts from ``root``, and the URL stays as it was given."""
    with EmbeddedFolder(tmp_path / "here" / ".saga") as folder:
        store = open_store("embedded://here/.saga", root=tmp_path)
        await store.open()
        assert store.url == "embedded://here/.saga"
        assert folder.servers() == [folder.pid]
        await store.close()


async def test_a_socket_that_was_cleaned_away(folder):
    """A server that nobody can reach is ended and replaced: never two on one folder's data."""
    store = await begun(folder)
    pid, address = folder.pid, Path(folder.record["socket"])
    address.unlink()
    address.parent.rmdir()
    other = await opened(folder)
    assert folder.pid != pid
    assert folder.servers() == [folder.pid]
    assert list(await other.read("s1")) == [b"r0"]
    assert (await store.append("A", [Entry("s1", 1, 1, [b"r1"])])).acks == [Ack("ok")]
    await store.close()
    await other.close()
    assert folder.servers() == []


async def test_a_record_that_lies(folder, tmp_path):
    """A left-over record with a pid that now belongs to another is no server, and that other is left in peace."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder.path.mkdir()
    gone = tmp_path / "saga-gone" / "s"
    (folder.path / "server.json").write_text(json.dumps({"socket": str(gone), "pid": bystander.pid}))
    store = await begun(folder)
    assert folder.servers() == [folder.pid]
    assert bystander.poll() is None
    await store.close()
    bystander.communicate(b"\n")


async def test_nobody_else_is_stopped(folder):
    """A server that holds the data and cannot be found is waited for in vain; the pid of a stranger gets no signal."""
    store = await begun(folder)
    address = Path(folder.record["socket"])
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (folder.path / "server.json").write_text(json.dumps(folder.record | {"pid": bystander.pid}))
    address.unlink()
    with pytest.raises(StoreUnavailable, match="another server holds its data"):
        await open_store(folder.url, patience_s=1.5).open()
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    await store.close()


@pytest.mark.parametrize("body", ["", "{", "[]", '{"socket": 1, "pid": 2}', '{"socket": "/s", "pid": null}', "null"])
async def test_a_record_that_makes_no_sense(folder, body):
    """A torn or foreign record is as good as none."""
    folder.path.mkdir()
    (folder.path / "server.json").write_text(body)
    store = await opened(folder)
    assert folder.servers() == [folder.pid]
    await store.close()


async def test_a_folder_that_is_none(tmp_path):
    """A file where the folder should be, or no right to write: said at once, with the folder and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable) as caught:
        await open_store(f"embedded://{tmp_path}/file").open()
    assert str(tmp_path / "file") in str(caught.value)
    assert caught.value.hint


async def test_data_that_cannot_be_read(folder):
    """A server that does not start says why, in the words of its log."""
    store = await begun(folder)
    await store.close()
    (manifest,) = folder.data.glob("appendonlydir/*.manifest")
    manifest.write_text("nonsense\n")
    with pytest.raises(StoreUnavailable, match="does not start") as caught:
        await open_store(folder.url).open()
    assert "manifest" in str(caught.value)
    assert folder.record is None


async def test_a_strange_socket_is_not_trusted(folder, tmp_path):
    """A record that came with a copied folder does not lead to somebody else's socket."""
    with socket.socket(socket.AF_UNIX) as trap:
        (tmp_path / "t").mkdir()
        trap.bind(str(tmp_path / "t" / "s"))
        trap.listen()
        folder.path.mkdir()
        (folder.path / "server.json").write_text(json.dumps({"socket": str(tmp_path / "t" / "s"), "pid": None}))
        store = await opened(folder)
        assert folder.record["socket"] != str(tmp_path / "t" / "s")
        await store.close()
