"""Suggestions that avoid the questions a simulation found: what the tools should declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.analysis.simulator import RAISED

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Rehearsal
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.tool_spec import ToolSpec

_UNSTATED: Final = (
    "an operator is asked about an exception that says nothing of its call: raise ToolError, or declare not_done, "
    "raised='not-done', a probe, or an undo that is bound to $key"
)


def cures(rehearsal: Rehearsal, plan: CompiledPlan) -> dict[str, str]:
    """By tool: the change by which the engine settles its lost answers without an operator."""
    specs = {call.tool: call.spec for call in plan.calls()}
    found: dict[str, str] = {}
    for scenario in [rehearsal.goes_well, *rehearsal.scenarios]:
        for asked in scenario.asked:
            spec = specs.get(asked.tool)
            if spec is not None and asked.kind in ("in-doubt", "undo-in-doubt") and not (spec.keyed or spec.probe):
                undo = asked.direction == "compensate"
                found[spec.name] = _cure(spec, undo=undo)
            elif spec is not None and scenario.fault in RAISED and asked.kind == "in-doubt" and not spec.probe:
                found.setdefault(spec.name, _UNSTATED)
    return dict(sorted(found.items()))


def _cure(spec: ToolSpec, *, undo: bool) -> str:
    ways = ["take idempotency_key (and pass it on)", "declare a probe"]
    if undo and not spec.tolerates_absence:
        ways.append("declare tolerates_absence=True if it succeeds when there is nothing to undo")
    return f"nothing tells whether it happened if its response is lost: {', or '.join(ways)}"
