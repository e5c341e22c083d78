"""The comparison shows what its programs print. Those of the peers install them first, so ``--page`` writes theirs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

RUN = ROOT / "dev" / "benchmarks" / "faults" / "run.py"
SHOWN = r"<!-- fault: ([\w-]+) -->\n```text\n(.*?)```\n"


def shown(page: str) -> dict[str, str]:
    """The stories of a page, by name."""
    return dict(re.findall(SHOWN, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL))


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What the engine's stories print now."""
    ran = subprocess.run([sys.executable, str(RUN), "--engine"], capture_output=True, text=True, check=True)
    _, *parts = re.split(r"^# ([\w-]+)\n", ran.stdout, flags=re.MULTILINE)
    return {name: body.rstrip("\n") + "\n" for name, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("page", ["comparison.md", "comparison.zh.md"])
def test_the_engines_stories_are_what_their_programs_print(page: str, told: dict[str, str]) -> None:
    """An approved effect is not repeated after a crash; a failed agent leaves nothing."""
    assert set(shown(page)) == {
        *("approved-langgraph", "approved-engine", "resumed-dbos", "resumed-engine"),
        "undone-sagaz",
    }
    assert {name: shown(page)[name] for name in told} == told
    assert len(told) == 2
