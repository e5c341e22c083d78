"""Makes a plan that the engine can trust from a goal: ask, read, repair, check, and ask again with the problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from saga_engine.errors import ModelUnreachable, PlanInvalid, PlannerUnavailable, Problem, SagaError
from saga_engine.plan.limits import MAX_GOAL_CHARS
from saga_engine.plan.values import plain
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.repair_loop import DEFAULT_ALLOWANCE, Rounds, Terms, budget_dict, usage_dict
from saga_engine.ports import Allowance, Planner, PlannerUsage, PlanRequest, Repair

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.planner.prepared_plans import PreparedPlan
    from saga_engine.ports import PlannerAnswer

_TERMS = Terms(
    wanted="plan",
    refused="the goal cannot be served",
    refused_hint="this is the model's own word; give it other tools, or say the goal in another way",
    failed_hint="the transcript has what it said; try another model, more rounds, or clearer descriptions of tools",
)


@dataclass(frozen=True, slots=True)
class PlannedPlan:
    """A checked plan and its origin.

    ``source``: who made it. ``notes``: repairs and remarks. ``rounds``: how often the model was asked. ``usage`` is the
    part of ``budget`` that was used (null: no limit). ``transcript``: for each round the answer (cut), its problems and
    its usage.
    """

    plan: Plan
    source: Literal["model", "prepared"]
    model: str
    prompt: str
    rounds: int
    usage: PlannerUsage
    notes: tuple[str, ...] = ()
    transcript: tuple[Mapping[str, Any], ...] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "plan": self.plan.model_dump(mode="json", exclude_unset=True),
            "source": self.source,
            "model": self.model,
            "prompt": self.prompt,
            "rounds": self.rounds,
            "usage": usage_dict(self.usage),
            "budget": dict(self.budget),
            "notes": list(self.notes),
            "transcript": [dict(entry) for entry in self.transcript],
        }


async def make_plan(
    goal: str,
    specs: Sequence[ToolSpec],
    planner: Planner | None,
    *,
    catalog: ToolCatalog | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    secrets: Sequence[str] = (),
    rounds: int = 3,
    allowance: Allowance = DEFAULT_ALLOWANCE,
    prepared: PreparedPlan | None = None,
) -> PlannedPlan:
    """A plan for ``goal`` that uses ``specs`` and no other tools, checked as ``saga check`` would.

    ``catalog`` resolves the registered undos of the tools. ``input`` are the values of ``$input.…``; they become part
    of the plan. The model is asked at most ``rounds`` times, within ``allowance`` for all of them. If there is no
    planner, or it cannot answer, ``prepared`` is used if it is given and valid.

    Raises ``PlannerUnavailable``, ``ModelUnreachable``, ``GoalImpossible``, ``PlannerFailed`` (no valid plan; with the
    transcript), ``PlanInvalid`` (the goal or the prepared plan), ``ValueNotJson``.
    """
    if not goal.strip() or len(goal) > MAX_GOAL_CHARS:
        message = f"a goal is a text of 1 to {MAX_GOAL_CHARS} characters; this has {len(goal)}"
        raise PlanInvalid([Problem("field-invalid", "$.goal", message, "say in a sentence what is wanted")])
    given: dict[str, Any] = plain(dict(input or {}))
    offer = Offer(specs, catalog, secrets)
    try:
        if planner is None:
            raise PlannerUnavailable(
                "no model is configured", hint="set SAGA_MODEL=provider:name, or give --model provider:name"
            )
        return await _asked(goal, list(specs), planner, offer, given, allowance, rounds)
    except (PlannerUnavailable, ModelUnreachable) as error:
        if prepared is None:
            raise
        return _prepared(prepared, goal, given, offer if catalog is None else catalog, error)


async def _asked(  # noqa: PLR0917
    goal: str,
    specs: list[ToolSpec],
    planner: Planner,
    offer: Offer,
    given: dict[str, Any],
    allowance: Allowance,
    rounds: int,
) -> PlannedPlan:
    """A plan made by a model."""
    secrets = tuple(sorted(offer.secrets))

    async def ask(repair: Repair | None, left: Allowance) -> PlannerAnswer:
        return await planner.propose(PlanRequest(goal, specs, given, secrets, repair=repair, allowance=left))

    def review(data: Mapping[str, Any], notes: list[str]) -> tuple[Plan | None, list[Problem]]:
        return review_plan(data, offer, goal=goal, input=given, notes=notes)

    made = await Rounds(planner.model, ask, review, allowance, _TERMS).run(rounds)
    answer = made.answer
    return PlannedPlan(
        made.value,
        "model",
        answer.model,
        answer.prompt,
        made.rounds,
        made.usage,
        made.notes,
        made.transcript,
        budget_dict(allowance, rounds),
    )


# --- review ----------------------------------------------------------------------------------------------------


def review_plan(
    data: Mapping[str, Any],
    offer: Offer,
    *,
    goal: str,
    input: Mapping[str, Any],  # noqa: A002 - the plan's own word
    notes: list[str],
) -> tuple[Plan | None, list[Problem]]:
    """A plan from an answer, repaired as far as possible, and its problems.

    Its goal is the requested one, whatever the model wrote, and the caller's input takes precedence.
    """
    from saga_engine.plan.checks import check_plan
    from saga_engine.plan.model import load_plan
    from saga_engine.plan.salvage import all_problems
    from saga_engine.planner.repair import mend_form, move_pivot_last

    def check(plan: Plan) -> list[Problem]:
        return [*offer.problems(plan), *check_plan(plan, offer)]

    def check_rest(plan: Plan) -> list[Problem]:
        mended = move_pivot_last(plan, offer, []) is not plan  # once the form is correct, the engine repairs this
        return [problem for problem in check(plan) if not (mended and problem.code == "pivot-not-last")]

    form = mend_form(data, offer, notes)
    own = form.get("input")
    form = {"goal": goal, **{name: value for name, value in form.items() if name not in ("goal", "input")}}
    merged = {**(own if isinstance(own, dict) else {}), **input}
    if merged:
        form["input"] = merged
    try:
        plan = load_plan(form)
    except PlanInvalid as error:
        return None, all_problems(error, form, check_rest)
    plan = move_pivot_last(plan, offer, notes)
    return plan, check(plan)


def _prepared(
    prepared: PreparedPlan, goal: str, given: dict[str, Any], catalog: ToolCatalog, reason: SagaError
) -> PlannedPlan:
    """The prepared plan of an intent; a person wrote it, so it may use every tool. Raises ``PlanInvalid``."""
    from saga_engine.plan.checks import check_plan
    from saga_engine.plan.model import load_plan

    plan = load_plan(prepared.source)
    changes: dict[str, Any] = {"input": {**plan.input, **given}} if given else {}
    if not plan.goal:
        changes["goal"] = goal
    if changes:
        plan = load_plan({**plan.model_dump(exclude_unset=True), **changes})
    problems = check_plan(plan, catalog)
    if problems:
        raise PlanInvalid(problems) from reason
    notes = (f"no model was used ({reason.message}): this is the plan prepared for '{prepared.intent}'",)
    return PlannedPlan(plan, "prepared", "", "", 0, PlannerUsage(), notes)
