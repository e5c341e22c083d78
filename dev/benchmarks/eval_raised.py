"""Runs the good plan of every goal of the evals with tools that raise what says nothing of their calls; counts lies.

    make eval-raised
    python -m dev.benchmarks.eval_raised --percent 30 --seeds 5 --json figures.json

A share of all calls, forward and backward, raises a foreign exception (a ``RuntimeError``, an SDK's own class, a
``KeyError``, one that was raised from another), half of them after the effect, half before it. A *lie* is a saga at
rest that is COMPLETED while an effect is missing, or whose report is clean while one stands; and an effect that existed
twice, or was undone twice, under whatever report. An operator answers each question as it is outside, until the saga
has ended. Questions are no lies; how many there are is printed. The settings are how a doubt can be settled:

``keyed``   by a repeat under the same key          ``probed``  by a probe
``by key``  by an undo that is bound to ``$key``    ``bare``    by nothing: the project says ``raised = "unknown"``
``trusting`` is a first tool without key and probe, whose exceptions are refusals: it shows that lies are found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from dev.benchmarks.eval_planner import Case, load_cases
from dev.benchmarks.faulted_runs import made
from saga_engine import Coordinator, RetryPolicy, SagaResult, ToolContext
from saga_engine.core import transitions as t
from saga_engine.plan.model import Plan, load_plan
from saga_engine.tools.decorator import Tool
from saga_engine.tools.registry import ToolRegistry

SETTINGS: Final = ("keyed", "by key", "probed", "bare")
#: The setting in which lies are to be expected.
TRUSTING: Final = "trusting"
PERCENT: Final = 30
_RETRY: Final = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
_PROBE: Final = "find_call"
#: After so many answers nothing raises any more, so that each saga ends.
_CALM_AFTER: Final = 20
_ANSWERS: Final = 60


class SdkError(Exception):
    """An SDK's own name for whatever went wrong."""


def _raise_foreign(dice: Random) -> None:
    kind = dice.randrange(4)
    if kind == 0:
        raise RuntimeError("upstream error")
    if kind == 1:
        raise SdkError("it did not work")
    if kind == 2:
        raise KeyError("order_id")
    try:
        raise KeyError("order_id")
    except KeyError as error:
        raise SdkError("it did not work") from error


@dataclass
class World:
    """What stands of one saga, by the key of the call, and what was wrong on the way."""

    dice: Random
    percent: float
    honours_keys: bool
    standing: dict[str, str] = field(default_factory=dict)  # the tools
    answers: dict[str, Any] = field(default_factory=dict)  # of what happened, by key, undos included
    undone: set[str] = field(default_factory=set)
    raised: int = 0
    calm: bool = False
    wrong: list[str] = field(default_factory=list)

    def call(self, ctx: ToolContext, tool: str, output: Any, *, effect: bool) -> Any:
        """A call, or an undo, that may raise before its effect or after it."""
        fate = "" if self.calm or self.dice.random() * 100 >= self.percent else self.dice.choice(("before", "after"))
        self.raised += bool(fate)
        if fate == "before":
            _raise_foreign(self.dice)
        if effect and not (self.honours_keys and ctx.idempotency_key in self.answers):
            self._happen(ctx, tool)
        self.answers.setdefault(ctx.idempotency_key, output)
        if fate:
            _raise_foreign(self.dice)
        return self.answers[ctx.idempotency_key]

    def _happen(self, ctx: ToolContext, tool: str) -> None:
        again = ctx.idempotency_key in self.answers
        if ctx.undoes is None:
            if again:
                self.wrong.append(f"{tool} of step {ctx.step_id} happened twice")
            self.standing[ctx.idempotency_key] = tool
        elif self.standing.pop(ctx.undoes, None) is None and not again and ctx.undoes in self.undone:
            self.wrong.append(f"step {ctx.step_id} was undone once more, under another key")
        else:  # (a repeat under its key finds nothing: these undos tolerate that)
            self.undone.add(ctx.undoes)


@dataclass(frozen=True)
class Run:
    """One run of a plan: how it ended, how many exceptions there were, what was asked, and the lies."""

    case: str
    setting: str
    status: str
    raised: int
    asked: int
    lies: tuple[str, ...]


class Worlds:
    """The tools of a catalogue in one setting, with a world for each saga."""

    def __init__(self, declared: Sequence[Mapping[str, Any]], setting: str) -> None:
        self.of: dict[str, World] = {}
        self._setting = setting
        self._declared = {each["name"]: each for each in declared}
        undos = {each["undo"] for each in declared if each.get("undo")}
        find = Tool(self._find, name=_PROBE, effect="read", retry=_RETRY)
        self.tools = ToolRegistry([find, *(self._tool(each, is_undo=each["name"] in undos) for each in declared)])

    def _tool(self, declared: Mapping[str, Any], *, is_undo: bool) -> Tool[..., Any]:
        options = {name: value for name, value in declared.items() if name not in ("params", "returns_schema")}
        writes, keyed = declared["effect"] == "write", self._setting in ("keyed", "by key", "probed")
        if writes:
            options |= {"keyed": keyed}
            options |= {"probe": _PROBE} if self._setting == "probed" else {}
            options |= {"raised": "unknown"} if self._setting == "bare" else {}
        if self._setting == "by key":
            options |= {"tolerates_absence": True} if is_undo else {}
            options |= self._by_key(declared.get("undo"))

        async def live(ctx: ToolContext, **_: Any) -> Any:
            world = self.of[ctx.saga_id]
            output = made(declared.get("returns_schema") or {"type": "null"}, ctx.step_id)
            return world.call(ctx, declared["name"], output, effect=writes)

        schema = dict(declared["params"])
        return Tool(live, input_schema=schema, output_schema=declared.get("returns_schema"), retry=_RETRY, **options)

    def _by_key(self, undo: str | None) -> dict[str, Any]:
        """The option that binds an undo to the key of the call, where all that it takes is text."""
        schema = self._declared[undo]["params"] if undo else {}
        types = {name: schema["properties"][name].get("type") for name in schema.get("required", ())}
        return {"undo_params": dict.fromkeys(types, "$key")} if types and set(types.values()) == {"string"} else {}

    def _find(self, ctx: ToolContext) -> Any:
        """Answer whether the call with this key happened."""
        answers = self.of[ctx.saga_id].answers
        return answers[ctx.idempotency_key] or {} if ctx.idempotency_key in answers else None


async def run(case: Case, plan: Plan, setting: str, *, seed: int, percent: float = PERCENT) -> Run:
    """Run a plan in one setting, answer each question as it is outside, and count the lies at each rest."""
    worlds = Worlds(case.declared, setting)
    dice = Random(f"{case.id}:{setting}:{seed}")
    world = worlds.of["saga"] = World(dice, percent, honours_keys=setting not in ("bare", TRUSTING))
    wanted = sorted(
        step.tool
        for step in plan.steps
        if (spec := worlds.tools.spec(step.tool)) is not None and spec.effect == "write"
    )
    lies: list[str] = []
    asked = 0
    async with Coordinator.open("memory://", worlds.tools, durability="relaxed", settings=None) as engine:
        result = await engine.run(plan, saga_id="saga")
        lies += _lies(result, world, wanted)
        while result.status not in t.SAGA_FINAL and asked < _ANSWERS:
            asked += 1
            world.calm = asked > _CALM_AFTER
            result = await _answered(engine, result, world)
            lies += _lies(result, world, wanted)
    lies += world.wrong
    if result.status not in t.SAGA_FINAL:
        lies.append(f"it does not end: {result.status} after {asked} answers")
    return Run(case.id, setting, result.status, world.raised, asked, tuple(lies))


def _lies(result: SagaResult, world: World, wanted: Sequence[str]) -> list[str]:
    standing = sorted(world.standing.values())
    if result.status == t.COMPLETED and standing != wanted:
        return [f"COMPLETED, {standing} stand, and there should be {wanted}"]
    if result.status != t.COMPLETED and result.report["clean"] and standing:
        return [f"{result.status}, clean, and {standing} stand"]
    return []


async def _answered(engine: Coordinator, result: SagaResult, world: World) -> SagaResult:
    """An operator looks at the world and answers the first question."""
    question = result.body["questions"][0]
    options, key = question["options"], question["idempotency_key"]
    step = question["step_id"]
    if question["direction"] != "forward":
        happened = key in world.answers and "undone" in options
        if world.calm and not happened:  # it is undone by hand
            made_by = next(each["idempotency_key"] for each in result.body["steps"] if each["step_id"] == step)
            happened = world.standing.pop(made_by, "") != ""
        return await engine.resolve("saga", step, "undone" if happened else "retry", by="operator")
    if key in world.answers and "happened" in options:
        return await engine.resolve("saga", step, "happened", output=world.answers[key], by="operator")
    return await engine.resolve("saga", step, "not-happened", by="operator")


def plans() -> list[tuple[Case, Plan]]:
    """The good plan of each goal that has one."""
    return [
        (case, load_plan({**case.ideal, "goal": case.goal, "input": dict(case.input)}))
        for case in load_cases()
        if case.ideal
    ]


async def everything(settings: Iterable[str], *, seeds: int, percent: float, nth: int = 1) -> list[Run]:
    """Every ``nth`` plan in each setting, as often as there are ``seeds``."""
    return [
        await run(case, plan, setting, seed=seed, percent=percent)
        for setting in settings
        for case, plan in plans()[::nth]
        for seed in range(seeds)
    ]


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of some runs as one JSON object."""
    return {
        "plans": len({each.case for each in runs}),
        "runs": len(runs),
        "exceptions": sum(each.raised for each in runs),
        "ends": dict(Counter(each.status for each in runs).most_common()),
        "runs in which somebody was asked": sum(each.asked > 0 for each in runs),
        "answers": sum(each.asked for each in runs),
        "lies": sum(len(each.lies) for each in runs),
    }


def main() -> int:
    """Run, print and write the figures. The exit code is 1 if there is a lie, or if ``trusting`` shows none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--percent", type=float, default=PERCENT, help="of the calls raise")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each plan in each setting")
    parser.add_argument("--nth", type=int, default=1, help="every nth plan alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    logging.getLogger("saga_engine").addHandler(logging.NullHandler())  # the questions of runs are answered at once
    options = {"seeds": given.seeds, "percent": given.percent, "nth": given.nth}
    runs = asyncio.run(everything((*SETTINGS, TRUSTING), **options))
    told = {setting: figures([each for each in runs if each.setting == setting]) for setting in (*SETTINGS, TRUSTING)}
    for each in runs:
        if each.setting != TRUSTING:
            for lie in each.lies:
                print(f"{each.case} ({each.setting}): {lie}")
    for setting, found in told.items():
        print(f"{setting}:")
        for name, value in found.items():
            shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            print(f"  {name:34} {shown}")
    if given.json:
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return int(any(told[setting]["lies"] for setting in SETTINGS) or not told[TRUSTING]["lies"])


if __name__ == "__main__":
    sys.exit(main())
