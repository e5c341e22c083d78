"""Reads an embedded store whose server is down, without a change to its folder.

A reader attaches to the server of the folder if it runs. If not, it copies the append-only file to a temporary folder
and starts a server on the copy. The copy is consistent even if a server starts on the folder meanwhile: files of that
format only grow, and an incomplete end is dropped on loading. A base file is never modified, so the copy contains a
link to it.

The temporary server ends with the reader, even if the reader is killed: a small process starts the server, waits for
the end of a pipe that the reader holds, stops the server and removes its files. When the folder gets a server of its
own, the reader switches to it, so that a command which follows a saga sees current records. When such a server wrote
something and has ended before the reader looked, the reader makes a new copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from saga_engine.errors import StoreUnavailable
from saga_engine.stores.aof import FOLDER, MANIFEST, REPAIR_HINT, cuts, last_words, missing_manifest
from saga_engine.stores.embedded import (
    EmbeddedConnector,
    identity,
    loads,
    probe,
    server_command,
    server_environment,
    socket_folder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_S: Final = 0.01
#: How often a reader of a copy checks whether the folder has a server, or newer data, now.
_LOOK_S: Final = 1.0
#: The log may be rewritten while it is copied; the number of attempts to copy it.
_COPIES: Final = 10
#: Starts the server when the first line comes, and stops it and removes its files when the pipe ends. The server is
#: this process's own child, so there is no moment at which the end of the reader leaves a server that nobody stops.
_KEEPER: Final = """
import os, shutil, subprocess, sys, threading
home, socket, *command = sys.argv[1:]
def tell():
    server.wait()
    try:
        os.write(1, b"ended\\n")  # no buffer, whose lock an interpreter that ends beside it could not have
    except OSError:
        return  # nobody reads it any more
try:
    if sys.stdin.readline():
        with open(f"{home}/log", "ab") as log:
            try:
                server = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=home
                )
            except OSError as error:
                log.write(f"{command[0]} cannot be started: {error.strerror}".encode())
                server = None
        if server is None:
            print("ended", flush=True)
            sys.stdin.read()
        else:
            teller = threading.Thread(target=tell, daemon=True)
            teller.start()
            sys.stdin.read()
            server.kill()
            teller.join()
finally:
    for folder in (home, socket):
        shutil.rmtree(folder, ignore_errors=True)
"""


class SnapshotConnector(EmbeddedConnector):
    """Connections to the server of a folder, or to a temporary server on a copy of its data."""

    def __init__(self, url: str, folder: Path, binary: Path) -> None:
        super().__init__(url, folder, binary)
        self._folder = folder
        self._binary = binary
        self._copy: TemporaryServer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()

    async def prepare(self, limit_s: float) -> None:
        """Find the server, or start one on a copy. Raises ``StoreUnavailable``."""
        async with self._one:
            if self._socket is not None:
                return
            await self._leave_copy()
            self._socket = await asyncio.to_thread(self._server.reachable)
            if self._socket is None:
                copied = self._written()  # before the copy: what is written meanwhile differs
                self._copy = TemporaryServer(self._folder, self._binary)
                self._socket = await asyncio.to_thread(self._copy.start, limit_s)
                self._watching = asyncio.create_task(self._change_over(self._copy, copied), name="saga-snapshot")

    async def close(self) -> None:
        """End the temporary server; the folder's own is stopped if no other client uses it."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._copy is None:
            await super().close()
        await self._leave_copy()

    def findings(self) -> Sequence[tuple[str, str, str]]:
        """The findings of the logs of both servers."""
        return [*super().findings(), *(() if self._copy is None else self._copy.findings())]

    async def _change_over(self, copy: TemporaryServer, copied: object) -> None:
        """Leave the copy as soon as the folder has a server or other data: the next call uses these."""
        while self._copy is copy:
            await asyncio.sleep(_LOOK_S)
            newer = await asyncio.to_thread(self._server.reachable) is not None or self._written() != copied
            if newer and self._copy is copy:
                await self._leave_copy()

    def _written(self) -> frozenset[tuple[str, int]]:
        """The files of the folder's log with their sizes: a log that is written to grows, or gets another file."""
        found = set()
        for file in (self._folder / "data" / FOLDER).glob("*"):
            with contextlib.suppress(FileNotFoundError):  # a server has just rewritten its log
                found.add((file.name, file.stat().st_size))
        return frozenset(found)

    async def _leave_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            self._socket = None
            await asyncio.to_thread(copy.close)


class TemporaryServer:
    """A server on a copy of a folder's data. All methods block."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self._folder = folder
        self._binary = binary
        self._home: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, limit_s: float) -> str:
        """Copy the data and start the server; returns its socket. Raises ``StoreUnavailable``."""
        damage = missing_manifest(self._folder / "data")
        if damage:
            raise self._unavailable(f"its data is damaged: {damage}", REPAIR_HINT)
        try:
            return self._started(time.monotonic() + limit_s)
        except OSError as error:
            self.close()
            raise self._unavailable(
                f"its files cannot be copied to be read: {error.strerror or error}",
                "reading needs room for a copy in the folder for temporary files (TMPDIR)",
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server and remove its files."""
        if self._keeper is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self._keeper.stdin.close()  # type: ignore[union-attr] # it has a pipe
            self._keeper.wait()
            self._keeper.stdout.close()  # type: ignore[union-attr] # it has a pipe
            self._keeper = None

    def findings(self) -> Sequence[tuple[str, str, str]]:
        """The data missing from the copy because its end was incomplete: (severity, text, hint)."""
        texts = () if self._home is None else cuts(self._home / "log")
        return [("warning", text, "it is dropped for good when a saga is begun or resumed") for text in texts]

    def _started(self, deadline_s: float) -> str:
        home = self._home = Path(tempfile.mkdtemp(prefix="saga-copy-"))
        socket = socket_folder()
        data, path, log = home / "data", str(socket / "s"), home / "log"
        command = server_command(self._binary, path, data, log, home / "pid", daemon=False)
        keeper = self._keeper = subprocess.Popen(  # noqa: S603 -- our own interpreter and our own text
            [sys.executable, "-I", "-S", "-c", _KEEPER, str(home), str(socket), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=server_environment(),
            cwd="/",
        )
        self._copy(data)
        keeper.stdin.write(b"start\n")  # type: ignore[union-attr] # it has a pipe
        keeper.stdin.flush()  # type: ignore[union-attr]
        told = select.poll()
        told.register(keeper.stdout)  # type: ignore[arg-type] # it has a pipe
        whose = identity(data)
        while probe(path, whose) == "gone":
            if told.poll(0):  # it tells the server's end, or has ended itself
                said, hint = last_words(log)
                raise self._unavailable(f"no server starts on a copy of its data: {said}", hint or "try again")
            if time.monotonic() > deadline_s:
                raise self._unavailable("the server on a copy of its data takes long to start", "try again")
            time.sleep(_POLL_S)
        while time.monotonic() < deadline_s and loads(path):
            time.sleep(_POLL_S)
        return path

    def _copy(self, data: Path) -> None:
        """Copy the files that the manifest lists, in one consistent state."""
        source = self._folder / "data" / FOLDER
        for _ in range(_COPIES):
            target = data / FOLDER
            shutil.rmtree(data, ignore_errors=True)
            target.mkdir(mode=0o700, parents=True)
            if not source.is_dir():
                return  # no server has written anything yet
            before = (source / MANIFEST).read_bytes() if (source / MANIFEST).exists() else b""
            try:
                for file in source.iterdir():
                    if ".base." in file.name:
                        (target / file.name).symlink_to(file.absolute())
                    elif file.name != MANIFEST:
                        shutil.copyfile(file, target / file.name)
            except FileNotFoundError:
                continue  # a server has just rewritten its log
            after = (source / MANIFEST).read_bytes() if (source / MANIFEST).exists() else b""
            if before == after:
                if before:
                    (target / MANIFEST).write_bytes(before)
                return
        raise OSError("a server rewrites them all the time")

    def _unavailable(self, why: str, hint: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the embedded store in {self._folder} cannot be read: {why}", hint=hint, folder=str(self._folder)
        )
