"""A plan in the making: each step with its tool, its templates, its kind and its undo, before anything is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saga_engine.plan.bindings import Binder, Template, UndoParams
from saga_engine.plan.problems import Problems
from saga_engine.plan.values import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saga_engine.plan.compiled import Kind
    from saga_engine.plan.model import Plan, Step
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tooling import ToolCatalog, ToolSpec


@dataclass(slots=True)
class DraftRollback:
    """How a step is to be undone; ``registered`` if the plan does not say it and the tool's registration does."""

    tool: str
    spec: ToolSpec | None
    params: Template | UndoParams
    registered: bool


@dataclass(slots=True)
class DraftStep:
    """One step. ``waits`` are the steps it names itself, by ``depends_on`` or by a binding in its params."""

    index: int
    step: Step
    key: str
    path: Path
    spec: ToolSpec | None
    kind: Kind
    kind_known: bool
    params: Template
    rollback: DraftRollback | None
    waits: set[int] = field(default_factory=set)
    deps: tuple[int, ...] = ()


@dataclass(slots=True)
class Draft:
    """A whole plan. ``judged``: its tools are to be checked, because it has not been accepted before."""

    plan: Plan
    input: dict[str, Any]
    catalog: ToolCatalog | None
    judged: bool
    steps: list[DraftStep]
    by_key: dict[str, int]
    problems: Problems


def draft(
    plan: Plan,
    catalog: ToolCatalog | None,
    given: Mapping[str, Any] | None,
    undos: Mapping[str, str] | None,
    reads: Collection[str] | None,
) -> Draft:
    """Put a plan together; bindings and keys that make no sense are problems of the draft."""
    problems = Problems()
    by_key: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        if step.key in by_key:
            first = by_key[step.key]
            message = f'the step id {step.key} is that of steps[{first}] too (1 and "1" are the same id)'
            problems.add("step-duplicate", ("steps", index, "step_id"), message, "give each step an id of its own")
        else:
            by_key[step.key] = index
    binder = Binder(by_key, problems)
    steps: list[DraftStep] = []
    for index, step in enumerate(plan.steps):
        path: Path = ("steps", index)
        spec = catalog.spec(step.tool) if catalog is not None else None
        kind, kind_known = _kind(step, spec, reads)
        params = binder.template(step.params, step.key, (*path, "params"))
        made = DraftStep(index, step, step.key, path, spec, kind, kind_known, params, None)
        made.rollback = _rollback(made, catalog, binder, undos)
        steps.append(made)
    return Draft(
        plan=plan,
        input={**plan.input, **plain(dict(given))} if given else plan.input,
        catalog=catalog,
        judged=catalog is not None and undos is None and reads is None,
        steps=steps,
        by_key=by_key,
        problems=problems,
    )


def _kind(step: Step, spec: ToolSpec | None, reads: Collection[str] | None) -> tuple[Kind, bool]:
    """What a step is, and whether that is known or assumed."""
    if step.kind is not None:
        return step.kind, True
    if reads is not None:
        return ("read" if step.key in reads else "compensatable"), True
    if spec is None:
        return "compensatable", step.rollback is not None
    return ("read" if spec.effect == "read" else "compensatable"), True


def _rollback(
    made: DraftStep, catalog: ToolCatalog | None, binder: Binder, undos: Mapping[str, str] | None
) -> DraftRollback | None:
    given = made.step.rollback
    if given is not None:
        spec = catalog.spec(given.tool) if catalog is not None else None
        params = binder.template(given.params, made.key, (*made.path, "rollback", "params"))
        return DraftRollback(given.tool, spec, params, registered=False)
    if made.kind != "compensatable":
        return None
    # What was journalled when the saga began counts, whatever the tool's registration says today.
    registered = undos.get(made.key) if undos is not None else made.spec.undo if made.spec is not None else None
    if registered is None:
        return None
    spec = catalog.spec(registered) if catalog is not None else None
    undo = UndoParams(spec.input_schema if spec is not None else None, made.key, made.params)
    return DraftRollback(registered, spec, undo, registered=True)
