"""What workers import stands compiled before they start, as pytest would have written it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests import precompiled


def test_what_is_written_is_what_pytest_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Each file of tests that is wanted is rewritten once; others, and what is there already, are let be."""
    shutil.copytree(Path(__file__).parent, tmp_path / "tests" / "ground", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "saga_engine").mkdir()
    monkeypatch.setattr(precompiled, "HERE", tmp_path / "tests")
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    names = ("test_tiers.py", "test_stages.py")
    assert precompiled.compiled(request.config, lambda path: path.name in names) == 2
    assert precompiled.compiled(request.config, lambda path: path.name in names) == 0
    folder = tmp_path / "tests" / "ground"
    written = {file.name.partition(".")[0] for file in rewrite.get_cache_dir(folder / "x.py").iterdir()}
    assert written == {"test_tiers", "test_stages"}
    file = folder / "test_tiers.py"
    code = rewrite._read_pyc(file, rewrite.get_cache_dir(file) / f"test_tiers{rewrite.PYC_TAIL}")
    assert code is not None
    assert code.co_filename == str(file)
