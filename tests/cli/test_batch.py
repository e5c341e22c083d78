"""Many sagas from the command line: the operator is asked on the terminal, and 'no' changes nothing."""

from __future__ import annotations

import os
import pty
import sqlite3

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


@pytest.mark.parametrize(("said", "code", "undone"), [("n", 130, []), ("y", 3, ["unbook:a"])])
def test_an_operator_is_asked_first(cli, book, said, code, undone):
    """Without --yes the sagas are shown and the question waits for an answer; nothing but 'y' acts."""
    cli.plan("ask.json", book("a"), {"ask": {"question": "Shall we?", "options": ["yes"]}})
    assert cli("submit", "ask.json", "--id", "one", "--tag", "wrong", *WITH).code == 4
    ours, theirs = pty.openpty()
    running = cli.start("cancel", "--tag", "wrong", *WITH, stdin=theirs)
    os.write(ours, f"{said}\n".encode())
    out, err = running.communicate(timeout=120)
    os.close(ours)
    os.close(theirs)
    assert "one   ESCALATED  undoes 1 step" in out
    assert "cancel 1 saga? [y/N]" in err
    assert running.returncode == code
    assert cli.world == ["book:a", *undone]


def test_what_acts_on_nothing_is_no_dry_run(cli, book):
    """The report of an action says so although no saga fits; what belongs to a search is refused with an id."""
    cli.plan("plan.json", book("a"))
    assert cli("submit", "plan.json", "--id", "one", *WITH).code == 0
    found = cli("cancel", "--tag", "none", "--yes", "--json")
    assert (found.code, found.json["dry_run"], found.json["done"]) == (0, False, 0)
    assert cli("cancel", "--tag", "none", "--dry-run", "--json").json["dry_run"] is True
    assert cli("cancel", "one", "--limit", "3").code == 2


def test_a_new_folder_runs(cli):
    """What `saga init` writes is checked, runs, undoes, passes its own test, and has all that `saga doctor` recommends."""
    assert cli("init", "shop").code == 0
    cli.folder /= "shop"
    given = ("--input", "item=lamp", "--input", "amount=40", "--input")
    assert cli("check", "plan.json", *given, "customer=ada").code == 0
    assert cli("submit", "plan.json", *given, "customer=ada", "--id", "first").code == 0
    assert cli("submit", "plan.json", *given, "customer=eve", "--id", "another").code == 0
    orders = sqlite3.connect(cli.folder / "orders.db").execute("SELECT what FROM orders ORDER BY number").fetchall()
    assert [what for (what,) in orders] == ["lamp for ada", "40 EUR of ada", "lamp for eve", "40 EUR of eve"]
    chair = ("--input", "customer=ada", "--input", "item=chair", "--input", "amount=900")
    assert cli("submit", "plan.json", *chair, "--id", "second").code == 3
    examined = cli("doctor", "--json").json
    assert [each for each in examined["findings"] if each["about"] == "guards"] == []
    assert cli("tools", "--lint").code == 0
    assert cli("init").code == 6
    from tests.support.forker import run_python

    code, out, err = run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=cli.folder, env=cli.env, timeout_s=120
    )
    assert code == 0, out + err


def test_doctor_names_what_init_would_set(cli):
    """Tools without the recommended guards are a finding, and its hint leads to the lines."""
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\n')
    found = [each for each in cli.look("doctor", "--json").json["findings"] if each["about"] == "guards"]
    assert "[limits] has no deadline_s and no max_calls; without a breaker: " in found[0]["text"]
    (cli.folder / "more.toml").write_text(cli("init", "--print").out)
    whole = (cli.folder / "saga.toml").read_text() + (cli.folder / "more.toml").read_text()
    (cli.folder / "saga.toml").write_text(whole)
    assert [each for each in cli.look("doctor", "--json").json["findings"] if each["about"] == "guards"] == []
