"""The kernel knows no extension: with the folder gone the engine does everything else, and what nobody uses costs nothing."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import saga_engine
from saga_engine.plan import words

ROOT = Path(__file__).parents[2]
PACKAGE = Path(saga_engine.__file__).parent
#: The rooms that are the kernel, or become it.
KERNEL = ("core", "execution", "plan", "policy", "ports", "runtime", "stores", "tools")
#: ``Session.sleep`` is another name for a step with this word.
NAMED = {"runtime/session_steps.py": {"sleep"}}
#: Of a hundred statements in functions, how many the scenarios of a base saga execute: it may only rise. The rest
#: belongs to features, and leaves for folders of ``saga_engine/ext``. The aim is 90.
LEAST_DENSITY = {"core": 49, "runtime": 40}
#: The scenarios whose steps call tools: failures, crashes, doubts, cancels.
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


def test_no_file_of_the_kernel_names_an_extension() -> None:
    """What a folder of ``saga_engine/ext`` is called, no text in the rooms of the kernel says."""
    found: dict[str, set[str]] = {}
    for path in (path for room in KERNEL for path in (PACKAGE / room).rglob("*.py")):
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        if named := texts & set(words.shipped()):
            found[str(path.relative_to(PACKAGE))] = named
    assert found == NAMED


def test_the_scenarios_pass_without_any_extension(tmp_path: Path) -> None:
    """The specification of the kernel holds in a tree without ``saga_engine/ext``, and executes no less of it."""
    for name in ("saga_engine", "tests", "examples", "docs", "planner_prompts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "ext"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert not (tmp_path / "saga_engine" / "ext").exists()
    assert (PACKAGE / "ext" / "sleep").exists()
    counts = tmp_path / "density.json"
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "DENSITY": str(counts)}
    options = ["-n", "0", "-p", "no:cacheprovider", "-p", "tests.support.density"]
    command = [sys.executable, "-m", "pytest", *options, "tests/scenarios", "-k", BASE]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in done.stdout
    density = {room: 100 * of["hit"] // of["all"] for room, of in json.loads(counts.read_text()).items()}
    assert {room: share for room, share in density.items() if share < LEAST_DENSITY[room]} == {}
