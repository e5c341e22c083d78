"""What is refused and warned of before anything is held: plans, and Temporal."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import tool
from saga_engine.analysis.trace import declared
from saga_engine.api.requests import runnable_there
from saga_engine.errors import RuntimeUnsupported
from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.holding import held_over
from saga_engine.plan.model import load_plan
from saga_engine.plan.warnings import warnings_of
from saga_engine.tools.registry import ToolRegistry


@tool(effect="read", resource="item:{item}", hold="saga")
async def read(item: str) -> dict[str, Any]:
    return {}


@tool(undo="write", before=read, resource="item:{item}", hold="saga")
async def write(item: str, n: int) -> None: ...


@tool(undo="unplain")
async def plain() -> None: ...


@tool
async def unplain() -> None: ...


TOOLS = ToolRegistry([read, write, plain, unplain])
ASK = {"step_id": 2, "ask": {"question": "fine?", "options": ["yes"]}}


def steps(*given: dict[str, Any]) -> Any:
    return load_plan({"steps": list(given)})


def test_a_wait_for_people_while_something_is_held_is_warned_of() -> None:
    """Of the step that waits, if one before it holds something; and of one that the policy asks about."""
    held = {"step_id": 1, "tool": "write", "params": {"item": "a", "n": 1}}
    found = [
        each for each in warnings_of(steps(held, {**ASK, "depends_on": [1]}), TOOLS) if each.code == "held-over-wait"
    ]
    assert [each.path for each in found] == ["$.steps[1]"]
    free = [{"step_id": 1, "tool": "plain", "params": {}}, {**ASK, "depends_on": [1]}]
    assert held_over(checked_draft(steps(*free), TOOLS)) == []
    two = steps(held, {"step_id": 2, "tool": "plain", "params": {}, "depends_on": [1]})
    assert held_over(checked_draft(two, TOOLS)) == []
    assert [each.path for each in held_over(checked_draft(two, TOOLS), {"$.steps[1]"})] == ["$.steps[1]"]


def test_what_is_held_loses_no_update() -> None:
    """A write of what the saga has read and holds needs no ``expect``."""
    reads = {"step_id": 1, "tool": "read", "params": {"item": "a"}}
    writes = {
        "step_id": 2,
        "tool": "write",
        "params": {"item": "a", "n": "$output.step_1.n"},
        "depends_on": [1],
    }
    assert "lost-update" not in {each.code for each in warnings_of(steps(reads, writes), TOOLS)}


def test_temporal_refuses_a_tool_by_name() -> None:
    """The end of a workflow releases nothing."""
    with pytest.raises(RuntimeUnsupported, match="'read' has hold"):
        runnable_there(declared({"read": ""}, TOOLS))
    assert "hold" not in declared({"plain": ""}, TOOLS)["plain"]
