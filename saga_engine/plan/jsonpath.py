"""The JSONPath after ``$output.step_<id>`` and ``$input``, which selects exactly one value.

This module scans and follows plain chains of fields and indexes, the usual case. jsonpath-ng parses everything else,
with its base grammar: the extended one has regular expressions, with which a plan could block the process. The result
becomes selectors that stop at the second match, so the work is bounded for hostile tails and hostile data.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from saga_engine.plan.limits import MAX_TAIL_CHARS, MAX_TAIL_CHOICES, MAX_TAIL_VISITS

_SEGMENT = re.compile(
    r"""\.([^\W\d][\w-]*|\d+)         # .name, .hyphenated-name, .0 (a field, as in JSONPath)
      | \[(-?\d{1,15})\]              # [0], [-1]
      | \['([^'\\]*)'\]               # ['quoted name']
      | \["([^"\\]*)"\]""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_BRACKETED = re.compile(r"\[[^\[\]]*\]")
_LOOSE = re.compile(r"[\s,]")
_FILTER = re.compile(r"\?|=~|\bwhere(?:not)?\b")

Simple = tuple[str | int, ...]


class TailFault(NamedTuple):
    """Why a tail is refused: a problem's code, message and hint."""

    code: str
    message: str
    hint: str


class Selector(NamedTuple):
    """One segment of a tail with choices. ``names`` are fields or indexes; ``bounds`` those of a slice."""

    what: Literal["pick", "every", "slice", "deep", "union"]
    names: Simple = ()
    bounds: tuple[int | None, int | None, int | None] = (None, None, None)
    branches: tuple[tuple[Selector, ...], ...] = ()


class Tail(NamedTuple):
    """A parsed tail: ``path`` if it is a plain chain, else ``selectors``."""

    text: str
    path: Simple = ()
    selectors: tuple[Selector, ...] = ()


class Mismatch(Exception):
    """The tail does not match exactly one value; the message says why."""


class Ambiguous(Mismatch):
    """The tail may match, but not one value alone."""


def scan(text: str) -> Simple | None:
    """The fields and indexes of a plain chain; ``None`` if it is something else."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _SEGMENT.match(text, at)
        if found is None:
            return None
        name, index, single, double = found.groups()
        parts.append(int(index) if index is not None else name or single or double or "")
        at = found.end()
    return tuple(parts)


@lru_cache(maxsize=1024)
def parse(text: str) -> Tail | TailFault:
    """Parse a tail; a refused one gives a fault. Faults are cached too: a refusal must not be slow."""
    if len(text) > MAX_TAIL_CHARS:
        return TailFault("binding-malformed", f"the path is longer than {MAX_TAIL_CHARS} characters", "shorten it")
    path = scan(text)
    if path is not None:
        return Tail(text, path)
    bare = _QUOTED.sub("''", text)
    if _FILTER.search(bare):
        hint = "filters are not allowed; let a tool select the value"
        return TailFault("binding-filter", "the path contains a filter", hint)
    hint = "write it as .name, ['any name'] or [0]"
    if not text.startswith((".", "[")) or "$" in bare:
        return TailFault("binding-malformed", "the path must directly follow the step's id or '$input'", hint)
    # The library would read 'a, b' as two fields and return the one that exists: prose must not pass for a path.
    if _LOOSE.search(_BRACKETED.sub("[]", bare)):
        return TailFault("binding-malformed", "the path has a space or a comma outside of brackets", hint)
    from jsonpath_ng.parser import parse as parse_jsonpath

    try:
        with warnings.catch_warnings():
            # The library deprecates unions by '|'; they are translated here and do not depend on it.
            warnings.simplefilter("ignore")
            selectors = _translate(parse_jsonpath("$" + text))
    except Exception as error:  # noqa: BLE001 -- a parser may fail in any way on hostile text; each way is a no
        return TailFault("binding-malformed", f"the path is not valid JSONPath: {str(error)[:200]}", hint)
    if _choices(selectors) > MAX_TAIL_CHOICES:
        message = f"the path has more than {MAX_TAIL_CHOICES} wildcards, slices, descendants and unions"
        return TailFault("binding-malformed", message, "name the one value that the binding means")
    return Tail(text, (), selectors)


def _choices(selectors: tuple[Selector, ...]) -> int:
    own = sum(selector.what != "pick" or len(selector.names) > 1 for selector in selectors)
    return own + sum(_choices(branch) for selector in selectors for branch in selector.branches)


def _translate(node: Any) -> tuple[Selector, ...]:
    """The library's syntax tree as a chain of selectors; ``ValueError`` for what is meaningless in a binding."""
    kind = type(node).__name__
    if kind in {"Root", "This"}:
        return ()
    if kind == "Child":
        return _translate(node.left) + _translate(node.right)
    if kind == "Descendants":
        return (*_translate(node.left), Selector("deep"), *_translate(node.right))
    # Before 1.8 the library represented a wildcard as a field '*' or as a slice without bounds.
    if kind == "Wildcard" or (kind == "Fields" and tuple(node.fields) == ("*",)):
        return (Selector("every"),)
    if kind == "Fields":
        return (Selector("pick", tuple(node.fields)),)
    if kind == "Index":
        indices = node.indices if hasattr(node, "indices") else (node.index,)
        return (Selector("pick", tuple(indices)),)
    if kind == "Slice":
        if node.step == 0:
            raise ValueError("a slice cannot have the step 0")
        return (Selector("slice", (), (node.start, node.end, node.step)),)
    if kind in {"Union", "_Union"}:
        return (Selector("union", branches=(_translate(node.left), _translate(node.right))),)
    raise ValueError(f"'{kind.strip('_').lower()}' is not allowed")


def follow(value: Any, path: Simple) -> Any:
    """The value at the end of a chain. Raises ``Mismatch``."""
    for part in path:
        if type(part) is str:
            if isinstance(value, dict | Mapping) and part in value:
                value = value[part]
                continue
        elif isinstance(value, list) and -len(value) <= part < len(value):  # type: ignore[operator]
            value = value[part]  # type: ignore[index]
            continue
        raise Mismatch(_missing(value, part))
    return value


def _missing(value: Any, part: str | int) -> str:
    if isinstance(part, int):
        return f"a list of {len(value)} has no [{part}]" if isinstance(value, list) else f"[{part}] needs a list"
    if isinstance(value, dict | Mapping):
        names = ", ".join(repr(str(name)[:64]) for name in list(value)[:10])
        return f"there is no field '{part}'" + (f" among {names}" if names else "")
    if isinstance(value, list) and part.isdecimal():
        return f"there is no field '{part}' in a list; write [{part}], not .{part}, for an item"
    return f"there is no field '{part}': the value is not an object"


def find(value: Any, tail: Tail) -> Any:
    """The one value that the tail matches; a null is a match. Raises ``Mismatch``."""
    if not tail.selectors:
        return follow(value, tail.path)
    matches = _Search().run(value, tail.selectors)
    for match in matches:
        for _ in matches:
            raise Ambiguous("it matches more than one value")
        return match
    raise Mismatch("it matches nothing")


class _Search:
    """One lazy search; it counts the values that it visits."""

    __slots__ = ("visits",)

    def __init__(self) -> None:
        self.visits = 0

    def _visit(self) -> None:
        self.visits += 1
        if self.visits > MAX_TAIL_VISITS:
            raise Ambiguous(f"the search would visit more than {MAX_TAIL_VISITS} values")

    def run(self, value: Any, selectors: tuple[Selector, ...]) -> Iterator[Any]:
        """All matches, lazily. The depth of the recursion is the number of selectors."""
        if not selectors:
            yield value
            return
        first, rest = selectors[0], selectors[1:]
        for match in self._select(value, first):
            self._visit()
            yield from self.run(match, rest)

    def _select(self, value: Any, selector: Selector) -> Iterator[Any]:
        if selector.what == "deep":
            yield from self._descend(value)
        elif selector.what == "union":
            for branch in selector.branches:
                yield from self.run(value, branch)
        elif isinstance(value, dict):
            if selector.what == "every":
                yield from value.values()
            for name in selector.names:
                if isinstance(name, str) and name in value:
                    yield value[name]
        elif isinstance(value, list):
            if selector.what == "every":
                yield from value
            elif selector.what == "slice":
                start, end, step = selector.bounds
                for index in range(len(value))[start:end:step]:
                    yield value[index]
            for name in selector.names:
                if isinstance(name, int) and -len(value) <= name < len(value):
                    yield value[name]

    def _descend(self, value: Any) -> Iterator[Any]:
        """The value and everything below it, parents first. Iterative: outputs may be deep."""
        stack = [value]
        while stack:
            found = stack.pop()
            yield found
            children = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
            stack.extend(reversed(list(children)))
