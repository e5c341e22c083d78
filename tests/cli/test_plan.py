"""`saga plan`: a goal in, a checked plan out; a real process against a model server on a real wire."""

from __future__ import annotations

import asyncio
import json
import os
import pty
from typing import Any

import pytest

from saga_engine.planner.features import NEEDS
from tests.cli.conftest import TOOLS
from tests.cli.loading import loaded
from tests.planner.model_server import Reply, call, model_server, refuse, say

GOOD = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "$input.room"}}]}
BAD = {"steps": [{"step_id": 1, "tool": "bok", "params": {"item": "x"}}]}


async def ask(
    cli: Any, *args: str, script: tuple[Reply, ...] = (), env: dict[str, str] | None = None, stdin: str | None = None
) -> Any:
    async with model_server(*script) as server:
        given = {
            "SAGA_MODEL": "openai:small",
            "SAGA_MODEL_BASE_URL": f"{server.url}/v1",
            "SAGA_MODEL_API_KEY": "sk-cli",
        }
        ran = await asyncio.to_thread(cli, "plan", *args, "--tools", str(TOOLS), env=given | (env or {}), stdin=stdin)
        assert not server.script
        return ran


async def test_the_plan_goes_to_stdout_and_the_chatter_to_stderr(cli):
    """Stdout is a plan file as it stands; stderr tells model, rounds, tokens, cost, seconds and what was mended."""
    ran = await ask(cli, "Book a room", "--input", "room=a12", script=(call(BAD), call(GOOD)))
    assert ran.code == 0, ran.err
    plan = ran.json
    assert (plan["goal"], plan["input"], plan["steps"][0]["tool"]) == ("Book a room", {"room": "a12"}, "book")
    assert plan["steps"][0]["rollback"] == {"tool": "unbook"}, "who reads the file sees the undo"
    for word in ("openai:small", "2 rounds", "2 requests", "200 + 40 tokens", "cost unknown"):
        assert word in ran.err
    assert "(at most 3 rounds, 10 requests, 200000 tokens, 300 s, no limit on cost)" in ran.err
    assert "sk-cli" not in ran.out + ran.err


async def test_each_round_is_told_as_it_ends(cli):
    """stderr: what came back in which round, its problems, seconds and tokens; stdout stays a plan."""
    ran = await ask(cli, "Book a room", "--input", "room=a12", script=(call(BAD), call(GOOD)))
    lines = [line for line in ran.err.splitlines() if line.startswith("round ")]
    assert len(lines) == 2, ran.err
    assert "a plan with 1 problem (tool-unknown at $.steps[0].tool)" in lines[0]
    assert all("100 + 20 tokens" in line and " s, " in line for line in lines)
    assert "problem" not in lines[1]
    assert ran.json["steps"]
    failed = await ask(cli, "Fly", script=(call({"impossible": "no planes"}),))
    assert "round 1: a refusal; " in failed.err


async def test_the_plan_in_a_file_can_be_submitted(cli):
    """-o FILE: nothing on stdout, and the file is what `saga check` and `saga submit` take."""
    steps = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}]}
    ran = await ask(
        cli,
        "-",
        "-o",
        "trip.json",
        script=(say(f"```json\n{json.dumps(steps)}\n```"),),
        stdin="Book a room\n",
        env={"SAGA_MODEL_OUTPUT": "text"},
    )
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert cli("check", "trip.json", "--tools", str(TOOLS)).code == 0
    done = await asyncio.to_thread(cli, "submit", "trip.json", "--tools", str(TOOLS), "--json")
    assert done.json["status"] == "COMPLETED"
    assert cli.world == ["book:a"]


async def test_json_is_one_document(cli):
    """--json: the plan with everything that is known of how it came about."""
    ran = await ask(cli, "Book", "--input", "room=b1", "--json", script=(call(GOOD),))
    body = ran.json
    assert {"plan", "source", "model", "prompt", "rounds", "usage", "budget", "notes", "transcript"} <= body.keys()
    assert body["usage"]["requests"] == 1


async def test_no_valid_plan_is_7(cli):
    """With the transcript in the error; --rounds says how often the model is asked."""
    ran = await ask(cli, "Book", "--rounds", "2", "--json", script=(call(BAD), call(BAD)))
    assert ran.code == 7
    error = ran.json["error"]
    assert (error["code"], len(error["context"]["transcript"])) == ("planner-failed", 2)


async def test_what_a_model_may_not_use_is_told_with_the_command_that_allows_it(cli):
    """Exit code 4 for what it asks for, 7 for what it used all the same; stderr has the whole command each time."""
    sleeps = {"steps": [{"step_id": 1, "sleep": 5}]}
    needed = await ask(cli, "Book a room", "--rounds", "1", script=(call({"needs": ["ask"]}),))
    assert (needed.code, needed.out) == (4, "")
    assert "planner-needs" in needed.err
    line = next(line for line in needed.err.splitlines() if "allow it with" in line)
    assert "saga plan 'Book a room' --rounds 1 --tools " in line
    assert line.endswith("--may-use ask")
    used = await ask(cli, "Sleep", "--rounds", "1", script=(call(sleeps),))
    assert used.code == 7
    assert "--may-use sleep" in used.err
    allowed = await ask(cli, "Sleep", "--rounds", "1", "--may-use", "sleep", script=(call(sleeps),))
    assert allowed.code == 0, allowed.err


@pytest.mark.parametrize(("said", "code", "world"), [("n", 0, []), ("y", 0, ["book:a12"])])
async def test_a_plan_is_submitted_only_with_a_yes(cli, said, code, world):
    """--submit: after the review the user is asked on the terminal; nothing but a yes runs it."""
    async with model_server(call(GOOD)) as server:
        given = {"SAGA_MODEL": "openai:small", "SAGA_MODEL_BASE_URL": f"{server.url}/v1", "SAGA_MODEL_API_KEY": "k"}
        ours, theirs = pty.openpty()
        args = ("plan", "Book a room", "--input", "room=a12", "--submit", "--tools", str(TOOLS))
        running = await asyncio.to_thread(cli.start, *args, env={**cli.env, **given}, stdin=theirs)
        os.write(ours, f"{said}\n".encode())
        _, err = await asyncio.to_thread(running.communicate, timeout=120)
        os.close(ours)
        os.close(theirs)
    assert "book is undone by unbook" in err, "the review comes first"
    assert 'book {"item": "$input.room"}' in err, "with every call that a yes agrees to"
    assert "submit this plan? [y/N]" in err
    assert (running.returncode, cli.world) == (code, world)


def test_nobody_can_be_asked_without_a_terminal(cli):
    """--submit in a pipe, or with --json, asks no model and runs nothing."""
    for more in ((), ("--json",)):
        ran = cli("plan", "Book a room", "--submit", "--tools", str(TOOLS), *more)
        assert ran.code == 2
        assert "nobody can be asked here" in ran.out + ran.err


def test_help_names_what_can_be_allowed(cli):
    """Each part that needs leave stands in the help of --may-use."""
    said = cli("plan", "--help").out
    for name in NEEDS:
        assert name in said or name == "reads"


async def test_what_the_model_said_is_told(cli):
    """Without --json the transcript is on stderr: what was said, what was wrong with it, and what it used."""
    ran = await ask(cli, "Book", "--rounds", "1", script=(call({"steps": [{"step_id": 1, "tool": "b\x1b[31m"}]}),))
    assert (ran.code, ran.out) == (7, "")
    assert "round 1: the model said: " in ran.err
    assert "$.steps[0].tool: there is no tool" in ran.err
    assert "1 round, 1 request, 100 + 20 tokens" in ran.err
    assert "\x1b" not in ran.err


async def test_a_goal_that_cannot_be_served_is_1(cli):
    """With the model's reason, made fit for a terminal."""
    ran = await ask(cli, "Fly", script=(call({"impossible": "no \x1b[31mplanes"}),))
    assert (ran.code, ran.out) == (1, "")
    assert "goal-impossible" in ran.err
    assert "planes" in ran.err
    assert "\x1b" not in ran.err


async def test_a_prepared_plan_stands_in(cli):
    """--intent, or the goal itself, picks the plan of saga.toml when the model cannot be asked; stderr tells it."""
    cli.plan("room.json", {"tool": "book", "params": {"item": "x"}}, goal="Book a room")
    (cli.folder / "saga.toml").write_text('[planner.prepared_plans]\nroom = "room.json"\n')
    for args, script in ((("anything", "--intent", "room"), (refuse(401),)), (("Book a room",), (refuse(401),))):
        ran = await ask(cli, *args, script=script)
        assert ran.code == 0, ran.err
        assert ran.json["steps"][0]["params"] == {"item": "x"}
        assert "prepared for 'room'" in ran.err
    ran = cli("plan", "anything", "--intent", "room", "--tools", str(TOOLS))
    assert (ran.code, ran.json["goal"]) == (0, "Book a room")


ASKS = {"questions": [{"name": "room", "question": "Which room, \x1b[2Ja or b?", "options": ["a", "b"]}]}


async def test_questions_of_the_model_are_answered_the_next_time(cli):
    """Without a terminal: exit code 4, the questions on stderr and in --json; --answer has the answers."""
    ran = await ask(cli, "Book a room", script=(call(ASKS),))
    assert (ran.code, ran.out) == (4, "")
    assert "question room: Which room" in ran.err
    assert "--answer room=" in ran.err
    assert "\x1b" not in ran.err
    asked = await ask(cli, "Book a room", "--json", script=(call(ASKS),))
    error = asked.json["error"]
    assert (asked.code, error["code"], error["context"]["questions"][0]["name"]) == (4, "planner-asks", "room")
    steps = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "b"}}]}
    async with model_server(call(steps)) as server:
        given = {"SAGA_MODEL": "openai:small", "SAGA_MODEL_BASE_URL": f"{server.url}/v1", "TZ": "Asia/Shanghai"}
        ran = await asyncio.to_thread(
            cli, "plan", "Book a room", "--answer", "room=b", "--tools", str(TOOLS), env=given
        )
        assert ran.code == 0, ran.err
        (text,) = server.texts
    assert '{"room": "b"}' in text
    assert "time zone CST (UTC+0800)" in text, "the user's zone"


async def test_the_user_is_told_how_many_tools_the_model_saw(cli):
    """Hidden tools are named to the model, shown when it gives up, and the user hears '1 of 2'."""
    (cli.folder / "saga.toml").write_text("[planner]\ntools_offered = 1\n")
    (cli.folder / "tools.py").write_text(
        "from saga_engine import tool\n"
        "@tool(undo='unbook')\ndef book_room(item: str) -> dict:\n    'Book a room.'\n    return {'item': item}\n"
        "@tool\ndef unbook(item: str) -> None:\n    'Undo.'\n"
        "@tool(effect='read')\ndef weather(place: str) -> dict:\n    'The weather of a place.'\n    return {}\n"
    )
    steps = {"steps": [{"step_id": 1, "tool": "weather", "params": {"place": "Rome"}}]}
    async with model_server(call({"impossible": "no weather"}), call(steps)) as server:
        given = {"SAGA_MODEL": "openai:small", "SAGA_MODEL_BASE_URL": f"{server.url}/v1"}
        ran = await asyncio.to_thread(cli, "plan", "Book a room", "--tools", "tools.py", "--json", env=given)
    assert ran.code == 0, ran.err
    assert "with 2 of 3 tools" in ran.err
    assert "round 1: a refusal" in ran.err
    assert ran.json["tools"] == {"shown": 3, "known": 3}


async def test_a_declared_lookup_is_made_while_planning(cli):
    """[planner] reads: the result is in the next question, and --json tells the call."""
    (cli.folder / "saga.toml").write_text('[planner]\nreads = ["lines"]\n')
    (cli.folder / "tools.py").write_text(
        "from saga_engine import tool\n"
        "@tool(effect='read')\ndef lines(order: str) -> dict:\n    'Lines.'\n    return {'lines': ['A-' + order]}\n"
    )
    steps = {"steps": [{"step_id": 1, "tool": "lines", "params": {"order": "17"}}]}
    script = call({"reads": [{"tool": "lines", "params": {"order": "17"}}]}), call(steps)
    async with model_server(*script) as server:
        given = {"SAGA_MODEL": "openai:small", "SAGA_MODEL_BASE_URL": f"{server.url}/v1"}
        ran = await asyncio.to_thread(cli, "plan", "Each line of 17", "--tools", "tools.py", "--json", env=given)
        assert '"A-17"' in server.texts[1]
    assert ran.code == 0, ran.err
    assert ran.json["reads"] == [{"tool": "lines", "params": {"order": "17"}, "worked": True}]


async def test_the_review_and_the_difference_are_told(cli):
    """stderr: undos, assumptions and the simulation; with --revise what was added, removed and changed."""
    cli.plan("before.json", {"tool": "book", "params": {"item": "a"}}, goal="Book a room")
    steps = [{"step_id": 1, "tool": "book", "params": {"item": "b"}}, {"tool": "book", "params": {"item": "c"}}]
    said = {"steps": [steps[0], {**steps[1], "step_id": 2}], "assumptions": ["Two rooms."]}
    ran = await ask(cli, "Room b, and another", "--revise", "before.json", script=(call(said),))
    assert ran.code == 0, ran.err
    for line in (
        "1     undo       book is undone by unbook",
        "assumed    Two rooms.",
        "simulated  ",
        "2     change     added",
        '1     change     params {"item": "a"} -> {"item": "b"}',
    ):
        assert line in ran.err
    assert ran.json["goal"] == "Book a room\nChange: Room b, and another"


def test_without_a_model_the_error_says_what_to_set(cli):
    """No model, no plan: exit code 1 and a hint."""
    ran = cli("plan", "Book", "--tools", str(TOOLS), "--json")
    assert ran.code == 1
    assert ran.json["error"]["code"] == "planner-unavailable"
    assert "SAGA_MODEL" in ran.json["error"]["hint"]


@pytest.mark.parametrize(
    "args",
    [
        ("Book",),
        ("Book", "--tools", str(TOOLS), "--model", "x"),
        ("Book", "--tools", str(TOOLS), "--rounds", "0"),
        ("Book", "--tools", str(TOOLS), "--intent", "no"),
    ],
)
def test_what_is_missing_or_wrong_is_told_before_anybody_is_asked(cli, args):
    """No tools, no such model, no rounds, no such intent."""
    ran = cli("plan", *args, "--json")
    assert ran.code == 1
    assert ran.json["error"]["code"] in {"setting-invalid", "planner-unavailable"}


def test_the_help_loads_no_model(cli):
    """Neither the help nor another command pays for the packages behind a model."""
    heavy = ("pydantic_ai", "openai", "anthropic", "httpx2", "pydantic")
    assert "loaded: []" in loaded(cli, "plan", "--help", heavy=heavy)
    assert "loaded: []" in loaded(cli, "list", heavy=heavy)
