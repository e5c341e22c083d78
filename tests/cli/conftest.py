"""The real command line, run as a process in a folder of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from saga_engine.cli import run
from tests.support.forker import run_python

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = Path(__file__).with_name("outside_world.py")
_LIMIT_S = 120  # ends a test that hangs; nothing is asserted about time


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout; anything else on stdout is an error."""
        return json.loads(self.out)


class Cli:
    """``saga`` in a folder; the tools of ``outside_world.py`` do their work in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        self.env |= {"PYTHONPATH": str(Path(__file__).parents[2]), "USER": "ada", "NO_COLOR": "1"}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "saga_engine", *args]

    def __call__(self, *args: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Ran:
        env = self.env | (env or {})
        return Ran(*run_python("-m", "saga_engine", *args, cwd=self.folder, env=env, stdin=stdin, timeout_s=_LIMIT_S))

    def look(self, *args: str) -> Ran:
        """The same in this process, which is cheaper: for commands that load no tools and drive nothing."""
        assert args[0] in ("show", "list", "history", "graph", "inbox", "top", "trace", "check", "schema", "doctor")
        out, err = io.StringIO(), io.StringIO()
        where = (
            []
            if args[0] in ("check", "schema") or "--store" in args
            else ["--store", f"embedded://{self.folder}/.saga"]
        )
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            for name in [name for name in os.environ if name.startswith("SAGA_")]:
                patch.delenv(name)
            code = run([*args, *where])
        return Ran(code, out.getvalue(), err.getvalue())

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """A command in a session of its own, as a terminal would have it."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            text=True,
            start_new_session=True,
            **{"env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            | options,
        )

    def plan(self, name: str, *steps: dict[str, Any], **fields: Any) -> str:
        """Write a plan; a step is its fields, numbered from 1."""
        numbered = [{"step_id": at, **step} for at, step in enumerate(steps, 1)]
        (self.folder / name).write_text(json.dumps({"steps": numbered, **fields}))
        return name

    @property
    def world(self) -> list[str]:
        """What really happened outside, in order."""
        log = self.folder / "world.log"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def book() -> Callable[..., dict[str, Any]]:
    """A step that books ``item`` and can be undone."""

    def step(item: str, **fields: Any) -> dict[str, Any]:
        return {"name": f"book_{item}", "tool": "book", "params": {"item": item}, **fields}

    return step
