"""What a newcomer types first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import stages
from tests.conftest import LONGEST

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


def _make(*args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_make_alone_lists_every_target() -> None:
    """``make`` explains itself, and leaves no target out."""
    done = _make()
    assert done.returncode == 0
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert targets is not None
    assert {line.split()[0] for line in done.stdout.splitlines()} == set(targets[1].split())


def test_an_old_python_is_named_and_refused(tmp_path: Path) -> None:
    """With a Python that is too old nothing is made, and the message says what to do."""
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = _make("demo", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "needs Python 3.11" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert "make demo PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_check_ends_with_the_tests() -> None:
    """CI reads the last line: it must be pytest's."""
    assert _make("--dry-run", "check").stdout.strip().splitlines()[-1].endswith("-m tests.stages")
    done = _make("--dry-run", stages.LAST, "VENV=.venv-that-is-not-there")
    assert "pytest" in done.stdout.strip().splitlines()[-1]


def test_each_stage_is_a_target() -> None:
    """``make check`` runs what one can run alone, under the same name."""
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert targets is not None
    assert {*stages.STAGES, stages.LAST} <= set(targets[1].split())


def test_ci_is_a_script_that_bash_can_read() -> None:
    """``.ci/run`` parses, stops at the first error, and ends with ``make check``."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert text.strip().splitlines()[-1] == "make check"


def test_the_files_that_come_first_exist() -> None:
    """One that was renamed would come last again, and all other workers would wait for it."""
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
