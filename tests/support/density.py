"""Which statements of the kernel's functions a run of pytest executes: ``pytest -p tests.support.density``.

What a base saga never executes belongs to a feature: so the share that it does execute, *density*, says how much of the
rooms of every saga is kernel. The result is written as JSON, by room, to the file that ``DENSITY`` names.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

PACKAGE: Final = Path(__file__).parents[2] / "saga_engine"
#: The rooms that are to become the kernel, without those that only compose (``api``) or are ports.
ROOMS: Final = ("core", "runtime")
_SEEN: Final[defaultdict[str, set[int]]] = defaultdict(set)
_FOLDERS: Final = tuple(f"{PACKAGE / room}{os.sep}" for room in ROOMS)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def _call(frame: FrameType, _event: str, _arg: Any) -> Any:
    return _line if frame.f_code.co_filename.startswith(_FOLDERS) else None


def _line(frame: FrameType, _event: str, _arg: Any) -> Any:
    _SEEN[frame.f_code.co_filename].add(frame.f_lineno)
    return _line


def pytest_configure() -> None:
    """Watch from here on."""
    sys.settrace(_call)
    threading.settrace(_call)


def pytest_unconfigure() -> None:
    """Write what was seen."""
    sys.settrace(None)
    counted = {room: _counted(room) for room in ROOMS}
    Path(os.environ["DENSITY"]).write_text(json.dumps(counted), encoding="utf-8")


def _counted(room: str) -> dict[str, Any]:
    """How many statements there are, how many were executed, and both by file."""
    files = {}
    for path in sorted((PACKAGE / room).rglob("*.py")):
        lines = list(_statements(ast.parse(path.read_text(encoding="utf-8"))))
        hit = sum(not _SEEN[str(path)].isdisjoint(each) for each in lines)
        files[str(path.relative_to(PACKAGE))] = (hit, len(lines))
    return {"hit": sum(hit for hit, _ in files.values()), "all": sum(of for _, of in files.values()), "files": files}


def _statements(tree: ast.Module) -> Iterator[range]:
    """The lines of each statement within a function; of one with a body, those of its head."""
    found: dict[int, range] = {}
    for made in ast.walk(tree):
        if not isinstance(made, _FUNCTIONS):
            continue
        for each in ast.walk(made):
            if not isinstance(each, ast.stmt) or isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                continue
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                continue  # a docstring
            body = getattr(each, "body", None)
            last = body[0].lineno - 1 if body else each.end_lineno or each.lineno
            found[id(each)] = range(each.lineno, max(last, each.lineno) + 1)
    yield from found.values()
