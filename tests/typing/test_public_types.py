"""The types of the public API: ``public_uses.py`` is checked by mypy, and uses every public name."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import saga_engine

ROOT = Path(__file__).parents[2]
USES = Path(__file__).with_name("public_uses.py")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]


def test_make_types_checks_the_uses() -> None:
    """``mypy`` reads them in the strict form, in which a wrong use that the types do not refuse is an error."""
    assert SETTINGS["strict"] is True
    assert USES.parent in [ROOT / name for name in SETTINGS["files"]]


def test_every_public_name_is_used() -> None:
    """A name without a use has types that nobody has looked at."""
    tree = ast.parse(USES.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert sorted(set(saga_engine.__all__) - names) == []


@pytest.mark.slow
def test_a_wrong_use_is_refused(tmp_path: Path) -> None:
    """The checker finds a wrong use, and an ignored line that is right: neither would be found if the names were ``Any``."""
    text = "from saga_engine import Coordinator, RetryPolicy\nRetryPolicy(attempts=2)\nCoordinator.open()  # type: ignore\n"
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(wrong)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert '"attempts" for "RetryPolicy"' in done.stdout, done.stderr
    assert "unused-ignore" in done.stdout


@pytest.mark.slow
def test_the_uses_are_right() -> None:
    """As ``make types`` does, for a run of the tests alone."""
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
