"""The table of the kill tests in the proofs: every file, every store, and with ``--long`` every count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.docs import kills

#: The tests of the fault injection itself.
LEFT_OUT = {"test_faults.py"}


@pytest.mark.parametrize("page", kills.PAGES, ids=lambda page: page.name)
def test_every_file_of_kill_tests_has_one_row_with_its_stores(page: Path) -> None:
    """Whoever adds a file, or a store to a file, hears of it at once: a count stands where the file names the store."""
    rows = {names: cells for names, cells in kills.rows(page.read_text("utf-8")).items() if names != ("at_least",)}
    named = Counter(name for names in rows for name in names)
    assert named == Counter({path.name for path in kills.KILL.glob("test_*.py")} - LEFT_OUT)
    columns = {
        names: dict(zip(kills.STORES, cells[-len(kills.STORES) :], strict=True)) for names, cells in rows.items()
    }
    counted = {names: [store for store, cell in row.items() if cell != "—"] for names, row in columns.items()}
    assert counted == {names: kills.stores_in(list(names)) for names in rows}


@pytest.mark.slow
def test_the_counts_are_those_that_pytest_collects() -> None:
    """The long form: pytest collects the kill tests, which takes it some seconds, and runs none."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "tests.docs.kills", "--check"]
    done = subprocess.run(command, cwd=kills.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
