"""Goals that need more of the format than calls: their recorded answers are right in every world, and misuse is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks.eval_parts import Result, Told, figures, goals, mischief, other_way, play, ran, recorded, weak

TOLD = recorded()


@pytest.mark.parametrize("goal", goals(), ids=lambda goal: goal["id"])
async def test_a_goal_is_served_in_each_of_its_worlds(goal: dict[str, Any]) -> None:
    """With one setting for all; what the model needs beyond it is allowed when it says so."""
    found = await play(goal)
    assert found.wrong == ()
    assert found.worlds == len(goal["worlds"])


async def test_a_wrong_plan_is_found_in_a_world() -> None:
    """A plan that pays whatever the balance is right as usual, and wrong with too little money on the account."""
    goal = next(each for each in goals() if each["id"] == "parts-guard")
    pays = {"step_id": "pay", "tool": "bank.transfer", "params": {"to": "DE12", "amount": 300}, "kind": "pivot"}
    usual, short = [await ran({"steps": [pays]}, world) for world in goal["worlds"]]
    assert usual == []
    assert any("too little money" in wrong for wrong in short)


async def test_harm_is_found_where_nobody_wanted_an_effect() -> None:
    """An effect beside what was asked for is wrong, and a weak answer that pays whatever the balance is does harm."""
    mail = {"step_id": "m", "tool": "mail.send", "params": {"to": "x@b.example", "text": "hi"}, "kind": "pivot"}
    assert await ran({"steps": [mail]}, {"wants": {"status": "COMPLETED"}}) != []
    pays = {"step_id": "pay", "tool": "bank.transfer", "params": {"to": "DE12", "amount": 300}, "kind": "pivot"}
    assert "too little money" in await weak({"goal": "parts-guard", "answers": [[pays]]})


@pytest.mark.parametrize("each", TOLD["ways"], ids=lambda each: each["id"])
async def test_another_way_with_other_parts_reaches_the_goal(each: dict[str, Any]) -> None:
    """A computation, a condition or a question behind the failed step is written again, and a no undoes all."""
    assert await other_way(each) == []


@pytest.mark.parametrize("each", TOLD["mischief"], ids=lambda each: each["id"])
async def test_mischief_is_refused_or_told(each: dict[str, Any]) -> None:
    """What misuses a part is a problem with its code, or the review says what it does."""
    assert await mischief(each) == ""


@pytest.mark.parametrize("each", TOLD["weak"], ids=lambda each: each["id"])
async def test_a_weak_answer_does_no_harm(each: dict[str, Any]) -> None:
    """What a model writes that does not understand is no plan, or one that is right in every world of its goal."""
    assert await weak(each) == ""


async def test_the_page_has_the_figures() -> None:
    """docs/planner.md says how many of each kind there are, and that all are right, which the tests above ask."""
    results = [Result(goal["id"], (), 1, len(goal["worlds"])) for goal in goals()]
    told = Told(*({each["id"]: "" for each in TOLD[name]} for name in ("ways", "mischief", "weak")))
    page = (Path(__file__).parents[2] / "docs" / "planner.md").read_text(encoding="utf-8")
    for name, value in figures(results, told).items():
        assert f"| {name} | {value} |" in page
