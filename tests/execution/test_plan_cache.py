"""A plan is compiled once, however many sagas have it; what may change is never kept."""

from __future__ import annotations

import pytest

from saga_engine import Plan, ToolRegistry, tool
from saga_engine.core.submission import Submission
from saga_engine.execution import plan_cache
from saga_engine.execution.plan_cache import compile_journalled, compile_submitted
from saga_engine.plan.model import load_plan


@tool(undo="unmake")
async def make(number: int) -> dict:
    return {"number": number}


@tool
async def unmake(number: int) -> dict:
    return {"number": number}


def plan(number: int = 1, **more: object) -> Plan:
    return load_plan({"steps": [{"step_id": 1, "tool": "make", "params": {"number": number}}], **more})


def started(catalog: ToolRegistry, number: int = 1):
    compiled = compile_submitted(plan(number), None, catalog)
    given = Submission(saga_id="s", plan=plan(number).json_bytes, compiled=compiled, digest="d", seed="e")
    return given.started(1)


def test_equal_plans_are_compiled_once() -> None:
    """It is the content that counts, of submissions and of journals alike."""
    tools = ToolRegistry([make, unmake])
    assert compile_submitted(plan(), None, tools) is compile_submitted(plan(), None, tools)
    assert compile_submitted(plan(), None, tools) is not compile_submitted(plan(2), None, tools)
    assert compile_journalled(started(tools), tools) is compile_journalled(started(tools), tools)
    assert compile_journalled(started(tools), None) is not compile_journalled(started(tools), tools)


def test_other_tools_have_plans_of_their_own() -> None:
    """A plan is checked against the tools that will serve it."""
    first, second = ToolRegistry([make, unmake]), ToolRegistry([make, unmake])
    assert compile_submitted(plan(), None, first) is not compile_submitted(plan(), None, second)


def test_the_input_is_part_of_what_is_compiled() -> None:
    """Two sagas with one plan and different input do not share it."""
    tools = ToolRegistry([make, unmake])
    shared = plan(input={"a": 1})
    assert compile_submitted(shared, {"a": 2}, tools).input == {"a": 2}
    assert compile_submitted(shared, {"a": 3}, tools).input == {"a": 3}
    assert compile_submitted(shared, None, tools).input == {"a": 1}


def test_a_plan_whose_tool_is_missing_is_not_kept() -> None:
    """The tool may be registered later, and the same journal is then compiled with it."""
    record, few = started(ToolRegistry([make, unmake])), ToolRegistry([unmake])
    assert compile_journalled(record, few).steps[0].spec is None
    few.add(make)
    assert compile_journalled(record, few).steps[0].spec is not None


def test_the_least_recently_used_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is bounded in number and in bytes."""
    monkeypatch.setattr(plan_cache, "MAX_PLANS", 2)
    tools = ToolRegistry([make, unmake])
    kept, dropped = compile_submitted(plan(1), None, tools), compile_submitted(plan(2), None, tools)
    assert compile_submitted(plan(1), None, tools) is kept  # used again: the other one is older now
    compile_submitted(plan(3), None, tools)
    assert compile_submitted(plan(1), None, tools) is kept
    assert compile_submitted(plan(2), None, tools) is not dropped
    monkeypatch.setattr(plan_cache, "MAX_BYTES", len(plan(1).json_bytes))
    compile_submitted(plan(4), None, tools)
    assert compile_submitted(plan(1), None, tools) is not kept
