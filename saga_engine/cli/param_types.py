"""Converts the words of a command line to values without pydantic.

Typer from 0.29 on builds a pydantic adapter for every parameter, also for plain text, and importing pydantic takes
longer than most of ``saga list``. The few kinds of values of this command line are converted here. If typer has no such
hook (before 0.29), or for an unknown kind, typer's own conversion applies. The hook is private, so pyproject.toml binds
typer below the next minor version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class _Plain:
    """Common to a command and a group of commands. ``--help`` is a parameter, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            read = _reader(parameter)
            if read is not None:
                parameter.get_runtime_param = _Reading(read).itself
        return parameters


class PlainCommand(_Plain, TyperCommand):
    """A command of switches, texts, paths, whole numbers and choices."""


class PlainGroup(_Plain, TyperGroup):
    """A group of commands."""


class GroupedGroup(PlainGroup):
    """The command line as a whole, whose help lists the commands in groups."""

    #: The names of the commands by group.
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the groups: typer puts groups of commands behind all others."""
        known = super().list_commands(ctx)
        named = [name for names in self.groups.values() for name in names if name in known]
        return named + [name for name in known if name not in named]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each group."""
        for group, names in self.groups.items():
            found = [(name, body) for name in names if (body := self.get_command(ctx, name)) is not None]
            with formatter.section(group):
                formatter.write_dl([(name, body.get_short_help_str(formatter.width)) for name, body in found])


class _Reading:
    """The conversion that typer asks for."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def itself(self) -> _Reading:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple else None
        try:
            return self._read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def _reader(parameter: Any) -> Callable[[Any], Any] | None:
    described = getattr(parameter, "type_descriptor", None)
    if described is None or not hasattr(parameter, "get_runtime_param"):
        return None
    annotation = described.annotation
    if annotation is str or annotation is bool:
        return annotation
    if annotation == list[str]:
        return list
    if annotation is Path:
        return Path
    if annotation is float:
        return lambda value: _number(value, described.parameter_info)
    if annotation is int:
        return lambda value: _integer(value, described.parameter_info)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return lambda value: _choice(value, annotation)
    return None


def _integer(value: Any, bounds: Any) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None
    if (bounds.min is not None and number < bounds.min) or (bounds.max is not None and number > bounds.max):
        raise ValueError(f"{number} is not in the range {bounds.min} to {bounds.max}")
    return number


def _number(value: Any, bounds: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None
    if not (bounds.min is None or number >= bounds.min) or not (bounds.max is None or number <= bounds.max):
        raise ValueError(f"{value} is not in the range {bounds.min:g} to {bounds.max:g}")
    return number


def _choice(value: Any, choices: type[StrEnum]) -> StrEnum:
    for choice in choices:
        if choice.value.lower() == str(value).lower():
            return choice
    raise ValueError(f"{value!r} is not one of {', '.join(choice.value.lower() for choice in choices)}")
