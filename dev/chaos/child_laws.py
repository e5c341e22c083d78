"""The laws of child sagas: each is a saga like any other, it is started once, and its parent says what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dev.chaos.told import Told
from saga_engine.core import transitions as t


def plans_of(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The plans of a plan's children, by step."""
    return {step["step_id"]: step["saga"]["plan"] for step in plan["steps"] if "saga" in step}


def own_steps(body: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The body without the steps that are children: their calls are in the ledger under the children's own ids."""
    children = plans_of(plan)
    return {**body, "steps": [step for step in body["steps"] if step["step_id"] not in children]}


def ids_of(parent: Told, plan: Mapping[str, Any]) -> dict[str, str]:
    """The children that a parent has begun, and their steps. An operator may have wanted one of them once more."""
    waits = [each for each in parent.history if each["k"] == "StepWaiting" and each["step"] in plans_of(plan)]
    begun = [each for each in waits if each.get("direction", "forward") == "forward"]
    return {str(each["about"]["saga"]): str(each["step"]) for each in begun}


def breaches(parent: Told, step_id: str, child: Told, undo: Told | None, *, last: bool) -> Iterator[str]:
    """What a parent says of a child, and what became of the child. ``last``: no other child followed for this step."""
    step = next(each for each in parent.body["steps"] if each["step_id"] == step_id)
    ended, status = child.body["status"], step["status"]
    if not last:
        if ended == t.COMPLETED and undo is None:
            yield f"the child {child.body['saga_id']} completed, and was begun once more"
        return
    if status == t.SUCCEEDED and (ended != t.COMPLETED or (undo is not None and not parent.body.get("undone_by"))):
        yield f"step {step_id} succeeded, its child is {ended}, undone: {undo is not None}"
    if status == t.SUCCEEDED and step["output"]["saga_id"] != child.body["saga_id"]:
        yield f"step {step_id} has the output of {step['output']['saga_id']}"
    if ended == t.COMPLETED and status in (t.PENDING, t.SKIPPED, t.FAILED):
        yield f"step {step_id} is {status}, and its child has completed"
    done = ended == t.COMPLETED and _has_effect(child)
    if status == t.COMPENSATED and done and (undo is None or undo.body["status"] != t.COMPENSATED):
        yield f"step {step_id} is undone, and the undo of its child is not"
    stands = ended == t.WAIVED or (done and (undo is None or undo.body["status"] != t.COMPENSATED))
    if parent.body["status"] == t.COMPENSATED and stands and not parent.decided("undone"):
        yield f"it is COMPENSATED, and something of its child {child.body['saga_id']} stands"


def _has_effect(child: Told) -> bool:
    """Whether a child that completed has something to undo. Its steps may all read, or have failed and been passed."""
    last = child.body["report"].get("finally", ())
    return any(
        step["status"] == t.SUCCEEDED and step["kind"] != "read" and step["step_id"] not in last
        for step in child.body["steps"]
    )
