"""What a planner is shown of steps that it writes again, and what it may do with them in another way to the goal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.bindings import Template
from saga_engine.plan.child import KIND as CHILD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from saga_engine.plan.compiled import CompiledStep

_BOUND: Final = re.compile(r"\$output\.step_([A-Za-z0-9_-]+)")
#: Built-in steps that an other way does not leave out silently: somebody was to decide, or to pay.
_ASKED: Final = ("ask", "wait")


def parts_of(steps: Iterable[CompiledStep]) -> tuple[str, ...]:
    """The parts of the plan format that steps use, by the names of a planner's ``may_use``: the other way may, too."""
    return tuple(sorted({part for step in steps for part in _parts(step)}))


def _parts(step: CompiledStep) -> Iterator[str]:
    if step.builtin and step.builtin != CHILD:
        yield step.builtin
    if step.when is not None:
        yield "when"
    if step.failed_when is not None:
        yield "failed_when"
    if step.continues:
        yield "on_error"
    if step.kind == "irreversible":
        yield "irreversible"


def options_of(step: CompiledStep, shown: Callable[[Any], Any]) -> dict[str, Any]:
    """The conditions, the undo and the substitutes of a step, as its plan has them; ``shown`` masks a value."""
    found: dict[str, Any] = {}
    for name, conditions in (("when", step.when), ("failed_when", step.failed_when)):
        if conditions is not None:
            found[name] = shown(conditions.raw)
    if step.continues:
        found["on_error"] = "continue"
    undo = step.rollback
    if undo is not None and undo.tool and isinstance(undo.params, Template) and not undo.declared:
        found["rollback"] = {"tool": undo.tool, "params": shown(undo.params.raw)}
    others = [{"tool": each.tool, "params": shown(each.params.raw)} for each in step.fallbacks if each.way == "tool"]
    return found | ({"fallback": others} if others else {})


def unasked(
    gone: Sequence[CompiledStep], steps: Sequence[Mapping[str, Any]], reasons: Mapping[str, Any]
) -> list[CompiledStep]:
    """The questions to people and waits for events among the steps that are ``gone`` and that the answer leaves out."""
    found: list[CompiledStep] = []
    for word in _ASKED:
        again = sum(1 for step in steps if step.get(word) is not None)
        found += [step for step in gone if step.builtin == word and step.key not in reasons][again:]
    return found


def changed_before(steps: Sequence[Mapping[str, Any]], index: int, writes: Callable[[str], bool]) -> bool:
    """Whether a new write certainly comes before this step: then its call may end otherwise than the last time."""
    keys = {str(step.get("step_id")): at for at, step in enumerate(steps)}
    before: set[int] = set()
    todo = [index]
    while todo:
        at = todo.pop()
        named = steps[at].get("depends_on")
        waits = {keys.get(str(each), -1) for each in named} if isinstance(named, list) else {at - 1}
        waits |= {keys.get(key, -1) for key in _BOUND.findall(repr(steps[at].get("params")))}
        todo += waits - before - {-1, index}
        before |= waits - {-1, index}
    return any(steps[at].get("tool") and writes(str(steps[at]["tool"])) for at in before)
