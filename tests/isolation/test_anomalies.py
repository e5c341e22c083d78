"""The programs of examples/isolation: what docs/isolation.md says of each anomaly is so."""

from __future__ import annotations

import importlib.util
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.virtual_time

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "isolation"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("anomalies", FOLDER / "anomalies.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAMS = loaded()


@pytest.mark.parametrize("name", PROGRAMS.ANOMALIES)
async def test_an_anomaly_happens_only_without_the_form_that_prevents_it(name: str) -> None:
    """Law: what the page says happens does happen, and what it says prevents it does."""
    program, _ = PROGRAMS.ANOMALIES[name]
    assert await program(False), f"without it there is no {name}"
    assert not await program(True), f"it does not prevent the {name}"


async def test_the_program_prints_what_its_page_shows() -> None:
    """The page beside the program shows its output."""
    out = io.StringIO()
    with redirect_stdout(out):
        await PROGRAMS.main()
    assert out.getvalue() in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("page", ["isolation.md", "isolation.zh.md"])
def test_each_anomaly_of_the_page_has_a_program(page: str) -> None:
    """The table has a row for each program, and none without."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert len(rows) == len(PROGRAMS.ANOMALIES)
    if page == "isolation.md":
        assert rows == list(PROGRAMS.ANOMALIES)
