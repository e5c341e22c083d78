"""Forking from the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


@pytest.fixture
def resting(cli, book):
    """A saga that rests: its third step was wrong, and the plan says to ask."""
    cli.plan("trip.json", book("a"), book("b"), {"tool": "fail"}, task_id="trip", on_failure="pause")
    assert cli("submit", "trip.json", *WITH).code == 4
    return cli.plan("mended.json", book("a"), book("B"), book("c"), task_id="ignored", on_failure="pause")


def test_a_dry_run_shows_what_is_taken_over_what_runs_and_what_stays_and_changes_nothing(cli, resting):
    """Steps with their source and fingerprint, the steps that run, those left behind; no record is written."""
    before = cli.look("history", "trip", "--json").json

    ran = cli("fork", "trip", "--plan", resting, "--dry-run", *WITH)
    seen = cli("fork", "trip", "--plan", resting, "--dry-run", *WITH, "--json")

    assert (ran.code, seen.code) == (0, 0)
    assert [(each["step_id"], each["from"]) for each in seen.json["taken_over"]] == [(1, "trip/1")]
    assert (seen.json["runs"], seen.json["left"], seen.json["begun"]) == ([2, 3], [2], False)
    row = next(line.split() for line in ran.out.splitlines() if line.startswith("1 "))
    assert row == ["1", "book_a", "book", "reused", "trip/1", seen.json["taken_over"][0]["fingerprint"][:12]]
    assert "not reused from saga trip: step 2 (that saga undoes them)" in ran.out
    assert cli.look("history", "trip", "--json").json == before
    assert len(cli.look("list", "--json").json["sagas"]) == 1
    assert cli.world == ["book:a", "book:b"]


def test_a_fork_runs_what_has_changed_and_the_old_saga_undoes_what_is_not_wanted(cli, resting):
    """What will happen is shown first, on stderr; then both sagas are driven, and the outcome is the fork's."""
    ran = cli("fork", "trip", "--plan", resting, "--id", "again", *WITH, "--json")

    assert (ran.code, ran.json["saga_id"], ran.json["status"]) == (0, "again", "COMPLETED")
    assert [(step["attempts"], step.get("via"), step.get("source")) for step in ran.json["steps"]] == [
        (0, "fork", "trip/1"),
        (1, None, None),
        (1, None, None),
    ]
    assert cli.world == ["book:a", "book:b", "unbook:b", "book:B", "book:c"]
    shown, undone = ran.err.index("reused"), ran.err.index("saga trip: step 2 undone")
    assert shown < undone < ran.err.index("step 2 book_B: done")
    old = cli.look("show", "trip", "--json").json
    assert (old["status"], old["error"]["code"], old["steps"][0]["handed_to"]) == (
        "COMPENSATED",
        "transferred",
        "again",
    )


def test_the_same_command_again_is_the_same_fork(cli, resting):
    """The id follows from what is forked and how: asked twice, it happens once, and is said to have begun."""
    first = cli("fork", "trip", "--plan", resting, *WITH, "--json")
    world = cli.world

    again = cli("fork", "trip", "--plan", resting, *WITH, "--json")

    assert (first.code, again.code) == (0, 0)
    assert first.json == again.json
    assert "already started" in again.err
    assert cli.world == world
    assert cli("fork", "trip", "--plan", resting, "--dry-run", *WITH, "--json").json["begun"] is True


def test_a_step_and_what_follows_it_can_be_run_anew_and_undone_with_what_was_taken_over(cli, book):
    """``--from`` runs unchanged steps; when the fork fails (3), it undoes what it took over, too."""
    cli.plan("trip.json", book("a"), book("b"), task_id="trip")
    cli("submit", "trip.json", *WITH)
    anew = cli("fork", "trip", "--from", "2", *WITH, "--json")
    assert (anew.code, cli.world) == (0, ["book:a", "book:b", "book:b"])
    fork_id = anew.json["saga_id"]
    plan = cli.plan("worse.json", book("a"), book("x"), {"tool": "fail"})

    worse = cli("fork", fork_id, "--plan", plan, *WITH)

    assert worse.code == 3
    assert cli.world[3:] == ["book:x", "unbook:x", "unbook:a"]


def test_what_cannot_be_forked_is_refused(cli, book, resting):
    """A saga being undone, another saga's id and a step that is none are conflicts (6); no saga (5); no plan (7)."""
    cli("submit", cli.plan("other.json", book("z"), task_id="other"), *WITH)
    world = cli.world
    assert cli("fork", "nobody", *WITH).code == 5
    assert cli("fork", "trip", "--plan", "nowhere.json", *WITH).code == 7
    for args, code in [
        (("--from", "nine"), "fork-refused"),
        (("--plan", resting, "--id", "other"), "saga-exists"),
        (("--plan", resting, "--id", "trip"), "saga-exists"),
    ]:
        ran = cli("fork", "trip", *args, *WITH, "--json")
        assert (ran.code, ran.json["error"]["code"]) == (6, code)
    assert cli.look("show", "trip", "--json").json["status"] == "ESCALATED"
    (cli.folder / "undo-is-broken").touch()
    cli("cancel", "trip", *WITH)
    ran = cli("fork", "trip", "--plan", resting, *WITH, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (6, "fork-refused")
    assert cli.world == world


def test_a_plan_comes_from_stdin_and_its_problems_are_told(cli, resting):
    """``--plan -`` reads stdin; a plan that is invalid is one (7), and nothing is handed over."""
    ran = cli("fork", "trip", "--plan", "-", *WITH, "--json", stdin='{"steps": [{"step_id": 1, "tool": "bok"}]}')
    assert (ran.code, ran.json["error"]["problems"][0]["code"]) == (7, "tool-unknown")
    text = (cli.folder / resting).read_text()
    assert cli("fork", "trip", "--plan", "-", *WITH, stdin=text).code == 0


AGENT = """
import asyncio, sys
from saga_engine import CallFailed, Coordinator, tool
sys.path.insert(0, {folder!r})
from outside_world import book, fail, unbook

@tool
async def send(text: str) -> str:
    return text

async def main(name, *items):
    async with Coordinator.open("embedded://.saga", [book, fail, send, unbook], on_escalation=()) as engine:
        async with engine.session(name, on_failure="keep") as session:
            for item in items:
                if item == "no":
                    await session.call(fail)
                elif item.startswith("!"):
                    await session.call(send, text=item, irreversible=True)
                else:
                    await session.call(book, item=item)

try:
    asyncio.run(main(*sys.argv[1:]))
except CallFailed:
    pass
"""


@pytest.fixture
def agent(cli):
    """An agent in a process of its own, which books items one after the other; it fails at ``no``, and sends what begins with ``!``."""

    def run(*args: str) -> None:
        code = AGENT.format(folder=str(TOOLS.parent))
        ran = subprocess.run(
            [sys.executable, "-c", code, *args],
            cwd=cli.folder, env=cli.env, check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr

    return run


def test_a_session_is_forked_from_a_call_and_waits_for_its_agent(cli, agent):
    """Nobody has to answer, so the code is 0; the old session undoes the rest, and the agent goes on with the new id."""
    agent("trip", "a", "b", "c", "no")
    look = cli("fork", "trip", "--from", "3", "--dry-run", *WITH)
    assert (look.code, cli.world) == (0, ["book:a", "book:b", "book:c"])
    assert "not reused from saga trip: step 3 (that saga undoes them)" in look.out

    ran = cli("fork", "trip", "--from", "3", "--id", "again", *WITH)

    assert (ran.code, cli.world[3:]) == (0, ["unbook:c"])
    assert "run its agent again with the id again" in ran.out
    assert "failed" not in ran.out + ran.err
    assert "the agent calls" not in ran.err
    twice = cli("fork", "trip", "--from", "3", "--id", "again", *WITH, "--json")
    assert (twice.code, twice.json["saga_id"], twice.json["session"]) == (0, "again", "open")
    assert "already started" in twice.err
    assert "is a fork" in cli.look("inbox").out
    agent("again", "a", "b", "C")
    assert cli.world[4:] == ["book:C"]
    assert cli.look("show", "again", "--json").json["status"] == "COMPLETED"


def test_what_of_a_session_cannot_be_forked_is_refused(cli, agent):
    """A call that there is none of, and a plan, are conflicts (6); a fork that reuses nothing says so."""
    agent("trip", "a", "no")
    plan = cli.plan("mended.json", {"tool": "book", "params": {"item": "a"}})
    for args, what in [(("--from", "9"), "calls: 1, 2"), (("--plan", plan), "leave the plan out")]:
        ran = cli("fork", "trip", *args, *WITH, "--json")
        assert (ran.code, ran.json["error"]["code"]) == (6, "fork-refused")
        assert what in ran.json["error"]["hint"]
    ran = cli("fork", "trip", "--from", "1", "--id", "new", *WITH)
    assert (ran.code, cli.world) == (0, ["book:a", "unbook:a"])
    assert "run its agent again with the id new" in ran.err
    agent("new", "b")
    assert cli.world[2:] == ["book:b"]


def test_the_preview_tells_what_of_a_session_cannot_be_undone(cli, agent):
    """An irreversible call is not among those that the old session undoes."""
    agent("trip", "a", "b", "!c", "no")
    look = cli("fork", "trip", "--from", "2", "--dry-run", *WITH)
    assert "not reused from saga trip: step 2 (that saga undoes them)" in look.out
    assert "not reused from saga trip: step 3 (no undo: their effects remain)" in look.out
