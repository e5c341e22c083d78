"""The score (``dev/benchmarks/reliability``): the engine's part of it, on written tasks.

The peers are played by ``make score`` alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCORE = ROOT / "dev" / "benchmarks" / "reliability"
SEED = 7
SYSTEMS = "plain,retries,engine_plan,engine_session,engine_gateway"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("score") / "score.json"
    command = [sys.executable, str(SCORE / "run.py"), "--systems", SYSTEMS]
    env = {key: value for key, value in os.environ.items() if not key.startswith("SAGA_")}
    done = subprocess.run(
        [*command, "--rates", "0.6", "--seed", str(SEED), "--out", str(out)],
        env=env,
        cwd=out.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return {row["system"]: row for row in json.loads(out.read_text())["rows"]}


@pytest.mark.parametrize("system", ["engine_plan", "engine_session", "engine_gateway"])
def test_the_engine_leaves_nothing_that_it_does_not_name(rows: dict[str, Any], system: str) -> None:
    """Whatever goes wrong with a call, and wherever its process is killed: no effect twice, and none untold."""
    found = rows[system]
    assert (found["unnamed"], found["doubled"], found["no_word"]) == (0, 0, 0)
    assert found["starts"] > 1
    assert found["goal"] > 0


def test_the_world_tells_systems_apart(rows: dict[str, Any]) -> None:
    """A score that no system can lose would say nothing."""
    assert rows["plain"]["unnamed"] > 0
    assert rows["plain"]["doubled"] > 0
    assert rows["retries"]["unnamed"] > 0
    assert rows["retries"]["doubled"] == 0
