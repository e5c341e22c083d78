"""Compiles a plan for the engine: checked, ordered, with all templates and declarations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saga_engine.plan import graph
from saga_engine.plan.bindings import UndoParams
from saga_engine.plan.checks import examine
from saga_engine.plan.compiled import CompiledFallback, CompiledPlan, CompiledRollback, CompiledStep, Params
from saga_engine.plan.draft import draft
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saga_engine.plan.draft import Draft, DraftFallback, DraftRollback, DraftStep
    from saga_engine.plan.model import Plan, Rollback
    from saga_engine.plan.tool_spec import ToolCatalog

#: What neither the plan nor the tool says: the defaults of a tool's declaration.
_DEFAULT = ToolSpec(name="")
#: The least number of attempts of an undo; beyond it, twice as many as its tool declares.
_LEAST_UNDO_ATTEMPTS = 8


def compile_plan(
    plan: Plan,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002
    undos: Mapping[str, str] | None = None,
    reads: Collection[str] | None = None,
) -> CompiledPlan:
    """Check a plan and compile it. ``input`` extends the plan's own input, key by key.

    Without a catalog only the structure is checked, and the declarations stay empty: enough to show a saga, not to run
    it. ``undos`` (step key to undo tool) and ``reads`` (step keys) were journalled when the saga began. They take
    precedence over the catalog, and the tools are not checked again, because the plan was accepted then. A tool that is
    missing now leaves an empty ``spec``.

    Raises ``PlanInvalid`` with all problems, and ``ValueNotJson`` if ``input`` is not JSON.
    """
    check_from = 0 if catalog is not None and undos is None and reads is None else len(plan.steps)
    return compile_draft(draft(plan, catalog, input, undos, reads, check_from=check_from))


def compile_draft(made: Draft) -> CompiledPlan:
    """Check a draft and compile it. Raises ``PlanInvalid`` with all problems."""
    plan = made.plan
    examine(made)
    if made.problems:
        made.problems.refuse()
    dependents = graph.dependents([step.deps for step in made.steps])
    steps = [_step(step, tuple(dependents[step.index])) for step in made.steps]
    specs = _specs(made)
    return CompiledPlan(
        goal=plan.goal,
        input=made.input,
        steps=steps,
        by_key=made.by_key,
        pivot=next((step.index for step in steps if step.kind == "pivot"), None),
        deadline_s=plan.deadline_s,
        max_tool_calls=plan.max_tool_calls,
        on_failure=plan.on_failure,
        undos=_registered_undos(made),
        reads=frozenset(step.key for step in steps if step.kind == "read"),
        tool_digests={name: spec.digest for name, spec in specs.items()},
        sensitive={name: list(spec.sensitive) for name, spec in specs.items() if spec.sensitive},
    )


def _step(made: DraftStep, dependents: tuple[int, ...]) -> CompiledStep:
    step, spec = made.step, made.spec or _DEFAULT
    compiled = CompiledStep(
        index=made.index,
        step_id=step.step_id,
        key=made.key,
        name=step.title,
        kind=made.kind,
        tool=step.tool,
        spec=made.spec,
        params=made.params,
        rollback=_rollback(made, made, step.rollback),
        retry=step.retry.policy(spec.retry) if step.retry is not None else spec.retry,
        timeout_s=spec.timeout_s if step.timeout_s is None else step.timeout_s,
        deps=made.deps,
        data_deps=frozenset(made.waits),
        dependents=dependents,
        resource=made.resource,
        compensates=made.compensates,
    )
    compiled.fallbacks = tuple(_fallback(made, compiled, each) for each in made.fallbacks)
    return compiled


def _fallback(made: DraftStep, step: CompiledStep, draft: DraftFallback) -> CompiledFallback:
    given = draft.fallback
    if given.tool is None:
        return CompiledFallback(
            way="cached" if given.cached_s is not None else "queue",
            tool=step.tool,
            spec=step.spec,
            params=step.params,
            rollback=step.rollback,
            retry=step.retry,
            timeout_s=step.timeout_s,
            max_age_s=given.cached_s or 0.0,
            every_s=given.queue_s or 0.0,
        )
    spec = draft.spec or _DEFAULT
    return CompiledFallback(
        way="tool",
        tool=given.tool,
        spec=draft.spec,
        params=draft.params,
        rollback=_rollback(made, draft, given.rollback),
        retry=given.retry.policy(spec.retry) if given.retry is not None else spec.retry,
        timeout_s=spec.timeout_s if given.timeout_s is None else given.timeout_s,
    )


def _rollback(made: DraftStep, of: DraftStep | DraftFallback, given: Rollback | None) -> CompiledRollback | None:
    rollback = of.rollback
    if rollback is None:
        return None
    spec = rollback.spec or _DEFAULT
    retry = undo_retry(spec.retry)
    if given is not None and given.retry is not None:
        retry = given.retry.policy(retry)
    return CompiledRollback(
        tool=rollback.tool,
        spec=rollback.spec,
        params=rollback.params,
        retry=retry,
        timeout_s=given.timeout_s if given is not None and given.timeout_s is not None else spec.timeout_s,
        needs_output=made.key in rollback.params.outputs,
        usual=_usual(made.key, of, rollback),
    )


def _usual(key: str, of: DraftStep | DraftFallback, rollback: DraftRollback) -> Params | None:
    """The params for the registered undo of the call; None if the rollback is another tool."""
    if rollback.registered:
        return rollback.params
    if of.spec is None or of.spec.undo != rollback.tool:
        return None
    return UndoParams(rollback.spec.input_schema if rollback.spec is not None else None, key, of.params)


def undo_retry(retry: RetryPolicy) -> RetryPolicy:
    """An undo gets more attempts than the call that it undoes: an undo that fails needs an operator."""
    return replace(retry, max_attempts=max(_LEAST_UNDO_ATTEMPTS, 2 * retry.max_attempts))


def _registered_undos(made: Draft) -> dict[str, str]:
    """The undos that the plan does not specify, by step key, and by ``KEY#N`` for its N-th fallback."""
    found: dict[str, str] = {}
    for step in made.steps:
        if step.rollback is not None and step.rollback.registered:
            found[step.key] = step.rollback.tool
        for number, each in enumerate(step.fallbacks, 1):
            if each.fallback.tool is not None and each.rollback is not None and each.rollback.registered:
                found[f"{step.key}#{number}"] = each.rollback.tool
    return found


def _specs(made: Draft) -> dict[str, ToolSpec]:
    """The declarations of all tools that the plan may call."""
    specs: dict[str, ToolSpec | None] = {}
    for step in made.steps:
        specs[step.step.tool] = step.spec
        if step.rollback is not None:
            specs[step.rollback.tool] = step.rollback.spec
        for each in step.fallbacks:
            if each.fallback.tool is not None:
                specs[each.fallback.tool] = each.spec
                if each.rollback is not None:
                    specs[each.rollback.tool] = each.rollback.spec
    return {name: spec for name, spec in specs.items() if spec is not None}
