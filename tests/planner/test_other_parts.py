"""Another way in plans with computations, conditions, questions and waits behind the step that fails."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, SagaResult, ToolError, tool
from saga_engine.planner.prompting import prompt_for
from saga_engine.testing.scripted import ScriptedPlanner

LOG: list[str] = []
ONCE = RetryPolicy(max_attempts=1)


@tool(undo="cancel", retry=ONCE)
async def book(what: str) -> dict[str, Any]:
    """Book something."""
    if what == "Hilton":
        raise ToolError("full", error_code="full", retryable=False)
    LOG.append(f"book {what}")
    return {"ref": what, "price": 100}


@tool(retry=ONCE)
async def cancel(ref: str) -> None:
    """Cancel it."""


@tool(retry=ONCE)
async def bill(amount: float | str) -> dict[str, Any]:
    """Bill an amount. Final."""
    LOG.append(f"bill {amount}")
    return {"id": 1}


@tool(undo="open_door", retry=ONCE)
async def close_door(door: str) -> None:
    """Close a door."""
    LOG.append(f"close {door}")


@tool(retry=ONCE)
async def open_door(door: str) -> None:
    """Open a door."""


@tool(undo="disarm", retry=ONCE)
async def arm(zone: str) -> None:
    """Arm the alarm."""
    if "close back" not in LOG:
        raise ToolError("a door is open", error_code="door_open", retryable=False)
    LOG.append(f"arm {zone}")


@tool(retry=ONCE)
async def disarm(zone: str) -> None:
    """Disarm the alarm."""


TOOLS = [book, cancel, bill, close_door, open_door, arm, disarm]


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    LOG.clear()


def room(key: str, what: str, **others: Any) -> dict[str, Any]:
    return {"step_id": key, "tool": "book", "params": {"what": what}, **others}


def billed(key: str, amount: str, *, pivot: bool) -> dict[str, Any]:
    made = {"step_id": key, "tool": "bill", "params": {"amount": amount}, "kind": "pivot"}
    return made if pivot else {"step_id": key, "tool": "book", "params": {"what": f"for {{{amount}}}"}}


#: The step between the room and what is done with it, for the room of a given id; and what that binds.
PARTS: dict[str, Any] = {
    "compute": lambda key, of: ({"step_id": key, "compute": {"percent": [115, f"$output.step_{of}.price"]}}, f"$output.step_{key}"),
    "when": lambda key, of: (room(key, "taxi", when=[{"value": f"$output.step_{of}.price", "op": ">", "to": 50}]), f"$output.step_{of}.price"),
    "ask": lambda key, of: (
        {"step_id": key, "ask": {"question": f"{{$output.step_{of}.ref}}?", "options": ["100", "200"], "expires_s": 1, "on_timeout": {"value": "200"}}},
        f"$output.step_{key}.answer",
    ),
    "wait": lambda key, of: (
        {"step_id": key, "wait": {"event": "e", "key": f"$output.step_{of}.ref", "timeout_s": 1, "on_timeout": {"value": 7}}},
        f"$output.step_{key}",
    ),
    "on_error": lambda key, of: (room(key, f"spa {{$output.step_{of}.ref}}", on_error="continue"), f"$output.step_{of}.price"),
}  # fmt: skip


async def way(plan: list[dict[str, Any]], *answers: Any) -> tuple[SagaResult, ScriptedPlanner]:
    planner = ScriptedPlanner(*answers)
    async with Coordinator.open("memory://", TOOLS, durability="relaxed", planner=planner) as coordinator:
        outcome = await coordinator.run({"goal": "a room, and bill it", "steps": plan, "on_failure": "replan"})
        if outcome.status == "ESCALATED":
            key = outcome.body["questions"][0]["step_id"]
            outcome = await coordinator.resolve(outcome.saga_id, key, "200", by="kim")
        return outcome, planner


@pytest.mark.parametrize("pivot", [True, False])
@pytest.mark.parametrize("part", [part for part in PARTS if part != "wait"])
async def test_what_the_plan_has_its_other_way_may_have(part: str, pivot: bool) -> None:
    """A part behind the failed step is written again and passes, with and without a pivot, without any leave."""
    first, bound = PARTS[part]("mid", "room")
    again, rebound = PARTS[part]("mid2", "room2")
    plan = [room("room", "Hilton"), first, billed("last", bound, pivot=pivot)]
    outcome, planner = await way(
        plan, {"steps": [room("room2", "Savoy"), again, billed("last2", rebound, pivot=pivot)]}
    )
    assert len(planner.asked) == 1, planner.asked[-1].repair
    assert outcome.status == "COMPLETED"
    assert "book Savoy" in LOG


async def test_the_model_sees_the_parts_of_what_it_writes_again() -> None:
    """The prompt has the condition as it is written and says what the part is; lists of calls are not offered."""
    taxi, _ = PARTS["when"]("taxi", "room")
    question, _ = PARTS["ask"]("sure", "room")
    _, planner = await way([room("room", "Hilton"), taxi, question], {"impossible": "no room"})
    (request,) = planner.asked
    left = {each["step_id"]: each for each in request.left}
    assert left["taxi"]["when"] == taxi["when"]
    asked = prompt_for(request, "text")
    assert "a person answers while the plan runs" in asked.system
    assert "called once for each item" not in asked.system
    assert '"what": "string"' in asked.question, "tools are shown as for a plan"
    assert '"properties"' not in asked.question


@pytest.mark.parametrize("part", ["ask", "wait"])
async def test_nobody_is_left_out_silently(part: str) -> None:
    """A question to a person or a wait for a payment goes back if the other way drops it without a reason."""
    first, bound = PARTS[part]("mid", "room")
    short = {"steps": [room("room2", "Savoy"), billed("last2", "$output.step_room2.price", pivot=True)]}
    _, planner = await way(
        [room("room", "Hilton"), first, billed("last", bound, pivot=True)], short, {"impossible": "no"}
    )
    (problem,) = planner.asked[1].repair.problems
    assert problem.code == "dropped-silently"
    assert f"step mid ('{part}')" in problem.message


async def test_a_failed_call_is_made_again_behind_what_changes_its_cause() -> None:
    """The alarm is armed with the same params once a step of the answer has closed the door; not beside or before it."""
    door = {"step_id": "door", "tool": "close_door", "params": {"door": "back"}}
    again = {"step_id": "arm2", "tool": "arm", "params": {"zone": "all"}}
    plan = [{"step_id": "arm", "tool": "arm", "params": {"zone": "all"}}]
    wrong = [
        {"steps": [{**again, "depends_on": []}, door]},
        {"steps": [again, door]},
        {"steps": [door, {**again, "depends_on": []}]},
    ]
    for answer in wrong:
        _, planner = await way(plan, answer, {"impossible": "no"})
        assert [problem.code for problem in planner.asked[1].repair.problems] == ["call-repeated"]
    outcome, planner = await way(plan, {"steps": [door, again]})
    assert (outcome.status, len(planner.asked)) == ("COMPLETED", 1)
    assert LOG == ["close back", "arm all"]
