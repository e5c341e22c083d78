"""The examples with agents of other frameworks run, and say what became of their sagas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAST_WORDS = {
    "langgraph_agent.py": ["the saga is COMPENSATED", "booked a hotel: Oslo", "the saga is COMPLETED"],
    "pydantic_ai_agent.py": ["the agent died", "cancelled the flight: Rome", "the saga is COMPENSATED"],
}


@pytest.mark.parametrize("name", list(LAST_WORDS))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """With no key and no network, in an empty folder."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SAGA_", "OPENAI_", "ANTHROPIC_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "agents" / name)],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line in LAST_WORDS[name]] == LAST_WORDS[name]
    assert lines.count("booked a flight: Rome") == (2 if name == "langgraph_agent.py" else 1)


def test_every_example_is_run() -> None:
    """A new one must say what it shows."""
    assert sorted(path.name for path in (ROOT / "examples" / "agents").glob("*.py")) == sorted(LAST_WORDS)
