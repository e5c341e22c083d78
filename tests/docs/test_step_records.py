"""The picture of a step's records shows what the journals of the scenarios show."""

from __future__ import annotations

import re
from itertools import pairwise

from saga_engine.core import records as r
from tests.docs.pages import ROOT

_PICTURE = re.compile(
    r"^## The records of a step$.*?^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
_ARROW = re.compile(r"^ +(\S+) --> (\w+|\[\*\])(?:: .+)?$", re.MULTILINE)
_LINE = re.compile(r"^\| (\S+(?: \(undo\))?) +([A-Z]\w+)")


def followed() -> set[tuple[str, str]]:
    """Which record of a step follows which, in any scenario; its beginning and its end are ``[*]``."""
    found: set[tuple[str, str]] = set()
    for scenario in (ROOT / "tests/scenarios").glob("*.txt"):
        steps: dict[str, list[str]] = {}
        for line in scenario.read_text(encoding="utf-8").splitlines():
            if record := _LINE.match(line):
                steps.setdefault(record[1], ["[*]"]).append(record[2])
        found |= {pair for kinds in steps.values() for pair in pairwise([*kinds, "[*]"])}
    return found


def test_each_arrow_is_in_a_journal() -> None:
    """No arrow is drawn that no scenario takes, and each name is that of a record."""
    picture = _PICTURE.search((ROOT / "docs/concepts.md").read_text(encoding="utf-8"))
    assert picture is not None
    lines = picture[1].splitlines()
    arrows = [(arrow[1], arrow[2]) for arrow in _ARROW.finditer(picture[1])]
    assert len(arrows) == len(lines) > 20
    assert {name for arrow in arrows for name in arrow} - {"[*]"} <= vars(r).keys()
    assert sorted(set(arrows) - followed()) == []
