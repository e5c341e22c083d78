"""The stages of ``make check``, each with its time, and the desk's budget of CPU: ``python -m tests.stages``.

A stage is a target of the Makefile. The last one prints pytest's closing line, after which nothing is printed. The desk
(``make test``) is held to ``DESK_CPU_S``, all its processes together, servers included: whoever adds a test there pays
by making others cheaper. A slow machine has more, and so has one that others use: the budget is for one on which
``_loop`` takes ``LOOP_S`` while the tests run. Caches and cores that are shared cost the loop what they cost the tests.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Final, NamedTuple

#: The stages before the last one, and the last one.
STAGES: Final = ("lint", "types", "doors", "test-newest", "test")
LAST: Final = "test-rest"

#: What all processes of ``make test`` may use, in seconds of CPU.
DESK_CPU_S: Final = 480.0
#: What ``_loop`` takes on the machine for which that is meant, in seconds of CPU, beside the tests. (On two cores that
#: nobody else used it took 0.072, and the desk 428 s of CPU and 282 s; beside other work the desk grows more than it.)
LOOP_S: Final = 0.068
#: So often it is asked, in seconds.
_ASKED_EACH_S: Final = 5.0
#: It looks at so many things, one far from the other.
_THINGS: Final = 300_000

#: Linux' request to be the parent of those whose parent has died: their time counts, too.
_PR_SET_CHILD_SUBREAPER: Final = 36


class Cost(NamedTuple):
    """What a stage took."""

    code: int
    wall_s: float
    cpu_s: float


def _loop(things: list[int]) -> float:
    """How long this machine calculates at the same thing, in seconds of CPU."""
    begun = time.thread_time()
    total = 0
    for number in range(_THINGS):
        total += things[number * 7919 % _THINGS] & 7
    assert total
    return time.thread_time() - begun


class Speed(threading.Thread):
    """Asks ``_loop`` now and then while something else runs."""

    def __init__(self, each_s: float = _ASKED_EACH_S) -> None:
        super().__init__(daemon=True)
        self._each_s = each_s
        self._over = threading.Event()
        self._things = list(range(_THINGS))
        self._took: list[float] = []

    def run(self) -> None:
        """Until the other has ended, and once at least."""
        while True:
            self._took.append(_loop(self._things))
            if self._over.wait(self._each_s):
                return

    def end(self) -> float:
        """What it took; half of the times it took less."""
        self._over.set()
        self.join()
        return statistics.median(self._took)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: list[str]) -> Cost:
    """Run a command, and count the CPU of every process that has ended since."""
    begun = time.monotonic()
    child = subprocess.Popen(command)
    code, cpu_s = None, 0.0
    while code is None:
        pid, status, used = os.wait4(-1, 0)
        cpu_s += used.ru_utime + used.ru_stime
        if pid == child.pid:
            code = child.returncode = os.waitstatus_to_exitcode(status)
    return Cost(code, time.monotonic() - begun, cpu_s)


def over_budget(cpu_s: float, loop_s: float) -> str:
    """What to say of a desk that used this much, where ``_loop`` takes so long; empty if it keeps to its budget."""
    allowed = DESK_CPU_S * max(1.0, loop_s / LOOP_S)
    if cpu_s <= allowed:
        return ""
    return (
        f"make test used {cpu_s:.0f} s of CPU and may use {allowed:.0f} s here: make a test cheaper, or give a part of it"
        " to CI in tests/tiers.py"
    )


def main() -> int:
    """Run all; the exit code of the first stage that fails. Tests that fail at the desk do not hide those of the rest."""
    _adopt_orphans()
    failed = 0
    for name in STAGES:
        speed = Speed()
        speed.start()
        cost = run(["make", "--no-print-directory", name])
        loop_s = speed.end()
        sys.stdout.write(
            f"-- {name}: {cost.wall_s:.0f} s, {cost.cpu_s:.0f} s of CPU where a loop takes {loop_s:.3f} s\n"
        )
        sys.stdout.flush()
        if cost.code != 0 and name != "test":
            return cost.code
        failed = cost.code
        if name == "test" and (why := over_budget(cost.cpu_s, loop_s)):
            sys.stderr.write(f"{why}\n")
            failed = failed or 1
    return run(["make", "--no-print-directory", LAST]).code or failed


if __name__ == "__main__":
    sys.exit(main())
