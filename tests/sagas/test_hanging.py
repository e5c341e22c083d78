"""A run of the tests comes to an end, whatever one of them does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STUBBORN = """
import time


def test_before():
    pass


def test_that_does_not_stop():
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass


def test_behind():
    pass
"""


def test_a_test_that_ignores_its_time_out_ends_its_process_and_no_other_test(tmp_path: Path) -> None:
    """The run names it, shows where it stood, and goes on with those behind it."""
    root = Path(__file__).parents[2]
    (tmp_path / "test_stubborn.py").write_text(STUBBORN)
    settings = ["-p", "tests.conftest", "-c", str(root / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-n", "1", "--timeout", "1", *settings, str(tmp_path)]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=root, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed while running 'test_stubborn.py::test_that_does_not_stop'" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "in test_that_does_not_stop" in done.stderr + done.stdout
