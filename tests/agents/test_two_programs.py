"""The two programs of docs/two-programs.md, in each framework, with and without the engine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.clients import WRAPPED, environment, environments

ROOT = Path(__file__).parents[2]
MODULES = {
    "langchain": "langchain",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "google_adk": "google_adk",
    "strands": "strands",
}
TOLD = {
    ("doubled_refund", False): "A-17 was refunded 2 times",
    ("doubled_refund", True): "A-17 was refunded 1 time",
    ("erased_change", False): "tea costs 10; nobody is asked",
    ("erased_change", True): "tea costs 15; an operator is asked (drift)",
}


def _cases() -> list[object]:
    here = {name for name, module in MODULES.items() if importlib.util.find_spec(module) is not None}
    slow = [pytest.mark.slow, pytest.mark.timeout(3600)]
    return [pytest.param(name, marks=() if name in here else slow, id=name) for name in MODULES]


@pytest.mark.parametrize("framework", _cases())
def test_the_tables_of_the_page(framework: str, tmp_path: Path) -> None:
    """What each program prints is what the page says."""
    found = importlib.util.find_spec(MODULES[framework]) is not None
    known = next(each for each in WRAPPED if each.name == framework)
    python = sys.executable if found else environment(known, environments())
    for (program, engine), told in TOLD.items():
        command = [python, str(ROOT / "examples" / "two_programs" / f"{program}.py"), framework]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--engine"] if engine else command,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert told in done.stdout.splitlines()[-1]
