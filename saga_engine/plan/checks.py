"""Everything that can be known to be wrong with a plan before anything runs, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saga_engine.plan import graph, shapes, tails
from saga_engine.plan.bindings import Template
from saga_engine.plan.draft import draft
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.errors import Problem
    from saga_engine.plan.bindings import Place
    from saga_engine.plan.draft import Draft, DraftStep
    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tooling import ToolCatalog, ToolSpec


def check_plan(plan: Plan, catalog: ToolCatalog, *, input: Mapping[str, Any] | None = None) -> list[Problem]:  # noqa: A002
    """All problems of a plan, at most 100 of them listed; an empty list for a plan that may run.

    ``input`` adds to the plan's own by key. Raises ``ValueNotJson`` if it is not JSON.
    """
    made = draft(plan, catalog, input, None, None)
    examine(made)
    return made.problems.listed()


def examine(made: Draft) -> None:
    """Find what is wrong with a draft, and settle the order of its steps."""
    for step in made.steps:
        _check_tools(made, step)
        _check_inputs(made, step)
    _check_order(made)
    for step in made.steps:
        _check_kind(made, step)
    _check_pivot(made)


# --- tools and params ----------------------------------------------------------------------------------------------


def _check_tools(made: Draft, step: DraftStep) -> None:
    if not made.judged:
        return
    rollback = step.rollback
    if step.spec is None:
        _unknown_tool(made, (*step.path, "tool"), step.step.tool, f"there is no tool {cut(step.step.tool, 80)}")
    else:
        _check_params(made, step.spec, step.params, (*step.path, "params"))
    if rollback is None:
        return
    if rollback.spec is None:
        if rollback.registered:
            message = f"the registered undo of {cut(step.step.tool, 80)}, {cut(rollback.tool, 80)}, is no tool"
            _unknown_tool(made, (*step.path, "tool"), rollback.tool, message)
        else:
            message = f"there is no tool {cut(rollback.tool, 80)}"
            _unknown_tool(made, (*step.path, "rollback", "tool"), rollback.tool, message)
    elif isinstance(rollback.params, Template):
        _check_params(made, rollback.spec, rollback.params, (*step.path, "rollback", "params"))
    else:
        _check_undo(made, step, rollback.spec)


def _unknown_tool(made: Draft, path: Path, name: str, message: str) -> None:
    if made.problems.full() or made.catalog is None:
        made.problems.skip(1)
        return
    known = list(made.catalog.names())
    made.problems.add(
        "tool-unknown", path, message, made.problems.did_you_mean(name, known) or known_names(known, "tools")
    )


def _check_undo(made: Draft, step: DraftStep, undo: ToolSpec) -> None:
    """A registered undo must be able to get what it requires."""
    if step.spec is None or step.spec.output_schema is None:
        return
    required = undo.input_schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in step.params.raw and shapes.locate(step.spec.output_schema, (name,)) is shapes.ABSENT:
            message = f"the registered undo {undo.name} requires '{name}', which is neither a param nor returned"
            hint = "give the step a rollback with params of its own"
            made.problems.add("undo-unfillable", (*step.path, "tool"), message, hint)


def _check_params(made: Draft, spec: ToolSpec, params: Template, base: Path) -> None:
    """Params against the tool's schema. What a binding will bring is judged by its type alone, if that is known."""
    unknown = {place.path: place for place in params.places if not _known(made, place)}
    found = spec.check_params(params.sample(made.input))
    if found:
        above = {path[:length] for path in unknown for length in range(len(path))}
        for path, message in found:
            if any(path[:length] in unknown for length in range(len(path) + 1)):
                continue
            # The fault may be one of a value that is not known yet; the call itself is checked again.
            if path in above and shapes.judges_whole(spec.input_schema, path):
                continue
            if made.problems.full():
                made.problems.skip(1)
                continue
            names = list(_properties(spec.input_schema))
            hint = known_names(names, f"params of {printable(spec.name, 80)}") if names else ""
            made.problems.add("params-invalid", (*base, *path), printable(message, 300), hint)
    for place in unknown.values():
        _check_type(made, spec, place, base)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _known(made: Draft, place: Place) -> bool:
    """Whether the plan's input alone tells the value of a whole param."""
    if place.source != "input" or place.embedded or place.tail is None:
        return False
    try:
        tails.find(made.input, place.tail)
    except tails.Mismatch:
        return False
    return True


def _check_type(made: Draft, spec: ToolSpec, place: Place, base: Path) -> None:
    path = (*base, *place.path)
    brings = _output_types(made, place, path) if place.source == "output" else None
    if place.embedded or place.source in {"saga", "key", "secret"}:
        brings = frozenset({"string"})
    if brings is None:
        return
    node = shapes.locate(spec.input_schema, place.path)
    wants = None if isinstance(node, shapes.Absent) else shapes.types(spec.input_schema, node)
    if wants is not None and brings.isdisjoint(wants):
        message = f"{cut(place.text, 120)} brings {_one_of(brings)}, and {spec.name} wants {_one_of(wants)}"
        made.problems.add("binding-type", path, printable(message, 400), "bind another value, or convert it by a tool")


def _output_types(made: Draft, place: Place, path: Path) -> frozenset[str] | None:
    """The types that a binding to an output may bring; it is a problem if the output cannot have such a value."""
    source = made.steps[made.by_key[place.step]].spec
    if source is None or source.output_schema is None or (place.tail is not None and place.tail.selectors):
        return None
    node = shapes.locate(source.output_schema, place.tail.path if place.tail is not None else ())
    if isinstance(node, shapes.Absent):
        names = list(_properties(source.output_schema))
        hint = known_names(names, f"fields of what {printable(source.name, 80)} returns")
        message = f"{cut(place.text, 120)}: the output of step {place.step} has no such value"
        made.problems.add("binding-path-absent", path, message, hint)
        return None
    return shapes.types(source.output_schema, node)


def _one_of(types: frozenset[str]) -> str:
    return " or ".join(
        f"{'an' if name[:1] in 'aio' else 'a'} {name}" if name != "null" else name for name in sorted(types)
    )


# --- bindings and order --------------------------------------------------------------------------------------------


def _check_inputs(made: Draft, step: DraftStep) -> None:
    templates = [(step.params, (*step.path, "params"))]
    if step.rollback is not None and isinstance(step.rollback.params, Template):
        templates.append((step.rollback.params, (*step.path, "rollback", "params")))
    for template, base in templates:
        for place in template.places:
            if place.source != "input" or place.tail is None:
                continue
            try:
                tails.find(made.input, place.tail)
            except tails.Mismatch as mismatch:
                message = (
                    f"{cut(place.text, 120)} has no single value in the plan's input: {printable(str(mismatch), 300)}"
                )
                hint = "give it in the plan's 'input' or when the plan is submitted"
                made.problems.add("binding-input-missing", (*base, *place.path), message, hint)


def _check_order(made: Draft) -> None:
    """Settle what each step waits for, then ask whether that can be, and whether each undo has what it needs."""
    for step in made.steps:
        _settle(made, step)
    deps = [step.deps for step in made.steps]
    ordered = graph.sort(deps)
    if len(ordered) < len(deps):
        for cycle in graph.cycles(deps, ordered):
            keys = [made.steps[index].key for index in [*cycle[:10], cycle[0]]]
            dots = " … → " if len(cycle) > 10 else " → "
            message = f"these steps wait for each other: {' → '.join(keys[:-1])}{dots}{keys[-1]}"
            path = (*made.steps[cycle[0]].path, "depends_on")
            made.problems.add("graph-cycle", path, message, "take out one 'depends_on' or binding")
        return
    _check_undo_outputs(made, deps, ordered)


def _settle(made: Draft, step: DraftStep) -> None:
    named = step.step.depends_on
    for position, wanted in enumerate(named or ()):
        before = made.by_key.get(str(wanted))
        if before is None:
            known = list(made.by_key) if not made.problems.full() else []
            hint = made.problems.did_you_mean(str(wanted), known) or known_names(known, "steps")
            made.problems.add(
                "depends-on-unknown", (*step.path, "depends_on", position), f"there is no step {wanted}", hint
            )
        else:
            step.waits.add(before)
    for place in step.params.places:
        if place.source != "output":
            continue
        before = made.by_key[place.step]
        if before == step.index or (named is None and before > step.index):
            what = "its own output" if before == step.index else f"the output of step {place.step}, which comes later"
            hint = "bind a step before it in the list, or say with 'depends_on' what this step waits for"
            message = f"{cut(place.text, 120)}: step {step.key} cannot have {what}"
            made.problems.add("binding-not-before", (*step.path, "params", *place.path), message, hint)
        else:
            step.waits.add(before)
    deps = step.waits if named is not None or step.index == 0 else step.waits | {step.index - 1}
    step.deps = tuple(sorted(deps))


def _check_undo_outputs(made: Draft, deps: list[tuple[int, ...]], ordered: list[int]) -> None:
    before: list[int] | None = None
    for step in made.steps:
        if step.rollback is None or not isinstance(step.rollback.params, Template):
            continue
        for place in step.rollback.params.places:
            needed = made.by_key[place.step] if place.source == "output" else step.index
            if needed == step.index:
                continue
            if before is None:
                before = graph.ancestors(deps, ordered)
            if not before[step.index] >> needed & 1:
                message = f"{cut(place.text, 120)}: step {place.step} may not have run when step {step.key} is undone"
                hint = f"bind step {step.key} itself, or make it wait for step {place.step}"
                path = (*step.path, "rollback", "params", *place.path)
                made.problems.add("rollback-needs-output", path, message, hint)


# --- kinds ---------------------------------------------------------------------------------------------------------


def _check_kind(made: Draft, step: DraftStep) -> None:
    explicit = step.step.kind
    has_rollback = step.step.rollback is not None
    reads = step.spec is not None and step.spec.effect == "read" and made.judged
    if has_rollback and (reads or step.kind == "read"):
        message = f"step {step.key} reads, so there is nothing to undo"
        made.problems.add("rollback-on-read", (*step.path, "rollback"), message, "leave the rollback out")
    elif has_rollback and step.kind in {"pivot", "retriable"}:
        message = f"a {step.kind} step is never undone, and this one has a rollback"
        made.problems.add("kind-contradiction", (*step.path, "kind"), message, "leave out the kind or the rollback")
    if not made.judged or step.spec is None:
        return
    tool = cut(step.step.tool, 80)
    if explicit == "read" and not reads:
        message = f"the step says that it reads, and its tool {tool} writes"
        hint = "leave out the kind, or declare the tool with effect='read'"
        made.problems.add("kind-contradiction", (*step.path, "kind"), message, hint)
    elif explicit == "compensatable" and reads:
        message = f"the step says that it can be undone, and its tool {tool} only reads"
        made.problems.add("kind-contradiction", (*step.path, "kind"), message, "leave out the kind")
    elif step.kind == "compensatable" and step.rollback is None:
        hint = (
            'give it a rollback, register an undo for its tool, or say "kind": "pivot" and make it the last such step'
        )
        if explicit is None:
            message = f"step {step.key} writes by {tool}, and nothing says how that is undone"
            made.problems.add("rollback-missing", step.path, message, hint)
        else:
            message = f"step {step.key} says that it can be undone, and nothing says how"
            made.problems.add("kind-contradiction", (*step.path, "kind"), message, hint)


def _check_pivot(made: Draft) -> None:
    pivots = [step for step in made.steps if step.kind == "pivot"]
    for second in pivots[1:]:
        message = f"a plan has one point of no return, and step {pivots[0].key} is it"
        made.problems.add(
            "pivot-second", (*second.path, "kind"), message, "split the plan, or give this step a rollback"
        )
    deps = [step.deps for step in made.steps]
    if len(graph.sort(deps)) < len(deps):
        return  # there is no before and after in a cycle
    before: set[int] = set()
    after: set[int] = set()
    if pivots:
        before = graph.reach(pivots[0].index, deps)
        after = graph.reach(pivots[0].index, graph.dependents(deps))
    for step in made.steps:
        if step.kind == "retriable" and step.index not in after:
            message = f"step {step.key} is retriable, and no pivot comes before it"
            hint = "retriable is for steps after the pivot; give it a rollback instead"
            made.problems.add("kind-retriable-before-pivot", (*step.path, "kind"), message, hint)
        elif pivots and step.kind == "compensatable" and step.kind_known and step.index not in before:
            message = f"step {step.key} can be undone and may run after the pivot, step {pivots[0].key}, which cannot"
            hint = 'move the pivot last: make it wait for every step that can be undone; or say "kind": "retriable"'
            made.problems.add("pivot-not-last", step.path, message, hint)
