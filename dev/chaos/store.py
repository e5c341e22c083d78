"""The store's server: the injector kills it, freezes it, exhausts its memory and fills its disk.

It is the Valkey of the embedded store, or another server that is named (``--server``), with its log on the disk at
every acknowledgement. A full disk is a real one if
a tmpfs may be mounted (``Disk``). Otherwise the server's files may not grow any longer, which has the same effect: a
write that fails half-way.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Final

import redis

from saga_engine.stores.embedded import find_binary

_GIVE_UP_S: Final = 120.0
_POLL_S: Final = 0.02
_FILL_TRIES: Final = 100
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have this process killed when its parent ends, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def until(condition: object, what: str, limit_s: float = _GIVE_UP_S) -> None:
    """Poll until ``condition()`` holds. Raises ``TimeoutError`` that names the condition."""
    deadline_s = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited in vain for: {what}")
        await asyncio.sleep(_POLL_S)


class Disk:
    """The folder of the server's data: a tmpfs of its own that can be filled, or a plain folder that cannot."""

    def __init__(self, folder: Path, size_mb: int, *, mount: bool) -> None:
        self.folder = folder
        self._size = f"{size_mb}m"
        folder.mkdir()
        self.mounted = mount and self._mount("-t", "tmpfs", "-o", f"size={self._size},mode=700", "saga-chaos")

    def _mount(self, *options: str) -> bool:
        program = shutil.which("mount")
        command = [str(program), *options, str(self.folder)]
        return program is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0

    def fill(self) -> None:
        """Leave no space: shrink the disk to its content. Filling it would need memory."""
        for _ in range(_FILL_TRIES):  # the server uses more meanwhile, and the size cannot be less than the content
            found = os.statvfs(self.folder)
            if self._mount("-o", f"remount,size={(found.f_blocks - found.f_bfree) * found.f_frsize}"):
                return
        raise RuntimeError(f"the disk at {self.folder} cannot be made small")

    def make_room(self) -> None:
        """Undo ``fill``."""
        if self.mounted:
            self._mount("-o", f"remount,size={self._size}")

    def close(self) -> None:
        """Unmount."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False, capture_output=True)


class StoreServer:
    """The server's process; its data stay in ``disk``. ``program``: None is that of the embedded store."""

    def __init__(self, folder: Path, disk: Disk, program: str | None = None) -> None:
        self._folder = folder
        self._disk = disk
        self._program = program or str(find_binary())
        self._socket = folder / "store"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"
        self.starts = 0
        self.version = ""

    async def start(self) -> None:
        """Start it and wait until its data are loaded."""
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "dir": str(self._disk.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "hash-max-listpack-value": "1024",
            # Small, so that the log is rewritten while faults occur.
            "auto-aof-rewrite-min-size": "16mb",
        }
        command = [self._program, *(part for name, value in options.items() for part in (f"--{name}", value))]
        with (self._folder / "store.log").open("ab") as log:
            # Python ignores SIGXFSZ, and so must the server: a file that may not grow is then an error of its write.
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it calls into the kernel and takes no lock
                restore_signals=False,
            )
        self.starts += 1
        await until(self._answers, "the store to start")
        with self.client() as client:
            found = client.info("server")
        name = found.get("server_name", "redis")
        self.version = f"{name} {found[f'{name}_version']}"

    def _answers(self) -> bool:
        if self.ended():
            raise RuntimeError(f"the store does not start: {(self._folder / 'store.log').read_text()[-2000:]}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.RedisError:
            return False  # it has not started yet, or is loading its data

    def client(self) -> redis.Redis:
        """A client of its own, without the proxies."""
        return redis.Redis(unix_socket_path=str(self._socket), socket_timeout=_GIVE_UP_S)

    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """End it as a power cut would; the disk remains."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Freeze it: it accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """End ``freeze``."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def starve(self, *, hungry: bool) -> None:
        """Make it refuse every command that needs memory (``noeviction``), or end that."""
        with self.client() as client:
            client.config_set("maxmemory", "1mb" if hungry else "0")

    async def run_out_of_disk(self, dice: Random) -> bool:
        """Fill its disk, and wait for its death; returns whether it died.

        With ``appendfsync always`` a server that cannot write its log exits instead of acknowledging.
        """
        assert self._process is not None
        if self._disk.mounted:
            self._disk.fill()
        else:
            longest = max((file.stat().st_size for file in self._disk.folder.rglob("*.aof")), default=0)
            limit = longest + dice.randrange(4096)
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        try:
            await until(self.ended, "the store to die of a full disk", 20.0)
        except TimeoutError:
            return False
        finally:
            self._disk.make_room()
        return True

    def close(self) -> None:
        """End it, and its disk."""
        self.kill()
        self._disk.close()
