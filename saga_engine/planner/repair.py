"""Repairs of a model's plan without another request. Every change is noted.

Nothing is invented: a repaired plan has the model's own calls with the model's own params, in an order that its own
graph allows, and undos that the tools' owners registered. A problem that needs a decision goes back to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import graph
from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.step_options import with_computations
from saga_engine.plan.values import cut
from saga_engine.planner.features import feature_fields

if TYPE_CHECKING:
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

#: The maximum number of notes about one plan, however many faults a hostile answer has.
_MAX_NOTES = 50


def mend_form(answer: Mapping[str, Any], catalog: ToolCatalog, notes: list[str]) -> dict[str, Any]:
    """A plan's JSON with its form repaired as far as no decision is needed; adds to ``notes``."""
    data = dict(answer)
    inner = data.get("plan")
    if "steps" not in data and isinstance(inner, Mapping):
        data = dict(inner)
        _tell(notes, "the plan stood inside 'plan'; it was taken out")
    data = {name: value for name, value in data.items() if value is not None and name != "impossible"}
    if data.pop("task_id", None) is not None:
        _tell(notes, "the task_id was removed: an id is chosen when the plan is submitted")
    steps = data.get("steps")
    if not isinstance(steps, list):
        return data
    steps = [_without_nulls(step) if isinstance(step, Mapping) else step for step in steps]
    data = {name: data[name] for name in _offered(data, "", "the plan", notes)}
    steps = [_only_offered(step, notes) if isinstance(step, dict) else step for step in steps]
    final = data.get("finally")
    if isinstance(final, list):
        final = [_without_nulls(step) if isinstance(step, Mapping) else step for step in final]
        data["finally"] = [_only_offered(step, notes) if isinstance(step, dict) else step for step in final]
        if not final:
            del data["finally"]
    if steps and all(isinstance(step, dict) and "step_id" not in step for step in steps):
        steps = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
        _tell(notes, "the steps had no ids; they were numbered from 1")
    for step in steps:
        if isinstance(step, dict) and isinstance(step.get("tool"), str):
            spec = catalog.spec(step["tool"])
            if spec is not None:
                _mend_undo(step, spec, catalog, notes)
                _mend_operations(step, spec, notes)
    return {**data, "steps": steps}


#: Fields of a plan that the caller sets; the review merges or replaces them.
_OF_THE_CALLER = frozenset({"goal", "input", "steps", "assumptions"})


#: An undo that lost a call would do half of what it is for, and count as done: what a model writes there is checked.
_OF_UNDOS: Final = frozenset({"each", "then", "when_absent"})


@lru_cache
def _kept_back(part: str) -> frozenset[str]:
    """The fields of a part of the format (empty: of the plan) that the prompt does not offer to a model."""
    from saga_engine.plan.schema import plan_schema
    from saga_engine.planner.prompting import plan_answer_schema

    whole, shown = plan_schema(), plan_answer_schema()
    known: set[str] = set((whole["$defs"][part] if part else whole)["properties"])
    # A feature without leave is a problem of the plan: a step that lost its condition would do something else.
    known -= feature_fields()
    known -= _OF_UNDOS if part == "Rollback" else set()
    return frozenset(known - set((shown["$defs"][part] if part else shown)["properties"]) - _OF_THE_CALLER)


def _offered(given: Mapping[str, Any], part: str, where: str, notes: list[str]) -> list[str]:
    """The names of the fields that stay: the offered ones, and unknown ones, which are a problem.

    The format's other fields belong to the operator and to the tools' owners; they are left out.
    """
    out = [name for name in given if name in _kept_back(part)]
    if out:
        _tell(notes, f"{where}: {', '.join(out)} {'was' if len(out) == 1 else 'were'} left out: not for a model to set")
    return [name for name in given if name not in out]


def _only_offered(step: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """A step with the offered fields, and its rollback and fallbacks with theirs."""
    where = f"step {cut(step.get('step_id', '?'), 80)}"
    kept = {name: step[name] for name in _offered(step, "Step", where, notes)}
    if isinstance(kept.get("rollback"), Mapping):
        kept["rollback"] = _part(kept["rollback"], "Rollback", f"the rollback of {where}", notes)
    fallback = kept.get("fallback")
    if isinstance(fallback, list | Mapping):
        ways = fallback if isinstance(fallback, list) else [fallback]
        some = [
            _part(way, "Fallback", f"a fallback of {where}", notes) if isinstance(way, Mapping) else way for way in ways
        ]
        some = [way for way in some if way != {}]
        kept["fallback"] = some if isinstance(fallback, list) else some[0] if some else None
        if not some:
            del kept["fallback"]
    return kept


def _part(given: Mapping[str, Any], part: str, where: str, notes: list[str]) -> dict[str, Any]:
    made = {name: given[name] for name in _offered(given, part, where, notes)}
    if isinstance(made.get("rollback"), Mapping):
        made["rollback"] = _part(made["rollback"], "Rollback", f"the rollback of {where}", notes)
    return made


def _without_nulls(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step without the fields that a model filled with null; a null inside params is a value and stays."""
    kept = {name: value for name, value in step.items() if value is not None}
    if isinstance(kept.get("rollback"), Mapping):
        kept["rollback"] = {name: value for name, value in kept["rollback"].items() if value is not None}
    return kept


def _mend_undo(step: dict[str, Any], spec: ToolSpec, catalog: ToolCatalog, notes: list[str]) -> None:
    """Replace a missing or meaningless rollback by the undo of the tool's registration."""
    which = f"step {cut(step.get('step_id', '?'), 80)}"
    rollback = step.get("rollback")
    if spec.effect == "read":
        if rollback is not None:
            del step["rollback"]
            _tell(notes, f"{which}: {spec.name} only reads, so its rollback was removed")
        if step.get("kind") == "compensatable":
            del step["kind"]
            _tell(notes, f"{which}: {spec.name} only reads, so its kind was removed")
        return
    if spec.undo is None:
        return
    if rollback is None or rollback == {"tool": spec.undo}:
        return  # the plan names the registered undo when it is accepted
    if _says_nothing(rollback, spec.undo, catalog):
        del step["rollback"]
        _tell(notes, f"{which}: its rollback made no sense, so the registered undo {spec.undo} is used")


def _mend_operations(step: dict[str, Any], spec: ToolSpec, notes: list[str]) -> None:
    """Put operations that stand in params as they are into the form in which they are evaluated there."""
    if isinstance(step.get("params"), dict):
        step["params"], places = with_computations(spec, step["params"])
        if places:
            which = f"step {cut(step.get('step_id', '?'), 80)}"
            _tell(notes, f'{which}: operations in params are written as {{"$compute": …}}: {", ".join(places)[:200]}')


def _says_nothing(rollback: Any, undo: str, catalog: ToolCatalog) -> bool:
    """Whether a rollback names no known tool, or the registered undo without its required params."""
    if not isinstance(rollback, dict):
        return False
    tool = rollback.get("tool")
    if tool is None or (isinstance(tool, str) and catalog.spec(tool) is None):
        return True
    spec = catalog.spec(undo)
    return tool == undo and not rollback.get("params") and spec is not None and bool(spec.check_params({}))


def move_pivot_last(plan: Plan, catalog: ToolCatalog, notes: list[str]) -> Plan:
    """The plan with its pivot after every step that can be undone, if the graph allows that; else unchanged."""
    from saga_engine.plan.model import load_plan

    made = checked_draft(plan, catalog)
    pivots = [step.index for step in made.steps if step.kind == "pivot"]
    if len(pivots) != 1 or not any(problem.code == "pivot-not-last" for problem in made.problems.listed()):
        return plan
    pivot = pivots[0]
    behind = graph.reach(pivot, graph.dependents([step.data_deps for step in made.steps]))
    behind |= {step.index for step in made.steps if step.kind == "retriable"}
    if any(made.steps[index].kind == "compensatable" for index in behind):
        return plan  # a step that can be undone needs the pivot's output: only the model can decide
    dumped: dict[str, Any] = plan.model_dump(exclude_unset=True)
    steps: Sequence[dict[str, Any]] = dumped["steps"]
    first = [index for index in range(len(steps)) if index != pivot and index not in behind]
    moved = {**steps[pivot], "depends_on": [steps[index]["step_id"] for index in first]}
    ordered = [*(steps[index] for index in first), moved, *(steps[index] for index in sorted(behind))]
    better = load_plan({**dumped, "steps": ordered})
    before, after = _codes(made), _codes(checked_draft(better, catalog))
    if "pivot-not-last" in after or len(after) >= len(before):
        return plan
    _tell(notes, f"step {made.steps[pivot].key} cannot be undone, so it was moved behind the steps that can")
    return better


def move_irreversible_last(plan: Plan, catalog: ToolCatalog, notes: list[str]) -> Plan:
    """The plan with steps that only a model could compensate for behind those that can be undone, where it allows that.

    A step that needs the output of such a step stays behind it, and the pivot behind all.
    """
    from saga_engine.plan.model import load_plan
    from saga_engine.plan.undo_rules import bound_to, early_steps

    for _ in plan.steps:
        made = checked_draft(plan, catalog)
        early = early_steps(made)
        if not early:
            return plan
        step = made.steps[early[0].index]
        needing = graph.dependents([bound_to(made, each) for each in made.steps])
        behind = graph.reach(step.index, needing)
        behind |= {each.index for each in made.steps if each.kind in {"pivot", "retriable"}}
        dumped: dict[str, Any] = plan.model_dump(exclude_unset=True)
        steps: Sequence[dict[str, Any]] = dumped["steps"]
        first = [index for index in range(len(steps)) if index != step.index and index not in behind]
        moved = {**steps[step.index], "depends_on": [steps[index]["step_id"] for index in first]}
        ordered = [*(steps[index] for index in first), moved, *(steps[index] for index in sorted(behind))]
        better = load_plan({**dumped, "steps": ordered})
        after = checked_draft(better, catalog)
        if len(_codes(after)) > len(_codes(made)) or len(early_steps(after)) >= len(early):
            return plan
        _tell(notes, f"step {step.key} cannot be undone, so it was moved behind the steps that can")
        plan = better
    return plan


def name_undos(plan: Plan, catalog: ToolCatalog) -> Plan:
    """The plan with each registered undo named as its step's rollback: who reads the file sees what is undone, and how.

    Such a rollback has no params, so the engine fills them as for the registered undo itself.
    """
    from saga_engine.plan.model import load_plan

    body = plan.model_dump(exclude_unset=True)
    named = False
    for step in body["steps"]:
        ways = step.get("fallback") or ()
        for call in (step, *ways):
            spec = catalog.spec(call.get("tool") or "")
            if spec is None or spec.undo is None or spec.effect == "read" or call.get("rollback") is not None:
                continue
            if step.get("kind", "compensatable") == "compensatable":
                call["rollback"] = {"tool": spec.undo}
                named = True
    return load_plan(body) if named else plan


def _codes(made: Draft) -> list[str]:
    return [problem.code for problem in made.problems.listed()]


def _tell(notes: list[str], note: str) -> None:
    if len(notes) < _MAX_NOTES:
        notes.append(note)
