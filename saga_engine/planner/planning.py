"""The planner of one coordinator: which planner answers, and within what limits, for plans and stuck sagas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saga_engine.planner.advising import ModelAdvisor
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.prepared_plans import choose_prepared
from saga_engine.planner.proposing import PlannedPlan, make_plan
from saga_engine.planner.settings import PlannerSettings, planner_settings

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.planner.advising import SelectTools
    from saga_engine.ports import Planner


@dataclass(frozen=True, slots=True)
class Planning:
    """A planner and its settings. Without a planner there may still be prepared plans."""

    planner: Planner | None
    settings: PlannerSettings

    @classmethod
    def of(cls, given: str | Planner | PlannerSettings) -> Planning:
        """From ``provider:name`` (the environment has the rest), from settings, or from a custom planner.

        The model's packages are not loaded before a request. Raises ``PlannerUnavailable`` for a name without a model,
        and ``SettingInvalid``.
        """
        if isinstance(given, str):
            settings = planner_settings({}, {"model": given})
            return cls(ModelPlanner(settings), settings)
        if isinstance(given, PlannerSettings):
            return cls(ModelPlanner(given) if given.model else None, given)
        return cls(given, PlannerSettings())

    def advisor(self, select: SelectTools) -> ModelAdvisor | None:
        """The advisor that proposes steps when a saga is stuck; ``select`` chooses the tools that it offers."""
        if self.planner is None:
            return None
        chosen = self.settings
        return ModelAdvisor(
            self.planner,
            rounds=chosen.rounds,
            allowance=chosen.allowance(),
            select=select,
            limit=chosen.tools_offered,
        )

    async def plan(
        self,
        goal: str,
        specs: Sequence[ToolSpec],
        catalog: ToolCatalog,
        input: Mapping[str, Any] | None,  # noqa: A002 - the plan's own word
        intent: str | None = None,
    ) -> PlannedPlan:
        """A checked plan for ``goal``. Raises the errors of ``make_plan``."""
        chosen = self.settings
        return await make_plan(
            goal,
            specs,
            self.planner,
            catalog=catalog,
            input=input,
            secrets=chosen.secrets,
            rounds=chosen.rounds,
            allowance=chosen.allowance(),
            prepared=choose_prepared(chosen, goal, intent),
        )

    def goals(self, goal: str, intent: str | None = None) -> set[str]:
        """The goals that a plan for ``goal`` may have: it, and that of its prepared plan."""
        from saga_engine.plan.model import load_plan

        prepared = choose_prepared(self.settings, goal, intent)
        return {goal} if prepared is None else {goal, load_plan(prepared.source).goal}
