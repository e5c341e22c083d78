"""A plan is compiled once, however many sagas have it; what may change is never kept."""

from __future__ import annotations

import pytest

from saga_engine import Plan, ToolRegistry, tool
from saga_engine.core.submission import Submission
from saga_engine.errors import PlanInvalid
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


def bound(**more: object) -> Plan:
    """A plan that looks at its input in every way that is not compiled anew: whole, in a text, in conditions, in a wait."""
    return load_plan(
        {
            "input": {"size": 2},
            "steps": [
                {"step_id": 1, "tool": "make", "params": {"number": "$input.number"}, "when": [WHEN]},
                {"step_id": 2, "wait": {"event": "paid", "key": "$input.order"}},
                {"step_id": 3, "tool": "note", "params": {"text": "order {$input.order}", "number": "$input.size"}},
            ],
            **more,
        }
    )


WHEN = {"value": "$input.deep.vip", "op": "==", "to": True}
SOUND = {"number": 1, "order": "o", "deep": {"vip": True}}


@tool(undo="unmake")
async def note(text: str, number: int = 0) -> dict:
    return {"number": number, "text": text}


@pytest.mark.parametrize(
    "given",
    [
        SOUND,
        SOUND | {"number": 7, "order": 5, "size": 3, "more": [1]},
        SOUND | {"number": "1"},
        SOUND | {"number": None},
        SOUND | {"size": "x"},
        SOUND | {"deep": {}},
        SOUND | {"deep": None},
        {"number": 1},
        {"order": "o", "deep": {"vip": 0}},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [SOUND, SOUND | {"number": 9, "size": 1}], ids=str)
def test_another_input_is_judged_as_if_the_plan_were_compiled_anew(first: dict, given: dict) -> None:
    """A plan that was compiled with one input accepts and refuses others with the same words as a plan that was not."""
    tools, fresh = ToolRegistry([make, unmake, note]), ToolRegistry([make, unmake, note])
    compile_submitted(bound(), first, tools)
    results = []
    for catalog in (tools, fresh):
        try:
            results.append(compile_submitted(bound(), given, catalog).input)
        except PlanInvalid as error:
            results.append(error.problems)
    assert results[0] == results[1]


def test_a_plan_is_compiled_once_for_all_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sagas of a template differ in their input: each has its own, and shares the rest, at submission and at take-over."""
    tools, made = ToolRegistry([make, unmake, note]), []
    for name in ("prepare_plan", "prepare_started"):
        prepare = getattr(plan_cache, name)
        monkeypatch.setattr(
            plan_cache, name, lambda *args, prepare=prepare, **more: made.append(1) or prepare(*args, **more)
        )
    compiled = [compile_submitted(bound(), SOUND | {"number": number}, tools) for number in range(5)]
    assert [each.input["number"] for each in compiled] == list(range(5))
    assert compiled[1].steps is compiled[4].steps
    sagas = [
        Submission(saga_id="s", plan=bound().json_bytes, compiled=each, digest="d", seed="e", input=dict(each.input))
        for each in compiled
    ]
    taken = [compile_journalled(saga.started(1), tools) for saga in sagas]
    assert [each.input["number"] for each in taken] == list(range(5))
    assert len(made) == 2


@pytest.mark.parametrize("kind", ["each", "saga", "finally"])
def test_what_looks_at_the_input_in_other_ways_is_compiled_anew(kind: str) -> None:
    """A list may be none, and a child has an input of its own: these plans are checked as a whole."""
    tools = ToolRegistry([make, unmake, note])
    call = {"step_id": 1, "tool": "make", "params": {"number": "$item"}}
    plans = {
        "each": {"steps": [call | {"each": "$input.list"}]},
        "saga": {"steps": [{"step_id": 1, "saga": {"plan": {"steps": [call | {"params": {"number": "$input.list[0]"}}]},
                                                   "input": {"list": "$input.list"}}}]},
        "finally": {"steps": [call | {"params": {"number": 1}}],
                    "finally": [{"step_id": 2, "tool": "note", "params": {"text": "x", "number": "$input.list[0]"}}]},
    }  # fmt: skip
    compile_submitted(load_plan(plans[kind]), {"list": [1]}, tools)
    wrong = {"each": 5, "saga": 5, "finally": ["x"]}[kind]
    results = []
    for catalog in (tools, ToolRegistry([make, unmake, note])):
        try:
            results.append(compile_submitted(load_plan(plans[kind]), {"list": wrong}, catalog).input)
        except PlanInvalid as error:
            results.append(error.problems)
    assert results[0] == results[1]
