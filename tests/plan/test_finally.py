"""The steps of ``finally`` in whole sagas, through the public API. The rules of the core are in its simulation."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core import transitions as t
from saga_engine.errors import AmendRefused, CancelRefused

ONCE = RetryPolicy(max_attempts=1)


def tools(said: list[Any]) -> list[Any]:
    @tool(undo="cancel")
    async def book(item: str) -> dict:
        if item == "refused":
            raise ToolError("sold out", error_code="full")
        return {"ref": item}

    @tool
    async def cancel(ref: str) -> None: ...

    @tool(retry=ONCE)
    async def tell(end: object) -> dict:
        said.append(end)
        if end == "refuse":
            raise ToolError("no", error_code="no")
        if end == "lose":
            raise ConnectionError
        return {"told": end}

    return [book, cancel, tell]


def plan(item: str, *ends: Any, **fields: Any) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": "book", "params": {"item": each}} for at, each in enumerate(("a", item), 1)]
    last = [{"step_id": f"f{at}", "tool": "tell", "params": {"end": end}} for at, end in enumerate(ends)]
    return {"steps": steps, "finally": last, **fields}


@pytest.mark.parametrize(("item", "status"), [("b", t.COMPLETED), ("refused", t.COMPENSATED)])
async def test_whatever_becomes_of_them_the_end_is_what_it_was(item: str, status: str) -> None:
    """One is refused, one stays in doubt, the last happens: each is in the report, people are told, the end stays."""
    said: list[Any] = []
    told: list[Any] = []
    async with Coordinator.open("memory://", tools(said), on_escalation=told.append) as engine:
        outcome = await engine.run(plan(item, "$end", "refuse", "lose", "{$end.status}"))
        assert outcome.status == status
        kinds = [record["k"] for record in await engine.history(outcome.saga_id)]
    error = {"code": "step-failed", "step_id": 2, "error_code": "full", "message": "sold out"}
    undone = status == t.COMPENSATED
    assert said[0] == {
        "status": status,
        "reason": "step-failed" if undone else "",
        "error": error if undone else None,
        "clean": True,
        "compensated": [1] if undone else [],
        "left": [],
    }
    assert said[1:] == ["refuse", "lose", status]
    states = [t.SUCCEEDED, t.FAILED, t.IN_DOUBT, t.SUCCEEDED]
    assert outcome.report["finally"] == [{"step_id": f"f{at}", "status": state} for at, state in enumerate(states)]
    assert outcome.report["clean"] is True
    assert [(question.kind, question.step_id, question.options) for question in told] == [
        ("finally", "f1", ()),
        ("finally", "f2", ()),
    ]
    assert kinds.index("FinallyStarted") < kinds.index("StepUnsettled") < len(kinds) - 1


async def test_the_end_is_certain() -> None:
    """While they run, neither a cancel nor more steps are accepted, and the deadline has no say."""
    refused: list[str] = []
    engines: list[Coordinator] = []

    @tool
    async def tell(saga: str) -> dict:
        for attempt, kind in (
            (engines[0].cancel(saga, wait=False), CancelRefused),
            (engines[0].amend(saga, [{"step_id": "more", "tool": "book", "params": {"item": "c"}}]), AmendRefused),
        ):
            with pytest.raises(kind):
                await attempt
            refused.append(kind.code)
        return {}

    body = plan("b")
    body["finally"] = [{"step_id": "f", "tool": "tell", "params": {"saga": "$saga.id"}}]
    async with Coordinator.open("memory://", [*tools([])[:2], tell]) as engine:
        engines.append(engine)
        assert (await engine.run({**body, "deadline_s": 60})).status == t.COMPLETED
    assert refused == [CancelRefused.code, AmendRefused.code]


async def test_nobody_is_asked_to_approve_one() -> None:
    """A rule that asks an operator first blocks a call of ``finally``: the end does not wait for an answer."""
    said: list[Any] = []
    policy = {"rules": [{"name": "ask", "tools": ["tell"], "verdict": "ask"}]}
    async with Coordinator.open("memory://", tools(said), policy=policy) as engine:
        outcome = await engine.run(plan("b", "x"))
    assert outcome.status == t.COMPLETED
    assert outcome.report["finally"] == [{"step_id": "f0", "status": t.BLOCKED}]
    assert said == []


async def test_simulated_like_all_others() -> None:
    """A fault in one of them is a failure point of its own, and leaves the end as it is."""
    async with Coordinator.open("memory://", tools([])) as engine:
        found = (await engine.simulate(plan("b", "$end.status"))).scenarios
    ends = {scenario.status for scenario in found if scenario.step_id == "f0"}
    assert ends == {t.COMPLETED}
    assert {scenario.verdict for scenario in found if scenario.step_id == "f0"} == {"clean"}


async def test_the_undo_of_a_completed_saga_undoes_none_of_them() -> None:
    """They are no part of what is undone, and the undo does not run them again."""
    said: list[Any] = []
    async with Coordinator.open("memory://", tools(said)) as engine:
        outcome = await engine.run(plan("b", "$end.status"))
        undone = await engine.undo(outcome.saga_id)
    assert undone.status == t.COMPENSATED
    assert undone.report["compensated"] == [1, 2]
    assert said == [t.COMPLETED]
