"""The command line's tables are those of the core, and those of its page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from saga_engine import errors
from saga_engine.cli import exit_codes, param_types
from saga_engine.cli.resolve import resolve
from saga_engine.core import messages, transitions

DOCS = Path(__file__).parents[2] / "docs"
PAGE, REFERENCE = (DOCS / "cli.md").read_text(), (DOCS / "reference" / "cli.md").read_text()


def test_the_statuses_and_decisions_are_those_of_the_core():
    """What the command line writes out for the sake of a quick start is what the core has."""
    assert tuple(exit_codes.SagaStatus) == transitions.SAGA_STATES
    words = inspect.signature(resolve, eval_str=True).parameters["decision"].annotation.__metadata__[0].help
    assert set(messages.DECISIONS) <= set(re.findall(r"[a-z-]+", str(words)))


def test_every_status_has_its_exit_code():
    """0 completed, 3 compensated or waived, 4 asks, 8 goes on."""
    assert {status: exit_codes.of_status(status) for status in transitions.SAGA_STATES} == {
        "PENDING": 8,
        "RUNNING": 8,
        "COMPENSATING": 8,
        "ESCALATED": 4,
        "COMPLETED": 0,
        "COMPENSATED": 3,
        "WAIVED": 3,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SagaNotFound("x"), 5),
        (errors.SagaExists("x"), 6),
        (errors.DecisionRefused("x"), 6),
        (errors.CancelRefused("x"), 6),
        (errors.PlanInvalid([errors.Problem("c", "$", "m")]), 7),
        (errors.LeaseHeld("x"), 8),
        (errors.Interrupted("x"), 130),
        (errors.ToolMissing("x"), 1),
        (errors.StoreUnavailable("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    """Errors that a script can act on have a code of their own; the others exit 1."""
    assert exit_codes.of_error(error) == code


def test_the_gravest_code_wins():
    """4 over 1 over 3 over 8 over 0; an interrupt is over all; no saga at all is 0."""
    assert exit_codes.gravest([]) == 0
    order = [130, 4, 1, 3, 8, 0]
    for at in range(len(order)):
        assert exit_codes.gravest(reversed(order[at:])) == order[at]
    assert exit_codes.gravest([0, 5, 3]) == 1


def test_the_pages_list_every_command_option_and_exit_code():
    """`docs/cli.md` names every command, the reference all its options, and the page exactly the exit codes."""
    from typer.main import get_command

    from saga_engine.cli import app

    listed = get_command(app).commands
    groups = {name: group.commands for name, group in listed.items() if hasattr(group, "commands")}
    assert all(isinstance(listed[name], param_types.PlainGroup) for name in groups)
    commands = {name: command for name, command in listed.items() if name not in groups}
    commands |= {f"{name} {below}": command for name, group in groups.items() for below, command in group.items()}
    for name, command in commands.items():
        group = name.split()[0]
        assert f"`saga {group}" in PAGE, f"docs/cli.md does not speak of {group}"
        section = re.search(rf"^## `saga {name}`$.*?(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
        assert section, f"docs/reference/cli.md has no section for {name}"
        for param in command.params:
            long = max(getattr(param, "opts", []), key=len)
            assert param.param_type_name != "option" or long in section.group(), f"{name} {long}"
        assert isinstance(command, param_types.PlainCommand)
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert codes == {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
