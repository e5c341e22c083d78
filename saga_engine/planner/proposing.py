"""From a goal to a plan that the engine can trust: ask, read, mend, check, and ask again with what was wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from saga_engine.errors import (
    GoalImpossible,
    ModelUnreachable,
    PlanInvalid,
    PlannerFailed,
    PlannerUnavailable,
    Problem,
    SagaError,
)
from saga_engine.plan.limits import MAX_GOAL_CHARS
from saga_engine.plan.values import plain, printable
from saga_engine.planner.offering import Offer
from saga_engine.ports import Allowance, Planner, PlannerUsage, PlanRequest, Repair

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tooling import ToolCatalog, ToolSpec
    from saga_engine.planner.fallbacks import FallbackPlan
    from saga_engine.ports import PlannerAnswer

#: What one plan may use where nothing else is said.
DEFAULT_ALLOWANCE = Allowance(requests=10, tokens=200_000, cost_usd=None, seconds=60.0)
_SAID_CHARS = 4000
_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True)
class PlannedPlan:
    """A checked plan and how it came about.

    ``source``: who made it. ``notes``: what was mended or should be known. ``rounds``: how often the model was asked.
    ``transcript``: for each round what was said (cut), what was wrong with it and what it used.
    """

    plan: Plan
    source: Literal["model", "fallback"]
    model: str
    prompt: str
    rounds: int
    usage: PlannerUsage
    notes: tuple[str, ...] = ()
    transcript: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "plan": self.plan.model_dump(mode="json", exclude_unset=True),
            "source": self.source,
            "model": self.model,
            "prompt": self.prompt,
            "rounds": self.rounds,
            "usage": usage_dict(self.usage),
            "notes": list(self.notes),
            "transcript": [dict(entry) for entry in self.transcript],
        }


def usage_dict(usage: PlannerUsage) -> dict[str, Any]:
    """What was used, as one JSON object."""
    return {
        "requests": usage.requests,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cost_usd": usage.cost_usd,
        "seconds": round(usage.seconds, 3),
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
    fallback: FallbackPlan | None = None,
) -> PlannedPlan:
    """A plan for ``goal`` that uses ``specs`` and no other tools, checked as ``saga check`` would.

    ``catalog`` is where the registered undos of the tools are found. ``input`` are the values of ``$input.…``; they
    become part of the plan. The model is asked ``rounds`` times at most, within ``allowance`` for all of them.
    Without a planner, or when it cannot be asked, ``fallback`` is used if it is given and valid.

    Raises ``PlannerUnavailable``, ``ModelUnreachable``, ``GoalImpossible``, ``PlannerFailed`` (no valid plan; with the
    transcript), ``PlanInvalid`` (the goal or the fallback plan), ``ValueNotJson``.
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
        return await _Attempt(goal, list(specs), planner, offer, given, allowance).plan(rounds)
    except (PlannerUnavailable, ModelUnreachable) as error:
        if fallback is None:
            raise
        return _prepared(fallback, goal, given, offer if catalog is None else catalog, error)


@dataclass(slots=True)
class _Attempt:
    """One plan in the making."""

    goal: str
    specs: list[ToolSpec]
    planner: Planner
    offer: Offer
    input: dict[str, Any]
    allowance: Allowance
    used: PlannerUsage = field(default_factory=PlannerUsage)
    transcript: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    async def plan(self, rounds: int) -> PlannedPlan:
        try:
            async with asyncio.timeout(self.allowance.seconds) as limit:
                return await self._rounds(rounds)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ModelUnreachable(
                f"{self.planner.model} gave no plan within {self.allowance.seconds:g} seconds",
                hint="ask again, or allow more time: SAGA_MODEL_TOTAL_S",
                rounds=len(self.transcript),
                transcript=self.transcript,
            ) from error

    async def _rounds(self, rounds: int) -> PlannedPlan:
        repair: Repair | None = None
        for number in range(1, rounds + 1):
            left = self._left()
            answer = await self.planner.propose(
                PlanRequest(
                    self.goal, self.specs, self.input, tuple(sorted(self.offer.secrets)), repair=repair, allowance=left
                )
            )
            self._count(answer.usage)
            notes: list[str] = []
            plan, problems = self._judge(answer, notes)
            self._write_down(number, answer, problems, notes)
            if plan is not None and not problems:
                used = replace(self.used, seconds=time.monotonic() - self.started)
                if self.allowance.cost_usd is not None and self.used.cost_usd is None:
                    notes.append("the price of this model is not known, so the limit on cost was not applied")
                said = tuple(self.transcript)
                return PlannedPlan(plan, "model", answer.model, answer.prompt, number, used, tuple(notes), said)
            repair = Repair(answer.json_text or answer.text, problems, notes)
        raise self._failed(f"gave no valid plan in {rounds} round{'s' if rounds != 1 else ''}", repair)

    def _judge(self, answer: PlannerAnswer, notes: list[str]) -> tuple[Plan | None, list[Problem]]:
        """The plan in an answer, mended, and what is still wrong with it. Raises ``GoalImpossible``."""
        try:
            data = read_answer(answer)
        except PlanInvalid as error:
            return None, error.problems
        reason = impossible(data)
        if reason is not None:
            raise GoalImpossible(
                f"the goal cannot be served: {reason}",
                hint="this is the model's own word; give it other tools, or say the goal in another way",
                model=answer.model,
                usage=usage_dict(self.used),
            )
        return judge_plan(data, self.offer, goal=self.goal, input=self.input, notes=notes)

    def _left(self) -> Allowance:
        """What the next question may use. Raises ``PlannerFailed`` when there is nothing left."""
        whole, used = self.allowance, self.used
        left = Allowance(
            None if whole.requests is None else whole.requests - used.requests,
            None if whole.tokens is None else whole.tokens - used.tokens_in - used.tokens_out,
            None if whole.cost_usd is None else whole.cost_usd - (used.cost_usd or 0.0),
            whole.seconds,
        )
        for name, rest in (("requests", left.requests), ("tokens", left.tokens), ("cost_usd", left.cost_usd)):
            if rest is not None and rest <= 0:
                raise self._failed(f"used up its budget of {name}", None)
        return left

    def _count(self, usage: PlannerUsage) -> None:
        known = [cost for cost in (self.used.cost_usd, usage.cost_usd) if cost is not None]
        self.used = PlannerUsage(
            self.used.tokens_in + usage.tokens_in,
            self.used.tokens_out + usage.tokens_out,
            self.used.requests + usage.requests,
            sum(known) if known else None,
            self.used.seconds + usage.seconds,
        )

    def _write_down(self, number: int, answer: PlannerAnswer, problems: list[Problem], notes: list[str]) -> None:
        self.transcript.append(
            {
                "round": number,
                "prompt": answer.prompt,
                "prompt_digest": answer.prompt_digest,
                "answer": printable(answer.text, _SAID_CHARS),
                "problems": [problem.to_dict() for problem in problems],
                "notes": list(notes),
                "usage": usage_dict(answer.usage),
            }
        )

    def _failed(self, what: str, repair: Repair | None) -> PlannerFailed:
        problems = repair.problems if repair is not None else ()
        first = f"; the last try: {problems[0].message} at {problems[0].path}" if problems else ""
        return PlannerFailed(
            f"{self.planner.model} {what}{first}",
            hint="the transcript has what it said; try another model, more rounds, or clearer descriptions of tools",
            rounds=len(self.transcript),
            usage=usage_dict(replace(self.used, seconds=time.monotonic() - self.started)),
            problems=[problem.to_dict() for problem in problems],
            transcript=self.transcript,
        )


# --- reading and judging -------------------------------------------------------------------------------------------


def read_answer(answer: PlannerAnswer) -> dict[str, Any]:
    """The object in an answer, read as strictly as a plan file. Raises ``PlanInvalid``."""
    from saga_engine.plan.reading import read_source
    from saga_engine.planner.extracting import is_cut

    if not answer.json_text:
        cut_off = is_cut(answer.text)
        message = (
            "the JSON object has no end: the answer was cut off" if cut_off else "the answer has no object with steps"
        )
        hint = "answer in fewer words, with the JSON object alone" if cut_off else "answer with the JSON object alone"
        raise PlanInvalid([Problem("plan-not-json", "$", message, hint)])
    return read_source(answer.json_text)


def impossible(data: Mapping[str, Any]) -> str | None:
    """Why a model says that the goal cannot be served, fit to print; ``None`` if it does not say so."""
    reason = data.get("impossible")
    if data.get("steps") or reason in (None, "", False):
        return None
    return printable(reason if isinstance(reason, str) else str(reason), _REASON_CHARS)


def judge_plan(
    data: Mapping[str, Any],
    offer: Offer,
    *,
    goal: str,
    input: Mapping[str, Any],  # noqa: A002 - the plan's own word
    notes: list[str],
) -> tuple[Plan | None, list[Problem]]:
    """A plan made of an answer, mended as far as possible, and what is wrong with it.

    The goal is the one that was asked for, whatever the model made of it, and the caller's input wins.
    """
    from saga_engine.plan.checks import check_plan
    from saga_engine.plan.model import load_plan
    from saga_engine.planner.mending import mend_form, move_pivot_last

    form = mend_form(data, offer, notes)
    own = form.get("input")
    form = {"goal": goal, **{name: value for name, value in form.items() if name not in ("goal", "input")}}
    merged = {**(own if isinstance(own, dict) else {}), **input}
    if merged:
        form["input"] = merged
    try:
        plan = load_plan(form)
    except PlanInvalid as error:
        return None, error.problems
    plan = move_pivot_last(plan, offer, notes)
    return plan, [*offer.problems(plan), *check_plan(plan, offer)]


def _prepared(
    fallback: FallbackPlan, goal: str, given: dict[str, Any], catalog: ToolCatalog, reason: SagaError
) -> PlannedPlan:
    """The plan prepared for an intent; a person wrote it, so it may use every tool there is. Raises ``PlanInvalid``."""
    from saga_engine.plan.checks import check_plan
    from saga_engine.plan.model import load_plan

    plan = load_plan(fallback.source)
    changes: dict[str, Any] = {"input": {**plan.input, **given}} if given else {}
    if not plan.goal:
        changes["goal"] = goal
    if changes:
        plan = load_plan({**plan.model_dump(exclude_unset=True), **changes})
    problems = check_plan(plan, catalog)
    if problems:
        raise PlanInvalid(problems) from reason
    notes = (f"no model was used ({reason.message}): this is the plan prepared for '{fallback.intent}'",)
    return PlannedPlan(plan, "fallback", "", "", 0, PlannerUsage(), notes)
