"""Every value that a param of a call can take, as far as the author of the plan wrote it.

An author writes a value in more places than the param itself: as the default of a ``$first``, in the author's own
input, as an item of the list of an ``each``, as an operand of a computation, as the output of a wait that ended in
vain. Wherever it stands, it is the value of the param that binds it, and is checked as if it stood there alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import compute, jsonpath
from saga_engine.plan.bindings import COMPUTE, FIRST, Template, starts_binding
from saga_engine.plan.compiled import Item
from saga_engine.plan.each import ItemScope
from saga_engine.plan.values import json_path

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.problems import Path

#: Bindings that lead to each other, items of a list, and values of one call that are looked at.
_MAX_DEPTH: Final = 24
_MAX_ITEMS: Final = 200
_MAX_VALUES: Final = 5000
_BINDING: Final = re.compile(r"\$(?:output\.step_([A-Za-z0-9_-]{1,64})|(item|input))(?![A-Za-z0-9_-])")
#: Parts of an operation whose values decide, and are no part of its result.
_NO_RESULT: Final = frozenset({"where", "by", "order", "places", "mode", "count", "op"})


class Written(NamedTuple):
    """A text or number that a param can take: the place where it is bound or stands, its field, and itself."""

    path: Path
    name: str
    value: Any


class _Constants:
    """A scope that has what the author wrote: the author's own input, and computations of nothing else."""

    end: Mapping[str, Any] = {}
    saga_id = property(lambda _: _unknown())
    item = property(lambda _: _unknown())
    index = property(lambda _: _unknown())

    def __init__(self, made: Draft, own: Mapping[str, Any]) -> None:
        self._made = made
        self.input = own
        # A wrong expression is never evaluated; it is a problem of its own.
        self._wrong = [problem.path for problem in made.problems.listed()]

    def output(self, step_key: str) -> Any:
        step = self._made.steps[self._made.by_key[step_key]] if step_key in self._made.by_key else None
        if step is None or step.builtin != compute.WORD:
            return _unknown()
        place = json_path(("steps", step.index, compute.WORD))
        if any(path.startswith(place) for path in self._wrong):
            return _unknown()
        return step.params.resolve(self)[compute.WORD]

    def params(self, step_key: str) -> Any:  # noqa: ARG002
        return _unknown()

    before = key = secret = params


def _unknown() -> Any:
    raise BindingUnresolved("only the call itself can tell", absent=True)


class ParamValues:
    """Finds the values of the params of one plan; ``own`` is the part of its input that its author wrote."""

    def __init__(self, made: Draft, own: Mapping[str, Any]) -> None:
        self._made = made
        self._own = own
        self._constants = _Constants(made, own)

    def of(self, template: Template, path: Path, items: Template | None = None) -> Iterator[Written]:
        """The values of the params at ``path``; ``items``: the list that ``$item`` comes from."""
        seen: set[tuple[Path, str, Any]] = set()
        for each in self._found(template, path, items):
            if each not in seen:
                seen.add(each)
                yield each
            if len(seen) > _MAX_VALUES:
                return

    def _found(self, template: Template, path: Path, items: Template | None) -> Iterator[Written]:
        for name, value in template.raw.items():
            alone: set[tuple[str, Any]] = set()
            for each in self._at(value, (*path, name), name, items, 0):
                alone.add((each.name, each.value))
                yield each
            # A text that is composed of what the author wrote is one value.
            for scope in self._scopes(items):
                for field, composed in _leaves(template.partly([name], scope).get(name), name):
                    if (field, composed) not in alone:
                        yield Written((*path, name), field, composed)

    def _scopes(self, items: Template | None) -> Iterator[Any]:
        yield self._constants
        if items is None:
            return
        try:
            ((_, found),) = items.resolve(self._constants).items()
        except BindingUnresolved:
            return
        for number, value in enumerate(found[:_MAX_ITEMS] if isinstance(found, list) else ()):
            yield ItemScope(self._constants, Item(0, number, "", "", value))

    def _at(self, value: Any, path: Path, name: str, items: Template | None, depth: int) -> Iterator[Written]:
        """The values that stand at a place, or that its bindings lead to."""
        if isinstance(value, str) and starts_binding(value):
            for found, field in self._bound(value, items, depth):
                for each in self._at(found, (), name if field is None else field, items, depth + 1):
                    # What is bound stands elsewhere: the problem is where it becomes the param.
                    yield each._replace(path=path)
        elif isinstance(value, Mapping) and COMPUTE in value:
            for operand in _operands(value[COMPUTE], ()):
                for each in self._at(operand, (), name, items, depth + 1):
                    yield each._replace(path=path)
        elif isinstance(value, Mapping) and FIRST in value:
            many = value[FIRST] if isinstance(value[FIRST], list) else []
            for at, alternative in enumerate(many):
                yield from self._at(alternative, (*path, FIRST, at), name, items, depth)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield from self._at(inner, (*path, key), str(key), items, depth)
        elif isinstance(value, list):
            for at, inner in enumerate(value):
                yield from self._at(inner, (*path, at), name, items, depth)
        elif isinstance(value, str | int) and not isinstance(value, bool):
            yield Written(path, name, value)

    def _bound(self, text: str, items: Template | None, depth: int) -> Iterator[tuple[Any, str | None]]:
        """What the author wrote for the value of a binding; the field that it gets, None: that of the param."""
        found = _BINDING.match(text)
        if found is None or depth > _MAX_DEPTH:
            return
        tail = jsonpath.parse(text[found.end() :]) if found.end() < len(text) else jsonpath.Tail("")
        if isinstance(tail, jsonpath.TailFault):
            return
        source: Any
        if found[2] == "input":
            source = self._own
            if not tail.path or tail.path[0] not in self._own:
                return
        elif found[2] == "item":
            if items is None:
                return
            ((_, source),) = items.raw.items()
            yield from ((each, None) for each in self._follow(source, (0, *tail.path), depth, every=True))
            return
        else:
            key = next((key for key in (found[1], f"step_{found[1]}") if key in self._made.by_key), None)
            step = None if key is None else self._made.steps[self._made.by_key[key]]
            if step is None or (source := _written_output(step)) is _NOTHING:
                return
            if step.builtin == compute.WORD:
                yield from ((each, None) for each in _operands(source, tail.path))
                return
        yield from ((each, None) for each in self._follow(source, tail.path, depth))

    def _follow(self, value: Any, path: tuple[Any, ...], depth: int, *, every: bool = False) -> Iterator[Any]:
        """What stands at a path below a value, in each of its alternatives; ``every``: below each item of a list."""
        if isinstance(value, Mapping) and FIRST in value and isinstance(value[FIRST], list):
            for alternative in value[FIRST]:
                yield from self._follow(alternative, path, depth, every=every)
        elif isinstance(value, str) and starts_binding(value):
            if depth <= _MAX_DEPTH:
                for found, _ in self._bound(value, None, depth + 1):
                    yield from self._follow(found, path, depth + 1, every=every)
        elif not path:
            yield value
        elif every:
            for inner in value[:_MAX_ITEMS] if isinstance(value, list) else ():
                yield from self._follow(inner, path[1:], depth)
        else:
            try:
                below = jsonpath.follow(value, path[:1])
            except jsonpath.Mismatch:
                return
            yield from self._follow(below, path[1:], depth)


_NOTHING: Final = object()


def _written_output(step: CompiledStep) -> Any:
    """What the author wrote for the output of a step."""
    body = step.params.raw.get(step.builtin)
    if step.builtin == compute.WORD:
        return body
    instead = body.get("on_timeout") if isinstance(body, Mapping) else None
    return instead["value"] if isinstance(instead, Mapping) and "value" in instead else _NOTHING


def _operands(expression: Any, path: tuple[Any, ...]) -> Iterator[Any]:
    """The operands from which the result of an expression, or the field of it at a path, is made."""
    wanted = next((part for part in reversed(path) if isinstance(part, str)), None)
    stack = [expression]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping) and FIRST not in value:
            operation = not compute.OPERATIONS.keys().isdisjoint(value)
            for key, inner in value.items():
                if key not in _NO_RESULT if operation else wanted is None or key in {wanted, "value", *path}:
                    stack.append(inner)
        elif isinstance(value, list):
            stack += value
        else:
            yield value


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield name, value
