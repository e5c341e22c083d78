"""Prepared plans for an intent, for use when no model answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saga_engine.errors import PlanInvalid, SettingInvalid

if TYPE_CHECKING:
    from saga_engine.planner.settings import PlannerSettings


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A prepared plan for an intent. It is read only when no model answers."""

    intent: str
    source: Path | Mapping[str, Any]


def choose_prepared(settings: PlannerSettings, goal: str, intent: str | None = None) -> PreparedPlan | None:
    """The prepared plan for ``intent``; without it, the one whose intent or goal equals this goal.

    Raises ``SettingInvalid`` for an intent without a prepared plan.
    """
    plans = settings.prepared_plans
    if intent is not None:
        if intent not in plans:
            raise SettingInvalid(
                f"there is no plan for the intent {intent!r}",
                hint=f"[planner.prepared_plans] in saga.toml has: {', '.join(plans) or 'none'}",
            )
        return PreparedPlan(intent, plans[intent])
    wanted = goal.strip()
    if wanted in plans:
        return PreparedPlan(wanted, plans[wanted])
    return next((PreparedPlan(name, path) for name, path in plans.items() if _goal_of(path) == wanted), None)


def _goal_of(path: Path) -> str | None:
    from saga_engine.plan.model import load_plan

    try:
        return load_plan(path).goal.strip()
    except PlanInvalid:
        return None  # a plan that was not requested is checked when it is used
