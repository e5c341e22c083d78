"""Fields of outputs that are redacted at rest (``ToolSpec.redact``): no plan may need one after the call.

A rule is a dotted path in the output: ``card.number``, ``items.*.ssn``; ``*`` is any one field or item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.plan.undo_params import UndoParams
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from saga_engine.plan.bindings import Place
    from saga_engine.plan.compiled import CompiledStep, Serving
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.jsonpath import Tail
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolSpec

MAX_RULES: Final = 50
MAX_PARTS: Final = 32
_CODE: Final = "binding-redacted"
_ANY: Final = "*"
#: What one part of a binding's path may name; None: anything.
_Names = frozenset[str] | None


def fault_of(rules: Sequence[str]) -> str:
    """Why these are no rules; empty: they are."""
    if len(rules) > MAX_RULES:
        return f"{len(rules)} rules; {MAX_RULES} are allowed"
    for rule in rules:
        parts = rule.split(".") if isinstance(rule, str) else []
        if not parts or not all(parts) or "**" in parts or len(parts) > MAX_PARTS:
            return f"{str(rule)[:200]!r} is no path of fields"
    return ""


def check_redacted(made: Draft, step: CompiledStep, path: Path) -> None:
    """Add a problem for each binding of this step, and each undo, whose value would hold a redacted field."""
    for template, _, base, _ in made.bound.get(step.index, ()):
        for place in template.places:
            if place.source == "output":
                source = made.steps[made.by_key[place.step]]
                specs = [source.spec, *(each.spec for each in source.fallbacks if each.way == "tool")]
                names: Sequence[_Names] = _names(place.tail)
                if source.index in made.each and source is not step:
                    names = _of_item(names)
            elif place.source == "before" and step.before is not None:
                specs, names = [step.before.spec], _names(place.tail)
            else:
                continue
            _refuse(made, place, specs, names, (*base, *place.path))
    calls: list[Serving] = [step, *(each for each in step.fallbacks if each.way == "tool")]
    for call in calls:
        _check_undo(made, call, path)


def _refuse(made: Draft, place: Place, specs: Sequence[ToolSpec | None], names: Sequence[_Names], path: Path) -> None:
    for spec in specs:
        for rule in spec.redact if spec is not None else ():
            if spec is not None and _meets(rule, names):
                message = f"{cut(place.text, 120)}: {cut(rule, 80)} in the output of {cut(spec.name, 80)} is redacted"
                hint = "the journal never has it: bind fields beside it, or call a tool that needs no such value"
                made.problems.add(_CODE, path, message, hint)
                return


def _check_undo(made: Draft, call: Serving, path: Path) -> None:
    """An undo gets neither redacted fields of the output, nor those of an image."""
    before, spec = call.before, call.spec
    if spec is None:
        return
    if before is not None:
        for shown in (before.spec, spec if before.after == "output" else None):
            if shown is not None and shown.redact:
                message = f"{cut(shown.name, 80)} shows what {cut(call.tool, 80)} changes, and its output is redacted"
                hint = "an undo restores what was read: use a read without 'redact'"
                made.problems.add(_CODE, (*path, "tool"), message, hint)
                return
    undo = call.rollback
    if undo is None or undo.spec is None or not isinstance(undo.params, UndoParams):
        return
    for name in undo.spec.input_schema.get("properties") or ():
        rule = next((rule for rule in spec.redact if _meets(rule, (frozenset({name}),))), "")
        if rule:
            message = f"the undo {cut(undo.tool, 80)} takes {name} from the output, where {cut(rule, 80)} is redacted"
            hint = "give the step a rollback with params that it has, or do not redact that field"
            made.problems.add(_CODE, (*path, "tool"), message, hint)


def _meets(rule: str, names: Sequence[_Names]) -> bool:
    """Whether the rule names something at, above or below the end of this path."""
    return all(
        part == _ANY or found is None or part in found for part, found in zip(rule.split("."), names, strict=False)
    )


def _names(tail: Tail | None) -> list[_Names]:
    """The parts of a path, as far as they are certain: what follows a search in depth may be anything."""
    return list(_parts(tail)) if tail is not None else []


def _parts(tail: Tail) -> Iterator[_Names]:
    for name in tail.path:
        yield frozenset({str(name)})
    for selector in tail.selectors:
        if selector.what == "pick":
            yield frozenset(map(str, selector.names))
        elif selector.what in ("every", "slice"):
            yield None
        else:
            return


def _of_item(names: Sequence[_Names]) -> Sequence[_Names]:
    """The path in the output of one item, of a path in the list of them, or in what collects them."""
    if names and names[0] is not None and names[0] & {"outputs", "failed"}:
        names = names[1:]
    return names[1:]
