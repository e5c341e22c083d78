"""The test's side of the zygote: start a part in a process of its own, know its pid, wait for its end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.servers import GIVE_UP_S, until

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a process ended: its exit status (negative: the signal) and what it told, if it lived to tell."""

    status: int
    told: dict[str, Any]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Running:
    """A process that plays a part."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self._pid: Future[int] = Future()
        self._end: Future[Ended] = Future()

    @property
    def pid(self) -> int:
        return self._pid.result(GIVE_UP_S)

    def wait(self) -> Ended:
        """Until the process has ended; whatever it did not expect fails the test."""
        ended = self._end.result(GIVE_UP_S * 2)
        assert ended.status in (0, -signal.SIGKILL), f"{self.case} ended with {ended.status}: see stderr"
        return ended

    def has_ended(self) -> bool:
        return self._end.done()

    def told(self) -> dict[str, Any]:
        """What it told; it must not have been killed."""
        ended = self.wait()
        assert not ended.killed, f"{self.case} was killed"
        return ended.told

    def has_stopped(self) -> bool:
        """Whether it has been stopped by SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def wait_until_frozen(self) -> None:
        until(self.has_stopped, f"process {self.pid} to freeze")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Processes:
    """A zygote. ``start`` and ``run`` may be called from several threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="zygote-reader", daemon=True)
        self._reader.start()

    def start(self, part: str, **case: Any) -> Running:
        """Have a new process play ``part``."""
        number = next(self._numbers)
        running = Running({"part": part, **case})
        self._running[number] = running
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "case": running.case}) + "\n")
            self._process.stdin.flush()
        return running

    def run(self, part: str, **case: Any) -> Ended:
        """``start`` and ``wait``."""
        return self.start(part, **case).wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "pid" in answer:
                self._running[answer["id"]]._pid.set_result(answer["pid"])
            else:
                self._running.pop(answer["id"])._end.set_result(Ended(answer["status"], answer["told"] or {}))
        while self._running:  # it has ended: nobody waits for it any longer
            _, running = self._running.popitem()
            for due in (running._pid, running._end):
                if not due.done():
                    due.set_exception(RuntimeError("the zygote has ended"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(GIVE_UP_S)
        self._reader.join(GIVE_UP_S)
