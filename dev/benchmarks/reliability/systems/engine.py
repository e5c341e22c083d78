"""This engine: what its plans and its sessions share."""

from __future__ import annotations

from typing import Any

from world import Refused, Transient, World

from saga_engine import Coordinator, RetryPolicy, ToolError, tool

SOON = RetryPolicy(max_attempts=3, base_s=0.01, max_s=0.01)


def tools(world: World) -> list[Any]:
    """The world's call with its inverse, and the question whether it happened."""

    @tool(tolerates_absence=True, retry=SOON)
    def take_back(task: str, step: int, idempotency_key: str) -> None:  # noqa: ARG001 - twice is as good as once
        try:
            world.undo(task, step)
        except Refused as error:
            raise ToolError(str(error), error_code="refused", retryable=False) from error

    @tool(effect="read")
    def happened(task: str, step: int, idempotency_key: str) -> dict[str, str] | None:
        return {"ref": f"{task}/{step}"} if world.find(idempotency_key) else None

    @tool(
        undo=take_back,
        undo_params={"task": "$params.task", "step": "$params.step"},
        probe=happened,
        retry=SOON,
        output_schema={"type": "object", "required": ["ref"], "properties": {"ref": {"type": "string"}}},
    )
    def act(task: str, step: int, name: str, idempotency_key: str) -> Any:
        try:
            return world.call(task, step, name, idempotency_key)
        except Refused as error:
            raise ToolError(str(error), error_code="refused", retryable=False) from error
        except Transient as error:
            raise ToolError(str(error), error_code="busy", retryable=True) from error

    return [act, take_back, happened]


async def settled(engine: Coordinator, saga_id: str, world: World, task: str) -> tuple[Any, int]:
    """The end of a saga; an operator answers each question by what the world says. How many there were."""
    asked = 0
    while True:
        result = await engine.show(saga_id)
        questions = result.body.get("questions") or []
        if not questions:
            return await engine.wait(saga_id) if result.status not in ("COMPLETED", "COMPENSATED") else result, asked
        asked += 1
        question = questions[0]
        number = _number(result.body, question["step_id"])
        stands = number in world.effects(task)
        options = question["options"]
        if "happened" in options:
            answer = "happened" if stands else next(each for each in options if each.startswith("not"))
            more = {"output": {"ref": f"{task}/{number}"}} if stands else {}
            await engine.resolve(saga_id, question["step_id"], answer, **more)
        else:
            await engine.resolve(saga_id, question["step_id"], "accept" if stands else "undone")


def named(body: dict[str, Any]) -> set[int]:
    """The steps that the report says stand, or may."""
    report = body["report"]
    keys = {str(each) for part in ("failed", "unresolved", "left_in_place") for each in report.get(part, ())}
    keys |= {str(each["step_id"]) for each in body.get("questions") or ()}
    for step in body["steps"]:
        undone = (step.get("compensation") or {}).get("status") in ("SUCCEEDED", "COMPENSATED")
        if step["status"] == "SUCCEEDED" and not undone:
            keys.add(str(step["step_id"]))
    return {_number(body, key) for key in keys}


def _number(body: dict[str, Any], key: Any) -> int:
    step = next(each for each in body["steps"] if str(each["step_id"]) == str(key))
    return int(step["params"]["step"])
