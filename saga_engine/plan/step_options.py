"""Checks of ``when``, ``on_error``, ``failed_when`` and ``expect``: where they make sense, what binds a missing output.

And of operations that stand in params as they are: nothing evaluates them there, and a tool would get the object.
"""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import compute, schema_types
from saga_engine.plan.bindings import COMPUTE, FIRST
from saga_engine.plan.redacted import check_redacted
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from saga_engine.plan.compiled import CompiledStep, Serving
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Step
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolSpec

_BINDS: Final = re.compile(r"\$(?:output|input|item|index|before)(?!\w)")


def check_options(made: Draft, step: CompiledStep) -> None:
    """Add the problems of a step's options and of its bindings to steps that may have no output."""
    path: Path = ("steps", step.index)
    fixed = "decides whether there is a way back" if step.kind == "pivot" else "makes up for another step"
    for name, given in (("when", step.when is not None), ("on_error", step.continues)):
        if given and step.kind in {"pivot", "compensation"}:
            message = f"'{name}' on a {step.kind}: step {step.key} {fixed}, so it must run, or fail"
            made.problems.add("kind-contradiction", (*path, name), message, f"remove '{name}'")
    if step.failed_when is not None:
        place = (*path, "failed_when")
        if step.kind not in {"compensatable", "read"}:
            message = f"a {step.kind} step is never undone, so its output cannot mean failure"
            made.problems.add("kind-contradiction", place, message, "use 'failed_when' where there is an undo")
        elif step.continues and step.kind != "read" and step.index not in made.guessed:
            message = f"step {step.key} cannot go on after 'failed_when': its effect has to be undone"
            made.problems.add("kind-contradiction", place, message, "remove 'on_error', or 'failed_when'")
    _check_defaults(made, step)
    check_redacted(made, step, path)


def _check_defaults(made: Draft, step: CompiledStep) -> None:
    for template, _, base, _ in made.bound.get(step.index, ()):
        for place in template.places:
            if place.source != "output" or place.optional or place.step == step.key:
                continue
            source = made.steps[made.by_key[place.step]]
            if source.may_lack_output:
                why = "may be skipped" if source.when is not None else "may fail and the saga goes on"
                message = f"{cut(place.text, 120)}: step {source.key} {why}, so it may have no output"
                hint = f'give a default: {{"$first": ["{place.text}", null]}}'
                made.problems.add("binding-needs-default", (*base, *place.path), message, hint)


# --- operations in params ---------------------------------------------------------------------------------------------


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
            if isinstance(inner, dict | list):
                yield from misplaced_operations(spec, inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            if isinstance(inner, dict | list):
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


# --- what writes expect -----------------------------------------------------------------------------------------------


def check_expected(made: Draft, first: int, written: Sequence[Step], at: str = "steps") -> None:
    """A write that expects what was read needs a tool that says how it is read, and a step that reads it.

    ``written`` are the steps from index ``first`` on, at ``at`` in the plan; those that were accepted before are not
    checked again.
    """
    touched = Counter(name for step in made.steps for call in step.servings() for name in {call.tool, _read_of(call)})
    for number, each in enumerate(written):
        step, path = made.steps[first + number], (at, number)
        if step.index < made.check_from:
            continue
        calls: list[tuple[Path, Serving]] = [(path, step)]
        calls += [((*path, "fallback", way), fallback) for way, fallback in enumerate(step.fallbacks)]
        if each.expect is not None:
            _check_may_expect(made, step, calls)
        for place, call in calls:
            read = call.before
            if read is None or read.expect is None or touched[read.tool] > 1:
                continue
            message = (
                f"{cut(call.tool, 80)} is called only if the value that {cut(read.tool, 80)} reads is what the saga "
                "last read, and no step reads it"
            )
            hint = f"add a step that calls {cut(read.tool, 80)} with the same params before it"
            made.problems.add("expect-unread", place, message, hint)


def _check_may_expect(made: Draft, step: CompiledStep, calls: Sequence[tuple[Path, Serving]]) -> None:
    """``expect`` is written on a step: each of its calls has a read."""
    if step.builtin:
        message = f"'expect' on a step that calls no tool: '{step.builtin}' changes no value"
        made.problems.add("builtin-invalid", (*calls[0][0], "expect"), message, "remove 'expect'")
        return
    for place, call in calls:
        if call.spec is not None and call.before is None:
            message = f"nothing reads the value before the call of {cut(call.tool, 80)}"
            hint = "declare the tool with before='the tool that reads it', or leave out 'expect'"
            made.problems.add("before-missing", (*place, "expect") if call is step else place, message, hint)


def _read_of(call: Serving) -> str:
    return "" if call.before is None else call.before.tool
