"""Steps with ``each`` through the public API."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.api.requests import require_no_events
from saga_engine.errors import ForkRefused, RuntimeUnsupported
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

ORDER: list[str] = []


@tool(effect="read")
async def find(count: int) -> dict[str, Any]:
    return {"items": [{"room": number} for number in range(count)]}


@tool(undo="cancel")
async def book(room: int, key: str) -> dict[str, Any]:
    if room == 3:
        raise ValueError("taken")
    ORDER.append(f"book {room} {key.rpartition(':')[0]}")
    return {"ref": f"ref-{room}"}


@tool
async def cancel(ref: str) -> None:
    ORDER.append(f"cancel {ref}")


TOOLS = [find, book, cancel]


def plan(count: int) -> dict[str, Any]:
    each = {"step_id": "all", "tool": "book", "params": {"room": "$item.room", "key": "$key"}}
    return {
        "steps": [
            {"step_id": 1, "tool": "find", "params": {"count": count}},
            {**each, "each": "$output.step_1.items"},
        ]
    }


async def test_a_list_is_called_item_by_item_and_undone_in_reverse_a_day_later() -> None:
    """Each item has its own key; the undo of the completed saga knows the items, and owns each effect."""
    ORDER.clear()
    async with Coordinator.open("memory://", tools=TOOLS) as engine:
        done = await engine.run(plan(3), saga_id="one")
        assert done.completed
        assert [step["step_id"] for step in done.body["steps"]] == [1, "all", "all[0]", "all[1]", "all[2]"]
        assert done.body["steps"][1]["output"] == [{"ref": "ref-0"}, {"ref": "ref-1"}, {"ref": "ref-2"}]
        await engine.undo("one")
    assert [
        *(f"book {room} one:all[{room}]:f" for room in range(3)),
        *(f"cancel ref-{room}" for room in (2, 1, 0)),
    ] == ORDER


async def test_a_saga_that_had_a_list_has_no_fork() -> None:
    """No fork reuses the effects of items, so none may make them a second time."""
    async with Coordinator.open("memory://", tools=TOOLS) as engine:
        done = await engine.run(plan(4), saga_id="one")
        assert done.body["report"]["compensated"] == ["all[0]", "all[1]", "all[2]"]
        with pytest.raises(ForkRefused, match="step all of saga one has a list"):
            await engine.fork("one")


def test_temporal_refuses_lists() -> None:
    """What is not tested there is not silently run there."""
    compiled = compile_plan(load_plan(plan(1)), None)
    with pytest.raises(RuntimeUnsupported, match="'each'"):
        require_no_events(step.builtin for step in compiled.steps)
