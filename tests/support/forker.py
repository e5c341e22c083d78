"""A process that has imported the engine, and forks a child for each command line of Python that a test runs.

To import the engine takes most of the time of a short command, and there are hundreds of them. A child is a process of
its own like any other: with its own folder, environment and standard streams, and an end of its own. That ``saga``
imports little before it is needed is what ``cli/test_startup.py`` proves, in new processes.

A request is a packet with five file descriptors: the request itself, stdin, stdout, stderr, and where to answer: with
the pid, and then with the exit status. The forker ends when the other end of its socket is closed.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
#: Rooms that need an extra, or that commands load for themselves.
NOT_PRELOADED = ("adapters", "barriers", "temporal", "testing", "planner", "__main__")
#: What a process reads of its environment when it starts: a command that is given another value starts by itself.
READ_AT_START = ("PYTHON", "LC_", "LANG", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "PY_COLORS", "TERM", "COLUMNS")
_ANSWER = struct.Struct("=i")
#: The garbage of a short command is not looked for: to do so would copy the pages that it shares with the forker.
_COLLECT_AFTER = 10_000


# --- the side of the tests -------------------------------------------------------------------------------------------


class Forker:
    """The process, and those who ask it; several threads may."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.read_at_start = _read_at_start(env)
        self._asks, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answers:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forker", str(answers.fileno())],
                cwd=ROOT,
                env={**env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[answers.fileno()],
            )

    def run(
        self,
        args: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        stdin: str | None = None,
        timeout_s: float = 120,
        on_pid: Callable[[int], None] = lambda _: None,
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; ``on_pid`` is told who it is as soon as it is there."""
        request = json.dumps({"args": args, "cwd": str(cwd), "env": dict(env)})
        with _file(request) as asked, _file(stdin or "") as given, _file("") as out, _file("") as err:
            mine, its = socket.socketpair()
            with mine:
                with its:
                    socket.send_fds(
                        self._asks, [b"!"], [*(one.fileno() for one in (asked, given, out, err)), its.fileno()]
                    )
                mine.settimeout(timeout_s)
                pid = _answer(mine)
                on_pid(pid)
                try:
                    status = _answer(mine)
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise
            return status, _text(out), _text(err)

    def close(self) -> None:
        self._asks.close()
        self._process.wait()


def run_python(
    *args: str, cwd: Path, env: Mapping[str, str], stdin: str | None = None, timeout_s: float = 120
) -> tuple[int, str, str]:
    """Run Python with these arguments, ``-m module`` or a file first: its exit code, stdout and stderr."""
    forker = the_forker()
    if _read_at_start(env) == forker.read_at_start:
        return forker.run(args, cwd, env, stdin, timeout_s)
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env=env,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@functools.cache
def the_forker() -> Forker:
    """One for all tests of this process; it ends with it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    return Forker({**env, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"})


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name != "PYTHONWARNINGS"}


def _file(text: str) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 -- whoever asks closes it
    file.write(text.encode("utf-8", "surrogateescape"))
    file.seek(0)
    return file


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _answer(connection: socket.socket) -> int:
    data = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    assert len(data) == _ANSWER.size, "the forker has ended: see stderr"
    return _ANSWER.unpack(data)[0]


# --- the process -----------------------------------------------------------------------------------------------------


def preload() -> None:
    """Import what the commands import. It starts no thread: a fork copies only one."""
    import saga_engine

    gc.disable()  # nothing of what is imported is garbage
    for room in pkgutil.iter_modules(saga_engine.__path__, "saga_engine."):
        if room.name.rpartition(".")[2] in NOT_PRELOADED:
            continue
        found = importlib.import_module(room.name)
        for module in pkgutil.walk_packages(getattr(found, "__path__", ()), f"{room.name}."):
            importlib.import_module(module.name)
    importlib.import_module("saga_engine.cli").built()
    gc.collect()
    gc.freeze()  # the objects so far are shared with the children, and stay so
    gc.set_threshold(_COLLECT_AFTER)
    gc.enable()


class Server:
    """The loop of the process."""

    def __init__(self, asks: socket.socket) -> None:
        self._asks = asks
        self._selector = selectors.DefaultSelector()
        self._selector.register(asks, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Returns twice for each request: in the child, with what it is to be; and in the end, with nothing."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._asks:
                    self._ended(key.fd, *key.data)
                    continue
                data, handles, _, _ = socket.recv_fds(self._asks, 1, 5)
                if not data:
                    return None
                request, *streams, answer = handles
                pid = os.fork()
                if pid == 0:
                    # Their objects live until the garbage is collected, and would close whatever has their numbers then.
                    self._selector.close()
                    self._asks.detach()
                    return _become(request, streams)
                for handle in (request, *streams):
                    os.close(handle)
                os.write(answer, _ANSWER.pack(pid))
                self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answer))

    def _ended(self, handle: int, pid: int, answer: int) -> None:
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        try:
            os.write(answer, _ANSWER.pack(os.waitstatus_to_exitcode(status)))
        except BrokenPipeError:
            pass  # whoever asked has given up
        finally:
            os.close(answer)


def _become(request: int, streams: list[int]) -> dict[str, Any]:
    """In the child: nothing of the forker's is left open, and folder, environment and streams are those of the request."""
    with os.fdopen(request, "rb") as file:
        asked: dict[str, Any] = json.load(file)
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
    os.closerange(3, 1024)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    if wanted := asked["env"].get("PYTHONWARNINGS"):
        warnings._processoptions(wanted.split(","))
    return asked


def main() -> None:
    asks = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    preload()
    asked = Server(asks).serve()
    if asked is None:
        return
    first, *rest = asked["args"]
    if first == "-m":
        sys.path[0] = asked["cwd"]
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
