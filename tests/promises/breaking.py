"""Break a promise in a copy of the tree, and run the one test that is named for it there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.mutating import ROOT, Change, Misfit, broken

GUARANTEES = ROOT / "docs" / "reference" / "proofs.md"
#: What the tests of a copy need. No caches, no environment, no history.
_COPIED = (
    "dev docs examples planner_prompts saga_engine tests pyproject.toml README.md README.zh.md LICENSE"
    " Makefile AGENTS.md CHANGELOG.md"
)
#: Where the tests of a conformance suite are collected for a real server, and with which of its fixtures.
SUITES = {
    "saga_engine/testing/conformance.py": "tests/stores/test_conformance.py",
    "saga_engine/testing/queue_conformance.py": "tests/stores/test_conformance.py",
    "saga_engine/testing/guard_conformance.py": "tests/stores/test_guards.py",
    "saga_engine/testing/hold_conformance.py": "tests/stores/test_guards.py",
    "saga_engine/testing/search_conformance.py": "tests/stores/test_conformance.py",
    "saga_engine/testing/write_conformance.py": "tests/stores/test_guards.py",
}


class Mutation(NamedTuple):
    """One way to break a promise, and the test that must not stay green.

    To add one, write ``Mutation(test, breaks, ((text, what stands there instead),))`` into the list of its subject:
    ``test`` as in docs/guarantees.md, ``breaks`` in plain words, and each text so long that it stands once in the package
    (``tests/support/mutating.py`` finds it, so no file is named, and the code may move). Then run the row:
    ``pytest tests/promises --long -k "part of the words"``.

    ``elsewhere``: what is changed outside the package, with the file.
    ``only`` is a part of the ids (``-k``) where a test has many cases; ``quick``: it runs in the short form too, one for
    each kind of promise.
    ``hangs``: what is broken comes to a standstill, so the test is noticed to wait in vain.
    ``unnoticed``: why the test does not notice it yet; the row fails as soon as it does.
    """

    test: str
    breaks: str
    changes: tuple[Change, ...]
    elsewhere: tuple[tuple[str, str, str], ...] = ()
    only: str = ""
    quick: bool = False
    hangs: bool = False
    unnoticed: str = ""

    @property
    def id(self) -> str:
        return f"{self.test.removeprefix('tests/')}: {self.breaks}"

    def broken(self, root: Path = ROOT) -> dict[Path, str]:
        """The files that the mutation changes, with their new text."""
        texts = broken(self.changes, root)
        for name, old, new in self.elsewhere:
            genuine = (root / name).read_text(encoding="utf-8")
            if genuine.count(old) != 1:
                raise Misfit(f"a text of a mutation must stand once in {name}:\n{old}")
            texts[Path(name)] = genuine.replace(old, new)
        return texts

    def misfit(self) -> str:
        """Why the mutation does not fit the code; empty if it does."""
        try:
            self.broken()
        except Misfit as why:
            return f"{self.id}: {why}"
        return ""


def environment(folder: Path) -> dict[str, str]:
    """That of a process which runs tests of a copy."""
    # (Under CI pytest prints whole values in its summary, which would push the verdict out of what is kept.)
    left_out = ("PYTEST_", "COV_", "SAGA_")
    env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith(left_out)}
    return {**env, "PYTHONPATH": str(folder)}


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
        with self.broken(mutation):
            return self.run(mutation)

    @contextmanager
    def broken(self, mutation: Mutation) -> Iterator[None]:
        """Break the copy within the block."""
        changed = mutation.broken(self.folder)
        genuine = {file: (self.folder / file).read_text(encoding="utf-8") for file in changed}
        assert changed != genuine
        self._write(changed)
        try:
            yield
        finally:
            self._write(genuine)

    def _write(self, texts: dict[Path, str]) -> None:
        # Compiled code is trusted by the time (in seconds) and the size of its source: each text has a time of its own.
        self._times += 1
        for file, text in texts.items():
            (self.folder / file).write_text(text, encoding="utf-8")
            os.utime(self.folder / file, (self._times, self._times))

    def run(self, mutation: Mutation) -> tuple[int, str]:
        """The exit code of the named test as the copy stands, and what it printed."""
        path, name = mutation.test.split("::")
        node = [f"{path}::{name}"]
        if path in SUITES:
            node = [SUITES[path], "-k", f"{name} and embedded" if not mutation.only else f"{name} and {mutation.only}"]
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
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def named_tests() -> list[str]:
    """Every test that docs/guarantees.md names for a promise, in its order, once."""
    found: dict[str, None] = {}
    for line in GUARANTEES.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            found |= dict.fromkeys(re.findall(r"`((?:tests|saga_engine/testing)/[\w/]+\.py::\w+)`", line))
    return list(found)
