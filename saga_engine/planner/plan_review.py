"""What a person wants to know of a plan before it runs, and what changed if it is a revision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import Problem
from saga_engine.plan import graph
from saga_engine.plan.compiled import CompiledFallback
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.notices import notice_kind
from saga_engine.plan.values import json_path
from saga_engine.planner.part_review import part_facts
from saga_engine.planner.review_words import Said, said

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Rehearsal
    from saga_engine.plan.compiled import CompiledRollback
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.policy.rules import Policy

_LEFT: Final = 10


def review_facts(plan: Plan, catalog: ToolCatalog, policy: Policy | None = None) -> dict[str, Any]:
    """The calls that cannot be undone, the undos and their authors, the calls that need approval, and the simulation.

    Also what the other parts of the plan do (``planner.part_review``). A call that cannot be undone and only tells
    somebody something has its kind as ``notice``. ``late``: the calls for events that come too late, which are never
    undone. ``instead_of``: the call is a fallback of this tool. An undo is ``registered`` by its tool's owner, or
    ``written`` by the author of the plan.
    """
    compiled = compile_plan(plan, catalog)
    irreversible: list[dict[str, Any]] = []
    undos: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for whole in compiled.steps:
        step = whole if whole.each is None else whole.each.item
        told = {"step_id": step.step_id, "tool": step.tool}
        if step.rollback is not None:
            undos += _undos(told, step.rollback)
        elif step.kind != "read":
            irreversible.append({**told, "kind": step.kind, "notice": _notice(step.spec)})
        for fallback in (
            each for each in whole.servings() if isinstance(each, CompiledFallback) and each.way == "tool"
        ):
            other = {"step_id": step.step_id, "tool": fallback.tool}
            if fallback.rollback is not None:
                undos += _undos(other, fallback.rollback)
            elif step.kind != "read" and (fallback.spec is None or fallback.spec.effect != "read"):
                kind = {"kind": step.kind, "notice": _notice(fallback.spec)}
                irreversible.append({**other, **kind, "instead_of": step.tool})
        if step.late is not None:
            late.append({"step_id": step.step_id, "tool": step.late.tool, "params": dict(step.late.params.raw)})
    approvals: list[dict[str, Any]] = []
    if policy is not None:
        from saga_engine.policy.plan_time import planned_verdicts

        approvals = [verdict.to_dict() for verdict in planned_verdicts(policy, compiled)]
    simulated = rehearsal_of(plan, catalog)
    return {
        "irreversible": irreversible,
        "undos": undos,
        "late": late,
        "approvals": approvals,
        **part_facts(plan, compiled),
        "simulation": {"summary": _summary(simulated), "left": simulated.count("left")},
    }


def _summary(simulated: Rehearsal) -> Said:
    counts = {name: simulated.count(name) for name in ("clean", "asks", "left")}
    key, points = "simulated.part" if simulated.left_out else "simulated", len(simulated.scenarios)
    more = {"left_out": simulated.left_out} if simulated.left_out else {}
    return said(key, text=simulated.summary(), points=points, **counts, **more)


def _undos(told: dict[str, Any], rollback: CompiledRollback) -> list[dict[str, Any]]:
    """The calls of an undo; one whose params the plan says has them, as they are written."""
    found: list[dict[str, Any]] = []
    for undo in rollback.calls():
        if undo.params is undo.usual:
            found.append({**told, "undo": undo.tool, "by": "registered"})
        else:
            found.append({**told, "undo": undo.tool, "by": "written", "params": undo.params.raw})
    return found


def _notice(spec: ToolSpec | None) -> str:
    return "" if spec is None else notice_kind(spec)


def rehearsal_of(plan: Plan, catalog: ToolCatalog) -> Rehearsal:
    """Every single failure of a plan, simulated."""
    from saga_engine.analysis.simulation import rehearse

    return rehearse(compile_plan(plan, catalog))


def left_behind(simulated: Rehearsal, plan: Plan) -> list[Problem]:
    """The failures after which an effect remains that nothing undoes, as problems of the plan."""
    places = {step.key: index for index, step in enumerate(plan.steps)}
    found: list[Problem] = []
    for scenario in simulated.scenarios:
        if scenario.verdict != "left":
            continue
        stands = ", ".join(str(step) for step in scenario.standing[:_LEFT])
        index = places.get(str(scenario.step_id))
        path = "$" if index is None else json_path(("steps", index))
        message = f"step {scenario.step_id}: if {scenario.what}, the effect of step {stands} remains"
        found.append(Problem("effect-left", path, message))
    return found[:_LEFT]


def improvable(simulated: Rehearsal, plan: Plan, catalog: ToolCatalog) -> bool:
    """Whether another plan could leave less: not if only calls remain that nothing undoes, behind all the others."""
    left = {str(step) for each in simulated.scenarios if each.verdict == "left" for step in each.standing}
    if not left:
        return False
    compiled = compile_plan(plan, catalog)
    deps = [step.deps for step in compiled.steps]
    undone = {step.index for step in compiled.steps if step.rollback is not None}
    final = {"pivot", "retriable", "irreversible"}
    return any(
        step.key in left and (step.kind not in final or not undone <= graph.reach(step.index, deps))
        for step in compiled.steps
    )


def plan_changes(before: Plan, after: Plan) -> dict[str, Any]:
    """What a revision changed: steps that were added and removed, and the changed fields of the others."""
    old = {step.key: step.model_dump(mode="json", exclude_unset=True) for step in before.steps}
    new = {step.key: step.model_dump(mode="json", exclude_unset=True) for step in after.steps}
    changed: dict[str, Any] = {}
    for key, step in new.items():
        was = old.get(key, step)
        fields = {
            name: {"from": was.get(name), "to": step.get(name)}
            for name in sorted(was.keys() | step.keys())
            if was.get(name) != step.get(name)
        }
        if fields:
            changed[key] = fields
    return {
        "added": [key for key in new if key not in old],
        "removed": [key for key in old if key not in new],
        "changed": changed,
    }
