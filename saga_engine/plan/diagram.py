"""A plan as a text diagram: Mermaid for documents, DOT for graphviz. Pure.

Labels come from language models. All text of a plan stands in quoted labels, and every character with a meaning in
either language is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.values import printable
from saga_engine.plan.wait import awaited, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.plan.compiled import CompiledPlan, CompiledRollback, CompiledStep

_LABEL_CHARS: Final = 60
#: So many of the events that a step waits for are named.
_EVENTS: Final = 5
#: How a wait for several events is told.
_SEVERAL: Final = {"first": "wait for the first of", "all": "wait for all of"}
#: Fill and border by status; the border alone must tell them apart where colours are not visible.
_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "PENDING": ("#f6f8fa", "#8c959f"),
    "RUNNING": ("#ddf4ff", "#0969da"),
    "WAITING": ("#ddf4ff", "#54aeff"),
    "SUCCEEDED": ("#dafbe1", "#1a7f37"),
    "FAILED": ("#ffebe9", "#cf222e"),
    "IN_DOUBT": ("#fbefff", "#8250df"),
    "COMPENSATING": ("#fff8c5", "#9a6700"),
    "COMPENSATED": ("#fff1e5", "#bc4c00"),
    "COMPENSATION_FAILED": ("#ffcecb", "#a40e26"),
    "ESCALATED": ("#ffd8d3", "#82071e"),
    "RESOLVED": ("#d8dee4", "#424a53"),
    "BLOCKED": ("#ffebe9", "#82071e"),
    "SKIPPED": ("#ffffff", "#d0d7de"),
}
#: The outline of a step by its kind: Mermaid's brackets and graphviz's shape.
_SHAPES: Final[Mapping[str, tuple[str, str, str]]] = {
    "compensatable": ("[", "]", "box"),
    "pivot": ("{{", "}}", "hexagon"),
    "retriable": ("[[", "]]", "box3d"),
    "irreversible": ("[[", "]]", "box3d"),
    "read": ("([", "])", "ellipse"),
    "compensation": ("[", "]", "box"),
    "finally": ("[/", "/]", "parallelogram"),
}


def mermaid(plan: CompiledPlan, statuses: Mapping[str, str] | None = None) -> str:
    """A Mermaid flowchart. ``statuses`` by step key colours the steps.

    A solid arrow is a dependency that the step itself names; a dotted arrow follows from list order only.
    """
    lines = ["flowchart TD"]
    for step in plan.all_steps():
        opening, closing, _ = _SHAPES[_kind(step)]
        label = "<br/>".join(_mermaid_text(line) for line in _label(step, statuses))
        lines.append(f'    s{step.index}{opening}"{label}"{closing}')
    lines += ['    e(["the end is certain"])'] if _last(plan) else []
    for step in plan.all_steps():
        for before in step.deps:
            arrow = "-->" if before in step.data_deps else "-.->"
            lines.append(f"    s{before} {arrow} s{step.index}")
    lines += [f"    {before} -.-> {after}" for before, after in _around_the_end(plan)]
    for status, members in _by_status(plan, statuses).items():
        fill, border = _COLOURS[status]
        lines.append(f"    classDef {status} fill:{fill},stroke:{border},color:#1f2328")
        lines.append(f"    class {','.join(f's{index}' for index in members)} {status}")
    return "\n".join(lines)


def dot(plan: CompiledPlan, statuses: Mapping[str, str] | None = None) -> str:
    """The same as a graphviz digraph."""
    lines = [
        "digraph saga {",
        "    rankdir=TB",
        '    node [fontname="sans-serif", fontsize=11, style=filled, fillcolor="#f6f8fa", color="#8c959f"]',
        '    edge [color="#57606a"]',
    ]
    for step in plan.all_steps():
        label = "\\n".join(_dot_text(line) for line in _label(step, statuses))
        colour = _COLOURS.get(_status(step, statuses))
        paint = f', fillcolor="{colour[0]}", color="{colour[1]}"' if colour else ""
        lines.append(f'    s{step.index} [label="{label}", shape={_SHAPES[_kind(step)][2]}{paint}]')
    lines += ['    e [label="the end is certain", shape=plaintext, style=""]'] if _last(plan) else []
    for step in plan.all_steps():
        for before in step.deps:
            style = "" if before in step.data_deps else " [style=dotted]"
            lines.append(f"    s{before} -> s{step.index}{style}")
    lines += [f"    {before} -> {after} [style=dotted]" for before, after in _around_the_end(plan)]
    return "\n".join([*lines, "}"])


def _last(plan: CompiledPlan) -> list[CompiledStep]:
    """The steps of ``finally``, whether or not they run already."""
    return [step for step in plan.all_steps() if step.kind == "finally"]


def _around_the_end(plan: CompiledPlan) -> Iterator[tuple[str, str]]:
    """The arrows to and from the point at which the steps of ``finally`` begin."""
    last = _last(plan)
    for step in plan.steps if last else ():
        if step.kind not in {"finally", "compensation"} and not step.dependents:
            yield f"s{step.index}", "e"
    for step in last:
        if not step.deps:
            yield "e", f"s{step.index}"


def undo_text(rollback: CompiledRollback) -> str:
    """The tools of an undo, in order."""
    calls = (rollback, *rollback.then)
    text = ", then ".join(f"{call.tool} for each item" if call.each is not None else call.tool for call in calls)
    return text if rollback.absent is None else f"{text}; if there was nothing: {undo_text(rollback.absent)}"


def _label(step: CompiledStep, statuses: Mapping[str, str] | None) -> list[str]:
    call = _acting(step)
    tool = f"{call.tool}, for each item" if step.each is not None else step.tool or _builtin(step)
    named = step.name not in (step.key, call.tool or step.builtin)
    lines = [f"{step.key} · {step.name}" if named else step.key, tool]
    lines += _events(step)
    lines += [f"or: {each.tool}" for each in step.fallbacks if each.way == "tool"]
    if step.when is not None:
        lines.append("only if its conditions hold")
    if call.rollback is not None:
        lines.append("undo: that of its steps" if step.child is not None else f"undo: {undo_text(call.rollback)}")
    if step.late is not None:
        lines.append(f"too late: {step.late.tool}")
    status = _status(step, statuses)
    if status:
        lines.append(status)
    return [printable(line, _LABEL_CHARS) for line in lines]


def _acting(step: CompiledStep) -> CompiledStep:
    """The step, or what a list calls for each of its items: until these are steps, it stands for them."""
    return step if step.each is None else step.each.item


def _kind(step: CompiledStep) -> str:
    """The kind by which a step is drawn: that of a list is its items'."""
    return _acting(step).kind


def _wait(step: CompiledStep) -> Mapping[str, Any] | None:
    """What a step waits for, as the plan says it; None: it is no wait."""
    body = step.params.raw.get("wait") if step.builtin == "wait" else None
    return body if isinstance(body, Mapping) else None


def _events(step: CompiledStep) -> list[str]:
    """The events that a step waits for, a line each."""
    body = _wait(step)
    found = [] if body is None else awaited(body)
    lines = [
        f"{each['event']}, key {each['key']}" if each.get("key") is not None else each["event"]
        for each in found[:_EVENTS]
    ]
    return [*lines, f"and {len(found) - _EVENTS} more"] if len(found) > _EVENTS else lines


def _builtin(step: CompiledStep) -> str:
    """The word of a built-in step; a child saga is drawn as one step that names its own."""
    body = _wait(step)
    if body is not None:
        return _SEVERAL.get(several(body), "wait")
    if step.child is None:
        return step.builtin
    keys = ", ".join(inner.key for inner in step.child.steps)
    return f"{step.builtin} {step.child.template}".rstrip() + f": {keys}"


def _status(step: CompiledStep, statuses: Mapping[str, str] | None) -> str:
    return statuses.get(step.key, "") if statuses else ""


def _by_status(plan: CompiledPlan, statuses: Mapping[str, str] | None) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for step in plan.all_steps():
        status = _status(step, statuses)
        if status in _COLOURS:
            found.setdefault(status, []).append(step.index)
    return found


def _mermaid_text(text: str) -> str:
    # Mermaid's only escape within quotes is its character reference: '#35;' is '#'.
    return "".join(c if c.isalnum() or c in " _-.,:·…" or ord(c) > 127 else f"#{ord(c)};" for c in text)


def _dot_text(text: str) -> str:
    # Graphviz reads HTML references in labels, and a backslash begins one of its own escapes.
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
