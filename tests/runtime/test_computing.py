"""A computation over many items gives the event loop back: counted in rounds, and not timed."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.execution.computing import ROUNDS, TooMuch, briefly
from saga_engine.plan import compute
from saga_engine.plan.effort import spend

MANY = 5_000
SUM: dict[str, Any] = {"sum": "$input.items", "of": {"add": ["$item", 1]}}
LARGE = [{"value": {"$compute": SUM}, "op": ">", "to": 3}]
TOTAL = sum(range(MANY)) + MANY


@tool(effect="read")
async def take(value: Any) -> dict[str, Any]:
    """What it was given."""
    return {"value": value}


@tool(undo="back")
async def book(value: Any) -> dict[str, Any]:
    """Book."""
    return {"value": value, "items": list(range(MANY))}


@tool(tolerates_absence=True)
async def back(value: Any) -> None:
    """Undo it."""


@tool(effect="read")
async def refuse(value: Any) -> None:
    """Fail."""
    raise ToolError("no", error_code="no", retryable=False)


#: Where a plan computes: its steps, the status in which it ends, and how many items are visited at least.
PLANS: dict[str, tuple[list[dict[str, Any]], str, int]] = {
    "a step": ([{"step_id": 1, "compute": SUM}], "COMPLETED", 1),
    "many steps": ([{"step_id": number, "compute": SUM, "depends_on": []} for number in range(8)], "COMPLETED", 8),
    "params": ([{"step_id": 1, "tool": "take", "params": {"value": {"$compute": SUM}}}], "COMPLETED", 1),
    "a condition": ([{"step_id": 1, "tool": "take", "params": {"value": 1}, "when": LARGE}], "COMPLETED", 1),
    "what counts as failed": (
        [{"step_id": 1, "tool": "book", "params": {"value": 1}, "failed_when": [{**LARGE[0], "op": "<"}]}],
        "COMPLETED",
        1,
    ),
    "an undo": (
        [
            {
                "step_id": 1,
                "tool": "book",
                "params": {"value": 1},
                "rollback": {"tool": "back", "params": {"value": {"$compute": SUM}}},
            },
            {"step_id": 2, "tool": "refuse", "params": {"value": 1}},
        ],
        "COMPENSATED",
        1,
    ),
}


class Rounds:
    """The rounds of computations, by turn of the event loop; those of other threads apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.here: Counter[int] = Counter()
        self.aside = 0
        self._thread = threading.get_ident()
        monkeypatch.setattr(compute, "spend", self._count)

    def _count(self) -> None:
        if threading.get_ident() == self._thread:
            self.here[self.turn] += 1
        else:
            self.aside += 1
        spend()

    async def turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("place", PLANS)
async def test_no_turn_of_the_loop_computes_more_than_its_rounds(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a plan computes, the loop has its turn after 500 rounds; the rest is done in a thread, with one result."""
    steps, status, times = PLANS[place]
    plan = {"steps": steps, "input": {"items": list(range(MANY))}}
    async with Coordinator.open("memory://", (take, book, back, refuse), on_escalation=(), settings=None) as engine:
        rounds = Rounds(monkeypatch)
        turns = asyncio.create_task(rounds.turns())
        ended = await engine.run(plan, saga_id="s")
        turns.cancel()
        history = await engine.history("s")
    assert ended.status == status
    assert max(rounds.here.values()) <= ROUNDS + 1
    assert rounds.aside >= times * MANY
    if place in ("a step", "many steps"):
        assert [each["output"] for each in history if each["k"] == "StepSucceeded"] == [TOTAL] * times


async def test_a_short_computation_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that computes a little is as quick as one that does not."""
    rounds = Rounds(monkeypatch)
    plan = {"steps": [{"step_id": 1, "compute": SUM}], "input": {"items": list(range(ROUNDS))}}
    async with Coordinator.open("memory://", (), on_escalation=(), settings=None) as engine:
        assert (await engine.run(plan)).completed
    assert (rounds.aside, sum(rounds.here.values())) == (0, ROUNDS)


def test_work_is_given_its_rounds_and_no_more() -> None:
    """The first round too many ends it, and no handler of exceptions keeps it from that."""

    def work() -> str:
        for _ in range(ROUNDS + 1):
            try:
                spend()
            except Exception:
                return "caught"
        return "done"

    with pytest.raises(TooMuch):
        briefly(work)
    assert briefly(work, ROUNDS + 1) == "done"
