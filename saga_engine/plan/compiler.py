"""The doors to a plan's checks: all its problems, or the compiled plan, with all templates and declarations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from saga_engine.plan import graph
from saga_engine.plan.checks import binds_input, check_bodies, check_input, examine
from saga_engine.plan.child_plans import compile_child
from saga_engine.plan.compiled import CompiledPlan, CompiledStep, may_be_looked_at
from saga_engine.plan.draft import ABSENT, Draft, draft
from saga_engine.plan.each import over_list
from saga_engine.plan.final_steps import finish
from saga_engine.plan.problems import Problems
from saga_engine.plan.undo_params import UndoParams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from saga_engine.errors import Problem
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog


def check_plan(
    plan: Plan,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
) -> list[Problem]:
    """All problems of a plan, at most 100 of them listed; an empty list for a plan that can be compiled.

    The arguments are those of :func:`compile_plan`. Raises ``ValueNotJson`` if ``input`` is not JSON.
    """
    return checked_draft(plan, catalog, input=input).problems.listed()


def checked_draft(
    plan: Plan,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002
) -> Draft:
    """The draft of a plan: its steps in order as far as that can be determined, and its problems."""
    made = draft(
        plan, catalog, input, None, None, check_from=0 if catalog is not None else len(plan.steps), child=compile_child
    )
    examine(made)
    if catalog is None:
        check_bodies(made.problems, made.steps)
    return made


def compile_plan(
    plan: Plan,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002
    undos: Mapping[str, str] | None = None,
    reads: Collection[str] | None = None,
    input_unknown: bool = False,
) -> CompiledPlan:
    """Check a plan and compile it. ``input`` extends the plan's own input, key by key.

    Without a catalog only the structure is checked, and the declarations stay empty: enough to show a saga, not to run
    it. ``undos`` (step key to undo tool) and ``reads`` (step keys) were journalled when the saga began. They take
    precedence over the catalog, and the tools are not checked again, because the plan was accepted then. A tool that is
    missing now leaves an empty ``spec``. With ``input_unknown`` bindings of input that is missing are accepted: enough
    for the order of the steps.

    Raises ``PlanInvalid`` with all problems, and ``ValueNotJson`` if ``input`` is not JSON.
    """
    return prepare_plan(plan, catalog, input=input, undos=undos, reads=reads, input_unknown=input_unknown).compiled


class Prepared(NamedTuple):
    """A compiled plan, from which those with other input are made without compiling it again."""

    compiled: CompiledPlan
    draft: Draft

    def without_input(self) -> Prepared:
        """The same without an input, to be kept."""
        return Prepared(replace(self.compiled, input={}), replace(self.draft, input={}))

    def with_input(self, given: Mapping[str, Any]) -> CompiledPlan | None:
        """The same plan with this input, which is plain JSON, in place of its own; None: it has to be compiled anew.

        The input decides whether bindings have a value and params fit their schema, and nothing else. Lists, children
        and ``finally`` look at it in more ways; and the problems of a plan are told all at once, in its order.
        """
        made = self.draft
        if made.each or made.final is not None or any(step.child is not None for step in made.steps):
            return None
        values = {**made.plan.input, **given}
        again = replace(made, input=values, problems=Problems(), checked=[])
        check_input(again, [each for each in made.checked if binds_input(each.params)])
        if again.problems:
            return None
        compiled = replace(self.compiled, input=values)
        compiled.tools = self.compiled.tools
        return compiled


def prepare_plan(
    plan: Plan,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002
    undos: Mapping[str, str] | None = None,
    reads: Collection[str] | None = None,
    input_unknown: bool = False,
) -> Prepared:
    """``compile_plan`` for many inputs. The arguments and errors are those of :func:`compile_plan`."""
    check_from = 0 if catalog is not None and undos is None and reads is None else len(plan.steps)
    made = draft(plan, catalog, input, undos, reads, check_from=check_from, child=compile_child)
    if input_unknown:
        made.problems.ignore("binding-input-missing")
    return Prepared(compile_draft(made), made)


def compile_draft(made: Draft) -> CompiledPlan:
    """Check a draft and compile it. Raises ``PlanInvalid`` with all problems."""
    examine(made)
    if made.problems:
        made.problems.refuse()
    plan, steps = made.plan, made.steps
    for step, dependents in zip(steps, graph.dependents([step.deps for step in steps]), strict=True):
        step.dependents = tuple(dependents)
    final = finish(made)
    reads = frozenset(step.key for step in steps if step.kind == "read")
    for index, each in made.each.items():
        steps[index] = over_list(steps[index], each.of, each.when, parallel=each.parallel, collect=each.collect)
    calls = [call for step in [*steps, *final] for call in step.calls()]
    specs = {call.tool: call.spec for call in calls if call.spec is not None}
    sensitive = {name: list(spec.sensitive) for name, spec in specs.items() if spec.sensitive}
    for step in steps:
        sensitive |= {} if step.child is None else step.child.sensitive
    secrets = [name for call in calls for name in sorted(call.params.secrets)]
    return CompiledPlan(
        goal=plan.goal,
        input=made.input,
        steps=steps,
        by_key=made.by_key,
        order=made.order,
        final=final,
        pivot=next((step.index for step in steps if step.kind == "pivot" and step.key not in made.dropped), None),
        deadline_s=plan.deadline_s,
        max_tool_calls=plan.max_tool_calls,
        max_cost=plan.max_cost or {},
        on_failure=plan.on_failure,
        name=plan.name or "",
        tags=plan.tags,
        undos=dict(registered_undos(steps)),
        reads=reads,
        tool_digests={name: spec.digest for name, spec in specs.items()},
        sensitive=sensitive,
        looks=any(may_be_looked_at(serving) for step in steps for serving in step.servings()),
        images=any(serving.before is not None for step in [*steps, *final] for serving in step.servings()),
        computes=made.computes or (made.final is not None and made.final.computes),
        secrets=tuple(dict.fromkeys(secrets)),
    )


def registered_undos(steps: list[CompiledStep]) -> Iterator[tuple[str, str]]:
    """The undos that come from a tool's registration, by slot: the step's key, or ``KEY#N`` for its N-th fallback."""
    for step in steps:
        for number, serving in enumerate(step.servings()):
            own = isinstance(serving, CompiledStep) or serving.way == "tool"  # others share the step's undo
            undo = serving.rollback if own else None
            if undo is not None and (undo.declared or isinstance(undo.params, UndoParams)):
                yield f"{step.key}#{number}" if number else step.key, undo.declared or undo.tool
            absent = serving.rollback.absent if own and serving.rollback is not None else None
            if absent is not None and isinstance(absent.params, UndoParams):
                yield f"{step.key}#{number}{ABSENT}" if number else f"{step.key}{ABSENT}", absent.tool
