"""The laws of the tree: what stands at its root, how long a file and a function may be, and no test imports another."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

FILE_LINES: Final = 600
FUNCTION_LINES: Final = 70
ROOMS: Final = ("saga_engine", "dev", "tests", "examples")


def too_long(path: Path, name: str) -> Iterator[tuple[str, int]]:
    """What is too long in a file: the file, or functions of it, each with its lines."""
    text = path.read_text(encoding="utf-8")
    if (lines := text.count("\n")) > FILE_LINES:
        yield name, lines
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES:
                yield f"{name}::{node.name}", lines


def test_files_and_functions_are_short() -> None:
    """No file and no function is longer than the law allows, in the package or beside it."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = dict(each for path in paths for each in too_long(path, path.relative_to(ROOT).as_posix()))
    assert len(paths) > 400
    assert found == {}


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    """A line more than the law allows, in a file and in a function within a class, is found."""
    short, long = tmp_path / "short.py", tmp_path / "long.py"
    body = "        pass\n" * (FUNCTION_LINES - 1)
    short.write_text(f"class A:\n    def f():\n{body}")
    long.write_text(f"class A:\n    async def f():\n{body}        pass\n" + "\n" * (FILE_LINES - FUNCTION_LINES - 1))
    assert list(too_long(short, "short")) == []
    assert list(too_long(long, "long")) == [("long", FILE_LINES + 1), ("long::f", FUNCTION_LINES + 1)]


def test_the_root_shows_what_the_project_is() -> None:
    """The package, its prompts, tests, examples and pages; what only its developers need is in one folder beside them."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {top for top, slash, _ in (name.partition("/") for name in tracked) if slash and not top.startswith(".")}
    assert folders == {"saga_engine", "planner_prompts", "tests", "examples", "docs", "deploy", "dev"}


def test_each_test_stands_in_a_folder() -> None:
    """Beside the folders of ``tests`` stand only what pytest reads and what says where a test runs."""
    beside = {path.name for path in (ROOT / "tests").glob("*.py")}
    assert beside == {"conftest.py", "precompiled.py", "stages.py", "tiers.py"}


def test_no_test_module_imports_another() -> None:
    """What tests share stands in helper modules, so that a test can be read, moved and run alone."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
                modules = [ROOT / f"{name.replace('.', '/')}.py" for name in names]
                found += [
                    f"{path.name}: {each.name}" for each in modules if each.name.startswith("test_") and each.is_file()
                ]
    assert found == []
