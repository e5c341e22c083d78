"""A plan whose form is wrong in places: all else is checked all the same, so that all problems are told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.checks import check_plan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.limits import MAX_PROBLEMS, MAX_STEPS
from saga_engine.plan.model import Plan, Step, load_plan, oversized, place_of
from saga_engine.plan.parser import read_source

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog

_STEP: Final = re.compile(r"\$\.steps\[(\d+)\](.*)", re.DOTALL)
#: What may be wrong only because a step, or its id, was left out of the check.
_OF_OTHERS: Final = frozenset({"binding-unknown-step", "binding-not-before", "depends-on-unknown"})
#: What may be wrong only because a field of the step was left out of the check.
_OF_FIELDS: Final = frozenset(
    {"rollback-missing", "kind-contradiction", "kind-retriable-before-pivot", "params-invalid"}
)
#: Each round takes out what the round before has brought to light.
_ROUNDS: Final = 3


def load_checked(
    source: Plan | Mapping[str, Any] | str | bytes | Path,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
) -> Plan:
    """As ``load_plan``, but what is wrong with the form is told with what is wrong with the rest.

    Raises ``PlanInvalid``.
    """
    if isinstance(source, Plan):
        return source
    try:
        return load_plan(source)
    except PlanInvalid as error:
        raise PlanInvalid(all_problems(error, source, lambda plan: _further(plan, catalog, input))) from None


def all_problems(
    error: PlanInvalid, source: Mapping[str, Any] | str | bytes | Path, check: Callable[[Plan], list[Problem]]
) -> list[Problem]:
    """What is wrong with the form of a plan, as ``error`` says, and what ``check`` finds in the rest of it.

    The steps keep their places, so ``check`` must not move them.
    """
    try:
        data = read_source(source)
    except PlanInvalid:
        return error.problems
    steps = data.get("steps")
    if not isinstance(steps, list) or not 0 < len(steps) <= MAX_STEPS:
        return error.problems
    left: list[Any] = []
    lost: dict[int, set[str]] = {}  # the fields of a step that were left out; all of it: the empty name
    for index, step in enumerate(steps):
        pruned, fields = _pruned(Step, step)
        left.append(pruned if pruned is not None else {"step_id": f"_{index}", "tool": "any"})
        lost[index] = fields if pruned is not None else {""}
    rest, gone = _pruned(Plan, {**data, "steps": [{"step_id": 0, "tool": "any"}]})
    try:
        plan = load_plan({**(rest or {}), "steps": left})
        further = check(plan)
    except PlanInvalid:
        return error.problems
    known = {(problem.code, problem.path) for problem in error.problems}
    found = [each for each in further if (each.code, each.path) not in known and _counts(each, lost, gone)]
    listed = [*error.problems, *found]
    if len(listed) <= MAX_PROBLEMS:
        return listed
    more = Problem("more-problems", "$", f"{len(listed) - MAX_PROBLEMS} more problems not listed", "mend these first")
    return [*listed[:MAX_PROBLEMS], more]


def _further(plan: Plan, catalog: ToolCatalog | None, given: Any) -> list[Problem]:
    if catalog is not None:
        return check_plan(plan, catalog, input=given)
    try:
        compile_plan(plan, None, input=given)
    except PlanInvalid as error:
        return error.problems
    return []


def _pruned(kind: type[BaseModel], given: Any) -> tuple[dict[str, Any] | None, set[str]]:
    """The object without what is wrong with its form, and the fields that this cost; None if nothing is left."""
    fields: set[str] = set()
    if not isinstance(given, dict) or oversized(given):
        return None, fields
    left: dict[str, Any] = given
    for _ in range(_ROUNDS):
        try:
            kind.model_validate(left)
        except ValidationError as error:
            left = deepcopy(left)
            for detail in error.errors(include_url=False):
                place = place_of(left, detail)
                if detail["type"] == "extra_forbidden" and place:
                    _remove(left, place)  # what is not known says nothing
                elif detail["loc"] and str(detail["loc"][0]) in left:
                    fields.add(str(detail["loc"][0]))
                    left.pop(str(detail["loc"][0]))
        else:
            return left, fields
    return None, fields


def _remove(data: Any, place: tuple[str | int, ...]) -> None:
    for part in place[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return  # it went with what is around it
    if isinstance(data, dict):
        data.pop(place[-1], None)


def _counts(problem: Problem, lost: Mapping[int, set[str]], gone: set[str]) -> bool:
    """Whether a problem is the plan's own, and not one of what was left out."""
    if "input" in gone and problem.code == "binding-input-missing":
        return False
    if problem.code in _OF_OTHERS and any(fields & {"", "step_id"} for fields in lost.values()):
        return False
    found = _STEP.fullmatch(problem.path)
    fields = lost.get(int(found[1]), set()) if found else set()
    if not fields or found is None:
        return True
    return (
        "" not in fields and problem.code not in _OF_FIELDS and not found[2].startswith(tuple(f".{f}" for f in fields))
    )
