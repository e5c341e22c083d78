"""The rules that hold for a model's steps and not for a person's.

A person who writes a plan may pass text that resembles a binding, replace an undo, or know an id by heart, and is
warned. A model does the same by mistake, or because a text in its prompt asked for it: here these are problems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.guesses import INVENTED, Given, guesses
from saga_engine.plan.lookalikes import Lookalike, find_lookalikes
from saga_engine.plan.misuse import misuses
from saga_engine.plan.model import Step, bodies_of, load_plan
from saga_engine.plan.undo_rules import EARLY, undo_findings
from saga_engine.plan.values import json_path
from saga_engine.planner.features import SAFE, not_allowed
from saga_engine.ports import CompensationRequest, PlanRequest, ReplanRequest

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.planner.allowed_tools import Offer
    from saga_engine.ports import PastStep, PlannerRequest

_STEP: Final = re.compile(r"^\$\.steps\[(\d+)\]")
#: What a goal or a tool says if texts with placeholders of another template are wanted.
_TEMPLATES: Final = re.compile(
    r"\{\{|\$\{|template|placeholder|script|模板|占位|脚本|vorlage|platzhalter|plantilla", re.IGNORECASE
)


def model_problems(plan: Plan, offer: Offer, request: PlannerRequest) -> list[Problem]:
    """What a model may not do, in a plan or in steps for a saga that is stuck (as a plan of these steps)."""
    before = _before(request)
    whole = _behind(plan, before)
    known = [str(step["step_id"]) for step in before]
    found = [each.problem for each in find_lookalikes(plan, known) if not _is_meant(each, plan, offer, request)]
    if len(plan.steps) > offer.max_steps:
        message = f"the plan has {len(plan.steps)} steps, but only {offer.max_steps} are allowed"
        found.insert(0, Problem("limit-steps", "$.steps", message, "serve the goal with fewer steps"))
    safe = () if isinstance(request, CompensationRequest) else SAFE
    found += not_allowed(plan, offer.may_use, offer, safe=safe)
    findings: list[Problem] = []
    if not isinstance(request, CompensationRequest):
        findings += [
            each for each in undo_findings(whole, offer) if offer.undo_by_model == "registered" or each.code == EARLY
        ]
    given = {} if isinstance(request, CompensationRequest) else request.input
    outputs = {} if isinstance(request, PlanRequest) else {str(step.step_id): step.output for step in _past(request)}
    findings += guesses(whole, offer, Given(_values(request), given, outputs))
    findings += _misused(whole, offer, request)
    found += _in_finally(plan, offer, request)
    taken = {each.path for each in found}
    return [*found, *(each for each in _own(findings, len(before)) if each.path not in taken)]


def _in_finally(plan: Plan, offer: Offer, request: PlannerRequest) -> list[Problem]:
    """Text that resembles a binding, and ids that nobody gave, in the steps at the end."""
    if not plan.finally_ or not isinstance(request, PlanRequest):
        return []
    body = plan.model_dump(exclude_unset=True)
    first, final = len(body["steps"]), body.pop("finally")
    whole = load_plan({**body, "steps": [*body["steps"], *final]})
    alike = [each.problem for each in find_lookalikes(whole) if not _is_meant(each, whole, offer, request)]
    made_up = guesses(whole, offer, Given(_values(request), request.input))
    moved = _own([*alike, *(each for each in made_up if each.code == INVENTED)], first)
    return [replace(each, path=each.path.replace("$.steps", "$.finally", 1)) for each in moved]


def _misused(plan: Plan, offer: Offer, request: PlannerRequest) -> list[Problem]:
    """What decides nothing; a step that stood in the plan may be written again as it was."""
    found = misuses(plan, offer)
    if not isinstance(request, ReplanRequest):
        return found
    stood = {str(each.get("tool") or next(iter(bodies_of(each)), "")) for each in request.left}
    steps = {f"$.steps[{index}]" for index, step in enumerate(plan.steps) if (step.tool or step.builtin) in stood}
    return [each for each in found if (match := _STEP.match(each.path)) is None or match[0] not in steps]


def steps_as_plan(steps: Sequence[Mapping[str, Any]], request: PlannerRequest) -> Plan | None:
    """Steps for a stuck saga as a plan; None if their form cannot be read."""
    given = {} if isinstance(request, CompensationRequest) else dict(request.input)
    try:
        return load_plan({"steps": list(steps), "input": given})
    except PlanInvalid:
        return None


def _past(request: PlannerRequest) -> Sequence[PastStep]:
    """The steps that have happened or failed."""
    assert not isinstance(request, PlanRequest)
    others = [request.stuck] if isinstance(request, CompensationRequest) else []
    return list({str(step.step_id): step for step in [*request.past, *others]}.values())


def _before(request: PlannerRequest) -> list[dict[str, Any]]:
    """The steps of the saga that the new ones may bind, as in a plan file."""
    if isinstance(request, PlanRequest):
        return []
    found: list[dict[str, Any]] = [
        {"step_id": step.step_id, "tool": step.tool, "kind": "compensatable"} for step in _past(request)
    ]
    if isinstance(request, CompensationRequest):
        return found
    kinds = get_args(get_args(Step.model_fields["kind"].annotation)[0])
    for step in request.kept:
        kind = step.get("kind") if step.get("kind") in kinds else "compensatable"
        found.append({"step_id": step["step_id"], "tool": step.get("tool") or "ask", "kind": kind})
    return found


def _behind(plan: Plan, before: Sequence[Mapping[str, Any]]) -> Plan:
    """The plan behind the steps of its saga, so that its bindings to these are found."""
    if not before:
        return plan
    body = plan.model_dump(exclude_unset=True)
    return load_plan({**body, "steps": [*before, *body["steps"]]})


def _own(found: Sequence[Problem], first: int) -> list[Problem]:
    """The problems of the steps from ``first`` on, with paths that count from there."""
    own: list[Problem] = []
    for each in found:
        match = _STEP.match(each.path)
        if match is not None and int(match[1]) >= first:
            path = f"{json_path(('steps', int(match[1]) - first))}{each.path[match.end() :]}"
            own.append(Problem(each.code, path, each.message, each.hint))
    return own


def _values(request: PlannerRequest) -> list[Any]:
    """Everything that the model was told and may repeat."""
    values: list[Any] = [request.goal]
    if isinstance(request, PlanRequest):
        return [*values, dict(request.answers), list(request.read_results), request.now, request.revises]
    for step in _past(request):
        values += [step.params, step.output, step.error]
    if isinstance(request, CompensationRequest):
        failed = list(request.failed)
    else:
        failed = [request.failed, *request.also_failed]
        values += [list(request.left), list(request.kept)]
    values += [part for step in failed for part in (step.params, step.output, step.error)]
    return values


def _is_meant(found: Lookalike, plan: Plan, offer: Offer, request: PlannerRequest) -> bool:
    """Whether a text that resembles a binding is to be passed on as it is."""
    given = {} if isinstance(request, CompensationRequest) else request.input
    if found.wrong in request.goal or any(found.wrong in str(value) for value in given.values()):
        return True
    if found.binding.startswith("$input"):
        name = re.match(r"\$input\.(\w+)", found.binding)
        return found.wrong == found.binding.removeprefix("$") and (name is None or name[1] not in plan.input)
    if found.binding:
        return False
    match = _STEP.match(found.problem.path)
    spec = offer.spec(plan.steps[int(match[1])].tool) if match is not None else None
    texts = [request.goal, "" if spec is None else f"{spec.description} {spec.use_when} {spec.input_schema}"]
    return found.wrong.startswith(("${", "{{")) and any(_TEMPLATES.search(text) for text in texts)
