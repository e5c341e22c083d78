"""Asks a planner: for a plan that the engine can trust, and for steps of a saga that is stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from saga_engine.errors import (
    ModelUnreachable,
    PlanInvalid,
    PlannerUnavailable,
    Problem,
    SagaError,
    SettingInvalid,
)
from saga_engine.plan.limits import MAX_GOAL_CHARS
from saga_engine.plan.values import plain, printable
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.features import command, refused_parts
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.plan_dialog import PlanDialog
from saga_engine.planner.plan_reads import PlanReads, ReadCall
from saga_engine.planner.plan_review import improvable, left_behind, plan_changes, rehearsal_of, review_facts
from saga_engine.planner.repair_loop import Progress, Rounds, Terms
from saga_engine.planner.review import review_compensation
from saga_engine.planner.review_words import as_texts
from saga_engine.planner.selection import Chosen, SelectTools, choose_tools
from saga_engine.planner.settings import PlannerSettings, allowed_features, planner_settings
from saga_engine.ports import CompensationRequest, Planner, PlannerRequest, PlannerUsage, PlanRequest, ReplanRequest

if TYPE_CHECKING:
    from datetime import datetime

    from saga_engine.core.interpret import Advice  # it would import the state machine, which a plan does not need
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.planner.other_way import OtherWay
    from saga_engine.policy.rules import Policy
    from saga_engine.ports import Allowance, PlannerAnswer, StepsCheck

_PLAN: Final = Terms(
    wanted="plan",
    refused="the goal cannot be served",
    refused_hint="this is the model's own word; give it other tools, or say the goal in another way",
    failed_hint="the transcript has what it said; try another model, more rounds, or clearer descriptions of tools",
)
_COMPENSATION: Final = Terms(
    wanted="steps",
    refused="nothing makes up for the step",
    refused_hint="this is the model's own word; a person decides",
    failed_hint="a person decides; another model may do better",
)
_OTHER_WAY: Final = Terms(
    wanted="steps",
    refused="there is no other way to the goal",
    refused_hint="this is the model's own word",
    failed_hint="another model may do better",
)


@dataclass(frozen=True, slots=True)
class PlannedPlan:
    """A checked plan and its origin.

    ``source``: who made it. ``notes``: repairs and remarks. ``rounds``: how often the model was asked. ``usage`` is the
    part of ``budget`` that was used (null: no limit). ``transcript``: for each round the answer (cut), its problems and
    its usage. ``tools_shown`` of ``tools_known`` tools were described to the model; the others were only named.
    ``reads`` are the lookups that were made for the plan: tool, params, and whether each worked.
    ``review``: the ``irreversible`` calls, the ``undos`` and who wrote them, the ``approvals`` that the policy wants,
    and the ``simulation`` of each single failure. ``changes``: of a revision, what was ``added``, ``removed`` and
    ``changed``.
    """

    plan: Plan
    source: Literal["model", "prepared"]
    model: str = ""
    prompt: str = ""
    rounds: int = 0
    usage: PlannerUsage = field(default_factory=PlannerUsage)
    notes: tuple[str, ...] = ()
    transcript: tuple[Mapping[str, Any], ...] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)
    tools_shown: int = 0
    tools_known: int = 0
    reads: tuple[Mapping[str, Any], ...] = ()
    review: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the author of the plan took for granted."""
        return self.plan.assumptions

    def with_on_failure(self, on_failure: str | None) -> PlannedPlan:
        """The same plan with another ``on_failure``, which no model sets; None: as it is. Raises ``PlanInvalid``."""
        if on_failure is None:
            return self
        from saga_engine.plan.model import load_plan

        return replace(self, plan=load_plan({**self.plan.model_dump(exclude_unset=True), "on_failure": on_failure}))

    def to_dict(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "plan": self.plan.model_dump(mode="json", exclude_unset=True),
            "source": self.source,
            "model": self.model,
            "prompt": self.prompt,
            "rounds": self.rounds,
            "usage": self.usage.to_dict(),
            "budget": dict(self.budget),
            "notes": list(self.notes),
            "transcript": [dict(entry) for entry in self.transcript],
            "review": as_texts(self.review),
            "changes": None if self.changes is None else dict(self.changes),
            "reads": [dict(made) for made in self.reads],
            "assumptions": list(self.assumptions),
            "tools": {"shown": self.tools_shown, "known": self.tools_known},
        }


@dataclass(frozen=True, slots=True)
class Planning:
    """A planner and its settings. With a planner it is a ``ports.Advisor``; without one there are prepared plans.

    ``select`` chooses the tools that a planner is offered for a stuck saga, if there are more than
    ``settings.tools_offered``: those of the steps in question come first, then those that it finds (without it, the
    first ones). ``withheld``: tools that are not offered, because the policy denies every call of them. Raises
    ``PlannerUnavailable`` for an object that is no planner.
    """

    planner: Planner | None
    settings: PlannerSettings = field(default_factory=PlannerSettings)
    select: SelectTools | None = None
    withheld: Callable[[ToolSpec], bool] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked, before a saga counts on it."""
        given: Any = self.planner
        if given is None:
            return
        model = getattr(given, "model", None)
        if not isinstance(model, str) or not model:
            raise _no_planner(given, "has no 'model', the name of its model as a text")
        if not callable(getattr(given, "ask", None)):
            raise _no_planner(given, "has no method 'ask'")

    @classmethod
    def of(cls, given: str | Planner | PlannerSettings, select: SelectTools | None = None) -> Planning:
        """From ``provider:name`` (the environment has the rest), from settings, or from a planner.

        A planner that is no ``ModelPlanner`` gets the default limits. The model's packages are not loaded before a
        request. Raises ``PlannerUnavailable`` for a name without a model and for an object that is no planner, and
        ``SettingInvalid``.
        """
        if isinstance(given, str):
            given = ModelPlanner(planner_settings({}, {"model": given}))
        if isinstance(given, PlannerSettings):
            return cls(ModelPlanner(given) if given.model else None, given, select)
        return cls(given, given.settings if isinstance(given, ModelPlanner) else PlannerSettings(), select)

    def choose(self, goal: str, catalog: ToolCatalog, limit: int | None = None, tags: Iterable[str] = ()) -> Chosen:
        """The tools of a catalog to show for a goal, at most ``tools_offered``, and those that are only named."""
        most = self.settings.tools_offered if limit is None else limit
        return choose_tools(goal, catalog, most, tags=tags, select=self.select)

    @property
    def advisor(self) -> Planning | None:
        """Itself, if there is a planner to ask."""
        return None if self.planner is None else self

    async def plan(
        self,
        goal: str,
        specs: Sequence[ToolSpec],
        *,
        catalog: ToolCatalog | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        intent: str | None = None,
        progress: Progress | None = None,
        hidden: Sequence[ToolSpec] = (),
        answers: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        call_read: ReadCall | None = None,
        revises: Plan | None = None,
        policy: Policy | None = None,
        may_use: Iterable[str] | None = None,
        on_failure: str | None = None,
    ) -> PlannedPlan:
        """A plan for ``goal`` that uses ``specs`` and no other tools, checked as ``saga check`` would.

        ``catalog`` resolves the registered undos of the tools. ``input`` are the values of ``$input.…``; they become
        part of the plan. If there is no planner, or it cannot answer, the prepared plan is used: that of ``intent``,
        else that of this goal. ``progress`` gets each round's entry of the transcript as soon as the round ends.

        ``hidden`` are tools that the model may ask for by name, and sees if it says that the goal is impossible.
        ``answers`` are the user's answers to its questions, by name. ``now`` is told to the model, with its time zone.
        ``call_read`` makes the lookups that the model asks for, with the tools in ``settings.reads``. ``revises`` is a
        plan of which ``goal`` is a change; the review asks ``policy``; ``may_use`` replaces ``settings.may_use``.
        ``on_failure`` is the plan's; no model sets it.
        Raises ``PlannerAsks`` (the model has questions), ``PlannerNeeds`` (parts that ``may_use`` does not name),
        ``PlannerUnavailable``, ``ModelUnreachable``, ``GoalImpossible``, ``PlannerFailed`` (no valid plan; with the
        transcript), ``PlanInvalid`` (the goal or the prepared plan), ``ValueNotJson``, and ``SettingInvalid`` for an
        intent without a prepared plan.
        """
        prepared, goal = self.prepared(goal, intent), _whole_goal(goal, revises)
        given: dict[str, Any] = plain({**({} if revises is None else revises.input), **(input or {})})
        specs = self._permitted(specs)
        request = PlanRequest(
            goal,
            list(specs),
            given,
            tuple(sorted(set(self.settings.secrets))),
            hidden=self._permitted(hidden),
            answers=plain(dict(answers or {})),
            reads=() if call_read is None else self._reads([*specs, *hidden], catalog),
            revises=None if revises is None else revises.model_dump(mode="json", exclude_unset=True),
            may_use=self.settings.may_use if may_use is None else allowed_features(list(may_use)),
            now=_told_time(now),
            on_failure=on_failure or "",
        )
        dialog = self._dialog(request, catalog, call_read)
        try:
            planner = self._asked
            asked = Rounds(planner.model, planner.ask, request, dialog.review, _PLAN, *self._limits, progress)
            asked.follow, asked.hint = dialog.follow, allowing_hint
            plan, answer, notes = await self._best(asked, dialog)
        except (PlannerUnavailable, ModelUnreachable) as error:
            if prepared is None:
                raise
            return _as_prepared(*prepared, goal, given, dialog.offer if catalog is None else catalog, error)
        return PlannedPlan(
            plan,
            "model",
            answer.model,
            answer.prompt,
            *asked.figures(notes),
            **dialog.facts,
            review=review_facts(plan, dialog.offer, policy),
            changes=None if revises is None else plan_changes(revises, plan),
        )

    def _dialog(self, request: PlanRequest, catalog: ToolCatalog | None, call_read: ReadCall | None) -> PlanDialog:
        rules = {**self._rules, "may_use": request.may_use}
        return PlanDialog(request, catalog, rules, reads=None if call_read is None else PlanReads(call_read))

    async def _best(self, asked: Rounds[Plan], dialog: PlanDialog) -> tuple[Plan, PlannerAnswer, tuple[str, ...]]:
        """The first plan that passes; or a better one, if a simulated failure of it leaves an effect."""
        plan, answer, notes = await asked.run()
        first = rehearsal_of(plan, dialog.offer)
        if not improvable(first, plan, dialog.offer):
            return plan, answer, notes
        again = await asked.once_more(answer, left_behind(first, plan))
        if again is None:
            return plan, answer, notes
        left = rehearsal_of(again[0], dialog.offer).count("left")
        if left >= first.count("left"):
            return plan, answer, notes
        note = f"the model improved its plan: {left} simulated failures leave an effect, not {first.count('left')}"
        return again[0], again[1], (*notes, note)

    def goals(self, goal: str, intent: str | None = None) -> set[str]:
        """The goals that a plan for ``goal`` may have: it, and that of its prepared plan."""
        from saga_engine.plan.model import load_plan

        prepared = self.prepared(goal, intent)
        return {goal} if prepared is None else {goal, load_plan(prepared[1]).goal}

    async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
        """Steps that pass the check, for a saga that is stuck.

        Raises ``GoalImpossible`` (the model says so), ``PlannerFailed`` (no steps that pass), ``ModelUnreachable`` and
        ``PlannerUnavailable``.
        """
        from saga_engine.core.interpret import Advice
        from saga_engine.core.records import Written
        from saga_engine.planner.other_way import OtherWay, review_other_way

        compensating = isinstance(request, CompensationRequest)
        offer = self._offer(request)
        if compensating and not offer.offered:
            raise PlannerUnavailable(
                "no tool may make up for another's call, so no model was asked",
                hint="mark the tools that may with compensates=True; a policy may deny them",
            )

        def review(data: Mapping[str, Any], notes: list[str]) -> tuple[OtherWay | None, list[Problem]]:
            if isinstance(request, ReplanRequest):
                return review_other_way(data, offer, request, check, notes)
            steps, problems = review_compensation(data, offer, request, check, notes)
            return None if steps is None else OtherWay(steps, {}), problems

        assert self.planner is not None, "only a planner advises"
        question = replace(request, tools=list(offer.offered.values()))
        if isinstance(question, ReplanRequest):
            question = replace(question, may_use=offer.may_use)
        terms = _COMPENSATION if compensating else _OTHER_WAY
        asked = Rounds(self.planner.model, self._ask, question, review, terms, *self._limits)
        way, answer, _ = await asked.run()
        written = Written(answer.model, answer.prompt, answer.prompt_digest, **asked.usage.to_dict())
        return Advice(way.steps, written, dropped=way.dropped)

    @property
    def _rules(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "undo_by_model": settings.undo_by_model,
            "max_steps": settings.max_steps,
            "may_use": settings.may_use,
        }

    @property
    def _asked(self) -> Planner:
        if self.planner is None:
            raise PlannerUnavailable(
                "no model is configured", hint="set SAGA_MODEL=provider:name, or give --model provider:name"
            )
        return self.planner

    @property
    def _limits(self) -> tuple[int, Allowance]:
        return self.settings.rounds, self.settings.allowance()

    async def _ask(self, request: PlannerRequest) -> PlannerAnswer:
        assert self.planner is not None, "only a planner advises"
        try:
            return await self.planner.ask(request)
        except SagaError:
            raise
        except Exception as error:
            # A planner may be foreign code: its defect must end the question, never the saga.
            said = printable(f"{type(error).__name__}: {error}", 500)
            raise ModelUnreachable(
                f"{self.planner.model} could not be asked: {said}", hint="this is a defect of the planner"
            ) from error

    def _reads(self, specs: Sequence[ToolSpec], catalog: ToolCatalog | None) -> tuple[str, ...]:
        """The offered tools that may be called while planning. Raises ``SettingInvalid`` for a tool that writes."""
        for name in self.settings.reads:
            spec = None if catalog is None else catalog.spec(name)
            if spec is None or spec.effect != "read":
                what = "is no tool here" if spec is None else "writes"
                raise SettingInvalid(
                    f"reads in [planner] names {printable(name, 80)}, which {what}",
                    hint="name tools that are declared with effect='read'",
                )
        return tuple(spec.name for spec in specs if spec.name in self.settings.reads)

    def _permitted(self, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
        """The tools that may be called at all."""
        return [spec for spec in specs if self.withheld is None or not self.withheld(spec)]

    def _offer(self, request: CompensationRequest | ReplanRequest) -> Offer:
        """The tools that the model is offered; the undos of all of them are known."""
        # The check knows which secrets the saga may bind.
        tools = self._permitted(request.tools)
        rules = {**self._rules, "may_use": ()}
        if isinstance(request, ReplanRequest):  # what the plan has, its other way may have
            rules["may_use"] = tuple(dict.fromkeys([*self.settings.may_use, *request.may_use]))
        whole, limit = Offer(tools, secrets=None, **rules), self.settings.tools_offered
        if len(tools) <= limit:
            return whole
        step, left = (request.stuck, ()) if isinstance(request, CompensationRequest) else (request.failed, request.left)
        needed = [step.tool, *(str(each.get("tool", "")) for each in left)]
        # The text that tools are chosen by contains no result of a tool.
        words = " ".join([request.goal, step.name, *(str(each.get("name") or "") for each in left), *needed])
        names = [name for name in dict.fromkeys(needed) if name in whole.offered][:limit]
        rest = Offer([spec for spec in tools if spec.name not in names])
        room = limit - len(names)
        found = list(rest.offered.values())[:room] if self.select is None else self.select(words, rest, room)
        # The result of ``select`` can only narrow what may be used.
        names += [spec.name for spec in found if spec.name in rest.offered]
        return Offer([whole.offered[name] for name in names], whole, secrets=None, **rules)

    def prepared(self, goal: str, intent: str | None) -> tuple[str, Path | Mapping[str, Any]] | None:
        """Intent and source of the prepared plan for ``intent``; without it, of the one for exactly this goal.

        Raises ``SettingInvalid`` for an intent without a prepared plan.
        """
        plans = self.settings.prepared_plans
        if intent is not None:
            if intent not in plans:
                raise SettingInvalid(
                    f"there is no plan for the intent {intent!r}",
                    hint=f"[planner.prepared_plans] in saga.toml has: {', '.join(plans) or 'none'}",
                )
            return intent, plans[intent]
        wanted = goal.strip()
        if wanted in plans:
            return wanted, plans[wanted]
        return next(((name, source) for name, source in plans.items() if _goal_of(source) == wanted), None)


def allowing_hint(problems: Iterable[Problem]) -> str:
    """The options that allow what a model used without leave; empty: it used nothing."""
    parts = refused_parts(problems)
    return f"to allow it: saga plan … {command(parts)} (in Python may_use={parts!r})" if parts else ""


def _no_planner(given: Any, lacks: str) -> PlannerUnavailable:
    return PlannerUnavailable(
        f"the planner {printable(type(given).__name__, 80)} {lacks}",
        hint="give 'provider:name', PlannerSettings, or an object with both members of saga_engine.ports.Planner",
    )


def _whole_goal(goal: str, revises: Plan | None) -> str:
    """A goal; for a revision the goal of the plan with the change. Raises ``PlanInvalid``."""
    if not goal.strip() or len(goal) > MAX_GOAL_CHARS:
        message = f"a goal is a text of 1 to {MAX_GOAL_CHARS} characters; this has {len(goal)}"
        raise PlanInvalid([Problem("field-invalid", "$.goal", message, "say in a sentence what is wanted")])
    whole = goal if revises is None or not revises.goal else f"{revises.goal}\nChange: {goal}"
    if len(whole) > MAX_GOAL_CHARS:
        message = f"the goal of the plan with its change has {len(whole)} characters, more than {MAX_GOAL_CHARS}"
        raise PlanInvalid([Problem("field-invalid", "$.goal", message, "say the whole goal anew, in fewer words")])
    return whole


def _told_time(now: datetime | None) -> str:
    return "" if now is None else f"{now:%Y-%m-%d %H:%M, %A}, time zone {now:%Z} (UTC{now:%z})"


def _goal_of(source: Path | Mapping[str, Any]) -> str | None:
    from saga_engine.plan.model import load_plan

    try:
        return load_plan(source).goal.strip()
    except PlanInvalid:
        return None  # a plan that was not requested is checked when it is used


def _as_prepared(  # noqa: PLR0917
    intent: str,
    source: Path | Mapping[str, Any],
    goal: str,
    given: dict[str, Any],
    catalog: ToolCatalog,
    reason: SagaError,
) -> PlannedPlan:
    """The prepared plan of an intent; a person wrote it, so it may use every tool. Raises ``PlanInvalid``."""
    from saga_engine.plan.compiler import check_plan
    from saga_engine.plan.model import load_plan

    plan = load_plan(source)
    changes: dict[str, Any] = {"input": {**plan.input, **given}} if given else {}
    if not plan.goal:
        changes["goal"] = goal
    if changes:
        plan = load_plan({**plan.model_dump(exclude_unset=True), **changes})
    problems = check_plan(plan, catalog)
    if problems:
        raise PlanInvalid(problems) from reason
    notes = (f"no model was used ({reason.message}): this is the plan prepared for '{intent}'",)
    return PlannedPlan(plan, "prepared", notes=notes)
