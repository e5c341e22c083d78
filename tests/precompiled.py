"""What all workers import is compiled once, before they start: on a fresh clone each of them would do it for itself.

Python's compiled files of the package, and those of pytest, whose assertions it rewrites. They are found by whoever
imports, so a file that changes while tests run is compiled anew, as always.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

HERE = Path(__file__).parent


def compiled(config: pytest.Config, wanted: Callable[[Path], bool]) -> int:
    """Compile the package, and the tests that are ``wanted``; how many files of tests had to be."""
    if sys.dont_write_bytecode:
        return 0
    compileall.compile_dir(str(HERE.parent / "saga_engine"), quiet=2)
    found = 0
    for path in HERE.rglob("*.py"):
        if not path.name.startswith("test_") and path.name != "conftest.py":
            compileall.compile_file(str(path), quiet=2)
        elif wanted(path):
            found += _rewritten(path, config)
    return found


def _rewritten(path: Path, config: pytest.Config) -> bool:
    """Write what pytest would write when it imports this file; false: it is there."""
    folder = rewrite.get_cache_dir(path)
    file = folder / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, file) is not None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    state: Any = config.stash[rewrite.assertstate_key]
    stat, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(state, code, stat, file)
    return True


def before_workers(config: pytest.Config, wanted: Callable[[Path], bool]) -> None:
    """Do so in the process that starts workers; a run without them compiles as it imports."""
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        compiled(config, wanted)
