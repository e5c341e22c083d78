"""A folder that was copied, moved or damaged: whose server it gets, and what is said of its data."""

# ruff: noqa: ASYNC240 -- a test may look at files as it goes

import json
import logging
import os
import shutil
import signal
from pathlib import Path

import pytest

from saga_engine.cli import run
from saga_engine.errors import SagaNotFound, StoreUnavailable
from saga_engine.ports import Ack, Creation, Entry
from saga_engine.stores import open_store
from tests.support.servers import EmbeddedFolder

LONG_MS = 600_000


async def opened(folder, patience_s=30):
    store = open_store(folder.url, patience_s=patience_s)
    await store.open()
    return store


async def begin(store, saga_id):
    await store.open_lease("A", LONG_MS)
    entry = Entry(saga_id, 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    assert (await store.append("A", [entry])).acks == [Ack("ok")]


@pytest.fixture
def copy(folder, tmp_path):
    """Where the folder is going to be copied to."""
    with EmbeddedFolder(tmp_path / "copy") as copy:
        yield copy


async def test_a_copy_has_a_server_of_its_own(folder, copy, caplog):
    """Copied while its server runs: what is written to the copy is not in the original, nor the other way round."""
    store = await opened(folder)
    await begin(store, "s1")
    shutil.copytree(folder.path, copy.path)
    other = await opened(copy)
    assert "is a copy of another one" in caplog.text
    await begin(other, "s2")
    with pytest.raises(SagaNotFound):
        await store.head("s2")
    assert list(await other.read("s1")) == [b"r0"]
    assert folder.servers() == [folder.pid]
    assert copy.servers() == [copy.pid]
    assert folder.pid != copy.pid
    await other.close()
    assert copy.servers() == []
    # The original's server and its socket are left alone: the next one finds them.
    third = await opened(folder)
    assert folder.servers() == [folder.pid]
    assert list(await third.read("s1")) == [b"r0"]
    await third.close()
    await store.close()


async def test_a_copy_of_a_folder_whose_server_hangs(folder, copy):
    """A server that does not answer cannot be asked whose it is: the record's inode decides."""
    store = await opened(folder)
    await begin(store, "s1")
    shutil.copytree(folder.path, copy.path)
    os.kill(folder.pid, signal.SIGSTOP)
    try:
        other = await opened(copy)
        assert list(await other.read("s1")) == [b"r0"]
        await other.close()
    finally:
        os.kill(folder.pid, signal.SIGCONT)
    await store.close()


async def test_a_record_of_another_folder_with_our_inode(folder, copy):
    """Whatever the record says, the server itself is asked where it works."""
    store = await opened(folder)
    other = await opened(copy)
    await other.close()
    found = copy.data.stat()
    record = folder.record | {"folder": [found.st_dev, found.st_ino]}
    (copy.path / "server.json").write_text(json.dumps(record))
    other = await opened(copy)
    await begin(other, "s2")
    with pytest.raises(SagaNotFound):
        await store.head("s2")
    await other.close()
    await store.close()


async def test_a_server_whose_folder_was_removed_is_nobody_s(folder, copy):
    """It cannot say where it works, and nothing that it is told is kept: it is never taken for the server of a folder."""
    store = await opened(folder)
    removed = folder.pid
    try:
        other = await opened(copy)
        await other.close()
        found = copy.data.stat()
        record = folder.record | {"folder": [found.st_dev, found.st_ino]}
        shutil.rmtree(folder.data)
        (copy.path / "server.json").write_text(json.dumps(record))
        other = await opened(copy)
        assert copy.servers() == [copy.pid]
        assert copy.pid != removed
        await other.close()
    finally:
        os.kill(removed, signal.SIGKILL)
    await store.close()


async def test_a_folder_that_is_moved_keeps_its_server(folder, copy):
    """A new name is no copy: whoever comes by it finds the server that has the data."""
    store = await opened(folder)
    await begin(store, "s1")
    pid = folder.pid
    folder.path.rename(copy.path)
    other = await opened(copy)
    assert copy.servers() == [pid]
    assert list(await other.read("s1")) == [b"r0"]
    await store.close()
    await other.close()
    assert copy.servers() == []


def journal_files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder.data / "appendonlydir").iterdir()}


async def test_a_manifest_that_is_missing(folder):
    """A server would take the data for none and write over it: refused, with what is missing, and nothing is changed."""
    store = await opened(folder)
    await begin(store, "s1")
    await store.close()
    manifest = folder.data / "appendonlydir" / "appendonly.aof.manifest"
    saved = manifest.read_bytes()
    manifest.unlink()
    before = journal_files(folder)
    with pytest.raises(StoreUnavailable, match="manifest is missing") as caught:
        await open_store(folder.url).open()
    assert "backup" in caught.value.hint
    assert journal_files(folder) == before
    manifest.write_bytes(saved)
    store = await opened(folder)
    assert list(await store.read("s1")) == [b"r0"]
    await store.close()


def test_doctor_tells_of_a_missing_manifest(tmp_path, capsys, monkeypatch):
    """`saga doctor` says that the data is damaged, ends with 1, and leaves it as it is."""
    monkeypatch.chdir(tmp_path)
    files = tmp_path / ".saga" / "data" / "appendonlydir"
    files.mkdir(parents=True)
    (files / "appendonly.aof.1.incr.aof").write_bytes(b"*1\r\n$4\r\nPING\r\n")
    assert run(["doctor", "--json"]) == 1
    (finding,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["about"] == "store"]
    assert finding["severity"] == "error"
    assert "manifest is missing" in finding["text"]
    assert (files / "appendonly.aof.1.incr.aof").read_bytes() == b"*1\r\n$4\r\nPING\r\n"


async def test_an_end_that_is_cut_off(folder, caplog):
    """The server drops the torn end and starts: the start says so in the log, and the promise for `saga doctor`."""
    store = await opened(folder)
    await begin(store, "s1")
    await store.close()
    (file,) = folder.data.glob("appendonlydir/*.incr.aof")
    os.truncate(file, file.stat().st_size - 5)
    with caplog.at_level(logging.WARNING, "saga_engine"):
        store = await opened(folder)
    assert f"the end of {file.name} was missing" in caplog.text
    for _ in range(2):
        found = [one for one in (await store.promise()).findings if one[0] == "warning"]
        assert [f"the end of {file.name} was missing" in text for _, text, _ in found] == [True]
        await store.close()
        store = await opened(folder)
    await store.close()


async def test_damage_comes_without_advice_that_cannot_be_followed(folder):
    """The wheel has no tool that repairs such files, so nobody is told to call it."""
    store = await opened(folder)
    await begin(store, "s1")
    await store.close()
    (file,) = folder.data.glob("appendonlydir/*.incr.aof")
    with file.open("ab") as output:
        output.write(b"nonsense\n*1\n")
    with pytest.raises(StoreUnavailable, match="Bad file format") as caught:
        await open_store(folder.url).open()
    assert "check-aof" not in str(caught.value)
    assert "backup" in caught.value.hint
    assert not Path(folder.path / "server.json").exists()
