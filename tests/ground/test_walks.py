"""What a reader has to hold in the head may only get less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: How many files of the package each walk enters. Who brings a figure down writes the new one here.
MOST_FILES = {"submission": 73, "step": 36, "event": 47}


def test_no_walk_through_the_package_gets_longer() -> None:
    """From an answer to the next call, from a new plan to its first call, from an event to the end of its saga."""
    command = [sys.executable, "-m", "benchmarks.walks", "--json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    files = {name: walk["files"] for name, walk in told["walks"].items()}
    assert set(files) == set(MOST_FILES)
    assert {name: count for name, count in files.items() if count > MOST_FILES[name]} == {}
    assert all(count > 10 for count in files.values()), "nothing was counted"
    assert told["lines"]["all"] == sum(count for room, count in told["lines"].items() if room != "all")
