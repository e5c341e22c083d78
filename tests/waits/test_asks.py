"""A person's word as a step of a plan: through the API and the command line, on a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from saga_engine import Coordinator, Question, tool
from saga_engine.cli import app
from saga_engine.core import records as r
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin, fold
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.messages import Message, answer
from saga_engine.core.state import State
from saga_engine.core.steps.ask import MAX_ANSWER_BYTES
from saga_engine.errors import DecisionRefused, NeedsPerson, PlanInvalid, SessionDiverged
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

ASK = {"question": "Stay?\x1b[31m", "options": ["Yes", "--no", 'it\'s "fine"'], "expires_s": 60}


def asked(*steps: dict[str, Any], **plan: Any) -> tuple[State, list[r.AnyRecord]]:
    """A saga that has just asked, and its records."""
    compiled = compile_plan(load_plan({"steps": list(steps), **plan}), None)
    records: list[r.AnyRecord] = [r.SagaStarted(at=0, saga_id="s", plan=None, digest="", seed="0")]
    state = begin(records[0], compiled)  # type: ignore[arg-type]
    settle(state, records, 1_000)
    return state, records


def settle(state: State, records: list[r.AnyRecord], now: int) -> list[str]:
    """What the core decides at a time; returns the kinds."""
    found = Machine(state, FixedMeans()).ready(now).records
    records += found
    return [type(record).__name__ for record in found]


def said(state: State, decision: str, now: int, output: Any = None) -> r.AnyRecord:
    return answer(state, Message(id="m", kind="resolve", step="1", decision=decision, output=output, by="ada"), now)


def test_answer_and_expiry_compete_for_one_record() -> None:
    """Whichever comes first holds, and the other finds no question. At the expiry it is too late for an answer."""
    state, records = asked({"step_id": 1, "ask": ASK})
    early = said(state, "yes", 60_999)
    assert isinstance(early, r.QuestionResolved)
    assert early.decision == "Yes"
    evolve(state, early)
    assert settle(state, [], 61_000) == ["SagaCompleted"]
    assert state.steps[0].output == {"answer": "Yes", "by": "ada", "note": ""}

    late = fold(records, state.plan)
    assert isinstance(said(late, "yes", 61_000), r.MessageRefused)
    assert settle(late, records, 61_000)[0] == "ApprovalExpired"
    assert isinstance(said(late, "yes", 61_001), r.MessageRefused)
    assert late.steps[0].status == "FAILED"


def test_a_saga_goes_on_only_from_the_failure_that_nobody_answered() -> None:
    """``"on_timeout": "continue"``: the expiry lets the saga complete; a question that cannot be asked does not."""
    then = {"step_id": 2, "compute": {"$first": ["$output.step_1.answer", "none"]}}
    state, records = asked({"step_id": 1, "ask": {**ASK, "on_timeout": "continue"}}, then)
    assert settle(state, records, 61_000) == ["ApprovalExpired", "StepSucceeded", "SagaCompleted"]
    assert [step.status for step in state.steps] == ["FAILED", "SUCCEEDED"]
    assert fold(records, state.plan).status == "COMPLETED"
    state, _ = asked(
        {"step_id": 1, "ask": {**ASK, "options": "$input.none", "on_timeout": "continue"}}, input={"none": []}
    )
    assert (state.steps[0].forward.error or {}).error_code == "ask_invalid"  # type: ignore[union-attr]
    assert state.status == "COMPENSATED"


def test_the_deadline_binds_a_saga_that_only_asks() -> None:
    """A question without an expiry ends with the saga's deadline, and what happened is undone."""
    state, records = asked({"step_id": 1, "ask": {"question": "?"}}, deadline_s=5)
    assert settle(state, records, 5_000)[:2] == ["DeadlinePassed", "CompensationStarted"]
    assert state.status == "COMPENSATED"
    assert not state.questions


@pytest.mark.parametrize("output", [None, "x" * (MAX_ANSWER_BYTES + 1), 7])
def test_a_free_answer_is_given_bounded_and_fits(output: Any) -> None:
    """Without a schema the answer is a text; what is missing, too large or of another type changes nothing."""
    state, _ = asked({"step_id": 1, "ask": {"question": "?"}})
    refused = said(state, "answer", 2_000, output)
    assert isinstance(refused, r.MessageRefused)
    assert refused.code == DecisionRefused.code
    assert isinstance(said(state, "answer", 2_000, "yes"), r.QuestionResolved)


def test_options_that_look_like_the_engines_own_answers_are_only_values() -> None:
    """'accept', 'deny' and 'undo' of a plan accept, deny and undo nothing."""
    for word in ("accept", "deny", "undo", "retry", "not-happened", "abort"):
        state, records = asked({"step_id": 1, "ask": {"question": "?", "options": [word]}})
        evolve(state, said(state, word, 2_000))
        assert settle(state, records, 2_000) == ["SagaCompleted"]
        assert state.steps[0].output["answer"] == word


@tool
def stay(how: str) -> dict[str, str]:
    """Stay somewhere."""
    return {"how": how}


async def test_hooks_tell_the_question_and_a_person_answers_it(tmp_path: Path) -> None:
    """A hook gets text and options; the saga rests without a task until the answer, and goes on with it."""
    told: list[Question] = []
    plan = {
        "task_id": "trip",
        "steps": [
            {"step_id": 1, "ask": ASK},
            {"step_id": 2, "tool": "stay", "params": {"how": "$output.step_1.answer"}, "kind": "pivot"},
        ],
    }
    url = f"embedded://{tmp_path}/.saga"
    async with Coordinator.open(url, tools=[stay], on_escalation=told.append) as coordinator:
        rests = await coordinator.run(plan)
        assert rests.status == "ESCALATED"
        assert [(each.kind, each.text, each.options) for each in told] == [
            ("ask", "Stay?\x1b[31m", ("Yes", "--no", 'it\'s "fine"')),
        ]
        with pytest.raises(DecisionRefused, match="legal answers"):
            await coordinator.resolve("trip", 1, "maybe")
        done = await coordinator.resolve("trip", 1, "--no", by="ada")
        assert done.status == "COMPLETED"
        assert done.output(2) == {"how": "--no"}


def test_the_command_line_shows_what_is_asked_and_takes_the_answer(tmp_path: Path) -> None:
    """The question is one inert line, and each command line that is shown gives the answer that it says."""
    run = CliRunner(env={"SAGA_STORE": f"embedded://{tmp_path}/.saga", "COLUMNS": "200"})
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"task_id": "trip", "steps": [{"step_id": 1, "ask": ASK}]}))
    assert run.invoke(app, ["submit", str(plan)]).exit_code == 4
    shown = run.invoke(app, ["inbox"]).output
    assert "Stay?\\x1b[31m" in shown
    assert "\x1b[31m" not in shown
    assert "saga resolve trip --tools … -- 1 --no" in shown
    assert "saga resolve trip 1 'it'\"'\"'s \"fine\"'" in shown
    assert run.invoke(app, ["resolve", "trip", "1", "perhaps"]).exit_code == 6
    assert run.invoke(app, ["resolve", "trip", "--", "1", "--no"]).exit_code == 8
    assert run.invoke(app, ["resume", "trip"]).exit_code == 0


async def test_an_agent_asks_and_runs_again_with_the_answer(tmp_path: Path) -> None:
    """A session's question rests until it is answered; the agent that runs again with its id gets the answer."""
    url = f"embedded://{tmp_path}/.saga"
    async with Coordinator.open(url, tools=[stay], on_escalation=()) as coordinator:

        async def agent() -> Any:
            async with coordinator.session("trip") as session:
                said = await session.ask("{$input.x}?", options=["yes", "no"], expires_s=3600)
                return await session.call(stay, how=said["answer"], irreversible=True)

        with pytest.raises(PlanInvalid):
            async with coordinator.session("other") as session:
                await session.ask("?", options=["a", "A"])
        with pytest.raises(PlanInvalid, match="belongs to plans"):
            async with coordinator.session("third") as session:
                await session.ask("?", expires_s=1, on_timeout="continue")  # type: ignore[arg-type]
        with pytest.raises(NeedsPerson, match="ask about call 1"):
            await agent()
        assert (await coordinator.show("trip")).body["questions"][0]["text"] == "{$input.x}?"
        await coordinator.resolve("trip", 1, "no", by="ada")
        assert await agent() == {"how": "no"}
        assert (await coordinator.show("trip")).status == "COMPLETED"
        with pytest.raises(SessionDiverged, match="the params of ask were"):
            async with coordinator.session("trip") as session:
                await session.ask("Really?", options=["yes", "no"])


def test_a_completed_saga_that_asked_is_undone_from_the_command_line(tmp_path: Path) -> None:
    """The undo of a saga passes over its questions, undoes what stands, and tells its progress."""
    tools, plan = tmp_path / "tools.py", tmp_path / "plan.json"
    tools.write_text(
        "from saga_engine import tool\n\n\n@tool(undo='leave')\ndef stay(how: str) -> dict:\n    return {'how': how}\n\n\n"
        "@tool\ndef leave(how: str) -> None:\n    pass\n"
    )
    stays = {"step_id": 2, "tool": "stay", "params": {"how": "$output.step_1.answer"}}
    plan.write_text(json.dumps({"task_id": "trip", "steps": [{"step_id": 1, "ask": ASK}, stays]}))
    run = CliRunner(env={"SAGA_STORE": f"embedded://{tmp_path}/.saga", "SAGA_TOOLS": str(tools)})
    assert run.invoke(app, ["submit", str(plan)]).exit_code == 4
    assert run.invoke(app, ["resolve", "trip", "1", "yes"]).exit_code == 0
    undone = run.invoke(app, ["undo", "trip"])
    assert undone.exit_code == 0, undone.output
    assert "compensated: 2" in undone.output
