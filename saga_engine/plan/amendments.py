"""Plans that grow while their saga runs: the added steps, and the whole plan after each addition.

Steps are only added at the end, so indexes of existing steps stay valid. Added steps are checked like a plan, against
the current plan. Steps that a language model wrote are also checked against the bounds that the operator gave it: the
engine relies on a check and never on the model's instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.bindings import Template
from saga_engine.plan.checks import examine
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_draft
from saga_engine.plan.draft import Draft, DraftStep, draft
from saga_engine.plan.limits import MAX_ADDITIONS
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.problems import known_names
from saga_engine.plan.salvage import all_problems
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import cut

_STEP_PATH = re.compile(r"^\$\.steps\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Addition:
    """Steps that were added to a saga while it ran.

    ``dropped`` are the keys of steps that will not run any more: list order ignores them. ``compensation`` is the key
    of the step that these steps compensate for; it is empty for steps that go forward.
    """

    steps: Sequence[Mapping[str, Any]]
    dropped: tuple[str, ...] = ()
    compensation: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits on steps that a language model writes: tool names, names of secrets, and the number of steps."""

    tools: frozenset[str]
    secrets: frozenset[str]
    steps: int


def compile_grown(
    plan: Plan,
    catalog: ToolCatalog | None,
    additions: Sequence[Addition],
    *,
    input: Mapping[str, Any] | None,  # noqa: A002
    undos: Mapping[str, str],
    reads: frozenset[str],
    fresh: bool = False,
    bounds: Bounds | None = None,
) -> CompiledPlan:
    """Compile a grown plan; ``undos`` and ``reads`` are the journalled ones, as for ``compile_plan``.

    ``fresh``: the last addition has not been accepted yet, so its steps are checked, and also against ``bounds`` if
    they are given. Raises ``PlanInvalid``; its paths count the added steps from 0.
    """
    body = plan.model_dump(exclude_unset=True)
    source = {**body, "steps": [*body["steps"], *(dict(step) for addition in additions for step in addition.steps)]}
    first = len(source["steps"]) - len(additions[-1].steps)

    def drafted(whole: Plan) -> Draft:
        return _drafted(whole, len(plan.steps), catalog, additions, input, undos, reads, fresh=fresh, bounds=bounds)

    def problems_of(whole: Plan) -> list[Problem]:
        made = drafted(whole)
        examine(made)
        return made.problems.listed()

    try:
        whole = load_plan(source)
    except PlanInvalid as error:
        problems = all_problems(error, source, problems_of) if fresh else error.problems
        raise PlanInvalid(_counted_from(problems, first)) from error
    try:
        return compile_draft(drafted(whole))
    except PlanInvalid as error:
        raise PlanInvalid(_counted_from(error.problems, first)) from error


def _drafted(  # noqa: PLR0917
    whole: Plan,
    begun_with: int,
    catalog: ToolCatalog | None,
    additions: Sequence[Addition],
    given: Mapping[str, Any] | None,
    undos: Mapping[str, str],
    reads: frozenset[str],
    *,
    fresh: bool,
    bounds: Bounds | None,
) -> Draft:
    first = len(whole.steps) - len(additions[-1].steps)
    compensates: dict[str, str] = {}
    at = begun_with
    for addition in additions:
        if addition.compensation:
            compensates |= {step.key: addition.compensation for step in whole.steps[at : at + len(addition.steps)]}
        at += len(addition.steps)
    dropped = frozenset(key for addition in additions for key in addition.dropped)
    check_from = first if fresh else len(whole.steps)
    made = draft(whole, catalog, given, undos, reads, check_from=check_from, dropped=dropped, compensates=compensates)
    if fresh:
        _check_bounds(made, made.steps[first:], additions, bounds)
        _check_compensation(made, made.steps[first:])
    return made


def _counted_from(problems: Sequence[Problem], first: int) -> list[Problem]:
    """The problems, with paths that count the steps as the author of the addition does."""

    def path(text: str) -> str:
        found = _STEP_PATH.match(text)
        if found is None or int(found[1]) < first:
            return text
        return f"$.steps[{int(found[1]) - first}]{text[found.end() :]}"

    return [Problem(each.code, path(each.path), each.message, each.hint) for each in problems]


def _check_bounds(made: Draft, new: Sequence[DraftStep], additions: Sequence[Addition], bounds: Bounds | None) -> None:
    if len(additions) > MAX_ADDITIONS:
        message = f"the saga has been added to {MAX_ADDITIONS} times"
        made.problems.add("limit-additions", ("steps",), message, "begin another saga")
    if bounds is None:
        return
    if len(new) > bounds.steps:
        message = f"{len(new)} steps; {bounds.steps} are allowed here"
        made.problems.add("limit-steps", ("steps",), message, "use fewer steps")
    for step in new:
        for tool, path in _tools(step):
            if tool not in bounds.tools:
                message = f"the tool {cut(tool, 80)} may not be used here"
                made.problems.add("tool-not-allowed", path, message, known_names(sorted(bounds.tools), "tools"))
        for template, path in _templates(step):
            for name in sorted(template.secrets - bounds.secrets):
                message = f"$secret.{name} may not be used here"
                hint = known_names(sorted(bounds.secrets), "secrets") or "use no secret"
                made.problems.add("secret-not-allowed", path, message, hint)


def _check_compensation(made: Draft, new: Sequence[DraftStep]) -> None:
    """A compensation without a single write changes nothing, but the report would list it as a compensation."""
    compensates = [step for step in new if step.compensates is not None]
    if compensates and all(step.spec is not None and step.spec.effect == "read" for step in compensates):
        message = "every step of this compensation only reads, so it compensates for nothing"
        made.problems.add("rollback-reads", compensates[0].path, message, "call a tool that takes the effect back")


def _tools(step: DraftStep) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    yield step.step.tool, (*step.path, "tool")
    if step.step.rollback is not None:
        yield step.step.rollback.tool, (*step.path, "rollback", "tool")
    for each in step.fallbacks:
        if each.fallback.tool is not None:
            yield each.fallback.tool, (*each.path, "tool")
        if each.fallback.rollback is not None:
            yield each.fallback.rollback.tool, (*each.path, "rollback", "tool")


def _templates(step: DraftStep) -> Iterator[tuple[Template, tuple[str | int, ...]]]:
    yield step.params, (*step.path, "params")
    if step.resource is not None:
        yield step.resource, (*step.path, "resource")
    if step.rollback is not None and isinstance(step.rollback.params, Template):
        yield step.rollback.params, (*step.path, "rollback", "params")
    for each in step.fallbacks:
        yield each.params, (*each.path, "params")
        if each.rollback is not None and isinstance(each.rollback.params, Template):
            yield each.rollback.params, (*each.path, "rollback", "params")
