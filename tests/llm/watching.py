"""A planner that is listened to: what was asked, what was answered, and the laws that hold whatever that was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from saga_engine.errors import GoalImpossible, PlannerFailed, SagaError
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.values import printable
from saga_engine.planner.json_extract import find_object, is_cut
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.planning import PlannedPlan, Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import PlannerAnswer, PlanRequest
from saga_engine.tools.registry import ToolRegistry
from tests.llm import tiny_tools
from tests.llm.local_model import ANSWER_TOKENS

TOOLS = ToolRegistry([tiny_tools.book_room, tiny_tools.cancel_room, tiny_tools.send_mail])
#: A line for each plan that was asked for; printed after the tests.
HEARD: list[str] = []


class Watched:
    """A ``ports.Planner`` that asks the real model and remembers both sides. ``first``: answers given in its place."""

    def __init__(self, settings: PlannerSettings, *first: str) -> None:
        self._real = ModelPlanner(settings)
        self._first = list(first)
        self.model = self._real.model
        self.asked: list[PlanRequest] = []
        self.answers: list[PlannerAnswer] = []

    async def ask(self, request: PlanRequest) -> PlannerAnswer:
        self.asked.append(request)
        answer = await self._real.ask(request)
        if self._first:
            text = self._first.pop(0)
            answer = replace(answer, text=text, json_text=find_object(text))
        self.answers.append(answer)
        return answer


@dataclass
class Outcome:
    """What came of one goal: a plan, or an error."""

    goal: str
    settings: PlannerSettings
    planner: Watched
    planned: PlannedPlan | None = None
    error: SagaError | None = None
    offered: tuple[str, ...] = field(default=())

    @property
    def transcript(self) -> list[dict[str, Any]]:
        found = self.planned.transcript if self.planned is not None else self.error.context.get("transcript", ())
        return [dict(entry) for entry in found]

    @property
    def usage(self) -> dict[str, Any]:
        return self.planned.to_dict()["usage"] if self.planned is not None else self.error.context["usage"]


async def plan(goal: str, *tools: str, settings: PlannerSettings, first: tuple[str, ...] = ()) -> Outcome:
    """Have the real model plan a goal with these tools. Any error but one of ours is raised."""
    outcome = Outcome(goal, settings, Watched(settings, *first), offered=tools)
    specs = [TOOLS.spec(name) for name in tools]
    try:
        outcome.planned = await Planning(outcome.planner, settings).plan(goal, specs, catalog=TOOLS)
    except SagaError as error:
        outcome.error = error
    HEARD.append(_line(outcome))
    return outcome


def _line(outcome: Outcome) -> str:
    said = "a plan" if outcome.planned is not None else outcome.error.code
    entries = outcome.transcript
    codes = [",".join(sorted({problem["code"] for problem in entry["problems"]})) or "good" for entry in entries]
    used = outcome.usage if outcome.planned is not None or "usage" in outcome.error.context else {}
    figures = f"{used['tokens_in']} + {used['tokens_out']} tokens, {used['seconds']:.0f} s" if used else "no figures"
    return f"{outcome.settings.output:9} {outcome.goal[:40]:40} {said}; rounds: {' / '.join(codes) or '-'}; {figures}"


def assert_lawful(outcome: Outcome) -> None:
    """What must hold whatever a model says."""
    planner, transcript, usage = outcome.planner, outcome.transcript, outcome.usage
    assert planner.answers, f"the model was not reached: {outcome.error}"
    if outcome.planned is not None:
        accepted = outcome.planned.plan
        assert check_plan(accepted, TOOLS) == []
        assert accepted.goal == outcome.goal
        assert {step.tool for step in accepted.steps} <= set(outcome.offered)
    else:
        # It was reached, so what is wrong is what it said.
        assert isinstance(outcome.error, PlannerFailed | GoalImpossible), outcome.error
        assert outcome.error.message
        assert outcome.error.hint
    if not isinstance(outcome.error, GoalImpossible):
        said = [printable(answer.text, 4000) for answer in planner.answers]
        assert [entry["answer"] for entry in transcript] == said
        assert [bool(entry["problems"]) for entry in transcript[:-1]] == [True] * (len(said) - 1)
        assert bool(transcript[-1]["problems"]) == (outcome.planned is None)
    # After a faulty answer the model is told what was wrong, and only then.
    assert planner.asked[0].repair is None
    for before, asked in zip(transcript, planner.asked[1:], strict=False):
        assert [problem.to_dict() for problem in asked.repair.problems] == before["problems"]
    assert len(planner.answers) <= outcome.settings.rounds
    assert usage["requests"] == sum(answer.usage.requests for answer in planner.answers)
    assert usage["requests"] <= outcome.settings.max_requests
    assert usage["tokens_in"] == sum(answer.usage.tokens_in for answer in planner.answers) > 0
    assert usage["seconds"] <= outcome.settings.total_s
    assert all(0 < answer.usage.tokens_out <= ANSWER_TOKENS for answer in planner.answers)


def read_whole(answer: PlannerAnswer) -> Any:
    """The JSON that an answer is, to its last character; ``None`` if it broke off because it became too long."""
    try:
        return json.loads(answer.text)
    except ValueError:
        assert is_cut(answer.text), answer.text
        return None
