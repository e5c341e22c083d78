"""Helpers of a manifest: calls of a server's tools with other params, or with another reading of the answer.

Few servers have a tool that takes another one's call back with the very params and results of that call. A helper is a
tool of the engine, named in ``undo``, ``probe``, ``before`` and ``undo_absent``; no agent is offered it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_engine.errors import ToolError
from saga_engine.plan.values import canonical
from saga_engine.sources.mcp.templates import KEY, Template, Unfillable
from saga_engine.sources.tables import Fields
from saga_engine.tools.context import ToolContext

_PARAM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Unshaped(Exception):
    """An answer does not have the form that a helper reads."""


@dataclass(frozen=True, slots=True)
class Helper:
    """How a helper makes its call, and reads the answer.

    ``tool``: the server's tool; empty for an undo that a person makes (``by_hand`` says how). ``takes``: params that it
    is given and does not send. ``fields``: a pattern whose groups become the output; ``output``: a template over the
    fields of the output. ``unordered``: the order of lists in the output means nothing.
    """

    tool: str
    params: Template
    takes: tuple[str, ...] = ()
    fields: re.Pattern[str] | None = None
    output: Template | None = None
    unordered: bool = False
    by_hand: Template | None = None

    def input_schema(self) -> dict[str, Any]:
        """The schema of its params: any value under each name."""
        required = sorted((self.by_hand or self.params).names)
        more = (*sorted((self.by_hand or self.params).optional), *self.takes)
        names = [*required, *(name for name in dict.fromkeys(more) if name not in required)]
        return {
            "type": "object",
            "properties": {name: {} for name in names},
            "required": required,
            "additionalProperties": False,
        }

    def arguments(self, params: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The arguments of the server's tool. Raises ``Unfillable``."""
        made: dict[str, Any] = self.params.fill({**params, KEY: key})
        return made

    def shaped(self, output: Any, text: str) -> Any:
        """The output. Raises ``Unshaped``."""
        if self.fields is not None:
            found = self.fields.search(text)
            if found is None:
                raise Unshaped("its text does not match the pattern in fields")
            output = {name: value for name, value in found.groupdict().items() if value is not None}
        if self.output is not None:
            try:
                output = self.output.fill(output if isinstance(output, dict) else {"value": output})
            except Unfillable as error:
                raise Unshaped(str(error)) from error
        return sorted_lists(output) if self.unordered else output


def sorted_lists(value: Any) -> Any:
    """The value with all lists in one order."""
    if isinstance(value, list):
        return sorted((sorted_lists(each) for each in value), key=canonical)
    if isinstance(value, dict):
        return {name: sorted_lists(each) for name, each in value.items()}
    return value


class ByHand:
    """The function of an undo that no tool of the server can make: it calls nothing, and an operator is asked."""

    def __init__(self, name: str, text: Template) -> None:
        self.__name__ = name
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByHand) and (self.__name__, self._text) == (other.__name__, other._text)

    def __hash__(self) -> int:
        return hash(self.__name__)

    async def __call__(self, /, saga_call: ToolContext, **params: Any) -> Any:
        """Raise ``ToolError``: nothing was done."""
        what = self._text.fill({**params, KEY: saga_call.idempotency_key})
        raise ToolError(
            f"the server has no tool for this undo: {what}",
            error_code="undo_by_hand",
            retryable=False,
            suggestion="do it by hand and answer 'undone', or leave it and answer 'accept'",
        )


def read_helper(it: Fields) -> Helper:
    """The fields of a helper's table that say how it calls. Raises ``SettingInvalid``."""
    tool, by_hand = it.text("tool"), it.text("by_hand")
    if bool(tool) == bool(by_hand):
        it.refuse("tool", "and by_hand: exactly one of them says what is done", 'tool = "a tool of the server"')
    takes = it.any("takes")
    if not isinstance(takes, list) or not all(isinstance(name, str) and _PARAM.fullmatch(name) for name in takes):
        it.refuse("takes", "must be a list of params", 'takes = ["destination"]')
    written, output = it.table("params"), it.table("output")
    pattern = it.text("fields")
    if by_hand and (written is not None or output is not None or pattern):
        it.refuse("by_hand", "calls nothing, so it has no params, fields and output")
    if pattern and output is not None:
        it.refuse("fields", "and output: the output has one form")
    return Helper(
        tool,
        _template(it, "params", written or {}),
        tuple(takes),
        _pattern(it, pattern) if pattern else None,
        None if output is None else _template(it, "output", output),
        it.flag("unordered"),
        _template(it, "by_hand", by_hand) if by_hand else None,
    )


def _template(it: Fields, field: str, written: Any) -> Template:
    try:
        return Template(written)
    except ValueError as error:
        it.refuse(field, str(error))


def _pattern(it: Fields, pattern: str) -> re.Pattern[str]:
    try:
        made = re.compile(pattern)
    except re.error as error:
        it.refuse("fields", f"is no regular expression: {error}")
    if not made.groupindex:
        it.refuse("fields", "names no group", "fields = '(?m)^On branch (?P<branch>.+)$'")
    return made
