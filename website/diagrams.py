"""Draws the state diagrams of the pages with Graphviz, where it is installed; else their text is shown."""

from __future__ import annotations

import re
import shutil
import subprocess

_BLOCK = re.compile(r"^```mermaid\nstateDiagram-v2\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE)
_EDGE = re.compile(r"^ *(?P<start>\[\*\]|\w+) --> (?P<end>\[\*\]|\w+)(?:: (?P<label>.+))?$")
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
    points = "node [shape=point width=0.12] begin end"
    return "digraph {\n" + ";\n".join([*_STYLE, *found, points]) + "\n}\n"


def drawn(text: str) -> str:
    """The page with its state diagrams as pictures, whose lines have the colour of the text around them."""

    def picture(match: re.Match[str]) -> str:
        program = shutil.which("dot")
        if program is None:
            return f"```text\n{match['lines']}```"
        ran = subprocess.run([program, "-Tsvg"], input=dot(match["lines"]), capture_output=True, text=True, check=True)
        svg = ran.stdout[ran.stdout.index("<svg") :]
        svg = re.sub(r'(stroke|fill)="black"', r'\1="currentColor"', svg).replace(
            "<text ", '<text fill="currentColor" '
        )
        svg = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?|\n(?=\n)", "", svg, flags=re.DOTALL)
        return f'<div class="saga-diagram">\n{svg.strip()}\n</div>'

    return _BLOCK.sub(picture, text)
