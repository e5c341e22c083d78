"""Real servers for tests: Debian's redis-server, and the embedded one of a folder. No fixed ports, no shared state."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import pytest
import redis

from tests.support.ports import free_ports

REDIS_SERVER = "/usr/bin/redis-server"
#: When a test gives up on what never comes. It ends a test that would hang, however slow the machine is; no other outcome depends on it.
GIVE_UP_S = 120.0


def until(condition, what: str) -> None:
    """Poll until ``condition()`` is true; fail the test if it never becomes so."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.005)


def need_debian_redis() -> None:
    """Skip at a desk without redis-server; fail in CI, where it must be."""
    if not Path(REDIS_SERVER).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{REDIS_SERVER} is missing in CI")
        pytest.skip(f"{REDIS_SERVER} is not installed")


class DebianRedis:
    """A redis-server with its own data and a unix socket in a short private folder. Durable unless told otherwise.

    ``settings`` replace or add to the lines of the configuration, by name. ``tcp=True`` also listens on a free port of the loopback.
    """

    def __init__(self, *, tcp: bool = False, **settings: str) -> None:
        need_debian_redis()
        self.folder = Path(tempfile.mkdtemp(prefix="saga-redis-"))
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self.port = free_ports(1)[0] if tcp else 0
        self.tcp_url = f"redis://127.0.0.1:{self.port}" if tcp else ""
        self.settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": '""',
        } | {name.replace("_", "-"): value for name, value in settings.items()}
        self._process: subprocess.Popen | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self, **options) -> redis.Redis:
        """A client of its own, for looking behind the store's back."""
        return redis.Redis(unix_socket_path=str(self.socket), **options)

    def start(self) -> None:
        config = self.folder / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()))
        command = [REDIS_SERVER, str(config)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers, "redis-server to start")

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            with self.client() as client:
                return client.ping()
        except redis.exceptions.ResponseError:
            return True  # it wants a password: it is there
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.ConnectionError:
            return False

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would (the disk stays)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it hang: connections are accepted, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(GIVE_UP_S)
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def key_of(raw: redis.Redis, kind: str, saga_id: str) -> bytes:
    """The key that a saga has of this kind: ``journal``, ``head`` or ``tally``."""
    (key,) = raw.scan_iter(f"*:{kind}:{saga_id}")
    return key


class EmbeddedFolder:
    """A folder for ``embedded://``, and a way to look at the server in it from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"embedded://{path}"

    @property
    def record(self) -> dict | None:
        """What ``server.json`` says, or None while no server runs."""
        try:
            return json.loads((self.path / "server.json").read_text())
        except FileNotFoundError:
            return None

    @property
    def pid(self) -> int:
        return self.record["pid"]

    def servers(self) -> list[int]:
        """The pids of all servers that run on this folder's data."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "exe").resolve().name == "valkey-server" and (entry / "cwd").resolve() == self.data:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def raw(self) -> redis.Redis:
        """A client of the server that runs now, for damage to its keys."""
        return redis.Redis(unix_socket_path=self.record["socket"])

    @property
    def data(self) -> Path:
        return (self.path / "data").resolve()

    def kill(self) -> None:
        """End the server as a power cut would, and wait until it is gone."""
        for pid in self.servers():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not self.servers(), "the embedded server to die")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        record = self.record
        self.kill()
        if record and Path(record["socket"]).parent.name.startswith("saga-"):
            shutil.rmtree(Path(record["socket"]).parent, ignore_errors=True)
