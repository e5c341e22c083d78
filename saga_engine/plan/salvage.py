"""Checks the sound parts of a plan with a faulty form, so that all problems are reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.limits import MAX_PROBLEMS, MAX_STEPS
from saga_engine.plan.model import OF_CALLS, Plan, Step, bodies_of, load_plan, other_name, oversized, place_of
from saga_engine.plan.parser import read_source

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.parser import Source
    from saga_engine.plan.tool_spec import ToolCatalog

_STEP: Final = re.compile(r"\$\.steps\[(\d+)\](.*)", re.DOTALL)
#: Problems that may exist only because the check omitted a step or its id.
_OF_OTHERS: Final = frozenset({"binding-unknown-step", "binding-not-before", "depends-on-unknown"})
#: Problems that may exist only because the check omitted a field of the step.
_OF_FIELDS: Final = frozenset(
    {"rollback-missing", "kind-contradiction", "kind-retriable-before-pivot", "params-invalid"}
)
#: The field of a step whose omission leaves the item of a list without its list.
_LIST: Final = "each"
_NO_LIST: Final = re.compile(r"\$(item|index) has no list here$")
#: Each round removes the faults that the round before exposed.
_ROUNDS: Final = 3


def load_checked(
    source: Plan | Source,
    catalog: ToolCatalog | None,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
) -> Plan:
    """Load a plan like ``load_plan``, but report problems of the form together with those of the rest.

    Raises ``PlanInvalid``.
    """
    if isinstance(source, Plan):
        return source
    try:
        return load_plan(source)
    except PlanInvalid as error:
        found = all_problems(error, source, lambda plan: check_plan(plan, catalog, input=input))
        raise PlanInvalid(found) from None


def compile_source(source: Source, compiled: Callable[[Plan], CompiledPlan], *, recorded: bool = False) -> CompiledPlan:
    """Load a plan and compile it by ``compiled``. Raises ``PlanInvalid`` with the problems of the form and the rest."""

    def further(plan: Plan) -> list[Problem]:
        try:
            compiled(plan)
        except PlanInvalid as error:
            return error.problems
        return []

    try:
        plan = load_plan(source, recorded=recorded)
    except PlanInvalid as error:
        raise PlanInvalid(all_problems(error, source, further)) from error
    return compiled(plan)


def all_problems(error: PlanInvalid, source: Source, check: Callable[[Plan], list[Problem]]) -> list[Problem]:
    """The problems of a plan's form, from ``error``, and those that ``check`` finds in the rest of it.

    The steps keep their positions, so ``check`` must not move them.
    """
    try:
        data = read_source(source)
    except PlanInvalid:
        return error.problems
    steps = data.get("steps")
    if not isinstance(steps, list) or not 0 < len(steps) <= MAX_STEPS:
        return error.problems
    left: list[Any] = []
    lost: dict[int, set[str]] = {}  # the omitted fields of a step; the empty name stands for all of them
    for index, step in enumerate(steps):
        pruned, fields = _pruned(Step, step)
        if pruned is None and isinstance(step, dict):  # perhaps it lacks no more than its id
            pruned, fields = _pruned(Step, {**step, "step_id": f"_{index}"})
            fields.add("step_id")
        whole = None if pruned is None else _one_body(pruned)
        left.append(_stand_in(step, index) if whole is None else whole)
        lost[index] = {""} if whole is None else fields | (set(pruned or ()) - whole.keys())
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
    more = Problem(
        "more-problems",
        "$",
        f"{len(listed) - MAX_PROBLEMS} more problems not listed",
        "fix these first, then check again",
    )
    return [*listed[:MAX_PROBLEMS], more]


def _one_body(step: dict[str, Any]) -> dict[str, Any] | None:
    """The step with one body, and without the fields that do not belong to it; None: it has none left."""
    words = bodies_of(step)
    if not words:
        return None
    other = {*words[1:], *(OF_CALLS if words[0] != "tool" else ())} - ({"rollback"} if words[0] == "wait" else set())
    return {name: value for name, value in step.items() if name not in other}


def _stand_in(step: Any, index: int) -> dict[str, Any]:
    """A step in the place of one that cannot be read; what binds it finds it by its id."""
    body = {"step_id": step.get("step_id") if isinstance(step, dict) else None, "tool": "any"}
    pruned, _ = _pruned(Step, body)
    return pruned if pruned is not None and "step_id" in pruned else {"step_id": f"_{index}", "tool": "any"}


def _pruned(kind: type[BaseModel], given: Any) -> tuple[dict[str, Any] | None, set[str]]:
    """The object without its faulty parts, and the fields that were removed; None if nothing remains."""
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
                    _remove(left, place)  # an unknown value implies nothing
                    if kind is Step and other_name(Step, str(place[0])):
                        fields.add(_LIST)
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
            return  # it was removed with its container
    if isinstance(data, dict):
        data.pop(place[-1], None)


def _counts(problem: Problem, lost: Mapping[int, set[str]], gone: set[str]) -> bool:
    """Whether a problem is the plan's own, and not an effect of an omission."""
    found = _STEP.fullmatch(problem.path)
    fields = lost.get(int(found[1]), set()) if found else set()
    if "input" in gone and problem.code == "binding-input-missing":
        return False
    if problem.code == "binding-malformed" and _LIST in fields and _NO_LIST.search(problem.message):
        return False
    if problem.code in _OF_OTHERS and any(fields & {"", "step_id"} for fields in lost.values()):
        return False
    if not fields or found is None:
        return True
    if "step_id" in fields:  # the words of other problems would name a made-up id
        return problem.code == "tool-unknown"
    return (
        "" not in fields and problem.code not in _OF_FIELDS and not found[2].startswith(tuple(f".{f}" for f in fields))
    )
