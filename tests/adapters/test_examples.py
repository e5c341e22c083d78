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
    "ten_calls.py": [
        *(f"created {number}.txt" for number in range(1, 11)),
        "the saga is COMPLETED, and there are 10 files",
    ],
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
    booked = {"langgraph_agent.py": 2, "pydantic_ai_agent.py": 1}
    assert lines.count("booked a flight: Rome") == booked.get(name, 0)
    assert sum(line.startswith("created") for line in lines) == (10 if name == "ten_calls.py" else 0)


def test_every_example_is_run() -> None:
    """A new one must say what it shows."""
    assert sorted(path.name for path in (ROOT / "examples" / "agents").glob("*.py")) == sorted(LAST_WORDS)
