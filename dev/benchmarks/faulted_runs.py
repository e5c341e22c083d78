"""Runs plans of the evals against a world of their own, with a fault at each step, and looks at the world afterwards.

A *wrong world* is an effect that nobody reports: one that is left after COMPENSATED, one that is missing after
COMPLETED, or an undo that got other values than those of its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dev.benchmarks.eval_planner import Case, registry
from saga_engine import Coordinator, OutcomeUnknown, RetryPolicy, SagaResult, ToolContext, ToolError
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.ports import Planner

Fault = Literal["refused", "lost"]
_ONCE = RetryPolicy(max_attempts=1, base_s=0.001, max_s=0.002)


@dataclass
class World:
    """The effects of one saga by the key of their call; ``fault`` is the step that fails and how."""

    fault: tuple[str, Fault] | None = None
    effects: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def tools(self) -> list[str]:
        """The tools whose effects there are."""
        return sorted(tool for tool, _, _ in self.effects.values())


@dataclass(frozen=True)
class Run:
    """One run: the fault (``-`` without one), the status, and what is wrong with the world."""

    case: str
    fault: str
    status: str
    wrong: tuple[str, ...]


class Worlds:
    """The tools of a catalogue, with a world for each saga."""

    def __init__(self, declared: Sequence[Mapping[str, Any]]) -> None:
        self.of: dict[str, World] = {}
        self.tools = registry(declared, self._function, retry=_ONCE)

    def _function(self, declared: Mapping[str, Any]) -> Callable[..., Any]:
        async def live(ctx: ToolContext, **params: Any) -> Any:
            return self._undo(ctx, params) if ctx.undoes is not None else self._call(declared, ctx, params)

        return live

    def _call(self, declared: Mapping[str, Any], ctx: ToolContext, params: Mapping[str, Any]) -> Any:
        world = self.of[ctx.saga_id]
        fault = world.fault[1] if world.fault is not None and world.fault[0] == ctx.step_id else None
        if fault == "refused" or (declared["name"], params) in world.refused:
            world.refused.append((declared["name"], params))  # under another step's id as well
            raise ToolError("not today", error_code="refused", retryable=False)
        output = made(declared.get("returns_schema") or {"type": "null"}, ctx.step_id)
        world.outputs[ctx.step_id] = output
        if declared["effect"] == "write":
            world.effects[ctx.idempotency_key] = (declared["name"], params, output or {})
        if fault == "lost":
            raise OutcomeUnknown("the answer is lost")
        return output

    def _undo(self, ctx: ToolContext, params: Mapping[str, Any]) -> None:
        world = self.of[ctx.saga_id]
        assert ctx.undoes is not None
        if ctx.undoes not in world.effects:
            world.wrong.append(f"step {ctx.step_id} is undone and has no effect")
            return
        _, given, output = world.effects.pop(ctx.undoes)
        known = [*given.values(), *output.values()]
        if any(value not in known for value in params.values()):
            world.wrong.append(f"the undo of step {ctx.step_id} gets {dict(params)}, and its call was {known}")


def made(schema: Mapping[str, Any], mark: str) -> Any:
    """A value of a schema; its texts name the step that they come from."""
    kind = schema.get("type")
    if kind == "object":
        return {name: made(each, f"{mark}.{name}") for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [made(schema.get("items", {}), f"{mark}.0")]
    return {"string": mark, "integer": 3, "number": 7.5, "boolean": True}.get(str(kind))


async def faulted(case: Case, plan: Plan) -> list[Run]:
    """The plan without a fault, with each step refused, and with the answer to each write lost."""
    worlds = Worlds(case.declared)
    keys = [step.key for step in plan.steps]
    writes = [step.key for step in plan.steps if _spec(worlds, step.tool).effect == "write"]
    faults: list[tuple[str, Fault] | None] = [
        None,
        *((key, "refused") for key in keys),
        *((key, "lost") for key in writes),
    ]
    runs = []
    async with Coordinator.open("memory://", worlds.tools, durability="relaxed") as coordinator:
        for number, fault in enumerate(faults):
            world = worlds.of[f"run-{number}"] = World(fault)
            result = await coordinator.run(plan, saga_id=f"run-{number}")
            if fault is not None and fault[1] == "lost":
                result = await _settled(coordinator, result, world, fault[0])
            said = "-" if fault is None else f"{fault[1]} at {fault[0]}"
            runs.append(Run(case.id, said, result.status, tuple(_wrong(plan, worlds, world, result))))
    return runs


async def replanned(case: Case, fails: str, planner: Planner) -> tuple[str, list[str], list[str]]:
    """The good plan of a case with one step refused, and a planner that knows another way.

    Returns the status, the tools whose effects there are, and what is wrong with the world.
    """
    worlds = Worlds(case.declared)
    world = worlds.of["replan"] = World((fails, "refused"))
    plan = load_plan({**(case.ideal or {}), "goal": case.goal, "input": dict(case.input), "on_failure": "replan"})
    async with Coordinator.open("memory://", worlds.tools, durability="relaxed", planner=planner) as coordinator:
        result = await coordinator.run(plan, saga_id="replan")
    return result.status, world.tools(), world.wrong


async def _settled(coordinator: Coordinator, result: SagaResult, world: World, step: str) -> SagaResult:
    """An operator looks at the world and answers the question about the call in doubt."""
    if result.status != "ESCALATED":
        world.wrong.append(f"a lost answer ended in {result.status}, and nobody was asked")
        return result
    output = world.outputs[step]
    return await coordinator.resolve(result.saga_id, step, "happened", output=output, by="operator")


def _wrong(plan: Plan, worlds: Worlds, world: World, result: SagaResult) -> list[str]:
    planned = sorted(step.tool for step in plan.steps if _spec(worlds, step.tool).effect == "write")
    wanted = planned if result.status == "COMPLETED" else []
    wrong = list(world.wrong)
    if result.status not in ("COMPLETED", "COMPENSATED"):
        wrong.append(f"it ended in {result.status}")
    if world.fault is None and result.status != "COMPLETED":
        wrong.append(f"without a fault it ended in {result.status}")
    if world.fault is not None and world.fault[1] == "refused" and result.status == "COMPLETED":
        wrong.append("a refused step, and it completed")
    if world.tools() != wanted:
        wrong.append(f"effects {world.tools()}, and there should be {wanted}")
    return wrong


def _spec(worlds: Worlds, tool: str) -> ToolSpec:
    spec = worlds.tools.spec(tool)
    assert spec is not None
    return spec
