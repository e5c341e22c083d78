"""Plans that do not run yet: check, simulate, and have a model write one."""

from __future__ import annotations

from functools import partial
from typing import Final

from saga_engine.execution.aside import aside
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation


async def check(incoming: Incoming) -> Answer:
    """The problems of a plan."""
    plan = incoming.body["plan"]
    found = await aside(partial(incoming.engine.check, plan, input=incoming.body.get("input")))
    return Answer({"valid": not found, "problems": [problem.to_dict() for problem in found]})


async def simulate(incoming: Incoming) -> Answer:
    """Every failure of a plan."""
    found = await incoming.engine.simulate(incoming.body["plan"], input=incoming.body.get("input"))
    return Answer(found.to_dict())


async def plan(incoming: Incoming) -> Answer:
    """A plan for a goal."""
    body = incoming.body
    found = await incoming.engine.plan(
        body["goal"], input=body.get("input"), answers=body.get("answers"), revise=body.get("revise")
    )
    return Answer(found.to_dict())


OPERATIONS: Final = [
    Operation(
        name="checkPlan",
        method="POST",
        path="/v1/check",
        summary="Check a plan; nothing runs",
        works=True,
        handle=check,
        answers={200: "Its problems; none if it can be submitted."},
    ),
    Operation(
        name="simulatePlan",
        method="POST",
        path="/v1/simulate",
        summary="Simulate every failure of a plan",
        about="No tool is called and nothing is stored.",
        works=True,
        handle=simulate,
        answers={200: "The scenarios."},
    ),
    Operation(
        name="makePlan",
        method="POST",
        path="/v1/plan",
        summary="Ask the model for a plan for a goal",
        asks=True,
        handle=plan,
        answers={200: "The plan, and how it was made."},
    ),
]
