"""Big outputs on the command line, on the embedded store: cut unless `--full` is given, the same from every command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 100_000
TOOLS = """
from saga_engine import tool

@tool(effect="read")
def fetch(rows: int) -> dict:
    return {"rows": [{"id": at, "name": "n\\u00e9" * 40} for at in range(rows)], "note": "\\x1b[31mred"}

@tool(effect="read")
def count(rows: list, last: dict) -> dict:
    return {"count": len(rows), "last": last["id"]}

@tool(effect="read")
def nothing() -> None:
    return None
"""


@pytest.fixture(scope="module")
def saga(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, Any]:
    """A finished saga with an output of more than 10 MB, and what `submit --json` said of it."""
    folder: Path = tmp_path_factory.mktemp("big")
    cli = Cli(folder)
    (folder / "tools.py").write_text(TOOLS)
    cli.plan(
        "big.json",
        {"tool": "fetch", "params": {"rows": ROWS}},
        {"tool": "count", "params": {"rows": "$output.step_1.rows", "last": "$output.step_1.rows[-1]"}},
        {"tool": "nothing", "params": {}},
        task_id="big",
    )
    done = cli("submit", "big.json", "--tools", "tools.py", "--json")
    assert done.code == 0, done.err
    return cli, done.json


def test_every_command_prints_the_cut_form(saga: tuple[Cli, Any]) -> None:
    """`submit`, `resume` and `show` print one and the same object; a large output is cut and refers to the whole."""
    cli, submitted = saga
    step = submitted["steps"][0]

    assert step["output"]["rows"]["total"] == ROWS
    assert step["output"]["rows"]["has_more"] is True
    assert step["output"]["note"] == "\x1b[31mred"
    assert step["output_ref"]["bytes"] > 10_000_000
    assert submitted["steps"][1]["output"] == {"count": ROWS, "last": ROWS - 1}
    assert "output_ref" not in submitted["steps"][1]
    assert cli.look("show", "big", "--json").json == submitted
    assert cli("resume", "big", "--tools", "tools.py", "--json").json == submitted
    assert cli("submit", "big.json", "--tools", "tools.py", "--json").json == submitted


def test_full_fetches_the_whole(saga: tuple[Cli, Any]) -> None:
    """With `--full` the output is what the tool returned, from `show`, `history` and a `submit` that finds it ended."""
    cli, submitted = saga

    shown = cli.look("show", "big", "--json", "--full").json
    again = cli("submit", "big.json", "--tools", "tools.py", "--json", "--full").json
    told = cli.look("history", "big", "--json", "--full").json["records"]

    whole = shown["steps"][0]["output"]
    assert (len(whole["rows"]), whole["rows"][-1]) == (ROWS, {"id": ROWS - 1, "name": "né" * 40})
    assert "output_ref" not in shown["steps"][0]
    assert again == shown
    assert next(one for one in told if one["k"] == "StepSucceeded")["output"] == whole
    assert {**shown, "steps": None} == {**submitted, "steps": None}


def test_one_step(saga: tuple[Cli, Any]) -> None:
    """`--step` prints the output of one step, and nothing but JSON, on stdout; stderr tells that it is cut."""
    cli, submitted = saga

    cut = cli.look("show", "big", "--step", "1")
    whole = cli.look("show", "big", "--step", "1", "--full")
    small = cli.look("show", "big", "--step", "2", "--json")
    none = cli.look("show", "big", "--step", "3")

    assert (cut.code, cut.json) == (0, submitted["steps"][0]["output"])
    assert "--full" in cut.err
    assert len(whole.json["rows"]) == ROWS
    assert whole.err == ""
    assert "\x1b" not in cut.out + whole.out
    assert (small.json, small.err) == ({"count": ROWS, "last": ROWS - 1}, "")
    assert (none.json, "SUCCEEDED" in none.err) == (None, True)


def test_a_step_that_is_not_there(saga: tuple[Cli, Any]) -> None:
    """An unknown step is a wrong command line, and the steps there are are named."""
    cli, _ = saga

    human = cli.look("show", "big", "--step", "9")
    document = cli.look("show", "big", "--step", "9", "--json")

    assert (human.code, human.out) == (2, "")
    assert "1, 2, 3" in human.err
    assert (document.code, document.json["error"]["code"]) == (2, "usage")


def _outputs(text: str) -> list[str]:
    """The lines below `outputs:`, up to the next empty line; the steps have lines in other parts, too."""
    (part,) = [part for part in text.split("\n\n") if part.startswith("outputs:\n")]
    return part.splitlines()[1:]


def test_people_see_a_line_for_each_output(saga: tuple[Cli, Any]) -> None:
    """`show` has a line for each output, cut to size and safe to print; with `--full` nothing is left out."""
    cli, _ = saga

    shown = cli.look("show", "big").out
    whole = cli.look("show", "big", "--full").out

    line, small = _outputs(shown)
    assert line.startswith("  step 1: ")
    assert len(line) < 250
    assert "MB; --full shows the whole)" in line
    assert small == '  step 2: {"count":100000,"last":99999}'
    assert "\x1b" not in shown + whole
    line, same = _outputs(whole)
    assert same == small
    assert len(json.loads(line.removeprefix("  step 1: ").replace("\\x1b", "\\u001b"))["rows"]) == ROWS


def test_the_history_shows_sizes_and_digests(saga: tuple[Cli, Any]) -> None:
    """A record's large values show as size, digest and cut form, in a line of bounded length."""
    cli, submitted = saga
    ref = submitted["steps"][0]["output_ref"]

    lines = cli.look("history", "big").out.splitlines()

    (line,) = [line for line in lines if "StepSucceeded" in line and ref["digest"][:12] in line]
    assert " MB, sha256 " in line
    assert "refs=" not in line
    assert max(map(len, lines)) < 400
    assert max(map(len, cli.look("history", "big", "--full").out.splitlines())) > 10_000_000
