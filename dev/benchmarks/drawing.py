"""A plot of the benchmark as SVG: bars on a logarithmic scale, one panel for each figure. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 860
_LEFT = 210
_RIGHT = 90
_BAR = 17
_STEP = 23
_TITLE = 44
_AXIS = 34
_COLOURS = {"floor": "#9aa5b1", "engine": "#1f6feb", "peer": "#c9894a", "fleeting": "#e3cdb4"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One entrant in one panel; ``kind`` is a key of the colours."""

    title: str
    value: float
    kind: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of all entrants, in the order in which they are drawn."""

    title: str
    bars: Sequence[Bar]


def draw(panels: Sequence[Panel], caption: str) -> str:
    """The whole picture."""
    parts: list[str] = []
    top = 12.0
    for panel in panels:
        parts += _panel(panel, top)
        top += _TITLE + len(panel.bars) * _STEP + _AXIS
    height = round(top + 24)
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts.append(_text(_WIDTH / 2, top + 8, caption, 11, anchor="middle", colour="#57606a"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif" role="img">',
            f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _panel(panel: Panel, top: float) -> list[str]:
    low = math.floor(math.log10(min(bar.value for bar in panel.bars) / 2))  # the shortest bar is one, too
    high = math.ceil(math.log10(max(bar.value for bar in panel.bars)))
    high = max(high, low + 1)
    first = top + _TITLE
    bottom = first + len(panel.bars) * _STEP

    def place(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    parts = [_text(16, top + 26, panel.title, 14, weight="bold")]
    for power in range(low, high + 1):
        at = place(10.0**power)
        parts.append(f'<line x1="{at:.1f}" y1="{first - 4}" x2="{at:.1f}" y2="{bottom}" stroke="#d8dee4"/>')
        parts.append(_text(at, bottom + 14, f"{10**power:,}", 10, anchor="middle", colour="#57606a"))
    for index, bar in enumerate(panel.bars):
        at = first + index * _STEP
        paint = f'fill="{_COLOURS[bar.kind]}"'
        if bar.kind == "fleeting":
            paint += ' stroke="#8a6d4b" stroke-dasharray="3 2"'
        # A value at the very edge of the scale still shows.
        width = max(place(bar.value) - _LEFT, 2)
        parts.append(f'<rect x="{_LEFT}" y="{at}" width="{width:.1f}" height="{_BAR}" rx="2" {paint}/>')
        weight = "bold" if bar.kind == "engine" else "normal"
        parts.append(_text(_LEFT - 8, at + 13, bar.title, 12, anchor="end", weight=weight))
        parts.append(_text(_LEFT + width + 6, at + 13, number(bar.value), 11, weight=weight))
    return parts


def _text(
    x: float, y: float, words: str, size: int, *, anchor: str = "start", weight: str = "normal", colour: str = "#1f2328"
) -> str:
    bold = ' font-weight="bold"' if weight == "bold" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{bold} fill="{colour}">'
        f"{escape(words)}</text>"
    )


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"
