"""Draws the state diagrams into ``docs/concepts.md``, between their markers. Run by ``make docs-diagrams``."""

from __future__ import annotations

import re
from pathlib import Path

from saga_engine.core import transitions as t

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"


def drawn(text: str) -> str:
    """The page with its diagrams as the tables have them now."""
    diagrams = {
        "saga": t.mermaid(t.SAGA_MACHINE, t.SAGA_FINAL, t.SAGA_GUARDS),
        "step": t.mermaid(t.STEP_MACHINE, t.STEP_REST, t.STEP_GUARDS),
    }
    for name, diagram in diagrams.items():
        begin = f"<!-- diagram: {name} -->\n"
        pattern = re.compile(re.escape(begin) + r".*?(?=<!-- end -->)", re.DOTALL)
        body = f"{begin}```mermaid\n{diagram}\n```\n"
        text, count = pattern.subn(lambda _, body=body: body, text)
        assert count == 1, f"the page must have the marker of the diagram '{name}' once"
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
