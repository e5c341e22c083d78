"""Options and arguments that are made from the table of operations: what they take, their bounds, their help.

A command adds how it is typed: its flags, its metavar, and what a command line has beside the param.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from saga_engine.operations.table import OPERATIONS


class Taken(NamedTuple):
    """The param that an option or an argument is made from; ``otherwise``: its help has other words."""

    operation: str
    param: str
    otherwise: bool


def option(operation: str, param: str, *flags: str, **how: Any) -> Any:
    """The option of a command for a param of an operation.

    ``before`` and ``more`` stand around the words of the table, ``help`` in their place; ``most`` in that of its
    maximum, for a command that reads page by page. Without ``bounds`` a number is typed otherwise, as an age.
    """
    made = typer.Option(*flags, **_made(operation, param, **how))
    made.taken = Taken(operation, param, "help" in how)
    return made


def argument(operation: str, param: str, **how: Any) -> Any:
    """The argument of a command for a param of an operation; see ``option``."""
    made = typer.Argument(**_made(operation, param, **how))
    made.taken = Taken(operation, param, "help" in how)
    return made


def _made(
    operation: str,
    param: str,
    *,
    before: str = "",
    more: str = "",
    help: str = "",  # noqa: A002 - typer's own word
    most: int | None = None,
    bounds: bool = True,
    **how: Any,
) -> dict[str, Any]:
    schema = OPERATIONS[operation].params[param]
    made: dict[str, Any] = {"help": help or _help(schema, before, more), **how}
    if bounds and schema.get("type") in ("integer", "number"):
        made |= {"min": schema.get("minimum"), "max": most or schema.get("maximum")}
    if "enum" in schema:
        made.setdefault("autocompletion", _completion(schema["enum"]))
    return made


def _completion(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """The choices that begin so, for the shell."""

    def complete(incomplete: str) -> list[str]:
        return [each for each in choices if each.lower().startswith(incomplete.lower())]

    return complete


def _help(schema: Mapping[str, Any], before: str, more: str) -> str:
    many = {"array": "items", "object": "additionalProperties"}.get(str(schema.get("type")), "")
    part = schema.get(many)
    repeated = isinstance(part, Mapping) and "description" in part
    said = str(part["description"] if isinstance(part, Mapping) and repeated else schema["description"])
    said = f"{before}{said[0].lower()}{said[1:]}" if before else said
    said = said.removesuffix(".") + more if more else said
    return f"{said} Repeatable." if repeated else said
