"""What a command imports: a list or a help text must not wait for what it does not use."""

from __future__ import annotations

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
    """`--version` prints the version on stdout; `python -m saga_engine` is the same program."""
    from saga_engine import __version__

    ran = cli("--version")
    assert (ran.code, ran.out) == (0, f"saga_engine {__version__}\n")
