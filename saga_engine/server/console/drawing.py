"""The timeline and the graph of a saga as SVG. Places are shares of the width, so that nothing needs a style."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from saga_engine.server.console.html import Attributes, Html, Part, tag
from saga_engine.server.console.timeline import Axis, Mark, Row, Span
from saga_engine.server.console.words import Words

_LANE: Final = 9
_GAP: Final = 3
#: What spans all rows goes beyond its lanes; the row cuts it off at its own edge.
_BEYOND: Final = 40
#: The least width of a span, as a share of the axis.
_LEAST: Final = 0.004


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def row_svg(words: Words, row: Row, axis: Axis, marks: Sequence[Mark], now: int, *, turned: bool) -> Html:
    """The lanes of one step: what was done above, what was undone below."""
    height = _GAP + (2 if turned else 1) * (_LANE + _GAP) + (0 if turned else 2)
    parts: list[Part] = [_background(axis, height), _lines(axis, marks, height)]
    parts += [_span(words, span, axis, now, "forward") for span in row.forward]
    parts += [_span(words, span, axis, now, "undo") for span in row.undo]
    shape: Attributes = {
        "class": "lanes",
        "width": "100%",
        "height": height,
        "role": "img",
        "aria-label": spoken(words, row, now),
    }
    return tag("svg", shape, parts)


def spoken(words: Words, row: Row, now: int) -> str:
    """The lanes of a step in words."""
    told = []
    for direction, lane in (("forward", row.forward), ("undo", row.undo)):
        shown = [span_words(words, span, now) for span in lane[:12]]
        if shown:
            told.append(f"{words(f'lane.{direction}')}: {', '.join(shown)}")
    return "; ".join(told) or words("lane.nothing")


def span_words(words: Words, span: Span, now: int) -> str:
    """A span in words."""
    long = words.duration(max((now if span.stop is None else span.stop) - span.start, 0))
    number = f" {span.attempt}" if span.attempt > 1 and span.kind == "call" else ""
    end = f", {words(f'end.{span.end}')}" if span.end and span.kind in ("call", "probe") else ""
    going = f", {words('end.open')}" if span.stop is None else ""
    return f"{words(f'span.{span.kind}')}{number} {long}{end}{going}"


def _span(words: Words, span: Span, axis: Axis, now: int, lane: str) -> Html:
    stop = now if span.stop is None else span.stop
    top = _GAP if lane == "forward" else 2 * _GAP + _LANE
    left, right = axis.place(span.start), axis.place(stop)
    width = max(right - left, _LEAST)
    left = min(left, 1.0 - width)
    css = f"span {lane} {span.kind} {span.end or 'open'}"
    shape: Attributes = {
        "x": _percent(left),
        "width": _percent(width),
        "y": top,
        "height": _LANE,
        "rx": 2,
        "class": css,
    }
    return tag("rect", shape, tag("title", None, span_words(words, span, now)))


def _background(axis: Axis, height: int) -> list[Html]:
    return [
        tag(
            "rect",
            {
                "x": _percent(piece.at),
                "width": _percent(piece.width),
                "y": -_BEYOND,
                "height": height + 2 * _BEYOND,
                "class": "idle",
            },
        )
        for piece in axis.pieces
        if piece.idle
    ][:200]


def _lines(axis: Axis, marks: Sequence[Mark], height: int) -> list[Html]:
    lines = []
    for mark in marks[:50]:
        at = _percent(axis.place(mark.at))
        lines.append(
            tag("line", {"x1": at, "x2": at, "y1": -_BEYOND, "y2": height + _BEYOND, "class": f"mark {mark.kind}"})
        )
    return lines


#: The width of a character of the axis, as a share of the narrowest axis that is shown, and what is left free between.
_NARROW, _WIDE, _APART = 0.019, 0.034, 0.02


def axis_svg(words: Words, axis: Axis, start: int, marks: Sequence[Mark]) -> Html:
    """The axis above the rows: the time since the start, what was compressed, and the saga's own moments."""
    parts: list[Part] = []
    taken: list[tuple[float, float, int]] = []

    def write(at: float, what: str, css: str, y: int, *, anchor: str = "") -> None:
        """Write a text where it covers no other one of its row."""
        width = sum(_WIDE if ord(c) > 0x2E7F else _NARROW for c in what)
        anchor = anchor or ("start" if at < width / 2 else "end" if at > 1 - width / 2 else "middle")
        first = at - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        if any(first < stop + _APART and begin < first + width + _APART for begin, stop, row in taken if row == y):
            return
        taken.append((first, first + width, y))
        parts.append(tag("text", {"x": _percent(at), "y": y, "text-anchor": anchor, "class": css}, what))

    for mark in marks[:50]:
        at = axis.place(mark.at)
        line = _percent(at)
        parts.append(tag("line", {"x1": line, "x2": line, "y1": 16, "y2": 34, "class": f"mark {mark.kind}"}))
        write(at, words(f"mark.{mark.kind}"), f"mark-name {mark.kind}", 11)
    for piece in axis.pieces:
        if piece.idle:
            middle = piece.at + piece.width / 2
            shape: Attributes = {
                "x": _percent(piece.at),
                "width": _percent(piece.width),
                "y": 16,
                "height": 18,
                "class": "idle",
            }
            parts.append(tag("rect", shape))
            write(middle, words.duration(piece.stop - piece.start), "idle-name", 29)
    for piece in axis.pieces:
        if not piece.idle:
            write(piece.at, f"+{words.duration(piece.start - start)}", "tick", 29)
    return tag("svg", {"class": "axis", "width": "100%", "height": 34, "aria-hidden": "true"}, parts)


# --- the graph -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A step of the graph. ``deps`` and ``data``: the keys of those before it, all and those that it names."""

    key: str
    name: str
    tool: str
    kind: str
    status: str
    deps: Sequence[str]
    data: frozenset[str]


_WIDTH: Final = 176
_HEIGHT: Final = 48
_SPACE_X: Final = 20
_SPACE_Y: Final = 34


def graph_svg(words: Words, nodes: Sequence[Node], address: Callable[[str], str], chosen: str = "") -> Html:
    """The steps in layers, each below all that it waits for. Dependencies on steps that are not shown are left out."""
    places = _places(nodes)
    across = max((x for x, _ in places.values()), default=0) + 1
    down = max((y for _, y in places.values()), default=0) + 1
    width, height = across * (_WIDTH + _SPACE_X) + _SPACE_X, down * (_HEIGHT + _SPACE_Y) + _SPACE_Y // 2
    arrow = tag(
        "defs",
        None,
        tag(
            "marker",
            {
                "id": "arrow",
                "viewBox": "0 0 8 8",
                "refX": 7,
                "refY": 4,
                "markerWidth": 7,
                "markerHeight": 7,
                "orient": "auto",
            },
            tag("path", {"d": "M0 0 L8 4 L0 8 z", "class": "tip"}),
        ),
    )
    edges = [
        _edge(places[before], places[node.key], solid=before in node.data)
        for node in nodes
        for before in node.deps
        if before in places
    ]
    boxes = [_box(words, node, places[node.key], address(node.key), here=node.key == chosen) for node in nodes]
    shape: Attributes = {
        "class": "graph",
        "width": width,
        "height": height,
        "viewBox": f"0 0 {width} {height}",
        "role": "group",
    }
    svg = tag("svg", {**shape, "aria-label": words("graph.label", n=len(nodes))}, arrow, edges, boxes)
    return tag("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": words("tab.graph")}, svg)


def _places(nodes: Sequence[Node]) -> Mapping[str, tuple[float, float]]:
    """Column and layer of each step. A step stands near the middle of those that it waits for."""
    layer: dict[str, int] = {}
    wanted: dict[str, float] = {}
    rows: dict[int, list[str]] = {}
    shown = {node.key for node in nodes}
    by_key = {node.key: node for node in nodes}
    for key in _ordered(nodes):
        before = [each for each in by_key[key].deps if each in shown and each in layer]
        layer[key] = 1 + max((layer[each] for each in before), default=-1)
        rows.setdefault(layer[key], []).append(key)
    widest = max((len(row) for row in rows.values()), default=1)
    columns: dict[str, float] = {}
    for number in sorted(rows):
        row = rows[number]
        for at, key in enumerate(row):
            above = [columns[each] for each in by_key[key].deps if each in columns]
            wanted[key] = sum(above) / len(above) if above else at + (widest - len(row)) / 2
        row.sort(key=lambda key: wanted[key])
        start = (widest - len(row)) / 2
        for at, key in enumerate(row):
            columns[key] = start + at
    return {key: (columns[key], float(layer[key])) for key in layer}


def _ordered(nodes: Sequence[Node]) -> Sequence[str]:
    """The keys so that each stands behind those it waits for."""
    left = {node.key: set(node.deps) for node in nodes}
    known, order = set(left), []
    waiting = {key: deps & known for key, deps in left.items()}
    after: dict[str, list[str]] = {}
    for key, deps in waiting.items():
        for before in deps:
            after.setdefault(before, []).append(key)
    ready = [key for key, deps in waiting.items() if not deps]
    for key in ready:
        order.append(key)
        for following in after.get(key, ()):
            waiting[following].discard(key)
            if not waiting[following]:
                ready.append(following)
    return order


def _edge(source: tuple[float, float], target: tuple[float, float], *, solid: bool) -> Html:
    x1, y1 = _corner(source)
    x2, y2 = _corner(target)
    x1, x2, y1 = x1 + _WIDTH / 2, x2 + _WIDTH / 2, y1 + _HEIGHT
    bend = (y2 - y1) / 2
    path = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2 - 1:.0f}"
    return tag("path", {"d": path, "class": "edge" + ("" if solid else " order"), "marker-end": "url(#arrow)"})


def _corner(place: tuple[float, float]) -> tuple[float, float]:
    return _SPACE_X + place[0] * (_WIDTH + _SPACE_X), _SPACE_Y / 2 + place[1] * (_HEIGHT + _SPACE_Y)


def _box(words: Words, node: Node, place: tuple[float, float], address: str, *, here: bool) -> Html:
    x, y = _corner(place)
    css = f"node {node.status.lower()} {node.kind}" + (" here" if here else "")
    name = node.key if len(node.key) <= 22 else f"{node.key[:21]}…"
    tool = node.tool if len(node.tool) <= 24 else f"{node.tool[:23]}…"
    status = words.known("step", node.status) if node.status else words.known("kind", node.kind)
    parts: list[Part] = [
        tag("title", None, f"{node.key} · {node.name} · {node.tool} · {words.known('kind', node.kind)} · {status}"),
        tag("rect", {"x": x, "y": y, "width": _WIDTH, "height": _HEIGHT, "rx": 6, "class": "box"}),
        tag("rect", {"x": x, "y": y + 8, "width": 3, "height": _HEIGHT - 16, "rx": 1.5, "class": "side"}),
        tag("text", {"x": x + 12, "y": y + 20, "class": "name"}, name),
        tag("text", {"x": x + 12, "y": y + 37, "class": "under"}, f"{tool} · {status}"[:30]),
    ]
    if node.kind in ("pivot", "irreversible", "retriable"):
        sign = {"pivot": "◆", "irreversible": "!", "retriable": "→"}[node.kind]
        parts.append(tag("text", {"x": x + _WIDTH - 10, "y": y + 20, "text-anchor": "end", "class": "sign"}, sign))
    return tag("a", {"href": address, "class": css, "aria-current": "true" if here else None}, parts)
