"""A private Valkey server for one folder, shared by all processes that use the folder.

Its laws:

* The server lives as long as it has clients. A client that needs it and does not find it starts it; the last client
  stops it. A kill of the server or of any client, at any time, is harmless: every acknowledged write is in the
  append-only file, and the next client starts or attaches to a server.
* There is never more than one server on a folder's data. The server itself holds ``server.lock``, inherited from the
  client that started it, until the kernel sees its end: neither a reused pid nor a left-over file can fake that.
* Starting and stopping happen under ``lock``, so two processes never do either at once.
* A server belongs to the device and inode of its data folder. A copied folder contains the record of the original's
  server; that record names another inode, so the copy gets a server of its own and never uses the original's.

In the folder: ``data/`` (the append-only file), ``server.json`` (socket, pid, device and inode), ``server.log``,
``server.pid`` and the two locks. The socket is in a short private folder elsewhere, because a socket's path is limited
to 107 bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import hiredis
from redis.asyncio.connection import ConnectionPool, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from saga_engine.errors import StoreUnavailable
from saga_engine.loggers import logger_of
from saga_engine.stores.aof import REPAIR_HINT, cuts, last_words, missing_manifest
from saga_engine.stores.connection import Connector, RedisConnection, connection_options, open_connection, pack
from saga_engine.stores.server_binary import allocator, preloaded, supply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_log = logger_of("saga_engine")

_POLL_S: Final = 0.01
_PROBE_S: Final = 1.0
#: How long to leave an unreachable server alone (it may be starting); how long it may take to stop on request.
_GRACE_S: Final = 1.0
_STOP_S: Final = 3.0
#: Linux allows 107 bytes, macOS 103.
_SOCKET_PATH_BYTES: Final = 103
_LOG_BYTES: Final = 1024 * 1024
_PREFIX: Final = "saga-"
#: The daemon outlives the command that starts it: it gets no secrets from that command's environment.
_ENVIRONMENT: Final = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def find_binary(named: str = "") -> Path:
    """The program of the server, or the one that is ``named``. Raises ``StoreUrlInvalid`` if there is none."""
    return supply(named).binary


class EmbeddedConnector(Connector):
    """Connections to the server of a folder, which is started if it does not run."""

    hint = "see server.log in the folder of the store"

    def __init__(self, url: str, folder: Path, binary: Path) -> None:
        self.url = url
        self._name = f"saga-{os.getpid()}-{secrets.token_hex(4)}"
        self._server = FolderServer(folder, binary)
        self._socket: str | None = None

    async def prepare(self, limit_s: float) -> None:
        """Find the server, or start it."""
        if self._socket is None:
            self._socket = await asyncio.to_thread(self._server.ensure, limit_s)

    async def connect(self) -> RedisConnection:
        """Open a connection; a server that has gone is restarted before the next attempt."""
        if self._socket is None:
            raise RedisConnectionError("the server has gone")
        pool = ConnectionPool(
            connection_class=UnixDomainSocketConnection,
            path=self._socket,
            client_name=self._name,
            **connection_options(),
        )
        try:
            return await open_connection(pool)
        except (RedisConnectionError, OSError):
            self._socket = None
            raise

    async def close(self) -> None:
        """Stop the server if no other client uses it."""
        if self._socket is not None:
            self._socket = None
            await asyncio.to_thread(self._server.stop_if_last, self._name)

    def findings(self) -> Sequence[tuple[str, str, str]]:
        """Findings in its log that the server does not report."""
        return self._server.findings()


class _Record(NamedTuple):
    socket: str
    pid: int | None
    folder: tuple[int, int]  # device and inode of the data folder that the server was started on


class FolderServer:
    """The server of one folder, seen from one client. All methods block."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._binary = binary

    def findings(self) -> Sequence[tuple[str, str, str]]:
        """The messages in its log about lost data: (severity, text, hint)."""
        log = self._folder / "server.log"
        hint = (
            "after a crash a write that was never acknowledged; after a copy or a restore the newest records are "
            f"missing: restore a complete backup, or accept it and delete {log}"
        )
        return [("warning", text, hint) for text in cuts(log)]

    def ensure(self, limit_s: float) -> str:
        """The socket of the one live server of the folder, started if necessary. Raises ``StoreUnavailable``."""
        deadline_s = time.monotonic() + limit_s
        found = self.reachable()
        if found:
            return found
        try:
            self._prepare()
            damage = missing_manifest(self._data)
            if damage:
                raise self._unavailable(f"its data is damaged: {damage}", REPAIR_HINT)
            with self._locked(deadline_s):
                return self._attach_or_start(deadline_s)
        except OSError as error:
            raise self._unavailable(
                f"its folder cannot be used: {error.strerror or error}",
                "give a folder of a local disk that you may write to, such as --store embedded:///var/lib/saga",
            ) from error

    def stop_if_last(self, client_name: str) -> None:
        """Stop the server, unless a client other than ``client_name`` is connected. A server that is gone is fine."""
        # A client that cannot stop it leaves it running: the next one attaches to it, and may stop it.
        with contextlib.suppress(OSError, StoreUnavailable), self._locked(time.monotonic() + _STOP_S):
            record = self._record()
            if record is None or not _leave(record.socket, client_name):
                return
            held = self._wait_for_end(time.monotonic() + _STOP_S)
            if held is not None:
                self._clear(record)
                os.close(held)

    # --- finding ---

    def reachable(self) -> str | None:
        """The socket of the folder's live server; None if there is none. Changes nothing."""
        record = self._record()
        return record.socket if record and probe(record.socket, record.folder) != "gone" else None

    def _record(self) -> _Record | None:
        """The content of ``server.json``, if it can be ours: a folder that came from elsewhere must not mislead."""
        record = self._written()
        try:
            if record is not None:
                private = Path(record.socket).parent
                if private.name.startswith(_PREFIX) and private.stat().st_uid == os.geteuid():
                    return record
        except OSError:
            # The folder of the socket is gone: equivalent to no record.
            return None
        return None

    def _written(self) -> _Record | None:
        """The record in ``server.json`` of a server of this very folder; None for one of which this folder is a copy.

        It belongs to this folder if it names its device and inode: a copy has others, and a moved folder keeps them. A
        removed folder's inode cannot be reused while a server runs in it.
        """
        try:
            body = json.loads((self._folder / "server.json").read_bytes())
            path, pid, folder = body["socket"], body["pid"], tuple(body["folder"])
            if isinstance(path, str) and folder == identity(self._data):
                return _Record(path, pid if isinstance(pid, int) else None, folder)
        except (OSError, ValueError, KeyError, TypeError):
            # No file, a torn one, or no data: equivalent to no record.
            return None
        return None

    # --- starting ---

    def _prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._data.mkdir(mode=0o700, exist_ok=True)
        ignore = self._folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def _attach_or_start(self, deadline_s: float) -> str:
        unreachable_since_s = time.monotonic()
        signals = [signal.SIGTERM, signal.SIGKILL]
        while True:
            found = self.reachable()
            if found:
                return found
            held = self._server_lock()
            if held is not None:
                return self._start(held, deadline_s)
            # A server holds the data but is unreachable: it is starting, or its socket was removed.
            now_s = time.monotonic()
            waited_s = now_s - unreachable_since_s
            if signals and waited_s > (_GRACE_S if len(signals) == 2 else _GRACE_S + _STOP_S):
                self._signal(signals.pop(0))
            if now_s > deadline_s:
                raise self._unavailable(
                    "another server holds its data, and its socket cannot be found",
                    "it was started elsewhere (another container or user): close the processes that use it there",
                )
            time.sleep(_POLL_S)

    def _start(self, held: int, deadline_s: float) -> str:
        log = self._folder / "server.log"
        try:
            old = self._record()
            if old:
                self._clear(old)
            elif self._written() is None and (self._folder / "server.json").exists():
                _log.warning(
                    "the store in %s is a copy of another one, and gets a server of its own; "
                    "sagas that had not ended when it was copied are in both",
                    self._folder,
                )
            path = str(socket_folder() / "s")
            data = identity(self._data)
            # Before the server starts, so that it can be found even if this process is killed meanwhile.
            self._write(_Record(path, None, data))
            logged = self._spawn(path, log, held)
        finally:
            # From here on the server alone holds it.
            os.close(held)
        while probe(path, data) == "gone":
            ended = self._server_lock()
            if ended is not None:
                self._clear(_Record(path, None, data))
                os.close(ended)
                said, hint = last_words(log)
                raise self._unavailable(f"its server does not start: {said}", hint or f"see {log}")
            if time.monotonic() > deadline_s:
                said, _ = last_words(log)
                raise self._unavailable(f"its server takes long to start: {said}", f"try again, or see {log}")
            time.sleep(_POLL_S)
        self._write(_Record(path, _pid(self._folder / "server.pid"), data))
        while time.monotonic() < deadline_s and loads(path):
            time.sleep(_POLL_S)
        for text in cuts(log, logged):
            _log.warning("the store in %s: %s; `saga doctor` says what that means", self._folder, text)
        return path

    def _spawn(self, path: str, log: Path, held: int) -> int:
        """Start the server; returns the position of its first message in the log."""
        with log.open("ab") as output:
            if output.tell() > _LOG_BYTES:
                output.truncate(0)
            begins = output.seek(0, os.SEEK_END)
            subprocess.run(  # noqa: S603 -- our own binary and our own arguments
                server_command(self._binary, path, self._data, log, self._folder / "server.pid"),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(held,),
                env=server_environment(),
                cwd=self._folder,
            )
        return begins

    def _signal(self, number: signal.Signals) -> None:
        """Stop the unreachable server, if it is certainly the one that was started for this folder."""
        record = self._written()
        if record is None:
            return  # another process holds the data, or the server's record is gone
        pid = record.pid or _pid(self._folder / "server.pid")
        try:
            if pid is not None and record.socket in _command_line(pid):
                os.kill(pid, number)
        except OSError:
            # Not identifiable, or just gone: the wait continues and reports it if that does not change.
            return

    # --- files and locks ---

    def _write(self, record: _Record) -> None:
        target = self._folder / "server.json"
        draft = target.with_suffix(".new")
        draft.write_text(json.dumps(record._asdict()))
        draft.replace(target)

    def _clear(self, record: _Record) -> None:
        """Remove the files that a server left behind."""
        (self._folder / "server.json").unlink(missing_ok=True)
        (self._folder / "server.pid").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path(record.socket).unlink(missing_ok=True)
            Path(record.socket).parent.rmdir()

    @contextlib.contextmanager
    def _locked(self, deadline_s: float) -> Iterator[None]:
        handle = _lock(self._folder / "lock")
        while handle is None:
            if time.monotonic() > deadline_s:
                raise self._unavailable("another process has been starting its server for too long", "try again")
            time.sleep(_POLL_S)
            handle = _lock(self._folder / "lock")
        try:
            yield
        finally:
            os.close(handle)

    def _server_lock(self) -> int | None:
        return _lock(self._folder / "server.lock")

    def _wait_for_end(self, deadline_s: float) -> int | None:
        held = self._server_lock()
        while held is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            held = self._server_lock()
        return held

    def _unavailable(self, why: str, hint: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the embedded store in {self._folder} is not available: {why}", hint=hint, folder=str(self._folder)
        )


def server_command(binary: Path, path: str, data: Path, log: Path, pid: Path, *, daemon: bool = True) -> list[str]:
    """The command line of a server on ``data`` that listens at the socket ``path``."""
    options = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": str(data),
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "save": "",
        "maxmemory": "0",
        # A head with its summary stays one compact block: half the memory, and cheaper to change.
        "hash-max-listpack-value": "1024",
        # Rewriting the log occupies a core while it lasts; a folder on a disk has space for this much of it.
        "auto-aof-rewrite-min-size": "256mb",
        "daemonize": "yes" if daemon else "no",
        "logfile": str(log),
        "pidfile": str(pid),
    }
    return [str(binary), *(part for name, value in options.items() for part in (f"--{name}", value))]


def server_environment() -> dict[str, str]:
    """The part of this process's environment that a server gets."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return environment | preloaded(allocator())


def _lock(path: Path) -> int | None:
    """An open, locked file, or None if another process has the lock. It ends with the last copy of the handle."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        os.close(handle)
        raise
    return handle


def socket_folder() -> Path:
    """A new private folder whose path is short enough for a socket."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 -- mkdtemp is private
        if not base or not os.access(base, os.W_OK | os.X_OK):
            continue
        if len(os.fsencode(f"{base}/{_PREFIX}12345678/s")) <= _SOCKET_PATH_BYTES:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    raise OSError("no folder for temporary files has a path that is short enough for a socket")


def identity(folder: Path) -> tuple[int, int]:
    """The device and the inode of a folder. Raises ``OSError``."""
    found = folder.stat()
    return found.st_dev, found.st_ino


def probe(path: str, folder: tuple[int, int]) -> Literal["alive", "silent", "gone"]:
    """Whether the server of ``folder`` (device and inode) listens there.

    ``silent``: a server listens, but is too busy (or frozen) to answer now. The server is asked for its folder. If that
    folder is not visible from here (it was started in another container), its record is trusted.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_S)
        try:
            client.connect(path)
            _, works_in = _ask(client, "CONFIG", "GET", "dir")
        except (TimeoutError, BlockingIOError):
            return "silent"
        except (OSError, ValueError, TypeError):
            return "gone"
    if not works_in:
        return "gone"  # its folder was removed
    try:
        return "alive" if identity(Path(os.fsdecode(works_in))) == folder else "gone"
    except OSError:
        return "alive"


def loads(path: str) -> bool:
    """Whether the server is still reading its data."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_S)
        try:
            client.connect(path)
            _ask(client, "PING")
        except OSError as error:
            return str(error).startswith("LOADING")
    return False


def _leave(path: str, client_name: str) -> bool:
    """Ask the server to stop if only ``client_name`` is connected beside this query; True if it was asked to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_STOP_S)
        client.connect(path)
        own = b"id=%d " % _ask(client, "CLIENT", "ID")
        for line in _ask(client, "CLIENT", "LIST").splitlines():
            # A connection that was closed a moment ago may still be listed: it is recognised by its name.
            if not line.startswith(own) and b" name=%s " % client_name.encode() not in line:
                return False
        client.sendall(pack(("SHUTDOWN", "NOSAVE")))
        return True


def _ask(client: socket.socket, *args: str) -> Any:
    client.sendall(pack(args))
    reader = hiredis.Reader()
    reply = reader.gets()
    while reply is False:
        piece = client.recv(65536)
        if not piece:
            raise ConnectionResetError("the server has closed the connection")
        reader.feed(piece)
        reply = reader.gets()
    if isinstance(reply, Exception):
        raise OSError(str(reply))
    return reply


def _pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):
        return None


def _command_line(pid: int) -> str:
    proc = Path(f"/proc/{pid}/cmdline")
    if proc.parent.parent.joinpath("self").exists():
        return proc.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    query = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    shown = subprocess.run(query, capture_output=True, check=False)  # noqa: S603 -- nothing in it comes from outside
    return shown.stdout.decode("utf-8", "replace")
