"""``make check``: its stages in order, what each took, and the desk's budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stages

ROOT = Path(__file__).parents[2]
#: A child that leaves a process of its own behind, which calculates for a while.
_LEAVES_ONE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
"""


def _check(
    folder: Path, makefile: dict[str, str], *, budget: float = stages.DESK_CPU_S
) -> subprocess.CompletedProcess[str]:
    """``make check`` with other targets."""
    (folder / "Makefile").write_text("".join(f"{name}:\n\t@{line}\n" for name, line in makefile.items()))
    program = f"import sys; from tests import stages; stages.DESK_CPU_S = {budget}; sys.exit(stages.main())"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _targets() -> dict[str, str]:
    return {name: f"echo this is {name}" for name in (*stages.STAGES, stages.LAST)}


def test_each_stage_says_what_it_took_and_the_last_says_nothing_after_the_tests(tmp_path: Path) -> None:
    """The last line is that of the last stage, as pytest prints it."""
    done = _check(tmp_path, _targets())
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in lines if line.startswith("-- ")] == [
        f"-- {name}" for name in stages.STAGES
    ]
    assert lines[-1] == f"this is {stages.LAST}"


def test_a_stage_that_fails_ends_the_check(tmp_path: Path) -> None:
    """What comes after it is not run, and the check fails."""
    done = _check(tmp_path, {**_targets(), "types": "exit 3"})
    assert done.returncode != 0
    assert "-- types: " in done.stdout
    assert "doors" not in done.stdout


def test_a_desk_that_costs_too_much_fails_the_check(tmp_path: Path) -> None:
    """Its tests have passed, and the check fails all the same, with what to do."""
    done = _check(tmp_path, {**_targets(), "test": f"{sys.executable} -c 'sum(range(10 ** 7))'"}, budget=0.001)
    assert done.returncode == 1
    assert "tests/tiers.py" in done.stderr


def test_tests_that_fail_at_the_desk_do_not_hide_those_of_the_rest(tmp_path: Path) -> None:
    """Both are told of in one run, and the check fails."""
    done = _check(tmp_path, {**_targets(), "test": "exit 1"})
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == f"this is {stages.LAST}"


def test_a_slow_machine_has_a_larger_budget() -> None:
    """By how much longer it takes for the same calculation; a fast one has no smaller budget."""
    assert stages.over_budget(stages.DESK_CPU_S, stages.LOOP_S) == ""
    assert stages.over_budget(stages.DESK_CPU_S, stages.LOOP_S / 4) == ""
    assert "make a test cheaper" in stages.over_budget(stages.DESK_CPU_S * 1.5, stages.LOOP_S)
    assert stages.over_budget(stages.DESK_CPU_S * 1.5, stages.LOOP_S * 2) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the processes of dead parents are adopted on Linux only")
def test_the_time_of_processes_that_were_left_behind_counts() -> None:
    """A test's server outlives its client: what it has used is found when it ends."""
    program = (
        "import sys, subprocess; from tests import stages; stages._adopt_orphans();"
        f"first = stages.run([sys.executable, '-c', {_LEAVES_ONE!r}]).cpu_s;"
        "import os; left = os.wait4(-1, 0)[2]; print(first + left.ru_utime + left.ru_stime)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert float(done.stdout) >= 0.4
