"""The comparison of known faults (``dev/benchmarks/faults``): what its page says of the engine is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "comparison.md", ROOT / "docs" / "comparison.zh.md")


def _blocks(page: Path) -> dict[str, str]:
    text = page.read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- fault: ([\w-]+) -->\n```text\n(.*?)```\n", text, re.DOTALL))


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the engine's programs print now."""
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / "faults" / "run.py"), "--engine"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(re.findall(r"^# ([\w-]+)\n(.*?)\n(?=\n|\Z)", ran.stdout, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_shows_what_the_engine_prints(page: Path, printed: dict[str, str]) -> None:
    """The transfer is made once and asked about; of the trip nothing remains."""
    blocks = _blocks(page)
    assert sorted(printed) == ["approved-engine", "resumed-engine"]
    assert {name: blocks[name].rstrip("\n") for name in printed} == printed
    assert printed["approved-engine"].endswith("in effect: transfer of 500 to Bob")
    assert printed["resumed-engine"].endswith("in effect: nothing")


def test_both_pages_show_the_same_runs() -> None:
    """The blocks of the Chinese page are those of the English one, those of the peers as well."""
    assert _blocks(PAGES[0]) == _blocks(PAGES[1])
    assert len(_blocks(PAGES[0])) == 5
