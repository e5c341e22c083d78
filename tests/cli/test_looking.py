"""Commands that only read an embedded store leave its folder as it is, and leave nothing running."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from saga_engine.stores import open_store
from saga_engine.stores.embedded import FolderServer, find_binary
from tests.cli.conftest import TOOLS, Cli
from tests.support.servers import until

WITH = ("--tools", str(TOOLS))
_LIMIT_S = 120
READING = (
    ("list",),
    ("show", "trip"),
    ("show", "trip", "--follow"),
    ("show", "absent"),
    ("history", "trip"),
    ("inbox",),
    ("top", "--once", "--every", "0.2"),
    ("graph", "trip"),
    ("trace", "export", "trip", "-o", "trace.jsonl"),
    ("tools", "--stats", *WITH),
    ("doctor",),
    ("fork", "trip", "--dry-run", "--from", "1", *WITH),
)


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file and folder with its mode, its time of change and its bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def temporary(cli: Cli) -> list[Path]:
    return [path for path in cli.temp.iterdir() if path.name.startswith("saga-")]


@pytest.fixture
def trip(cli: Cli, book, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """A store with a saga that has ended, and whose server is down; what is temporary has a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as temp:
        cli.temp = Path(temp)
        cli.env |= {"TMPDIR": temp, "XDG_RUNTIME_DIR": temp}
        monkeypatch.setattr(tempfile, "tempdir", temp)
        monkeypatch.setenv("XDG_RUNTIME_DIR", temp)
        cli.plan("p.json", book("a"), task_id="trip")
        assert cli("submit", "p.json", *WITH).code == 0
        yield cli


def test_reading_changes_nothing_in_the_folder(trip: Cli) -> None:
    """Whatever is read of a store whose server is down: no byte and no time of its folder changes, no process stays."""
    store = trip.folder / ".saga"
    before = contents(store)
    for command in READING:
        ran = trip(*command) if "--tools" in command else trip.look(*command)
        assert (command, ran.code) == (command, 5 if "absent" in command else 0), ran.err
        assert (command, contents(store)) == (command, before)
        assert (command, temporary(trip)) == (command, [])


def test_another_namespace_of_a_store_that_is_down_has_its_own_sagas(trip: Cli) -> None:
    """The name of the sagas' part of the store goes with the copy."""
    ran = trip.look("list", "--store", f"embedded://{trip.folder}/.saga?namespace=other", "--json")
    assert (ran.code, ran.json["sagas"]) == (0, [])


def test_reading_needs_no_right_to_write(trip: Cli) -> None:
    """A backup without locks and without the right to write is read like any other store."""
    store = trip.folder / ".saga"
    (store / "lock").unlink()
    (store / "server.lock").unlink()
    places = [store, *store.rglob("*")]
    for place in places:
        place.chmod(place.stat().st_mode & ~0o222)
    try:
        ran = trip.look("show", "trip", "--json")
        assert (ran.code, ran.json["status"]) == (0, "COMPLETED")
    finally:
        for place in places:
            place.chmod(place.stat().st_mode | 0o200)


def test_a_log_whose_end_is_missing_is_read_up_to_there(trip: Cli) -> None:
    """The rest of a torn record is dropped from the copy alone."""
    log = next((trip.folder / ".saga" / "data").rglob("*.incr.aof"))
    log.write_bytes(log.read_bytes() + b"*3\r\n$3\r\nSET\r\n$1")
    before = contents(trip.folder / ".saga")
    ran = trip.look("show", "trip", "--json")
    assert (ran.code, ran.json["status"]) == (0, "COMPLETED")
    assert contents(trip.folder / ".saga") == before
    assert "was missing" in trip.look("doctor").out


def test_a_store_that_is_damaged_is_not_read_as_an_empty_one(trip: Cli) -> None:
    """Without its manifest a log is a damage that is named, also by commands that only read."""
    next((trip.folder / ".saga" / "data").rglob("*.manifest")).unlink()
    before = contents(trip.folder / ".saga")
    ran = trip.look("list", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "store-unavailable")
    assert "manifest is missing" in ran.json["error"]["message"]
    assert contents(trip.folder / ".saga") == before


def test_a_reader_that_is_killed_leaves_nothing(trip: Cli) -> None:
    """The temporary server and its files end with the reader, also when that is killed."""
    reader = trip.start("top", "--every", "600")
    found: list[str] = []

    def server_runs() -> bool:
        """The file exists before it has its line."""
        found[:] = [words for path in Path(trip.temp).glob("saga-*/pid") if (words := path.read_text().strip())]
        return bool(found)

    until(server_runs, "a temporary server")
    [server] = found
    os.kill(reader.pid, signal.SIGKILL)
    reader.communicate(timeout=_LIMIT_S)
    until(lambda: not temporary(trip), "the end of the temporary files")
    until(lambda: not Path(f"/proc/{server}").exists(), "the end of the temporary server")


def test_a_reader_changes_over_to_the_server_of_the_folder(trip: Cli) -> None:
    """What is read through an open store is what the folder's own server has, as soon as there is one."""
    path = trip.folder / ".saga"

    async def read() -> None:
        reader = open_store(f"embedded://{path}", patience_s=30, snapshot=True)
        await reader.open()
        try:
            assert [head.saga_id for head in await reader.list(None, 10)] == ["trip"]
            assert not (path / "server.json").exists()
            writer = open_store(f"embedded://{path}", patience_s=30)
            await writer.open()
            try:
                cli = await asyncio.to_thread(trip, "submit", "p.json", "--id", "later", *WITH)
                assert cli.code == 0
                found: set[str] = set()
                while found != {"trip", "later"}:
                    found = {head.saga_id for head in await reader.list(None, 10)}
            finally:
                await writer.close()
            assert (path / "server.json").exists()  # the reader uses it
        finally:
            await reader.close()
        assert not (path / "server.json").exists()

    asyncio.run(asyncio.wait_for(read(), _LIMIT_S))


def test_a_reader_attaches_to_a_server_that_runs(trip: Cli) -> None:
    """No copy is made where there is a server; the reader is one more of its clients."""
    server = FolderServer(trip.folder / ".saga", find_binary())
    server.ensure(30)
    ran = trip.look("show", "trip", "--json")
    assert (ran.code, ran.json["status"]) == (0, "COMPLETED")
    assert server.reachable() is None  # it was nobody's, and the last to leave stops it
