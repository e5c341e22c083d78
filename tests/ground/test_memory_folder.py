"""The folder in memory, where a run of the tests has its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHIN = """
import os, sys, tempfile
import pytest

ARGS = ["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/ground/test_memory_folder.py"]

class Outer:
    def pytest_collection_finish(self):
        assert pytest.main(ARGS) == 0
        sys.stderr.write(f"there: {os.path.isdir(tempfile.gettempdir())}\\n")

assert pytest.main(ARGS, plugins=[Outer()]) == 0
sys.stderr.write(f"left: {os.path.isdir(os.environ['TMPDIR'])}\\n")
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system keeps no files in memory")
def test_a_run_within_a_run_leaves_its_folder_alone() -> None:
    """What collects the tests in the process of a test ends as a run does; the folder goes with the run that made it."""
    env = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT")}
    done = subprocess.run(
        [sys.executable, "-c", WITHIN], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "TMPDIR" in done.stderr:
        pytest.skip("there is no room for files in memory")
    assert "there: True\nleft: False\n" in done.stderr, done.stdout + done.stderr
