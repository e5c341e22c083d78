"""Break a promise in a copy of the tree, and run the one test that is named for it there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
#: What the tests of a copy need. No caches, no environment, no history.
_COPIED = (
    "benchmarks chaos docs examples planner_prompts saga_engine tests pyproject.toml README.md README.zh.md LICENSE"
    " Makefile AGENTS.md CHANGELOG.md"
)
#: Where the tests of a conformance suite are collected for a real server, and with which of its fixtures.
_SUITES = {
    "saga_engine/testing/conformance.py": "tests/stores/test_conformance.py",
    "saga_engine/testing/queue_conformance.py": "tests/stores/test_conformance.py",
    "saga_engine/testing/guard_conformance.py": "tests/stores/test_guards.py",
    "saga_engine/testing/search_conformance.py": "tests/stores/test_conformance.py",
}


class Mutation(NamedTuple):
    """One way to break a promise, and the test that must not stay green.

    ``test`` is written as in docs/guarantees.md. ``changes`` are texts of ``file`` and what stands in their place; ``also`` has
    those of other files.
    ``only`` is a part of the ids (``-k``) where a test has many cases; ``quick``: it runs in the short form too, one for
    each kind of promise.
    ``hangs``: what is broken comes to a standstill, so the test is noticed to wait in vain.
    ``unnoticed``: why the test does not notice it yet; the row fails as soon as it does.
    """

    test: str
    breaks: str
    file: str
    changes: tuple[tuple[str, str], ...]
    also: tuple[tuple[str, str, str], ...] = ()
    only: str = ""
    quick: bool = False
    hangs: bool = False
    unnoticed: str = ""

    @property
    def id(self) -> str:
        return f"{self.test.removeprefix('tests/')}: {self.breaks}"

    @property
    def replaced(self) -> list[tuple[str, str, str]]:
        """All that is changed: the file, the text in it, and what stands in its place."""
        return [*((self.file, old, new) for old, new in self.changes), *self.also]

    def fits(self) -> bool:
        """Whether the code still has each text that is replaced."""
        return all(old in (ROOT / name).read_text(encoding="utf-8") for name, old, _ in self.replaced)


class Copy:
    """A copy of the tree, in which one thing at a time is broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._times = 0
        for name in _COPIED.split():
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy2(source, folder / name)

    def play(self, mutation: Mutation) -> tuple[int, str]:
        """The exit code of the named test under the mutation, and what it printed."""
        genuine = {name: self._read(name) for name, _, _ in mutation.replaced}
        broken = dict(genuine)
        for name, old, new in mutation.replaced:
            assert old in broken[name], f"{name} has changed: the mutation {mutation.id!r} no longer fits"
            broken[name] = broken[name].replace(old, new)
        assert broken != genuine
        self._write(broken)
        try:
            return self.run(mutation)
        finally:
            self._write(genuine)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def _write(self, texts: dict[str, str]) -> None:
        # Compiled code is trusted by the time (in seconds) and the size of its source: each text has a time of its own.
        self._times += 1
        for name, text in texts.items():
            file = self.folder / name
            file.write_text(text, encoding="utf-8")
            os.utime(file, (self._times, self._times))

    def run(self, mutation: Mutation) -> tuple[int, str]:
        """The exit code of the named test as the copy stands, and what it printed."""
        path, name = mutation.test.split("::")
        node = [f"{path}::{name}"]
        if path in _SUITES:
            node = [_SUITES[path], "-k", f"{name} and embedded" if not mutation.only else f"{name} and {mutation.only}"]
        elif mutation.only:
            node += ["-k", mutation.only]
        command = [
            sys.executable,
            "-m",
            "pytest",
            *node,
            "--long",
            "-n",
            "0",
            "-x",
            "--timeout",
            "30" if mutation.hangs else "200",
            "-rfE",
        ]
        command += [
            "-p",
            "no:cacheprovider",
            "--hypothesis-profile",
            "mutants",
            "--hypothesis-seed",
            "0",
            "--tb",
            "line",
        ]
        # (Under CI pytest prints whole values in its summary, which would push the verdict out of what is kept.)
        left_out = ("PYTEST_", "COV_", "SAGA_")
        env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith(left_out)}
        env["PYTHONPATH"] = str(self.folder)
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def named_tests() -> list[str]:
    """Every test that docs/guarantees.md names for a promise, in its order, once."""
    found: dict[str, None] = {}
    for line in GUARANTEES.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            found |= dict.fromkeys(re.findall(r"`((?:tests|saga_engine/testing)/[\w/]+\.py::\w+)`", line))
    return list(found)
