"""The small things that make a command line pleasant: short ids, ages, widths, and no traces of having looked."""

from __future__ import annotations

import io
import json
import os
import pwd
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from saga_engine.cli import output, times
from saga_engine.cli.ids import complete
from saga_engine.cli.options import person
from saga_engine.cli.output import table
from saga_engine.cli.owners import process_words
from saga_engine.cli.progress import Progress
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.execution.owner import this_process
from tests.cli.conftest import TOOLS, Cli

WITH = ("--tools", str(TOOLS))


def test_a_beginning_of_an_id_is_enough(cli: Cli, book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four characters or more that one saga has; several are named, none is not found; a shell completes ids."""
    for name in ("journey-1", "journey-2", "outing"):
        cli.plan(f"{name}.json", book("a"), task_id=name)
        assert cli("submit", f"{name}.json", *WITH).code == 0
    found = cli.look("show", "outi", "--json")
    assert (found.code, found.json["saga_id"]) == (0, "outing")
    assert "saga outing" in found.err
    several = cli.look("show", "jour", "--json")
    assert (several.code, several.json["error"]["code"]) == (5, "saga-not-found")
    assert several.json["error"]["hint"] == "write more of it: journey-1, journey-2"
    short = cli.look("show", "out")
    assert (short.code, "a prefix of an id needs 4 or more characters" in short.err) == (5, True)
    assert cli.look("history", "nobody").code == 5
    assert cli("cancel", "journey-2x").code == 5
    monkeypatch.chdir(cli.folder)
    assert sorted(complete("jour")) == ["journey-1", "journey-2"]


def test_looking_leaves_nothing_behind(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no store, commands that only read make none and begin no server."""
    listed = cli.look("list", "--json")
    assert (listed.code, listed.json) == (0, {"sagas": [], "has_more": False})
    for command in (("show", "nobody"), ("history", "nobody")):
        ran = cli.look(*command, "--json")
        assert (ran.code, ran.json["error"]["code"]) == (5, "saga-not-found")
        assert "there is no store" in ran.json["error"]["message"]
    assert cli("inbox", "--json").json["questions"] == []
    top = cli("top", "--json").json
    assert (top["sagas"], top["workers"]) == ({}, [])
    assert cli("trace", "export", "nobody").code == 5
    assert cli("trace", "export", "--all").code == 0
    assert cli("tools", "--stats", "--tools", str(TOOLS), "--json").code == 0
    assert cli("list", "--store", "embedded://other?namespace=x", "--json").json["sagas"] == []
    for wrong in ("embedded://other?namespace=", ".saga?namespace=x", "embedded://other?namespace=x&namespace=y"):
        refused = cli("list", "--store", wrong)
        assert "store-url-invalid" in refused.err, wrong
    monkeypatch.chdir(cli.folder)
    assert complete("x") == []
    assert list(cli.folder.iterdir()) == []


def test_a_saga_is_followed_to_its_end(cli: Cli, book) -> None:
    """--follow prints each record on stderr and then the saga on stdout, with its exit code."""
    cli.plan("p.json", book("a"), {"tool": "fail"}, task_id="trip")
    assert cli("submit", "p.json", *WITH).code == 3
    followed = cli.look("show", "trip", "--follow")
    assert (followed.code, followed.out.splitlines()[0]) == (3, "saga trip: COMPENSATED")
    lines = followed.err.splitlines()
    assert [line.split()[0] for line in lines] == [str(at) for at in range(len(lines))]
    assert ("SagaStarted" in lines[0], "SagaCompensated" in lines[-1]) == (True, True)
    assert cli.look("show", "trip", "--follow", "--json").code == 2


def test_a_saga_that_asks_is_followed_to_its_question(cli: Cli, book) -> None:
    """What only a person can move on is not waited for."""
    cli.plan("p.json", {"tool": "vanish", "params": {"item": "a"}}, task_id="trip")
    assert cli("submit", "p.json", *WITH).code == 4
    assert cli.look("show", "trip", "--follow").code == 4


def test_an_answer_that_nobody_has_read_yet_is_followed(cli: Cli, book) -> None:
    """Whoever answers and then follows sees what the answer does, also when the worker comes later."""
    cli.plan("p.json", {"tool": "vanish", "params": {"item": "a"}}, task_id="trip")
    assert cli("submit", "p.json", *WITH).code == 4
    assert cli("resolve", "trip", "1", "happened", "--output", "{}").code == 8
    following = cli.start("show", "trip", "--follow")
    assert following.stderr is not None
    while "SagaEscalated" not in following.stderr.readline():
        assert following.poll() is None
    assert cli("resume", "trip", *WITH).code == 0
    out, err = following.communicate()
    assert (following.returncode, out.splitlines()[0]) == (0, "saga trip: COMPLETED")
    assert "QuestionResolved" in err


def test_ages(cli: Cli, book) -> None:
    """`list` says how long ago a saga changed, and shows those that are newer or older than an age."""
    cli.plan("p.json", book("a"), task_id="trip")
    assert cli("submit", "p.json", *WITH).code == 0
    assert " ago" in cli.look("list").out
    assert len(cli.look("list", "--newer", "2h", "--json").json["sagas"]) == 1
    assert cli.look("list", "--older", "2h", "--json").json["sagas"] == []
    for wrong in ("2 weeks", "h", "-1h", ""):
        assert cli.look("list", f"--older={wrong}").code == 2
    now = 10**12
    said = [times.ago(now - seconds * 1000, now) for seconds in (-5, 0, 59, 60, 7199, 7200, 86400, 200_000)]
    assert said == ["0 s ago", "0 s ago", "59 s ago", "1 min ago", "1 h ago", "2 h ago", "24 h ago", "2 d ago"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal no line is wider than it, the ids stay whole and wide characters count double; a pipe has it all."""
    rows = [["a-rather-long-id-of-a-saga", "word " * 30, "全角" * 20, "x" * 50]]
    whole = table(["ID", "A", "B", "C"], rows, limit_chars=200)
    assert ("…" in whole, "x" * 50 in whole) == (False, True)
    for columns in (80, 100, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        fitted = table(["ID", "A", "B", "C"], rows, limit_chars=200, stream=Terminal())
        assert max(output._width(line) for line in fitted.splitlines()) <= columns
        assert "a-rather-long-id-of-a-saga" in fitted
    monkeypatch.setenv("COLUMNS", "20")
    assert "a-rather-long-id-of-a-saga" in table(["ID", "A"], [rows[0][:2]], stream=Terminal())


def test_a_narrow_terminal_loses_empty_columns_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns without a value go before any text is cut; where all has room, and in a pipe, they stay."""
    rows = [["an-id", "", "text " * 6]]
    monkeypatch.setenv("COLUMNS", "40")
    assert table(["ID", "EMPTY", "TEXT"], rows, stream=Terminal()).splitlines()[0].split() == ["ID", "TEXT"]
    assert "…" not in table(["ID", "EMPTY", "TEXT"], rows, stream=Terminal())
    assert "EMPTY" in table(["ID", "EMPTY", "TEXT"], rows, stream=io.StringIO())
    assert output.fits(["ID"], rows, stream=Terminal())
    assert not output.fits(["ID", "EMPTY", "TEXT"], rows, stream=Terminal())


def test_a_plan_may_come_from_a_process(cli: Cli, book) -> None:
    """`saga check <(my-planner)` reads the pipe that the shell made."""
    cli.plan("p.json", book("a"))
    line = f"{' '.join(cli.command('check'))} <(cat p.json) --tools {TOOLS}"
    done = subprocess.run(
        ["bash", "-c", line], check=False, cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_json_errors_have_an_excerpt(cli: Cli) -> None:
    """The line around the place, with a mark before what does not fit."""
    (cli.folder / "p.json").write_text('{"steps": [\n  {"step_id": 1 "tool": "x"}]}')
    (problem,) = cli.look("check", "p.json", "--json").json["problems"]
    assert problem["message"].endswith('at line 2, column 17:   {"step_id": 1 >>>"tool": "x"}]}')
    (cli.folder / "p.json").write_text('{"steps": [')
    assert ">>>" in cli.look("check", "p.json").out


def test_the_version_has_a_short_option(cli: Cli) -> None:
    """-V."""
    assert cli("-V").out == cli("--version").out


def test_simulate_names_the_cure(cli: Cli) -> None:
    """For a tool whose lost answer is asked of a person: a key, or a probe."""
    cli.plan("p.json", {"tool": "vanish", "params": {"item": "a"}})
    played = cli("simulate", "p.json", *WITH)
    assert played.code == 0
    assert "hint: vanish: nothing tells whether it happened" in played.err
    assert "idempotency_key" in cli("simulate", "p.json", *WITH, "--json").json["cures"]["vanish"]


def test_doctor_lists_all_extras(cli: Cli) -> None:
    """Each extra that adds something to the engine; the others are for work on it."""
    shown = cli.look("doctor", "--json").json["installation"]["extras"]
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(shown) == set(project["optional-dependencies"]) - {"test", "dev", "docs"}


@pytest.mark.parametrize("command", [("list",), ("inbox",), ("top",), ("graph", "trip"), ("trace", "export", "trip")])
def test_a_store_that_does_not_answer_is_told(cli: Cli, command: tuple[str, ...]) -> None:
    """After a second, and not only when patience has ended; without its password."""
    more = ("-o", "t.jsonl") if command[0] == "trace" else ()
    ran = cli(*command, *more, "--store", "redis://me:hunter2@127.0.0.1:1/0", "--json", env={"SAGA_PATIENCE_S": "3"})
    assert ran.code == 1
    assert "does not answer yet; trying for up to 3 s" in ran.err
    assert json.loads(ran.out)["error"]["code"] == "store-unavailable"
    assert "hunter2" not in ran.err + ran.out


def test_owners_are_processes() -> None:
    """A person reads which process of which machine it is."""
    owner = this_process()
    assert process_words(str(owner)) == f"pid {os.getpid()} on {owner.host}"
    assert process_words("something else") == "something else"


def test_the_live_view_counts_what_is_pending() -> None:
    """How many steps are still to come, and how long it has gone on."""
    progress = Progress("saga t", {"1": "a", "2": "b", "3": "c"})
    assert "0 of 3 done, 0 under way, 3 pending; " in str(progress._window())


def test_a_step_that_failed_is_not_pending() -> None:
    """Nor is one that a person is asked about, until it is decided or tried again."""
    progress = Progress("saga t", {"1": "a", "2": "b", "3": "c"})
    for record in (
        r.StepIntended(at=1, step="1"),
        r.StepEscalated(at=2, step="1", question="q", kind="in-doubt", options=[]),
    ):
        progress.observe("t", record)
    assert "0 of 3 done, 0 under way, 2 pending; " in str(progress._window())
    progress.observe("t", r.QuestionResolved(at=3, question="q", step="1", decision="happened"))
    assert "1 of 3 done, 0 under way, 2 pending; " in str(progress._window())
    for record in (r.StepIntended(at=4, step="2"), r.StepFailed(at=5, step="2", error=ErrorInfo("a", "b"))):
        progress.observe("t", record)
    assert "1 of 3 done, 0 under way, 1 pending; " in str(progress._window())


@pytest.mark.parametrize("known", [{"USER": "ada"}, {}])
def test_an_answer_says_who_gave_it(monkeypatch: pytest.MonkeyPatch, known: dict[str, str]) -> None:
    """Without ``--by`` it is the user, also where the environment does not say so, as under cron or in a container."""
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    assert person(None) == known.get("USER", pwd.getpwuid(os.getuid()).pw_name)
    assert person("kim") == "kim"


@pytest.mark.parametrize("where", ["full", "closed"])
def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, where: str) -> None:
    """On stderr, with the reason. A saga's exit code stays its own; a list that nobody has is an error."""
    (tmp_path / "plan.json").write_text('{"task_id": "t", "steps": [{"step_id": 1, "compute": {"sum": [1, 2]}}]}')
    store = ["--store", f"embedded://{tmp_path}/s"]
    redirect = ">/dev/full" if where == "full" else ">&-"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = f'exec "$0" -m saga_engine "$@" {redirect}'
        return subprocess.run(
            ["sh", "-c", command, sys.executable, *args], cwd=tmp_path, text=True, capture_output=True, check=False
        )

    completed, listed = run("submit", "plan.json", "--json", *store), run("list", *store)
    assert (completed.returncode, listed.returncode) == (0, 1)
    for done in (completed, listed):
        assert "error: standard output cannot be written: " in done.stderr
        assert "defect" not in done.stderr
