"""The commands, their options and exit codes, as typer has them."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from dev.website.reference.markdown import cell, code, head, marked, prose, table, wrapped
from saga_engine import errors
from saga_engine.cli import app, exit_codes

_ABOUT = """Every command of `saga`, with all its arguments and options, as `--help` prints them.
[The command line](../cli.md) has the commands at a glance, and [commands in detail](../commands.md) what the help does
not say."""
_JSON = """With `--json` a command prints one document. Times are Unix milliseconds on the store's clock; `[]` is a
list. Fields are added and never change their meaning ([versions](../versions.md))."""


def page() -> str:
    """The page."""
    root = get_command(app)
    parts = [head("Commands", _ABOUT), "## Exit codes\n", prose(root.help), _codes()]
    for name, command in commands(root):
        parts += [
            f"## `saga {name}`\n",
            prose(command.help),
            f"```text\nsaga {name} {_usage(command)}\n```",
            _rows(command),
        ]
    parts += ["## The JSON of each command", wrapped(_JSON), table(("command", "document"), documents())]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def documents() -> list[list[str]]:
    """Of each command, or of several, the document that it prints with ``--json``."""
    return tomllib.loads(Path(__file__).with_name("json.toml").read_text(encoding="utf-8"))["rows"]


def commands(root: Any) -> Iterator[tuple[str, Any]]:
    """Each command with its whole name, those of groups after their group's."""
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {each}", body) for each, body in below.items())


def _usage(command: Any) -> str:
    words = ["[OPTIONS]"]
    for param in command.params:
        if param.param_type_name == "argument":
            name = (param.metavar or param.name or "").upper() + ("..." if param.nargs == -1 else "")
            words.append(name if param.required else f"[{name}]")
    return " ".join(words)


def _rows(command: Any) -> str:
    rows = []
    for param in command.params:
        if getattr(param, "hidden", False):
            continue
        about = cell(marked(param.help or ""))
        if param.param_type_name == "argument":
            rows.append((code((param.metavar or param.name).upper()), about, "" if param.required else "optional"))
            continue
        value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
        names = ", ".join(f"`{name}{value}`" for name in [*param.opts, *param.secondary_opts])
        again = "repeatable" if param.multiple else ""
        rows.append((names, about, again))
    return table(("argument or option", "meaning", "note"), rows)


def _codes() -> str:
    about = defaultdict(list)
    for status in exit_codes.SagaStatus:
        about[exit_codes.of_status(status)].append(f"status `{status.value}`")
    for kind in sorted(errors_of_engine(), key=lambda kind: kind.code):
        if exit_codes.of_error(example(kind)) != exit_codes.ERROR:
            about[exit_codes.of_error(example(kind))].append(f"error `{kind.code}`")
    about[exit_codes.USAGE].append("a wrong command line")
    about[exit_codes.ERROR].append("every other [error](errors.md)")
    names = {value: name for name, value in vars(exit_codes).items() if name.isupper() and type(value) is int}
    rows = [(str(value), code(name), ", ".join(about[value])) for value, name in sorted(names.items())]
    return table(("code", "name", "of"), rows)


def errors_of_engine() -> list[type[errors.SagaError]]:
    """Every error class of the engine."""
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SagaError)]


def example(kind: type[errors.SagaError]) -> errors.SagaError:
    """An error of a class."""
    return kind([errors.Problem("c", "$", "m")]) if kind is errors.PlanInvalid else kind("m")  # type: ignore[arg-type]
