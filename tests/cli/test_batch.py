"""Many sagas from the command line: the operator is asked on the terminal, and 'no' changes nothing."""

from __future__ import annotations

import os
import pty

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


def test_a_new_folder_runs(cli):
    """What `saga init` writes is checked, runs, undoes, passes its own test, and has all that `saga doctor` recommends."""
    assert cli("init", "shop").code == 0
    cli.folder /= "shop"
    given = ("plan.json", "--input", "item=lamp", "--input")
    assert cli("check", *given, "amount=40").code == 0
    assert cli("submit", *given, "amount=40", "--id", "first").code == 0
    assert cli("submit", "plan.json", "--input", "item=chair", "--input", "amount=900", "--id", "second").code == 3
    examined = cli("doctor", "--json").json
    assert [each for each in examined["findings"] if each["about"] == "guards"] == []
    assert cli("tools", "--lint").code == 0
    assert cli("init").code == 6
    from tests.forker import run_python

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
