"""Scores a model's plans: goals with tool catalogues from ``planner_prompts/evals``, reviewed by machine.

    make eval-planner MODEL=openai:gpt-5
    python dev/benchmarks/eval_planner.py --model ollama:qwen3 --only travel,files-02 --json figures.json

Each goal is planned as ``saga plan`` would, with its tools and nothing else, and each of these is right or wrong:

``valid``     the checks accept a plan within the rounds; for an impossible goal, the model says so instead
``writes``    every change that the goal asks for is a step, as often as it is asked for
``tools``     no other change, and none of the tools that only look right
``bindings``  what one step learns goes into the next by a binding, not by a guess; so do the values of the input
``order``     what must come first comes first, and what need not wait does not
``undo``      the pivot is the step that cannot be undone, and undos are those that the goal asks for
``clean``     rehearsed as ``saga simulate`` does: it completes, and no single failure leaves what nothing can undo
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saga_engine.analysis.simulation import rehearse
from saga_engine.errors import GoalImpossible, PlannerFailed, SagaError
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import Plan
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.planning import Planning
from saga_engine.planner.prompts import folder
from saga_engine.planner.settings import PlannerSettings, planner_settings
from saga_engine.ports import Planner
from saga_engine.tools.decorator import Tool
from saga_engine.tools.registry import ToolRegistry

CRITERIA = ("valid", "writes", "tools", "bindings", "order", "undo", "clean")


@dataclass(frozen=True)
class Case:
    """One goal with its tools and what a good plan for it has."""

    id: str
    domain: str
    lang: str
    kind: str
    goal: str
    tools: ToolRegistry
    expect: Mapping[str, Any]
    declared: Sequence[Mapping[str, Any]] = ()
    input: Mapping[str, Any] = field(default_factory=dict)
    ideal: Mapping[str, Any] | None = None

    @property
    def impossible(self) -> bool:
        """Whether no plan of these tools serves the goal."""
        return bool(self.expect.get("impossible"))


@dataclass(frozen=True)
class Score:
    """What came of one goal."""

    case: Case
    marks: Mapping[str, bool]
    outcome: str
    rounds: int = 0
    tokens: int = 0
    seconds: float = 0.0
    plan: Plan | None = None

    @property
    def passed(self) -> bool:
        """Whether everything is right."""
        return all(self.marks.values())


def load_cases(only: str = "") -> list[Case]:
    """All goals, or those whose id begins with ``only``: one beginning or several, with commas between them."""
    cases: list[Case] = []
    for path in sorted((folder() / "evals").glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        tools = registry(data["tools"])
        for goal in data["goals"]:
            kept = {
                name: goal[name] for name in ("id", "lang", "kind", "goal", "expect", "input", "ideal") if name in goal
            }
            cases.append(Case(domain=data["domain"], tools=tools, declared=data["tools"], **kept))
    return [case for case in cases if case.id.startswith(tuple(only.split(",")))]


async def never_called(**_: Any) -> dict[str, Any]:
    """What a tool does while a plan is made."""
    raise AssertionError("planning calls no tool")


def registry(
    declared: Sequence[Mapping[str, Any]],
    function: Callable[[Mapping[str, Any]], Callable[..., Any]] = lambda _: never_called,
    **others: Any,
) -> ToolRegistry:
    """The tools of a catalogue. ``function`` makes what each of them does, ``others`` are options of all of them."""
    return ToolRegistry([_tool(each, function(each), others) for each in declared])


def _tool(declared: Mapping[str, Any], function: Callable[..., Any], others: Mapping[str, Any]) -> Tool[..., Any]:
    options = {name: value for name, value in declared.items() if name not in ("params", "returns_schema")}
    return Tool(
        function,
        input_schema=declared["params"],
        output_schema=declared.get("returns_schema"),
        keyed=False,
        **options,
        **others,
    )


# --- review --------------------------------------------------------------------------------------------------------


def review(case: Case, plan: Plan | None, *, refused: bool = False) -> dict[str, bool]:
    """Which criteria a plan meets; without a plan, none but a refusal where it is right."""
    if case.impossible or plan is None:
        right = case.impossible and refused
        return dict.fromkeys(CRITERIA, right)
    expect = case.expect
    writes = Counter(expect.get("writes", {}))
    called = Counter(step.tool for step in plan.steps if _writes(case, step.tool))
    return {
        "valid": True,
        "writes": all(called[tool] >= count for tool, count in writes.items()),
        "tools": not called - writes and not set(expect.get("forbidden", ())) & {step.tool for step in plan.steps},
        "bindings": _bindings(plan, expect),
        "order": _order(case, plan),
        "undo": _undo(plan, expect),
        "clean": rehearse(compile_plan(plan, case.tools)).clean,
    }


def _writes(case: Case, tool: str) -> bool:
    spec = case.tools.spec(tool)
    return spec is not None and spec.effect == "write"


def _bindings(plan: Plan, expect: Mapping[str, Any]) -> bool:
    """Each wanted binding is there: ``[tool, param, tool that gave the value]``, or the name of an input."""
    for tool, param, source in expect.get("binds", ()):
        keys = [step.key for step in plan.steps if step.tool == source]
        if not any(
            _bound(step.params.get(param), rf"\$output\.step_({'|'.join(map(re.escape, keys))})\b")
            for step in plan.steps
            if step.tool == tool and keys
        ):
            return False
    return all(
        any(
            _bound(step.params.get(param), rf"\$input\.{re.escape(name)}\b") for step in plan.steps if step.tool == tool
        )
        for tool, param, name in expect.get("inputs", ())
    )


def _bound(value: Any, pattern: str) -> bool:
    return re.search(pattern, json.dumps(value)) is not None


def _order(case: Case, plan: Plan) -> bool:
    """``before``: pairs where the first comes first; ``parallel``: pairs where neither waits for the other."""
    from saga_engine.plan import graph

    compiled = compile_plan(plan, case.tools)
    deps = [step.deps for step in compiled.steps]
    before = graph.ancestors(deps, graph.sort(deps))
    at: dict[str, list[int]] = {}
    for step in compiled.steps:
        at.setdefault(step.tool, []).append(step.index)

    def waits(later: str, first: str) -> bool:
        return any(before[one] >> other & 1 for one in at.get(later, ()) for other in at.get(first, ()))

    return all(waits(later, first) for first, later in case.expect.get("before", ())) and not any(
        waits(one, other) or waits(other, one) for one, other in case.expect.get("parallel", ())
    )


def _undo(plan: Plan, expect: Mapping[str, Any]) -> bool:
    pivots = [step.tool for step in plan.steps if step.kind == "pivot"]
    wanted = [expect["pivot"]] if "pivot" in expect else []
    given = {step.tool: step.rollback.tool for step in plan.steps if step.rollback is not None}
    return pivots == wanted and all(given.get(tool) == undo for tool, undo in expect.get("rollbacks", {}).items())


# --- asking --------------------------------------------------------------------------------------------------------


async def evaluate(case: Case, planner: Planner, settings: PlannerSettings) -> Score:
    """Have one goal planned, and review what comes."""
    specs = [spec for name in case.tools.names() if (spec := case.tools.spec(name)) is not None]
    try:
        planned = await Planning(planner, settings).plan(case.goal, specs, catalog=case.tools, input=case.input)
    except GoalImpossible as error:
        used = error.context["usage"]
        tokens = used["tokens_in"] + used["tokens_out"]
        return Score(case, review(case, None, refused=True), "impossible", 1, tokens, used["seconds"])
    except PlannerFailed as error:
        used = error.context["usage"]
        tokens = used["tokens_in"] + used["tokens_out"]
        rounds = error.context["rounds"]
        return Score(case, review(case, None), "no valid plan", rounds, tokens, used["seconds"])
    except SagaError as error:
        return Score(case, review(case, None), f"{error.code}: {error.message}"[:200])
    usage = planned.usage
    marks = review(case, planned.plan)
    return Score(case, marks, "plan", planned.rounds, usage.tokens_in + usage.tokens_out, usage.seconds, planned.plan)


async def run(cases: Sequence[Case], planner: Planner, settings: PlannerSettings) -> list[Score]:
    """One goal after the other: a local model has one pair of hands, and a remote one limits its callers."""
    scores: list[Score] = []
    for case in cases:
        score = await evaluate(case, planner, settings)
        scores.append(score)
        print(_line(score), flush=True)
    return scores


def _line(score: Score) -> str:
    wrong = [name for name, right in score.marks.items() if not right]
    said = "ok" if score.passed else f"{score.outcome}; wrong: {', '.join(wrong)}"
    case = score.case
    return f"{case.id:12} {case.lang} {case.kind:10} {score.rounds} rounds {score.tokens:6} tokens  {said}"


def summary(model: str, scores: Sequence[Score]) -> dict[str, Any]:
    """The figures, as shares from 0 to 1, as one JSON object."""
    count = max(len(scores), 1)
    kinds = sorted({score.case.kind for score in scores})
    return {
        "model": model,
        "goals": len(scores),
        "passed": sum(score.passed for score in scores) / count,
        "criteria": {name: sum(score.marks[name] for score in scores) / count for name in CRITERIA},
        "kinds": {kind: _share([score.passed for score in scores if score.case.kind == kind]) for kind in kinds},
        "rounds": sum(score.rounds for score in scores) / count,
        "tokens": sum(score.tokens for score in scores) / count,
        "seconds": sum(score.seconds for score in scores) / count,
        "cases": [
            {"id": score.case.id, "outcome": score.outcome, "marks": dict(score.marks), "rounds": score.rounds}
            for score in scores
        ],
    }


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / max(len(marks), 1)


def main() -> int:
    """Ask, print, and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="", help="provider:name; default: SAGA_MODEL")
    parser.add_argument("--only", default="", help="only goals whose id starts with this; several, separated by commas")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    try:
        settings = planner_settings({}, {"model": given.model})
        planner = ModelPlanner(settings)
    except SagaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    cases = load_cases(given.only)
    figures = summary(planner.model, asyncio.run(run(cases, planner, settings)))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    shares = ", ".join(f"{name} {share:.0%}" for name, share in figures["criteria"].items())
    print(f"{figures['model']}: {figures['passed']:.0%} of {figures['goals']} goals; {shares}")
    print(f"{figures['rounds']:.2f} rounds, {figures['tokens']:.0f} tokens and {figures['seconds']:.1f} s for a goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
