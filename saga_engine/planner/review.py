"""Reviews what a model proposes: repaired as far as no decision is needed, then checked. Nothing in it is trusted.

A prompt contains results and descriptions of tools, so the answer is as hostile as they are. The checks of the engine
decide, and tools and secrets that the model was not offered are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.limits import MAX_ASSUMPTION_CHARS, MAX_ASSUMPTIONS
from saga_engine.plan.values import cut, json_path, printable
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.hints import for_models
from saga_engine.ports import CompensationRequest

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog
    from saga_engine.ports import PlannerRequest, PlanRequest, StepsCheck

_Steps = list[dict[str, Any]]
_MAX_PROBLEMS: Final = 20
#: How many numbers are tried for an id that is taken.
_NUMBERS: Final = range(2, 12)
_ID_CHARS: Final = 60
_PLACE = re.compile(r"^\$\.steps\[(\d+)\]")
_DOUBLE = re.compile(r"^\$\.steps\[(\d+)\]\.step_id\Z")
#: It may find too many (in a text where it would not bind), never too few.
_BOUND = re.compile(r"\$output\.step_([A-Za-z0-9_-]+)")


def review_plan(
    data: Mapping[str, Any], offer: Offer, request: PlanRequest, notes: list[str]
) -> tuple[Plan | None, list[Problem]]:
    """A plan from an answer, repaired as far as possible, and its problems.

    Its goal is the requested one and its input the caller's, whatever the model wrote.
    """
    from saga_engine.plan.model import load_plan
    from saga_engine.plan.salvage import all_problems
    from saga_engine.planner.repair import mend_form, move_irreversible_last, move_pivot_last, name_undos

    def check_rest(plan: Plan) -> list[Problem]:
        mended = move_pivot_last(plan, offer, []) is not plan  # once the form is correct, the engine repairs this
        found = [problem for problem in offer.check(plan) if not (mended and problem.code == "pivot-not-last")]
        return _with_rules(found, plan, offer, request)

    form = mend_form(data, offer, notes)
    own = form.get("input")
    if isinstance(form.get("assumptions"), list):
        kept = [printable(str(each).strip(), MAX_ASSUMPTION_CHARS) for each in form["assumptions"][:MAX_ASSUMPTIONS]]
        form["assumptions"] = [each for each in kept if each]
    else:
        form.pop("assumptions", None)
    form = {"goal": request.goal, **{name: value for name, value in form.items() if name not in ("goal", "input")}}
    unknown = [name for name in (own if isinstance(own, dict) else {}) if name not in request.input]
    if unknown:
        names = ", ".join(cut(name, 40) for name in unknown[:8])
        notes.append(f"the input has no {names}: it was removed; values that the goal gives are written into params")
    if request.input:
        form["input"] = dict(request.input)
    if request.on_failure:
        form["on_failure"] = request.on_failure
    try:
        plan = load_plan(form)
    except PlanInvalid as error:
        return None, for_models(all_problems(error, form, check_rest), offer.may_use)
    plan = move_irreversible_last(move_pivot_last(plan, offer, notes), offer, notes)
    # What is checked is what is accepted, with its undos named.
    plan = name_undos(plan, offer)
    problems = for_models(_with_rules(offer.check(plan), plan, offer, request), offer.may_use)
    return plan, _as_written(problems, plan, form)


def _as_written(problems: list[Problem], plan: Plan, form: Mapping[str, Any]) -> list[Problem]:
    """The problems with paths into the answer: the engine may have moved its steps."""
    written = {str(step["step_id"]): index for index, step in enumerate(form["steps"])}
    places = [written.get(step.key, index) for index, step in enumerate(plan.steps)]

    def moved(match: re.Match[str]) -> str:
        index = int(match[1])
        return f"$.steps[{places[index] if index < len(places) else index}]"

    return [replace(problem, path=_PLACE.sub(moved, problem.path)) for problem in problems]


def review_compensation(
    data: Mapping[str, Any], offer: Offer, request: CompensationRequest, check: StepsCheck, notes: list[str]
) -> tuple[_Steps | None, list[Problem]]:
    """The steps of a semantic compensation, from an answer, and their problems.

    ``check`` is the saga's own; it sees steps only when their form can be read.
    """
    # A compensating step is not undone, so it has no rollback to repair: an empty catalog knows no undos.
    steps, wrong = read_steps(data, Offer(()), notes)
    if steps is None:
        return None, wrong
    if any("rollback" in step for step in steps):
        notes.append("the rollbacks were removed: steps of a semantic compensation are not undone")
        steps = [{name: value for name, value in step.items() if name != "rollback"} for step in steps]
    steps, problems = with_free_ids(steps, check, notes)
    return steps, by_id(with_rules(offer.beside(problems, steps), steps, offer, request), steps)


def read_steps(
    data: Mapping[str, Any], catalog: ToolCatalog, notes: list[str], *, empty: bool = False
) -> tuple[_Steps | None, list[Problem]]:
    """The steps of an answer whose form can be read, mended, or the problems of their form. ``empty``: may be none."""
    from saga_engine.planner.repair import mend_form

    steps = mend_form(data, catalog, notes).get("steps")
    if not isinstance(steps, list) or not (steps or empty):
        hint = "give at least one step, or say under 'impossible' why there is none"
        return None, [Problem("field-invalid", "$.steps", "a list of steps is expected", hint)]
    wrong = [
        Problem("field-invalid", json_path(("steps", index)), "a step is an object", "write each step as an object")
        for index, step in enumerate(steps)
        if not isinstance(step, dict)
    ]
    return (None, wrong[:_MAX_PROBLEMS]) if wrong else (steps, [])


def with_rules(found: list[Problem], steps: _Steps, offer: Offer, request: PlannerRequest) -> list[Problem]:
    """The problems of steps for a stuck saga, and those by the rules for models."""
    from saga_engine.planner.model_rules import steps_as_plan

    plan = steps_as_plan(steps, request)
    whole = found if plan is None else _with_rules(found, plan, offer, request)
    return for_models(whole, offer.may_use, whole_plan=False)


def _with_rules(found: list[Problem], plan: Plan, offer: Offer, request: PlannerRequest) -> list[Problem]:
    """The problems, and those by the rules for models; one place is named once."""
    from saga_engine.plan.undo_rules import SWITCHED_OFF
    from saga_engine.planner.model_rules import model_problems

    rules = model_problems(plan, offer, request)
    switched_off = {each.path for each in rules if each.code == SWITCHED_OFF}
    # A kind that the model should not set at all needs no hint about where it would be legal.
    found = [each for each in found if not (each.path in switched_off and each.code == "kind-retriable-before-pivot")]
    known = {problem.path for problem in found}
    undone = {path.rpartition(".rollback")[0] for path in known if ".rollback" in path}
    return [
        *found,
        *(each for each in rules if each.path not in known and each.path.rpartition(".rollback")[0] not in undone),
    ]


def by_id(problems: Sequence[Problem], steps: _Steps) -> list[Problem]:
    """The problems, with steps by their ids: the answer was mended, so its author counts them otherwise."""

    def path(text: str) -> str:
        found = _PLACE.match(text)
        if found is None or int(found[1]) >= len(steps):
            return text
        return json_path(("steps", str(steps[int(found[1])].get("step_id")))) + text[found.end() :]

    return [Problem(each.code, path(each.path), each.message, each.hint) for each in problems]


def with_free_ids(
    steps: _Steps, check: Callable[[_Steps], Sequence[Problem]], notes: list[str]
) -> tuple[_Steps, list[Problem]]:
    """The steps, with other ids in place of those that are taken, and their problems.

    Only if nothing in the answer names such an id: otherwise only the model knows which of the two steps is meant.
    """
    found = list(check(steps))
    doubles = {
        int(match[1])
        for problem in found
        if problem.code == "step-duplicate" and (match := _DOUBLE.match(problem.path))
    }
    taken = {str(step.get("step_id")) for index, step in enumerate(steps) if index in doubles}
    if not doubles or taken & set(_named(steps)):
        return steps, found
    for number in _NUMBERS:
        renamed = [
            {**step, "step_id": f"{str(step['step_id'])[:_ID_CHARS]}_{number}"} if index in doubles else step
            for index, step in enumerate(steps)
        ]
        again = list(check(renamed))
        if not any(problem.code == "step-duplicate" for problem in again):
            notes.append(f"ids that were taken got the ending _{number}: {', '.join(sorted(taken))[:200]}")
            return renamed, again
    return steps, found


def _named(value: Any) -> Iterator[str]:
    """All ids of steps that appear anywhere, as a dependency or in a binding."""
    if isinstance(value, str):
        yield from _BOUND.findall(value)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, dict):
        waits = value.get("depends_on")
        yield from (str(each) for each in (waits if isinstance(waits, list) else (waits,)))
        for key, item in value.items():
            yield from _named(key)
            yield from _named(item)
