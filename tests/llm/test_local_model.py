"""The planner against a real small model on a real server.

Its plans are poor, and nothing is said here about how good they are: only what must hold whatever a model says.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from saga_engine.errors import GoalImpossible, ModelUnreachable, PlannerFailed, PlannerUnavailable
from saga_engine.planner.models import ModelPlanner, build_model
from saga_engine.planner.prompting import answer_schema
from saga_engine.ports import Allowance, CompensationRequest, PastStep, ReplanRequest
from tests.llm import tiny_tools
from tests.llm.local_model import ANSWER_TOKENS, ANSWERS_WITHIN_S, LocalModel
from tests.llm.watching import HEARD, TOOLS, assert_lawful, plan, read_whole

#: Which goals of ``planner_prompts/evals``; a few, because each takes a minute.
GOALS = os.environ.get("SAGA_TEST_LLM_GOALS", "travel-01,payments-07")
ROOT = Path(__file__).parents[2]
ROOM = "Book a room in the hotel Roma."
MAIL = "Book a room in the hotel Roma and mail ada@example.org that it is booked."
TRAIN = "Book a train to Rome."
pytestmark = pytest.mark.timeout(1200)  # two slow cores


@pytest.mark.parametrize("output", ["text", "prompted", "native", "tool"])
@pytest.mark.parametrize(
    ("goal", "tools"),
    [(ROOM, ("book_room",)), (MAIL, ("book_room", "send_mail")), (TRAIN, ("book_room", "send_mail"))],
    ids=["room", "mail", "train"],
)
async def test_an_answer_becomes_a_checked_plan_or_a_clear_error(
    model: LocalModel, output: Any, goal: str, tools: tuple[str, ...]
) -> None:
    """In each mode: a plan passes the checks, a fault goes back to the model, the transcript has what was said."""
    assert_lawful(await plan(goal, *tools, settings=model.settings(output)))


async def test_a_schema_that_the_server_enforces_is_kept(model: LocalModel) -> None:
    """Native: whatever the model would rather say, an answer is an object that fits the schema, or is cut off."""
    outcome = await plan(ROOM, "book_room", "send_mail", settings=model.settings("native"))
    schema = jsonschema_rs.validator_for(answer_schema())
    for answer in outcome.planner.answers:
        whole = read_whole(answer)
        assert whole is None or schema.is_valid(whole), answer.text


async def test_json_mode_gives_json(model: LocalModel) -> None:
    """Prompted: an answer is JSON to its last character, or is cut off."""
    outcome = await plan(ROOM, "book_room", settings=model.settings("prompted"))
    for answer in outcome.planner.answers:
        whole = read_whole(answer)
        assert whole is None or isinstance(whole, dict), answer.text


@pytest.mark.parametrize(
    "faulty",
    ['{"steps": [{"step_id": 1, "tool": "book_rom", "params": {"hotel": "Roma"}}]}', "I would love to help!"],
    ids=["unknown-tool", "prose"],
)
async def test_a_faulty_answer_goes_back_to_the_model(model: LocalModel, faulty: str) -> None:
    """The first answer is made faulty: a second question is asked, with the fault in it, and answered."""
    outcome = await plan(ROOM, "book_room", settings=model.settings("native"), first=(faulty,))
    assert_lawful(outcome)
    assert len(outcome.planner.answers) == 2
    first, second = outcome.planner.answers
    assert second.usage.tokens_in > first.usage.tokens_in
    assert second.prompt.endswith("repair@2")


async def test_a_budget_of_tokens_ends_the_rounds(model: LocalModel) -> None:
    """The first question uses it up: a faulty answer is not asked for again, and the error says why."""
    settings = model.settings("text", rounds=5, max_tokens=500, max_output_tokens=30)
    outcome = await plan(ROOM, "book_room", settings=settings, first=("no plan",))
    assert isinstance(outcome.error, PlannerFailed)
    assert "budget of tokens" in outcome.error.message
    assert len(outcome.planner.answers) == 1
    assert outcome.planner.answers[0].usage.tokens_out <= 30


async def test_a_limit_on_time_ends_a_slow_answer(model: LocalModel) -> None:
    """Within the limit, or not at all; and a server whose answer nobody waited for answers the next one."""
    settings = model.settings("text", total_s=1.0, rounds=1)
    await asyncio.to_thread(build_model, settings)  # the packages are loaded: the limit meets a model at work
    outcome = await plan("Book a room. " * 700, "book_room", settings=settings)
    if isinstance(outcome.error, ModelUnreachable):
        assert "within 1 seconds" in outcome.error.message
        assert outcome.planner.answers == []
    else:
        assert_lawful(outcome)
    assert_lawful(await plan(ROOM, "book_room", settings=model.settings("text", rounds=1)))


async def test_a_question_that_is_too_long_for_the_model_is_a_clear_error(model: LocalModel) -> None:
    """A server's refusal is told with its own words, and no round is spent on it."""
    outcome = await plan("订" * 9_000, "book_room", settings=model.settings("text", rounds=3))
    assert isinstance(outcome.error, PlannerUnavailable | ModelUnreachable), outcome.error
    assert "context" in outcome.error.message
    assert outcome.planner.answers == []
    assert len(outcome.planner.asked) == 1


async def test_anthropics_messages_are_answered_too(model: LocalModel) -> None:
    """The same server speaks Anthropic's protocol: another wire, the same laws."""
    assert_lawful(await plan(ROOM, "book_room", settings=model.settings("text", provider="anthropic")))


async def test_the_other_prompts_are_answered(model: LocalModel) -> None:
    """Making up for a step, and another way for what is left: asked and answered, with what that used."""
    planner = ModelPlanner(model.settings("native"))
    stuck = PastStep(1, "book_room", "DONE", params={"hotel": "Roma"}, output={"booking": "B-1"})
    specs = [TOOLS.spec("cancel_room"), TOOLS.spec("send_mail")]
    allowance = Allowance(seconds=ANSWERS_WITHIN_S)
    made_up = await planner.ask(CompensationRequest(ROOM, stuck, [stuck], specs, allowance=allowance))
    failed = PastStep(2, "book_room", "FAILED", params={"hotel": "Roma"}, error={"message": "no rooms"})
    other = await planner.ask(ReplanRequest(ROOM, failed, [], [], [TOOLS.spec("book_room")], allowance=allowance))
    assert [made_up.prompt, other.prompt] == ["compensate@2", "replan@1"]
    for answer in (made_up, other):
        assert answer.text
        assert 0 < answer.usage.tokens_out <= ANSWER_TOKENS
        read_whole(answer)


async def test_the_command_plans_or_says_why_not(model: LocalModel, tmp_path: Path) -> None:
    """``saga plan``: exit code 0 and a plan that ``saga check`` accepts, or an error of the planner in one document."""

    def saga(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "saga_engine", *args, "--tools", str(Path(tiny_tools.__file__))]
        environment = model.environment("native")
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    ran = await asyncio.to_thread(saga, "plan", ROOM, "-o", "room.json", "--json")
    body = json.loads(ran.stdout)
    if ran.returncode == 0:
        assert body["rounds"] == len(body["transcript"])
        assert 0 < body["usage"]["tokens_out"] <= body["rounds"] * ANSWER_TOKENS
        assert (await asyncio.to_thread(saga, "check", "room.json")).returncode == 0
        assert (await asyncio.to_thread(saga, "simulate", "room.json")).returncode == 0
    else:
        codes = {7: PlannerFailed.code, 1: GoalImpossible.code}
        assert body["error"]["code"] == codes[ran.returncode], ran.stderr
        assert not (tmp_path / "room.json").exists()


async def test_the_evals_score_it(model: LocalModel, tmp_path: Path) -> None:
    """``make eval-planner`` against a real model: every goal gets its marks, and the figures are shares."""
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / "eval_planner.py")]
    command += ["--model", f"local:{model.weights}", "--only", GOALS, "--json", "figures.json"]
    environment = model.environment("native", SAGA_MODEL_ROUNDS="1")
    ran = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    HEARD.extend(f"eval      {line}" for line in ran.stdout.splitlines())
    assert all(case["id"].startswith(tuple(GOALS.split(","))) for case in figures["cases"])
    assert {case["outcome"] for case in figures["cases"]} <= {"plan", "impossible", "no valid plan"}
    assert figures["tokens"] > 0
    assert all(0 <= share <= 1 for share in figures["criteria"].values())
