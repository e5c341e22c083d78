"""What the core's comments refer to: scenarios, rows of the guarantees, and tests."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SCENARIOS = {path.stem for path in (_ROOT / "tests/scenarios").glob("*.txt")}
_TEXTS = {path.name: path.read_text() for path in (_ROOT / "saga_engine/core").glob("*.py")}
_THEORY = ("decide.py", "questions.py", "settling.py", "state.py")
#: How the names of scenarios begin, so that a name that is wrong is found wherever it stands.
_FAMILIES = sorted({name.partition("-")[0] for name in _SCENARIOS})


def test_the_scenarios_that_the_core_names_exist() -> None:
    """A guard's scenario shows it at work; whoever follows the pointer finds a file."""
    for module in _THEORY:
        named = set(re.findall(r"``([a-z]+(?:-[a-z]+)+)``", _TEXTS[module]))
        named = {name for name in named if name.partition("-")[0] in _FAMILIES} - _kinds()
        listed = re.findall(r"\((?:scenarios? )?((?:[a-z]+(?:-[a-z]+)+(?:, )?)+)\)", _TEXTS[module])
        named |= {name for names in listed for name in names.split(", ")}
        assert named, module
        assert named <= _SCENARIOS, (module, named - _SCENARIOS)


def test_the_guarantees_that_the_core_names_exist() -> None:
    """*Row N* is a row of the table in docs/guarantees.md."""
    rows = set(re.findall(r"^\| (\d+) \|", (_ROOT / "docs/guarantees.md").read_text(), re.MULTILINE))
    for module in ("decide.py", "settling.py", "state.py"):
        named = {
            number
            for said in re.findall(r"\brows?\s+(\d+(?:\s+and\s+\d+)*)", _TEXTS[module])
            for number in re.findall(r"\d+", said)
        }
        assert named, module
        assert named <= rows, (module, named - rows)


def test_the_files_that_the_core_names_exist() -> None:
    """A path in a comment of the core leads somewhere."""
    for module, text in _TEXTS.items():
        for path in re.findall(r"\b((?:tests|docs)/[\w/-]+\.(?:py|md|txt))", text):
            assert path.endswith("/x.txt") or (_ROOT / path).exists(), (module, path)


def _kinds() -> set[str]:
    from saga_engine.core.questions import OPTIONS

    return {*OPTIONS}
