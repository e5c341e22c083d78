"""What a command says that a person should do next, and what it counts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


def test_the_header_counts_the_effects_that_exist(cli, book):
    """The effect of a step whose undo failed exists, also once an operator has accepted that; one in doubt may exist."""
    (cli.folder / "undo-is-broken").touch()
    cli.plan("trip.json", book("a"), {"tool": "fail", "params": {"message": "full"}}, task_id="trip")
    assert "; 1 of 2 steps in effect\n" in cli("submit", "trip.json", *WITH).out
    assert "; 1 of 2 steps in effect\n" in cli.look("show", "trip").out
    assert "; 1 of 2 steps in effect\n" in cli("resolve", "trip", "1", "accept", *WITH).out
    cli.plan("lost.json", book("a"), {"tool": "vanish", "params": {"item": "b"}}, task_id="lost")
    assert "; 1 of 2 steps in effect, 1 in doubt\n" in cli("submit", "lost.json", *WITH).out


@pytest.mark.parametrize("command", ["check", "submit"])
def test_an_input_that_nothing_asks_for_is_refused(cli, command):
    """It is most likely misspelt; the message says what the plan asks for. Nothing is journalled."""
    cli.plan("trip.json", {"tool": "book", "params": {"item": "$input.guest"}}, task_id="trip")
    near = cli(command, "trip.json", *WITH, "--input", "guset=Ada")
    assert (near.code, "did you mean guest?" in near.err) == (2, True)
    far = cli(command, "trip.json", *WITH, "--input", "nights=2", "--input", "guest=Ada")
    assert (far.code, "it asks for guest" in far.err) == (2, True)
    assert cli.look("show", "trip").code == 5


def test_check_takes_the_input_that_submit_takes(cli):
    """A plan that lacks only its input is valid with it, and invalid without."""
    cli.plan("trip.json", {"tool": "book", "params": {"item": "$input.guest"}}, task_id="trip")
    assert cli("check", "trip.json", *WITH, "--input", "guest=Ada").code == 0
    assert cli("check", "trip.json", *WITH).code == 7


def test_submit_without_tools_says_where_tools_come_from(cli, book):
    """A list of unknown tools alone would not tell what is missing."""
    cli.plan("trip.json", book("a"), task_id="trip")
    ran = cli("submit", "trip.json")
    assert ran.code == 7
    assert "no tools were given; name them with --tools" in ran.err


def test_a_worker_without_tools_is_refused(cli):
    """It would take sagas from the queue that it cannot drive."""
    ran = cli("worker", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "setting-invalid")


def test_a_missing_secret_names_no_saga_that_does_not_exist(cli):
    """Nothing was journalled, so there is nothing to resume."""
    cli.plan("trip.json", {"tool": "book", "params": {"item": "$secret.NOWHERE_SET"}}, task_id="trip")
    (cli.folder / "saga.toml").write_text('[secrets.allow]\n"*" = ["NOWHERE_SET"]\n')
    ran = cli("submit", "trip.json", *WITH, "--json")
    assert "NOWHERE_SET" in json.dumps(ran.json["error"])
    assert "resume" not in ran.json["error"]["hint"]


def test_a_list_names_the_other_runtime(cli):
    """With another runtime set, the store's own sagas are not all there are."""
    ran = cli("list", env={"SAGA_RUNTIME": "temporal://localhost:1/default"})
    assert ran.code == 0
    assert "those of temporal://localhost:1/default" in ran.err


def test_tools_without_guards_are_not_said_to_be_uncalled(cli):
    """Nobody counts their calls: that is no zero."""
    ran = cli("tools", "--stats", "--json", *WITH)
    assert {one["name"]: one["stats"] for one in ran.json["tools"]}["book"] is None
    assert "are not counted" in cli("tools", "--stats", *WITH).err


AGENT = """
import asyncio, sys
from saga_engine import Coordinator, NeedsPerson
sys.path.insert(0, {folder!r})
from outside_world import vanish, unbook

async def main():
    async with Coordinator.open("embedded://.saga", [vanish, unbook]) as engine:
        async with engine.session("agent-7") as session:
            await session.call(vanish, item="a")

try:
    asyncio.run(main())
except NeedsPerson:
    pass
"""


def test_a_session_goes_on_with_its_agent_not_with_tools_on_a_command_line(cli):
    """Its tools live in the agent: the answers that can be copied name none, and the hint names the agent."""
    agent = subprocess.run(
        [sys.executable, "-c", AGENT.format(folder=str(TOOLS.parent))],
        cwd=cli.folder, env=cli.env, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert agent.returncode == 0, agent.stderr
    shown = cli.look("show", "agent-7")
    assert "    saga resolve agent-7 1 happened" in shown.out
    asked = cli("inbox").out
    assert "    saga resolve agent-7 1 happened" in asked
    assert "--tools" not in shown.out + asked
    answered = cli("resolve", "agent-7", "1", "not-happened")
    assert answered.code == 8
    assert "run its agent again with the id agent-7" in answered.err
    assert "--tools" not in answered.err


@pytest.mark.parametrize("step_id", [1, "one"])
def test_a_step_has_one_id_everywhere(cli, step_id):
    """A number stays a number and a text a text, in whatever document; records and errors call the step by its text."""
    (cli.folder / "undo-is-broken").touch()
    kept = {"step_id": step_id, "tool": "book", "params": {"item": "a"}}
    cli.plan("trip.json", kept, {"step_id": 2, "tool": "fail"}, task_id="trip")
    found = [
        cli(*line, "--json").json for line in (("submit", "trip.json", *WITH), ("inbox",), ("resume", "trip", *WITH))
    ]
    found += [cli.look(*line, "--json").json for line in (("show", "trip"), ("list",), ("history", "trip"))]
    found.append(cli("fork", "trip", "--plan", "trip.json", "--dry-run", "--json", *WITH).json)
    ids = list(_ids(found))
    assert len(ids) > 10
    assert {repr(one) for one in ids} == {repr(step_id), "2"}
    assert {repr(one) for one in found[0]["report"]["failed"]} == {repr(step_id)}


def _ids(body):
    """All that is called ``step_id``, wherever it stands."""
    if isinstance(body, dict):
        if "plan" in body and "digest" in body:
            return  # the plan itself, as somebody wrote it
        for name, value in body.items():
            if name == "step_id":
                yield value
            else:
                yield from _ids(value)
    elif isinstance(body, list):
        for each in body:
            yield from _ids(each)


KILLED = """
import asyncio, os, sys
from saga_engine import Coordinator

from outside_world import book, unbook


async def agent() -> None:
    async with Coordinator.open("embedded://.saga", [book, unbook]) as engine:
        async with engine.session("agent-8", goal="a trip") as session:
            await session.call(book, item="a")
            await session.call(book, item="b")
            if sys.argv[1] == "dies":
                os._exit(9)


asyncio.run(agent())
"""


def test_the_list_counts_no_steps_of_a_session_that_is_under_way(cli):
    """The head of a saga is written when its status changes, and a session grows without that: no number is shown."""
    (cli.folder / "agent.py").write_text(KILLED)
    (cli.folder / "outside_world.py").write_text(TOOLS.read_text())
    for how, code, steps in (("dies", 9, ""), ("ends", 0, "2/2")):
        ran = subprocess.run([sys.executable, "agent.py", how], cwd=cli.folder, env=cli.env, check=False)
        assert ran.returncode == code
        (row,) = cli.look("list").out.splitlines()[1:]
        assert ("/" in row, steps in row) == (bool(steps), True)
        assert not any(cell.isdigit() for cell in row.replace(" ago", "").split("  "))
