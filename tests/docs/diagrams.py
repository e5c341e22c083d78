"""Draws the state diagrams and the rooms into ``docs/concepts.md`` and its twin: ``make docs-diagrams``."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

from saga_engine.core import transitions as t

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("concepts.md", "concepts.zh.md")]


def drawn(text: str) -> str:
    """The page with its diagrams, each between its markers, as the tables have them now."""
    diagrams = {
        "saga": t.mermaid(t.SAGA_MACHINE, t.SAGA_FINAL, t.SAGA_GUARDS),
        "step": t.mermaid(t.STEP_MACHINE, t.STEP_REST, t.STEP_GUARDS),
        "house": house((ROOT / "pyproject.toml").read_text("utf-8"), (ROOT / "AGENTS.md").read_text("utf-8")),
    }
    for name, diagram in diagrams.items():
        begin = f"<!-- diagram: {name} -->\n"
        pattern = re.compile(re.escape(begin) + r".*?(?=<!-- end -->)", re.DOTALL)
        body = f"{begin}```mermaid\n{diagram}\n```\n"
        text, count = pattern.subn(lambda _, body=body: body, text)
        assert count == 1, f"the page must have the marker of the diagram '{name}' once"
    return text


def house(contracts: str, contributors: str) -> str:
    """The rooms as the import contract has them, each with its words of the table in ``AGENTS.md``."""
    table = tomllib.loads(contracts)["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in table if each["type"] == "layers")
    floors = [layer.split(" | ") for layer in layers if not layer.startswith("__")]
    rooms_of = contributors.partition("## Rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", rooms_of, re.MULTILINE)
    named = [re.findall(r"`(\w+)`", names) for names, _ in rows]
    assert named == floors, f"the rooms of AGENTS.md and of the import contract differ: {named} and {floors}"
    lines = ["flowchart TB"]
    for number, (rooms, (_, duties)) in enumerate(zip(floors, rows, strict=True)):
        lines += [f'    subgraph floor{number} [" "]', "        direction LR"]
        for room, duty in zip(rooms, duties.split(" · "), strict=True):
            plain = re.sub(r"^pure(?: \(.*?\))?: ", "", duty).partition(";")[0].replace("`", "")
            wrapped = "<br/>".join(textwrap.wrap(plain, 30))
            lines.append(f'        {room}["<b>{room}</b><br/>{wrapped}"]')
        lines.append("    end")
    lines += [f"    floor{number} --> floor{number + 1}" for number in range(len(floors) - 1)]
    return "\n".join(lines)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text(encoding="utf-8")), encoding="utf-8")
