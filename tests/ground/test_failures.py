"""Failures of tests are counted over the outputs of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import failures

ONE = """...F..
FAILED tests/a/test_b.py::test_c[x - y] - AssertionError: assert 1 == 2
12:03 ERROR tests/a/test_d.py::TestE::test_f - OSError: gone
1 failed, 1 error
"""
OTHER = "FAILED tests/a/test_b.py::test_c[x]\nFAILED tests/a/test_d.py::TestE::test_f\n"


def test_each_test_has_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The test that fails most stands first, with what it said in each run."""
    for name, text in (("one", ONE), ("other", OTHER), ("green", "3 passed\n")):
        (tmp_path / name).write_text(text)
    failures.main(str(tmp_path / name) for name in ("one", "other", "green"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 runs, 3 tests")
    assert lines[1].split() == ["2", "tests/a/test_d.py::TestE::test_f"]
    assert lines[2].endswith("one: OSError: gone")
    assert [line.split()[0] for line in lines if "test_b.py" in line] == ["1", "1"]
