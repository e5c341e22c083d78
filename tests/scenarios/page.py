"""Writes the list of scenarios into ``docs/semantics.md``, between its markers. ``--accept-transcripts`` does it, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.scenarios import notation

FOLDER: Final = Path(__file__).parent
PAGE: Final = FOLDER.parents[1] / "docs" / "semantics.md"
#: The sections of the page: a title, and what the names of its scenarios begin with.
SECTIONS: Final = {
    "Forward": ("forward",),
    "Failure and compensation": ("failure", "retry"),
    "Pivot": ("pivot",),
    "Calls in doubt": ("doubt",),
    "Undos that fail or are in doubt": ("undo",),
    "Conditions": ("when",),
    "Fallbacks": ("fallback",),
    "Questions of the plan": ("question",),
    "Waits": ("waits", "child"),
    "Before-images and drift": ("drift",),
    "Policy and approvals": ("policy", "approval"),
    "Finally": ("finally",),
    "Deadline and cancel": ("deadline", "cancel"),
    "Amendments and replanning": ("amend", "replan"),
    "Semantic compensation": ("semantic",),
    "Sessions": ("session",),
    "Guards": ("guard",),
    "Crash and resume": ("crash", "tool"),
    "Owners, workers, forks and undos": ("owners", "worker", "fork", "undo"),
    "Questions and alerts": ("people", "answers"),
    "Secrets": ("secrets", "sensitive"),
}
_SHOWN: Final = FOLDER / "failure-compensation.txt"


def scenarios() -> list[Path]:
    """All scenario files, by name."""
    return sorted(FOLDER.glob("*.txt"))


def section_of(scenario: Path) -> str:
    """The title of the section that a scenario belongs to. Raises ``KeyError``."""
    return {prefix: title for title, prefixes in SECTIONS.items() for prefix in prefixes}[scenario.stem.split("-")[0]]


def drawn(text: str) -> str:
    """The page as the scenario files have it now."""
    parts = {"example": f"```text\n{_SHOWN.read_text(encoding='utf-8')}```\n", "scenarios": _list()}
    for name, body in parts.items():
        marker = f"<!-- {name} -->\n"
        pattern = re.compile(f"{marker}.*?(?=<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda _, drawing=marker + body: drawing, text)
        assert count == 1, f"the page must have the marker '{name}' once"
    return text


def _list() -> str:
    lines: list[str] = []
    for title in SECTIONS:
        lines += [f"\n### {title}\n", "| scenario | law |", "|---|---|"]
        for path in scenarios():
            if section_of(path) == title:
                name, sentence = notation.title(path.read_text(encoding="utf-8"))
                cell = sentence.replace("|", r"\|")
                lines.append(f"| [{name}](../tests/scenarios/{path.name}) | {cell} |")
    return "\n".join([*lines, ""]) + "\n"


def write() -> None:
    """Bring the page up to date."""
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
