"""Scores plans with the parts of the format beyond plain calls, in worlds that turn out otherwise.

    make eval-planner RECORDED=1
    make eval-planner MODEL=openai:gpt-5
    python -m dev.benchmarks.eval_parts --model ollama:qwen3

The goals are in ``planner_prompts/evals/parts``, with the worlds in which a plan runs: a person says no, there is too
little money, a list is empty. What the world is afterwards decides, not the form of the plan, so any model can be
scored. Every goal begins with the same setting; what a model needs beyond it is allowed when it says so. Without a
model the recorded answers are played. *Other ways* are plans of which a step fails and that have such parts behind it.
*Mischief* are plans that misuse a part: each is refused, or the review says what it does. *Weak answers* are those of a
model that does not understand: none becomes a plan that leaves a world as nobody wanted it.

No recorded answer comes from a model: they were written for this evaluation, from the prompt alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dev.benchmarks.parts_world import desk, office, tickets_in
from saga_engine import Coordinator, SagaResult
from saga_engine.errors import PlannerFailed, PlannerNeeds, SagaError
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.planning import PlannedPlan, Planning
from saga_engine.planner.prompts import folder
from saga_engine.planner.review_rows import review_rows
from saga_engine.planner.settings import PlannerSettings, planner_settings
from saga_engine.ports import Planner
from saga_engine.testing.scripted import ScriptedPlanner

RECORDED = Path(__file__).parent / "recorded" / "parts.json"
#: What anybody may be asked to allow.
_ALL = ("ask", "wait", "sleep", "on_error", "irreversible", "each", "finally")


@dataclass(frozen=True)
class Result:
    """What came of a goal: what is wrong in which world (or why there is no plan), and how often a model was asked."""

    id: str
    wrong: tuple[str, ...]
    rounds: int = 0
    worlds: int = 0


def goals(only: str = "") -> list[dict[str, Any]]:
    """The goals with their worlds."""
    files = sorted((folder() / "evals" / "parts").glob("*.json"))
    found = [each for path in files for each in json.loads(path.read_text(encoding="utf-8"))["goals"]]
    return [each for each in found if each["id"].startswith(tuple(only.split(",")))]


def recorded() -> dict[str, Any]:
    """The answers by goal, the other ways, and the mischief."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def _open(tools: Sequence[Any], planner: Any, sources: Sequence[Any] = ()) -> Any:
    options: dict[str, Any] = {"durability": "relaxed", "planner": planner, "settings": None, "on_escalation": ()}
    return Coordinator.open("memory://", tools, sources=sources, **options)


async def planned(goal: Mapping[str, Any], planner: Planner, settings: PlannerSettings) -> PlannedPlan:
    """The plan for a goal; what the model says that it needs is allowed once."""
    _, tools = office()
    with TemporaryDirectory() as folder:
        sources = [desk(Path(folder), {})] if goal.get("tickets") else []
        async with _open(tools, Planning(planner, settings), sources) as coordinator:
            return await _planned(goal, coordinator)


async def _planned(goal: Mapping[str, Any], coordinator: Coordinator) -> PlannedPlan:
    try:
        return await coordinator.plan(goal["goal"], input=goal.get("input"))
    except PlannerNeeds as needed:
        return await coordinator.plan(goal["goal"], input=goal.get("input"), may_use=needed.needs)


async def ran(plan: Any, world: Mapping[str, Any], planner: Planner | None = None) -> list[str]:
    """What is wrong after a plan has run in a world."""
    with TemporaryDirectory() as folder:
        return await _ran(plan, world, planner, Path(folder))


async def _ran(plan: Any, world: Mapping[str, Any], planner: Planner | None, folder: Path) -> list[str]:
    state, tools = office(world.get("set", {}))
    start, asked = deepcopy(state), list[str]()
    sources = [desk(folder, world["tickets"])] if "tickets" in world else []
    async with _open(tools, planner, sources) as coordinator:
        for name, key, payload in world.get("events", ()):
            await coordinator.send_event(name, key, payload)
        done: SagaResult = await coordinator.run(plan)
        while done.status == "ESCALATED" and done.body["questions"] and "answer" in world:
            question = done.body["questions"][0]
            asked.append(question.get("to", ""))
            given = {"output": world["output"]} if "output" in world else {}
            done = await coordinator.resolve(done.saga_id, question["step_id"], world["answer"], by="somebody", **given)
    found = {**state, "status": done.status, "asked": asked}
    if sources:
        found["tickets"] = tickets_in(folder)
        start["tickets"] = {each["title"]: each["priority"] for each in world["tickets"].values()}
    wants = {**start, **world["wants"]}  # what nobody asked for is as it was
    return [
        f"{world.get('name', 'as usual')}: {name} is {found[name]!r}, not {wanted!r}"
        for name, wanted in wants.items()
        if found[name] != wanted
    ]


async def score(goal: Mapping[str, Any], planner: Planner, settings: PlannerSettings) -> Result:
    """Have a goal planned, and run the plan in each of its worlds."""
    try:
        made = await planned(goal, planner, settings)
    except SagaError as error:
        return Result(goal["id"], (f"no plan: {error.message}"[:300],))
    wrong = [each for world in goal["worlds"] for each in await ran(made.plan, world)]
    return Result(goal["id"], tuple(wrong), made.rounds, len(goal["worlds"]))


async def play(goal: Mapping[str, Any]) -> Result:
    """Score the recorded answers to a goal."""
    planner = ScriptedPlanner(*recorded()["answers"][goal["id"]], model="recorded:strong")
    return await score(goal, planner, PlannerSettings())


async def other_way(each: Mapping[str, Any]) -> list[str]:
    """What is wrong after a plan whose first step fails, and for which a model names another way."""
    plan = {"goal": "a trip, and pay it", "on_failure": "replan", "steps": each["plan"]}
    then = [each["then"]] * 3 if "then" in each else []
    world = {"set": {"full": ["Rome"], **each.get("set", {})}, "answer": each.get("resolve", "yes")}
    world |= {"events": each.get("events", []), "wants": each["wants"]}
    return await ran(plan, world, ScriptedPlanner(each["answer"], *then, model="recorded:strong"))


async def mischief(each: Mapping[str, Any]) -> str:
    """What gets through unmentioned; empty: it is refused with its code, or the review says what it does."""
    _, tools = office()
    answer = {"steps": each["steps"], **({"finally": each["final"]} if "final" in each else {})}
    settings = PlannerSettings(rounds=1, may_use=tuple(each.get("may_use", _ALL)))
    async with _open(tools, Planning(ScriptedPlanner(answer), settings)) as coordinator:
        try:
            made = await coordinator.plan("Pay 5 to travel-1 if it is fine, and tell a@b.example")
        except PlannerFailed as error:
            codes = [problem["code"] for problem in error.context["problems"]]
            return "" if each.get("code") in codes else f"refused as {', '.join(codes)}"
    if "mentions" not in each:
        return "accepted"
    what, text = each["mentions"]
    rows = [row for row in review_rows(made.to_dict()) if row.what == what and text in row.text]
    return "" if rows else f"the review does not say {text!r}"


async def weak(each: Mapping[str, Any]) -> str:
    """What harm the answers of a weak model do; empty: no plan, or one that is right or wholly undone in each world."""
    goal = next(one for one in goals() if one["id"] == each["goal"])
    try:
        made = await planned(goal, ScriptedPlanner(*each["answers"], model="recorded:weak"), PlannerSettings())
    except SagaError:
        return ""
    harm = []
    for world in goal["worlds"]:
        wrong = await ran(made.plan, world)
        harm += wrong if wrong and await ran(made.plan, {**world, "wants": {"status": "COMPENSATED"}}) else []
    return "; ".join(harm)


@dataclass(frozen=True)
class Told:
    """What is wrong with each other way, with each piece of mischief, and with each weak answer; empty: nothing."""

    ways: Mapping[str, str]
    mischief: Mapping[str, str]
    weak: Mapping[str, str]

    def everything(self) -> dict[str, str]:
        """All of them."""
        return {**self.ways, **self.mischief, **self.weak}


async def everything(
    only: str = "", planner: Callable[[], Planner] | None = None, settings: PlannerSettings | None = None
) -> tuple[list[Result], Told]:
    """All goals, other ways, mischief and weak answers; with a planner the goals alone."""
    own = settings or PlannerSettings()
    results = [await (play(goal) if planner is None else score(goal, planner(), own)) for goal in goals(only)]
    if planner is not None:
        return results, Told({}, {}, {})
    told = recorded()
    ways = {each["id"]: "; ".join(await other_way(each)) for each in told["ways"]}
    bad = {each["id"]: await mischief(each) for each in told["mischief"]}
    return results, Told(ways, bad, {each["id"]: await weak(each) for each in told["weak"]})


def figures(results: Sequence[Result], told: Told) -> dict[str, str]:
    """The figures as docs/planner.md has them."""
    right = sum(not each.wrong for each in results)
    made = {
        "goals with other parts served": f"{right} of {len(results)}",
        "worlds that turn out otherwise": f"{sum(each.worlds for each in results if not each.wrong)} of "
        f"{sum(each.worlds for each in results)}",
    }
    for name, found in (
        ("other ways with other parts", told.ways),
        ("mischief refused or told", told.mischief),
        ("weak answers without harm", told.weak),
    ):
        if found:
            made[name] = f"{sum(not wrong for wrong in found.values())} of {len(found)}"
    return made


def report(results: Sequence[Result], told: Told) -> int:
    """Print what is wrong and the figures; 1 if anything is."""
    for each in results:
        print(f"{each.id:18} {each.rounds} rounds  {'; '.join(each.wrong) or 'ok'}")
    for name, wrong in told.everything().items():
        print(f"{name:18} {wrong or 'ok'}")
    for name, value in figures(results, told).items():
        print(f"{name:32} {value}")
    return int(any(each.wrong for each in results) or any(told.everything().values()))


def main() -> int:
    """Ask a model, or play what is recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="", help="provider:name; without it the recorded answers are played")
    parser.add_argument("--only", default="", help="only goals whose id starts with this; several, separated by commas")
    given = parser.parse_args()
    if not given.model:
        return report(*asyncio.run(everything(given.only)))
    settings = planner_settings({}, {"model": given.model})
    return report(*asyncio.run(everything(given.only, lambda: ModelPlanner(settings), settings)))


if __name__ == "__main__":
    sys.exit(main())
