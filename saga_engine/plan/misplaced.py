"""Finds operations that stand in params as they are: nothing evaluates them there, and a tool would get the object."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import compute, schema_types
from saga_engine.plan.bindings import COMPUTE, FIRST
from saga_engine.plan.values import json_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolSpec

_BINDS: Final = re.compile(r"\$(?:output|input|item|index|before)(?!\w)")


def misplaced_operations(spec: ToolSpec, value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """The operations in the params of a call, each with its place and its name.

    An object is one if it has the form of an operation, the tool declares no such field there, and it binds something
    or the tool takes no object.
    """
    if isinstance(value, dict):
        if COMPUTE in value or FIRST in value:
            return
        name = compute.is_operation(value) if path else ""
        if name and _undeclared(spec, path, name, value):
            yield path, name
            return
        for key, inner in value.items():
            yield from misplaced_operations(spec, inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from misplaced_operations(spec, inner, (*path, at))


def with_computations(spec: ToolSpec, params: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The params with each misplaced operation as a computation, and the places where they stood."""
    found = [*misplaced_operations(spec, params), *_under_the_word(spec, params)]
    made = deepcopy(params) if found else params
    for path, _ in found:
        holder: Any = made
        for part in path[:-1]:
            holder = holder[part]
        inner = holder[path[-1]]
        holder[path[-1]] = {COMPUTE: inner[compute.WORD] if inner.keys() == {compute.WORD} else inner}
    return made, [json_path(path) for path, _ in found]


def _under_the_word(spec: ToolSpec, value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """The objects ``{"compute": OPERATION}``, as a step has it."""
    if isinstance(value, dict):
        inner = value.get(compute.WORD)
        if path and value.keys() == {compute.WORD} and compute.is_operation(inner):
            if _undeclared(spec, path, compute.WORD, value):
                yield path, compute.WORD
            return
        for key, each in value.items():
            yield from _under_the_word(spec, each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _under_the_word(spec, each, (*path, at))


def _undeclared(spec: ToolSpec, path: Path, name: str, value: Any) -> bool:
    node = schema_types.locate(spec.input_schema, path)
    if isinstance(node, schema_types.Absent):
        return False  # the param itself is unknown, which is told
    kinds = schema_types.types(spec.input_schema, node)
    if kinds is not None and "object" not in kinds:
        return True
    declared = isinstance(node, dict) and name in (node.get("properties") or {})
    return not declared and _BINDS.search(repr(value)) is not None
