"""Plans that grow while their saga runs: the added steps, and the whole plan after each addition.

Steps are only added at the end, so indexes of existing steps stay valid. Added steps are checked like a plan, against
the current plan. Steps that a language model wrote are also checked against the bounds that the operator gave it: the
engine relies on a check and never on the model's instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.child_plans import compile_child
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_draft
from saga_engine.plan.draft import Block, Draft, draft
from saga_engine.plan.limits import MAX_ADDITIONS
from saga_engine.plan.model import Plan
from saga_engine.plan.problems import known_names
from saga_engine.plan.salvage import compile_source
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import cut, json_path

_STEP_PATH = re.compile(r"^\$\.steps\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Addition:
    """Steps that were added to a saga while it ran.

    ``dropped`` are the keys of steps that will not run any more: list order ignores them. ``compensation`` is the key
    of the step that these steps compensate for; it is empty for steps that go forward. ``place`` is the key of the step
    whose place in the list they take; if it is empty, they stand at the end. ``reasons`` say, by key, why a step is
    dropped and not replaced.
    """

    steps: Sequence[Mapping[str, Any]]
    dropped: tuple[str, ...] = ()
    compensation: str = ""
    place: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


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
    count = len(source["steps"])
    first = count - len(additions[-1].steps)
    compensates: dict[int, str] = {}
    blocks: list[Block] = []
    at = len(plan.steps)
    for addition in additions:
        end = at + len(addition.steps)
        if addition.compensation:
            compensates |= dict.fromkeys(range(at, end), addition.compensation)
        blocks.append(Block(at, end, addition.place, addition.dropped))
        at = end

    def compiled(whole: Plan) -> CompiledPlan:
        made = draft(
            whole,
            catalog,
            input,
            undos,
            reads,
            check_from=first if fresh else count,
            child=compile_child,
            dropped=frozenset(key for addition in additions for key in addition.dropped),
            compensates=compensates,
            blocks=blocks,
        )
        if fresh:
            _check_bounds(made, len(additions), bounds)
            _check_compensation(made)
        return compile_draft(made)

    try:
        return compile_source(source, compiled, recorded=not fresh)
    except PlanInvalid as error:
        keys = [str(step.get("step_id")) if isinstance(step, Mapping) else "" for step in source["steps"]]
        raise PlanInvalid(_counted_from(error.problems, keys, first)) from error


def _counted_from(problems: Sequence[Problem], keys: Sequence[str], first: int) -> list[Problem]:
    """The problems, with paths that count the steps as the author of the addition does.

    The saga's own steps are named by their ``keys``: the author did not write them.
    """

    def path(text: str) -> str:
        found = _STEP_PATH.match(text)
        if found is None:
            return text
        index, rest = int(found[1]), text[found.end() :]
        return f"$.steps[{index - first}]{rest}" if index >= first else json_path(("saga", keys[index])) + rest

    return [Problem(each.code, path(each.path), each.message, each.hint) for each in problems]


def _check_bounds(made: Draft, additions: int, bounds: Bounds | None) -> None:
    if additions > MAX_ADDITIONS:
        message = f"the saga has been amended {MAX_ADDITIONS} times"
        made.problems.add("limit-additions", ("steps",), message, "submit another saga")
    if bounds is None:
        return
    new = made.plan.steps[made.check_from :]
    if len(new) > bounds.steps:
        message = f"there are {len(new)} new steps, but only {bounds.steps} are allowed"
        made.problems.add("limit-steps", ("steps",), message, "use fewer steps")
    for index, step in enumerate(new, made.check_from):
        if step.builtin and (step.saga is not None or made.steps[index].compensates is not None):
            message = f"'{step.builtin}' may not be used here"
            made.problems.add("tool-not-allowed", ("steps", index, step.builtin), message, "call a tool")
        for path, call in step.calls():
            if call.tool and call.tool not in bounds.tools:
                where = ("steps", index, *path, "tool")
                message = f"the tool {cut(call.tool, 80)} may not be used here"
                made.problems.add("tool-not-allowed", where, message, known_names(sorted(bounds.tools), "tools"))
        for template, _, base, _ in made.bound.get(index, ()):
            for place in template.places:
                if place.source == "secret" and place.step not in bounds.secrets:
                    message = f"$secret.{place.step} may not be used here"
                    hint = known_names(sorted(bounds.secrets), "secrets") or "use no secret"
                    made.problems.add("secret-not-allowed", (*base, *place.path), message, hint)


def _check_compensation(made: Draft) -> None:
    """A compensation without a single write changes nothing, but the report would list it as a compensation."""
    compensates = [step for step in made.steps[made.check_from :] if step.compensates is not None]
    if compensates and all(step.spec is not None and step.spec.effect == "read" for step in compensates):
        message = "every step of this compensation only reads, so it compensates for nothing"
        path = ("steps", compensates[0].index)
        made.problems.add("rollback-reads", path, message, "call a tool that reverses the effect")
