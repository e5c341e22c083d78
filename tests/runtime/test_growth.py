"""What a step costs in a large saga: as much as in a small one. Lines that the engine executes are counted, no time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.plan.limits import MAX_ITEMS
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.support.density import PACKAGE

UNDO = {"tool": "cancel", "params": {"number": 1}}


@tool(undo="cancel")
async def book(number: int) -> dict[str, int]:
    return {"number": number}


@tool
async def cancel(number: int) -> None:
    """Nothing is left."""


@tool(effect="read")
async def rows(count: int) -> list[int]:
    return list(range(count))


@tool(undo="cancel")
async def refuse() -> None:
    raise ToolError("full", error_code="full")


TOOLS = [book, cancel, rows, refuse]


def items(count: int, parallel: int = 16) -> list[dict[str, Any]]:
    """A list of so many calls."""
    each = {"of": "$output.step_rows", "parallel": parallel}
    step = {"step_id": "go", "tool": "book", "params": {"number": "$item"}, "rollback": UNDO, "each": each}
    return [{"step_id": "rows", "tool": "rows", "params": {"count": count}}, step]


def steps(count: int, **more: Any) -> list[dict[str, Any]]:
    """So many steps, one after the other if nothing more is said."""
    return [
        {"step_id": number, "tool": "book", "params": {"number": number}, "rollback": UNDO, **more}
        for number in range(1, count + 1)
    ]


def last(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, undone at the end."""
    after = {"depends_on": [step["step_id"] for step in of]}
    return [*of, {"step_id": "last", "tool": "refuse", **after}]


#: The rooms in which nothing happens by the clock alone.
ROOMS = tuple(f"{PACKAGE / room}/" for room in ("core", "plan", "execution", "tools"))


class Counted:
    """Lines that are executed in these rooms while it is entered; a walk in one line is one for each turn."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOMS) else None

    def _line(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.lines += event == "line"
        return self._line


async def lines_of(url: str, made: Callable[[int], list[dict[str, Any]]], status: str) -> list[int]:
    """How many lines a saga of 200, 280 and 360 steps executes; a large plan is compiled in a thread, uncounted."""
    found = []
    async with Coordinator.open(url, TOOLS) as engine:
        for size in (200, 200, 280, 360):
            with Counted() as counted:
                outcome = await engine.run({"steps": made(size)})
            assert outcome.status == status
            found.append(counted.lines)
    return found


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (steps, "COMPLETED"),
        (lambda n: steps(n, depends_on=[]), "COMPLETED"),
        (items, "COMPLETED"),
        (lambda n: items(n, 1), "COMPLETED"),
        (lambda n: last(steps(n)), "COMPENSATED"),
        (lambda n: last(steps(n, depends_on=[])), "COMPENSATED"),
        (lambda n: last(items(n)), "COMPENSATED"),
    ],
    ids=["in a row", "side by side", "items", "items in a row", "row undone", "side by side undone", "items undone"],
)
async def test_a_step_of_a_large_saga_costs_what_one_of_a_small_saga_costs(made, status: str, tmp_path: Path) -> None:
    """80 steps more, and 80 more, execute as many lines: nothing is walked for each step."""
    _, small, middle, large = await lines_of(f"embedded://{tmp_path}", made, status)
    assert large - middle <= 1.05 * (middle - small)


async def test_a_list_of_the_most_items_is_undone_in_few_appends() -> None:
    """10,000 calls, 16 at a time, and their undos: each round of calls is one append."""
    store = FaultyStore(open_store("memory://"), faults := Faults())
    async with Coordinator.open(store, TOOLS) as engine:
        outcome = await engine.run({"steps": last(items(MAX_ITEMS))})
    assert outcome.status == "COMPENSATED"
    assert len(outcome.body["report"]["compensated"]) == MAX_ITEMS
    appends = sum(count for point, count in faults.counts.items() if "append" in point)
    assert 2 * MAX_ITEMS / 64 < appends <= 2 * MAX_ITEMS / 16 + 50
