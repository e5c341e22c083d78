"""Names, messages and outputs come from models and from the network: nothing of them acts on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re

from saga_engine.cli.output import json_text, shown, table
from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))
#: A bell, a colour, a title, C1's CSI, a right-to-left override, a delete; then rich's markup.
EVIL = "\x07\x1b[31m\x1b]0;owned\x07\x9b31m\u202e\x7f[bold]x[/bold][/]:smile:"
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_control_characters_never_reach_the_output(cli):
    """Hostile names, goals and errors come out escaped, in every command and in JSON too, and markup stays text."""
    steps = [
        {"name": f"n{EVIL}", "tool": "book", "params": {"item": f"i{EVIL}"}},
        {"name": "b", "tool": "vanish", "params": {"item": EVIL}},
    ]
    cli.plan("evil.json", *steps, goal=f"g{EVIL}", task_id="evil")
    cli.plan("fails.json", {"tool": "fail", "params": {"message": EVIL}}, task_id="fails")

    runs = [
        cli("submit", "evil.json", *WITH),
        cli("submit", "fails.json", *WITH),
        *(
            cli.look(*args)
            for args in (("show", "evil"), ("history", "evil"), ("list",), ("graph", "evil"), ("show", "fails"))
        ),
        cli.look("graph", "evil", "--format", "dot"),
        *(cli.look(name, "evil", "--json") for name in ("show", "history")),
        cli.look("list", "--json"),
        cli(
            "resolve",
            "evil",
            "2",
            "happened",
            "--output",
            json.dumps({"ref": EVIL}),
            "--by",
            EVIL,
            "--note",
            EVIL,
            *WITH,
        ),
        cli("submit", "nosuch\x1b[31mfile.json"),
        cli("show", "no\x1b[31m"),
    ]

    for ran in runs:
        assert not RAW.search(ran.out + ran.err), ran
    assert "[bold]x[/bold][/]:smile:" in runs[2].out
    assert cli.look("show", "evil", "--json").json["goal"] == f"g{EVIL}"


def test_live_progress_escapes_too(cli):
    """On a terminal, the live window shows hostile text escaped; only rich's own control sequences are sent."""
    cli.plan(
        "fails.json",
        {"name": f"n{EVIL}", "tool": "book", "params": {"item": "x"}},
        {"name": "[red]f[/red]", "tool": "fail", "params": {"message": EVIL}},
        task_id="fails",
    )
    ours, theirs = pty.openpty()
    cli.env |= {"TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
    process = cli.start("submit", "fails.json", *WITH, "--json", stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    out, _ = process.communicate(timeout=120)

    assert process.returncode == 3
    assert json.loads(out)["status"] == "COMPENSATED"
    text = seen.decode()
    assert "[red]f[/red]" in text
    assert "\\x1b[31m" in text
    assert not re.search("\x1b\\[31m\x1b\\]|\x1b\\]0;|\x07|\x9b|\u202e|\x7f", text)


def test_a_step_may_be_called_like_an_option(cli):
    """The line to type for a step called --help ends the options first, so it works."""
    cli.plan("plan.json", {"step_id": "--help", "tool": "vanish", "params": {"item": "x"}}, task_id="plan")

    asked = cli("submit", "plan.json", *WITH)

    line = next(line for line in asked.out.splitlines() if "not-happened" in line)
    assert " -- --help not-happened" in line
    assert cli(*line.replace("saga ", "", 1).split()).code == 3


def test_json_stays_exact_and_readable():
    """What is escaped in JSON reads back as it was; what is printable is left readable."""
    value = {"a": EVIL, "b": "旅行 é 🛫", "c": "\ud800", "d": "\U000e0001"}
    text = json_text(value)
    assert json.loads(text) == value
    assert not RAW.search(text)
    assert "旅行 é 🛫" in text
    assert json.loads(json_text(value, ascii_only=True)) == value
    assert json_text(value, ascii_only=True).isascii()


def test_cells_are_cut_and_one_line():
    """A cell is one line of a bounded length, whatever it holds."""
    assert shown("a\nb\r\x00") == "a\\nb\\r\\x00"
    assert len(shown("x" * 10_000, 50)) == 50
    text = table(["A", "B"], [["x\ny" * 1000, "旅"], ["", EVIL]], limit_chars=20)
    assert len(text.splitlines()) == 3
    assert not RAW.search(text)
