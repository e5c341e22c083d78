"""The kernel knows no extension: with the folder gone the engine does everything else, and what nobody uses costs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import saga_engine

ROOT = Path(__file__).parents[2]
BASE = "failure or crash or doubt or cancel or forward or fallback"
PROGRAM = """
import asyncio, sys
from saga_engine import Coordinator, tool

@tool(effect="read")
def look(at: int) -> dict: return {"at": at}

@tool(undo="unbook")
def book(at: int) -> dict: return {"ref": f"B-{at}"}

@tool(tolerates_absence=True)
def unbook(ref: str) -> None: ...

@tool(not_done=PermissionError)
def fail() -> None: raise PermissionError("no")

async def main():
    async with Coordinator.open("memory://base", [look, book, unbook, fail]) as engine:
        steps = [{"step_id": 1, "tool": "look", "params": {"at": 1}}, {"step_id": 2, "tool": "book", "params": {"at": 2}}]
        print((await engine.run({"steps": steps})).status)
        print((await engine.run({"steps": [*steps, {"step_id": 3, "tool": "fail", "kind": "pivot"}]})).status)
    print(*(name for name in sys.modules if name.startswith("saga_engine.ext")))

asyncio.run(main())
"""


def test_a_saga_without_words_imports_no_extension() -> None:
    """A saga that is done, and one that is undone."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["COMPLETED", "COMPENSATED", ""]


def test_the_scenarios_pass_without_any_extension(tmp_path: Path) -> None:
    """Failures, crashes, doubts, cancels: the specification of the kernel holds in a tree without ``saga_engine/ext``."""
    for name in ("saga_engine", "tests", "examples", "docs", "planner_prompts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "ext"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert not (tmp_path / "saga_engine" / "ext").exists()
    assert (Path(saga_engine.__file__).parent / "ext" / "sleep").exists()
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "tests/scenarios", "-k", BASE]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in done.stdout
