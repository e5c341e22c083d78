"""Reviews another way that a model proposes: its slips of form are mended, and what needs a decision goes back to it.

A model that replans writes more than it should: steps that are kept or have happened, the ids of steps that it
replaces, a pivot in the middle. What it means is clear in these cases, so no round is spent on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saga_engine.errors import Problem
from saga_engine.plan.values import cut
from saga_engine.planner.review import by_id, read_steps, with_free_ids, with_rules

if TYPE_CHECKING:
    from saga_engine.planner.allowed_tools import Offer
    from saga_engine.ports import ReplanRequest, StepsCheck

_Steps = list[dict[str, Any]]
_BOUND = re.compile(r"(\$output\.step_)([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class OtherWay:
    """Steps that replace a failed one and what depends on it, and why others are dropped, by key."""

    steps: _Steps
    dropped: Mapping[str, str]


def review_other_way(
    data: Mapping[str, Any], offer: Offer, request: ReplanRequest, check: StepsCheck, notes: list[str]
) -> tuple[OtherWay | None, list[Problem]]:
    """Another way from an answer, and its problems. ``check`` is the saga's own."""
    inner = data.get("plan")
    whole = inner if isinstance(inner, Mapping) and "steps" not in data else data
    dropped, problem = _dropped(data.get("dropped", whole.get("dropped")))
    form = data if whole.get("steps") else {"steps": []}
    steps, wrong = read_steps(form, offer, notes, empty=bool(dropped))
    if problem is not None:
        wrong = [*wrong, problem]
    if steps is None or wrong:
        return None, wrong
    steps = _without_known(steps, request, notes)
    steps = _with_new_ids(steps, request, notes)
    steps = _pivot_last(steps, notes)
    steps, problems = with_free_ids(steps, lambda found: check(found, dropped), notes)
    return OtherWay(steps, dropped), by_id(with_rules(offer.beside(problems, steps), steps, offer, request), steps)


def _dropped(given: Any) -> tuple[dict[str, str], Problem | None]:
    """The reasons by key; a model may also write a list of objects with 'step_id' and 'reason'."""
    if given in (None, [], {}):
        return {}, None
    if isinstance(given, list) and all(isinstance(each, dict) and "step_id" in each for each in given):
        given = {str(each["step_id"]): each.get("reason", "") for each in given}
    if isinstance(given, dict) and all(isinstance(reason, str) for reason in given.values()):
        return given, None
    message = "'dropped' is an object: the id of each step that is not done any more, with the reason"
    return {}, Problem("field-invalid", "$.dropped", message, 'write "dropped": {"7": "the goal does not need it"}')


def _without_known(steps: _Steps, request: ReplanRequest, notes: list[str]) -> _Steps:
    """Without steps that the model only repeats from the question: those that are kept, and those that happened."""
    known = {str(step["step_id"]): (step.get("tool"), step.get("params")) for step in request.kept}
    known |= {str(step.step_id): (step.tool, step.params) for step in request.past}
    found = [step for step in steps if known.get(str(step.get("step_id"))) != (step.get("tool"), step.get("params"))]
    if len(found) < len(steps):
        names = ", ".join(cut(step["step_id"], 80) for step in steps if step not in found)
        notes.append(f"these steps stand or are kept, so they were left out of the new ones: {names[:300]}")
    return found


def _with_new_ids(steps: _Steps, request: ReplanRequest, notes: list[str]) -> _Steps:
    """With new ids where the model used that of a step which it replaces: only the new one can be meant."""
    replaced = {str(step.step_id) for step in (request.failed, *request.also_failed)}
    replaced |= {str(step["step_id"]) for step in request.left}
    used = {str(step.get("step_id")) for step in steps} | set(request.taken)
    names: dict[str, str] = {}
    for step in steps:
        key = str(step.get("step_id"))
        if key in replaced:
            names[key] = next(name for number in range(2, 2000) if (name := f"{key[:58]}_{number}") not in used)
            used.add(names[key])
    if not names:
        return steps
    notes.append(f"ids of replaced steps were renamed: {', '.join(f'{old} to {new}' for old, new in names.items())}")
    return [{**_renamed(step, names), "step_id": _new_id(step, names)} for step in steps]


def _new_id(step: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    return names.get(str(step.get("step_id")), step.get("step_id"))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value with other ids in its bindings and in ``depends_on``."""
    if isinstance(value, str):
        return _BOUND.sub(lambda found: found[1] + names.get(found[2], found[2]), value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _renamed(item, names) for key, item in value.items()}
    waits = value.get("depends_on")
    if isinstance(waits, list):
        made["depends_on"] = [names.get(str(each), each) for each in waits]
    return made


def _pivot_last(steps: _Steps, notes: list[str]) -> _Steps:
    """With the pivot behind the other steps, except those that need it or come after a pivot by their kind."""
    at = [index for index, step in enumerate(steps) if step.get("kind") == "pivot"]
    if len(at) != 1 or "depends_on" in steps[at[0]]:
        return steps
    pivot = steps[at[0]]
    behind = {str(pivot.get("step_id"))}
    for step in steps[at[0] + 1 :]:
        if step.get("kind") == "retriable" or behind & set(_needed(step)):
            behind.add(str(step.get("step_id")))
    later = [step for step in steps[at[0] + 1 :] if str(step.get("step_id")) in behind]
    moved = [step for step in steps[at[0] + 1 :] if str(step.get("step_id")) not in behind]
    if not moved:
        return steps
    notes.append(
        f"step {cut(pivot.get('step_id', '?'), 80)} is the pivot, so it was moved behind steps that can be undone"
    )
    return [*steps[: at[0]], *moved, pivot, *later]


def _needed(value: Any) -> Iterator[str]:
    """The ids that a step names."""
    if isinstance(value, str):
        yield from (found[1] for found in _BOUND.findall(value))
    elif isinstance(value, dict | list):
        if isinstance(value, dict) and isinstance(value.get("depends_on"), list):
            yield from (str(each) for each in value["depends_on"])
        for item in value.values() if isinstance(value, dict) else value:
            yield from _needed(item)
