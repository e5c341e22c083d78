"""A plan before its checks: each step with its tool, its templates, its kind and its undo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saga_engine.plan.bindings import Binder, Template, UndoParams
from saga_engine.plan.problems import Problems
from saga_engine.plan.values import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saga_engine.plan.compiled import Kind
    from saga_engine.plan.model import Fallback, Plan, Rollback, Step
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec


@dataclass(slots=True)
class DraftRollback:
    """How to undo a step; ``registered`` if the tool's registration says it and not the plan."""

    tool: str
    spec: ToolSpec | None
    params: Template | UndoParams
    registered: bool


@dataclass(slots=True)
class DraftFallback:
    """The replacement for a step; without a tool of its own, ``params`` are the step's."""

    fallback: Fallback
    path: Path
    spec: ToolSpec | None
    params: Template
    rollback: DraftRollback | None


@dataclass(slots=True)
class DraftStep:
    """One step. ``waits`` are the steps that it names itself, by ``depends_on`` or by a binding in its params.

    ``to_check``: its tools are checked, because it has not been accepted before. ``compensates``: the index of the step
    that it compensates for.
    """

    index: int
    step: Step
    key: str
    path: Path
    spec: ToolSpec | None
    kind: Kind
    kind_known: bool
    params: Template
    rollback: DraftRollback | None
    to_check: bool
    compensates: int | None = None
    resource: Template | None = None
    fallbacks: list[DraftFallback] = field(default_factory=list)
    waits: set[int] = field(default_factory=set)
    deps: tuple[int, ...] = ()


@dataclass(slots=True)
class Draft:
    """A whole plan. ``dropped`` are the keys of steps that will not run any more."""

    plan: Plan
    input: dict[str, Any]
    catalog: ToolCatalog | None
    dropped: frozenset[str]
    steps: list[DraftStep]
    by_key: dict[str, int]
    problems: Problems


def draft(
    plan: Plan,
    catalog: ToolCatalog | None,
    given: Mapping[str, Any] | None,
    undos: Mapping[str, str] | None,
    reads: Collection[str] | None,
    *,
    check_from: int,
    dropped: frozenset[str] = frozenset(),
    compensates: Mapping[str, str] | None = None,
) -> Draft:
    """Assemble a draft; wrong bindings and keys become problems of the draft.

    Steps from the index ``check_from`` on have not been accepted before. ``compensates`` maps the key of a step to
    that of the step it compensates for.
    """
    problems = Problems()
    by_key: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        if step.key in by_key:
            first = by_key[step.key]
            message = f'the step id {step.key} is that of steps[{first}] too (1 and "1" are the same id)'
            problems.add("step-duplicate", ("steps", index, "step_id"), message, "give each step an id of its own")
        else:
            by_key[step.key] = index
    drafter = _Drafter(catalog, Binder(by_key, problems), undos, reads, check_from)
    steps = [drafter.step(index, step) for index, step in enumerate(plan.steps)]
    for key, stuck in (compensates or {}).items():
        steps[by_key[key]].kind = "compensation"
        steps[by_key[key]].kind_known = True
        steps[by_key[key]].compensates = by_key[stuck]
        steps[by_key[key]].rollback = None
    return Draft(
        plan=plan,
        input={**plan.input, **plain(dict(given))} if given else plan.input,
        catalog=catalog,
        dropped=dropped,
        steps=steps,
        by_key=by_key,
        problems=problems,
    )


def _kind(step: Step, spec: ToolSpec | None, reads: Collection[str] | None) -> tuple[Kind, bool]:
    """The kind of a step, and whether it is declared or assumed."""
    if step.kind is not None:
        return step.kind, True
    if reads is not None:
        return ("read" if step.key in reads else "compensatable"), True
    if spec is None:
        return "compensatable", step.rollback is not None
    return ("read" if spec.effect == "read" else "compensatable"), True


class _Drafter:
    """Assembles steps; holds what each part needs of the rest of the plan."""

    def __init__(
        self,
        catalog: ToolCatalog | None,
        binder: Binder,
        undos: Mapping[str, str] | None,
        reads: Collection[str] | None,
        check_from: int,
    ) -> None:
        self._catalog = catalog
        self._binder = binder
        self._undos = undos
        self._reads = reads
        self._check_from = check_from

    def step(self, index: int, step: Step) -> DraftStep:
        path: Path = ("steps", index)
        spec = self._spec(step.tool)
        to_check = index >= self._check_from
        kind, kind_known = _kind(step, spec, None if to_check else self._reads)
        params = self._binder.template(step.params, step.key, (*path, "params"))
        made = DraftStep(index, step, step.key, path, spec, kind, kind_known, params, None, to_check)
        made.rollback = self._rollback(made, step.rollback, made, path, made.key)
        if step.resource is not None:
            made.resource = self._binder.template({"resource": step.resource}, step.key, path)
        made.fallbacks = [self._fallback(made, number, each) for number, each in enumerate(step.fallback or (), 1)]
        return made

    def _fallback(self, step: DraftStep, number: int, given: Fallback) -> DraftFallback:
        path = (*step.path, "fallback", number - 1)
        if given.tool is None:
            return DraftFallback(given, path, step.spec, step.params, step.rollback)
        params = step.params
        if given.params is not None:
            params = self._binder.template(given.params, step.key, (*path, "params"))
        made = DraftFallback(given, path, self._spec(given.tool), params, None)
        made.rollback = self._rollback(step, given.rollback, made, path, f"{step.key}#{number}")
        return made

    def _rollback(
        self, step: DraftStep, given: Rollback | None, of: DraftStep | DraftFallback, path: Path, slot: str
    ) -> DraftRollback | None:
        """The undo of the call ``of``; ``slot`` is its place among the journalled undos."""
        if given is not None:
            params = self._binder.template(given.params, step.key, (*path, "rollback", "params"))
            return DraftRollback(given.tool, self._spec(given.tool), params, registered=False)
        if step.kind != "compensatable":
            return None
        # The undo that was journalled when the saga began takes precedence over today's registration.
        registered = of.spec.undo if of.spec is not None else None
        if self._undos is not None and not step.to_check:
            registered = self._undos.get(slot)
        if registered is None:
            return None
        spec = self._spec(registered)
        undo = UndoParams(spec.input_schema if spec is not None else None, step.key, of.params)
        return DraftRollback(registered, spec, undo, registered=True)

    def _spec(self, tool: str) -> ToolSpec | None:
        return self._catalog.spec(tool) if self._catalog is not None else None
