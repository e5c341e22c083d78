"""The files of deploy/ fit the command line and the tools that read them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from saga_engine.cli import app

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))


def commands(unit: Path) -> list[list[str]]:
    """The command lines that a unit starts."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [shlex.split(line.partition("=")[2]) for line in lines if line.startswith("ExecStart=")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    """Each command line of a unit is one that the CLI accepts: command, options and their values."""
    (line,) = commands(unit)
    assert line[0].endswith("/saga")
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(group.make_context("saga", [], resilient_parsing=True), line[1:])
    assert command is not None, name
    command.make_context(name, rest)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    """Systemd knows every directive of a unit."""
    text = unit.read_text(encoding="utf-8").replace("/opt/saga/bin/saga", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert copy.name not in done.stderr, done.stderr


def test_units_for_the_worker_and_the_server_are_shipped() -> None:
    """There is a unit for workers and one for the server, so no other test passes for want of files."""
    assert [unit.name for unit in UNITS] == ["saga-server.service", "saga-worker@.service"]
