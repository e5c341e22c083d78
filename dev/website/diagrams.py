"""Draws the diagrams of the pages with Graphviz, where it is installed; else their text is shown."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise

_BLOCK = re.compile(
    r"^```mermaid\n(?P<kind>stateDiagram-v2|flowchart TB)\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE
)
_EDGE = re.compile(r"^ *(?P<start>\[\*\]|\w+) --> (?P<end>\[\*\]|\w+)(?:: (?P<label>.+))?$")
_ROOM = re.compile(r'^ *(?P<name>\w+)\["<b>\w+</b><br/>(?P<duty>[^"]+)"\]$')
_STYLE = (
    "rankdir=LR bgcolor=transparent",
    'node [shape=box style=rounded fontname="sans-serif" fontsize=12]',
    'edge [fontname="sans-serif" fontsize=10 arrowsize=0.7]',
)


def dot(lines: str) -> str:
    """A state diagram of Mermaid in Graphviz' language: beginnings and ends are points, guards stand below labels."""
    found = []
    for line in lines.splitlines():
        edge = _EDGE.match(line)
        if edge is None:
            raise ValueError(f"no transition of a state diagram: {line}")
        ends = ["begin" if edge["start"] == "[*]" else edge["start"], "end" if edge["end"] == "[*]" else edge["end"]]
        label = (edge["label"] or "").replace(" [", "\\n[")
        found.append(f'{ends[0]} -> {ends[1]} [label="{label}"]')
    points = [f"{name} [shape=point width=0.12]" for name in ("begin", "end")]
    return "digraph {\n" + ";\n".join([*_STYLE, *points, *found]) + "\n}\n"


def floors(lines: str) -> str:
    """A flowchart of rooms on floors in Graphviz' language: the rooms of a floor stand side by side."""
    found: list[list[str]] = []
    for line in lines.splitlines():
        if line.lstrip().startswith("subgraph "):
            found.append([])
        elif room := _ROOM.match(line):
            label = f'<b>{room["name"]}</b><br/><font point-size="10">{room["duty"]}</font>'
            found[-1].append(f"{room['name']} [label=<{label}>]")
        elif not re.match(r"^ *(direction LR|end|floor\d+ --> floor\d+)$", line):
            raise ValueError(f"no floor, room or edge of a flowchart: {line}")
    ranks = [f"{{ rank=same; {'; '.join(rooms)} }}" for rooms in found]
    stairs = [[room.partition(" ")[0] for room in rooms] for rooms in found]
    edges = [f"{above[len(above) // 2]} -> {below[len(below) // 2]}" for above, below in pairwise(stairs)]
    return (
        "digraph {\n"
        + ";\n".join([*_STYLE[1:], "rankdir=TB bgcolor=transparent ranksep=0.3", *ranks, *edges])
        + "\n}\n"
    )


def drawn(text: str) -> str:
    """The page with its diagrams as pictures, whose lines have the colour of the text around them."""

    def picture(match: re.Match[str]) -> str:
        program = shutil.which("dot")
        if program is None:
            return f"```text\n{match['lines']}```"
        said = dot(match["lines"]) if match["kind"].startswith("state") else floors(match["lines"])
        ran = subprocess.run([program, "-Tsvg"], input=said, capture_output=True, text=True, check=True)
        svg = ran.stdout[ran.stdout.index("<svg") :]
        svg = re.sub(r'(stroke|fill)="black"', r'\1="currentColor"', svg).replace(
            "<text ", '<text fill="currentColor" '
        )
        svg = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?|\n(?=\n)", "", svg, flags=re.DOTALL)
        return f'<div class="saga-diagram">\n{svg.strip()}\n</div>'

    return _BLOCK.sub(picture, text)
