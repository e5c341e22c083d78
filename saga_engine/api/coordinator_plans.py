"""What a coordinator says about plans before they run: it has them written, checks and simulates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from saga_engine.api.engine import PlanSource
from saga_engine.api.requests import problems_of, simulated
from saga_engine.errors import PlannerUnavailable, Problem, SagaNotFound, SettingInvalid
from saga_engine.execution.aside import beside
from saga_engine.execution.ids import other_plan
from saga_engine.execution.templates import Templates
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.values import plain
from saga_engine.policy.rules import Policy
from saga_engine.ports import Store
from saga_engine.runtime.journal import look
from saga_engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Rehearsal
    from saga_engine.planner.planning import PlannedPlan, Planning


class Plans:
    """The part of ``Coordinator`` for plans that do not run yet."""

    store: Store
    tools: ToolRegistry
    limits: Limits
    policy: Policy | None
    _planning: Planning | None

    @property
    def planner_may_use(self) -> tuple[str, ...] | None:
        """The parts of the plan format that the planner's settings allow; None: there is no planner."""
        return None if self._planning is None else tuple(self._planning.settings.may_use)

    async def plan(
        self,
        goal: str,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        tags: Iterable[str] = (),
        limit: int | None = None,
        intent: str | None = None,
        answers: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        revise: PlanSource | None = None,
        progress: Callable[[Mapping[str, Any]], None] | None = None,
        may_use: Iterable[str] | None = None,
        on_failure: str | None = None,
    ) -> PlannedPlan:
        """Ask the planner for a plan for ``goal`` with the tools of this coordinator. Nothing runs.

        The model sees ``limit`` tools at most (100), those with one of ``tags`` first, and the names of the others. If
        no model responds, the plan prepared for the ``intent``, or for the goal, is used. If the model has questions,
        ``PlannerAsks`` has them: ask again with ``answers``, by name. ``now`` (by default this moment and zone) is told
        to the model. With ``revise``, a plan, ``goal`` is a change of it. ``progress`` gets each round's entry.
        ``may_use`` names the parts of the plan format that need leave (docs/planner.md); it replaces
        ``PlannerSettings.may_use``. ``on_failure`` is the plan's: no model sets it. Raises what ``Planning.plan``
        raises, and ``SettingInvalid`` (there are no tools).
        """
        if self._planning is None:
            raise PlannerUnavailable(
                "no planner is set up here",
                hint="Coordinator.open(planner='provider:name'); the key is SAGA_MODEL_API_KEY or the provider's own",
            )
        if not self.tools.names():
            raise SettingInvalid("there are no tools to plan with", hint="Coordinator.open(tools=[...])")
        from saga_engine.plan.model import load_plan
        from saga_engine.planner.plan_reads import registry_reads

        shown, hidden = self._planning.choose(goal, self.tools, limit, tags)
        return await self._planning.plan(
            goal,
            shown,
            hidden=hidden,
            catalog=self.tools,
            input=input,
            intent=intent,
            answers=answers,
            now=now or datetime.now().astimezone(),
            progress=progress,
            call_read=registry_reads(self.tools, self.policy),
            revises=None if revise is None else await beside(partial(load_plan, revise), revise),
            policy=self.policy,
            may_use=may_use,
            on_failure=on_failure,
        )

    async def _begun(self, saga_id: str, goal: str, given: Mapping[str, Any] | None, intent: str | None) -> bool:
        """Whether this saga was started for this goal. Raises ``SagaExists`` if it was started for another."""
        try:
            state = await look(self.store, saga_id)
        except SagaNotFound:
            return False
        goals = {goal} if self._planning is None else self._planning.goals(goal, intent)
        # The planner's own input may be included; the input that was passed to it is unchanged.
        if state.plan.goal not in goals or {**state.input, **plain(dict(given or {}))} != state.input:
            raise other_plan(saga_id)
        return True

    def check(
        self,
        plan: PlanSource,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> list[Problem]:
        """The problems of a plan with the tools of this coordinator; an empty list if it can be submitted.

        Of a child that is a template nothing is checked: ``submit`` and ``simulate`` read its plan from the store.
        """
        found = problems_of(plan, input, self.tools, limits=self.limits)
        return [problem for problem in found if problem.code != "saga-template"]

    async def simulate(
        self,
        plan: PlanSource,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> Rehearsal:
        """Simulate every single failure of a plan. No tool is called and nothing is stored.

        The simulated tools behave as declared (docs/simulate.md). Raises ``PlanInvalid`` and ``ValueNotJson``.
        """
        source = await Templates(self.store.documents(), self.tools).expanded(plan)
        return await simulated(source, input, self.tools, limits=self.limits)
