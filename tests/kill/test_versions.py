"""Workers of two versions on one store, as in a rolling update: what the older one cannot read, it leaves to the newer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import saga_engine
from tests.support.servers import GIVE_UP_S, EmbeddedFolder, until

TOOLS = '''
import os, signal
from pathlib import Path
from saga_engine import tool, ToolContext

FOLDER = Path(os.environ["WORLD"])


def did(name, ctx):
    with (FOLDER / "calls").open("a") as calls:
        calls.write(f"{name} {ctx.idempotency_key}\\n")
    return {"ref": name}


@tool(undo="cancel", keyed=True)
def book(item: str, ctx: ToolContext) -> dict:
    """Book it."""
    if item == "deadly" and not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return did(f"book-{item}", ctx)


@tool
def cancel(ref: str, ctx: ToolContext) -> None:
    """Cancel it."""
    did(f"cancel-{ref}", ctx)
'''


class Versions:
    """Two engines beside each other: the one under test is the older, and a newer one writes what it cannot read."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "toolbox.py").write_text(TOOLS)
        self.older = Path(saga_engine.__file__).parents[1]
        self.newer = folder / "newer"
        shutil.copytree(
            self.older / "saga_engine", self.newer / "saga_engine", ignore=shutil.ignore_patterns("__pycache__")
        )
        # The next version of each record's meaning.
        codec = self.newer / "saga_engine/core/codec.py"
        text = codec.read_text()
        for old, new in (
            ("VERSION: Final = 1", "VERSION: Final = 2"),
            ("    data = _encode(record)\n", "    data = _encode(msgspec.structs.replace(record, v=2))\n"),
            (
                "    made = list(map(_encode, records))\n",
                "    made = [_encode(msgspec.structs.replace(one, v=2)) for one in records]\n",
            ),
        ):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        codec.write_text(text)
        self._started: list[subprocess.Popen[str]] = []

    def _environ(self, version: Path) -> dict[str, str]:
        path = f"{version}{os.pathsep}{self.folder}"
        # A lease that is lost on a slow machine makes the older worker take a saga, and refuse it, once more.
        return {**os.environ, "PYTHONPATH": path, "WORLD": str(self.folder), "SAGA_LEASE_S": "120"}

    def saga(self, version: Path, *args: str) -> dict[str, Any]:
        """Run a command of a version; returns its document."""
        command = [sys.executable, "-m", "saga_engine", *args, "--store", self.url, "--json"]
        done = subprocess.run(
            command,
            env=self._environ(version),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=GIVE_UP_S,
            check=False,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def submit(self, version: Path, saga_id: str, *items: str) -> None:
        steps = [
            {
                "step_id": number,
                "tool": "book",
                "params": {"item": item},
                "rollback": {"tool": "cancel", "params": {"ref": f"$output.step_{number}.ref"}},
            }
            for number, item in enumerate(items, 1)
        ]
        path = self.folder / f"{saga_id}.json"
        path.write_text(json.dumps({"task_id": saga_id, "steps": steps}))
        self.saga(version, "submit", str(path), "--detach", "--tools", "toolbox")

    def worker(self, version: Path, name: str) -> subprocess.Popen[str]:
        """A worker of a version that takes sagas; its words are in the file ``name``."""
        with (self.folder / name).open("w") as words:
            process = subprocess.Popen(
                [sys.executable, "-m", "saga_engine", "worker", "--tools", "toolbox", "--store", self.url],
                env=self._environ(version),
                cwd=self.folder,
                stdout=words,
                stderr=words,
                text=True,
            )
        self._started.append(process)
        until(lambda: "worker: up to" in self.said(name), f"{name} to take sagas")
        return process

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def status(self, saga_id: str) -> str:
        return self.saga(self.newer, "show", saga_id)["status"]

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(GIVE_UP_S)

    def calls(self) -> list[str]:
        return [line.split()[0] for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def versions(tmp_path: Path, embedded: EmbeddedFolder) -> Iterator[Versions]:
    versions = Versions(tmp_path, embedded.url)
    yield versions
    versions.end()


def test_the_older_leaves_to_the_newer_what_it_cannot_read(versions: Versions) -> None:
    """The older worker says so once and releases the saga; the newer one ends it, also after it was killed in a call."""
    older = versions.worker(versions.older, "older.log")
    versions.submit(versions.newer, "trip", "flight", "deadly")
    until(lambda: "newer saga_engine" in versions.said("older.log"), "the older worker to refuse the newer saga")
    assert versions.saga(versions.newer, "show", "trip")["status"] == "PENDING"
    first = versions.worker(versions.newer, "newer.log")
    assert first.wait(GIVE_UP_S) == -signal.SIGKILL  # inside the second call
    versions.worker(versions.newer, "newer-2.log")
    until(lambda: versions.status("trip") == "COMPLETED", "the newer worker to end the saga")
    assert sorted(versions.calls()) == ["book-deadly", "book-flight"]
    # The older one works on: it drives what it can read, and said its reason once.
    versions.submit(versions.older, "old-trip", "hotel")
    until(lambda: versions.status("old-trip") == "COMPLETED", "a saga of the older version")
    assert older.poll() is None
    assert versions.said("older.log").count("newer saga_engine") == 1


def test_the_newer_takes_over_from_the_older(versions: Versions) -> None:
    """A saga that an older worker began and died in is ended by the newer; then only the newer can read it."""
    versions.submit(versions.older, "begun", "car", "deadly")
    first = versions.worker(versions.older, "older.log")
    assert first.wait(GIVE_UP_S) == -signal.SIGKILL
    versions.worker(versions.newer, "newer.log")
    until(lambda: versions.status("begun") == "COMPLETED", "the newer worker to end the saga")
    assert sorted(versions.calls()) == ["book-car", "book-deadly"]
    assert versions.saga(versions.older, "show", "begun")["error"]["code"] == "journal-unreadable"
