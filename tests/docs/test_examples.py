"""What the pages show can be done as it stands there."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
import typer

from saga_engine.cli import app
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from tests.docs.pages import ROOT, Block, blocks
from tests.plan.catalog import TRAVEL
from tests.support.forker import run_python

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = blocks("python")
PLANS = blocks("json plan")
CONSOLE = blocks("console")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    """A block can be copied into an empty folder and run, with nothing before it and nothing around it."""
    (tmp_path / "example.py").write_text(block.body, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::RuntimeWarning"}
    code, _, err = run_python("example.py", cwd=tmp_path, env=env)
    assert code == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize("block", PLANS, ids=str)
def test_plans_load_and_check(block: Block) -> None:
    """A plan on a page has the right form, and its graph and bindings hold together with the tools it names."""
    assert compile_plan(load_plan(block.body), TRAVEL).steps


def _commands() -> list[tuple[Block, str]]:
    lines = [(block, line) for block in CONSOLE for line in block.body.splitlines()]
    return [(block, line.removeprefix("$ ")) for block, line in lines if line.startswith("$ saga")]


COMMANDS = _commands()


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=[f"{block}-{line}" for block, line in COMMANDS])
def test_commands_parse(block: Block, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ``saga`` command on a page is one: the command, its arguments and its options exist."""
    for name in ("travel_request_001.json", "tools.py"):
        shutil.copy(ROOT / "examples" / "booking" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    stops = [at for at, word in enumerate(words) if word in ("|", "<", ">", ">>", "&&", "||", "&", ";", "2>")]
    words = words[: stops[0]] if stops else words
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="saga")
    if not words or words[0].startswith("-"):
        group.make_context("saga", words, resilient_parsing=True)
        return
    command = group.get_command(context, words[0])
    assert command is not None, f"{block}: there is no command {words[0]}"
    command.make_context(words[0], words[1:], parent=context)


def test_there_is_something_to_test() -> None:
    """The blocks are found at all."""
    pages = {block.page.name for block in PYTHON}
    assert {"README.md", "README.zh.md", "python-api.md"} <= pages
    assert PLANS
    assert len(COMMANDS) >= 10


def test_the_programs_of_agents_are_on_their_page() -> None:
    """What the page shows of an agent is what its program does, which the long tests run."""
    shown = [block for block in blocks("py") if block.page.name == "agent-frameworks.md"]
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "mcp_agents").glob("*.py")]
    assert len(shown) == len(programs)
    assert [str(block) for block in shown if not any(block.body in text for text in programs)] == []
