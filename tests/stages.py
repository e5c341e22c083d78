"""The stages of ``make check``, each with its time, and the desk's budget of CPU: ``python -m tests.stages``.

A stage is a target of the Makefile. The last one prints pytest's closing line, after which nothing is printed. The desk
(``make test``) is held to ``DESK_CPU_S``, all its processes together, servers included: whoever adds a test there pays
by making others cheaper. A slow machine has more: the budget is for one on which ``_loop`` takes ``LOOP_S``.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from typing import Final, NamedTuple

#: The stages before the last one, and the last one.
STAGES: Final = ("lint", "types", "doors", "test-newest", "test")
LAST: Final = "test-rest"

#: What all processes of ``make test`` may use, in seconds of CPU. (The aim is 480, on a machine that is idle; one that is
#: shared was seen to use twice as much for the same tests, while ``_loop`` took no longer.)
DESK_CPU_S: Final = 960.0
#: What ``_loop`` takes on the machine for which that is meant, in seconds of CPU.
LOOP_S: Final = 0.2

#: Linux' request to be the parent of those whose parent has died: their time counts, too.
_PR_SET_CHILD_SUBREAPER: Final = 36


class Cost(NamedTuple):
    """What a stage took."""

    code: int
    wall_s: float
    cpu_s: float


def _loop() -> float:
    """How long this machine calculates at the same thing, in seconds of CPU."""
    begun = time.process_time()
    total = 0
    for number in range(3_000_000):
        total += number & 7
    assert total
    return time.process_time() - begun


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
        slowest = _loop()
        cost = run(["make", "--no-print-directory", name])
        sys.stdout.write(f"-- {name}: {cost.wall_s:.0f} s, {cost.cpu_s:.0f} s of CPU\n")
        sys.stdout.flush()
        if cost.code != 0 and name != "test":
            return cost.code
        failed = cost.code
        if name == "test" and (why := over_budget(cost.cpu_s, max(slowest, _loop()))):
            sys.stderr.write(f"{why}\n")
            failed = failed or 1
    return run(["make", "--no-print-directory", LAST]).code or failed


if __name__ == "__main__":
    sys.exit(main())
