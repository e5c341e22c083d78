"""The values of a call's params to which a rule applies, and whether it is certain that these are all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from saga_engine.plan.jsonpath import Selector, TailFault, parse

MAX_VISITS: Final = 100_000


class Found(NamedTuple):
    """The values at a path.

    ``gaps``: somewhere its end is missing. ``strange``: somewhere the params are not built as the path expects (a text
    where a list should be), so its target may be somewhere else.
    """

    values: Sequence[Any]
    gaps: bool
    strange: bool


class Reach:
    """A path into the params: JSONPath, base grammar, wildcards included. Raises ``ValueError``."""

    __slots__ = ("_name", "_selectors", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise ValueError("it must name a param: 'amount', 'items[*].price'")
        self.text = text
        rest = text.removeprefix("$")
        tail = parse(rest if rest.startswith((".", "[")) or not rest else f".{rest}")
        if isinstance(tail, TailFault):
            raise ValueError(f"{tail.message} (write 'amount' or 'items[*].price')")  # noqa: TRY004 - it is a text
        self._selectors = tail.selectors or tuple(Selector("pick", (part,)) for part in tail.path)
        # Most paths are the name of one param.
        only = tail.path[0] if not tail.selectors and len(tail.path) == 1 else None
        self._name = only if isinstance(only, str) else None

    def find(self, params: Mapping[str, Any]) -> Found:
        """Everything at the path."""
        if self._name is not None and self._name in params:
            return Found([params[self._name]], False, False)
        walk = _Walk()
        values = list(walk.run(params, self._selectors, False))
        return Found(values, walk.gaps, walk.strange)


class _Walk:
    __slots__ = ("gaps", "left", "strange")

    def __init__(self) -> None:
        self.left = MAX_VISITS
        self.gaps = False
        self.strange = False

    def run(self, value: Any, selectors: Sequence[Selector], anywhere: bool) -> Iterator[Any]:
        """All values below. ``anywhere``: after '..', where most branches lead nowhere and none has to."""
        if not selectors:
            yield value
            return
        first, rest = selectors[0], selectors[1:]
        for found in self._select(value, first, anywhere):
            self.left -= 1
            if self.left < 0:
                self.strange = True
                return
            yield from self.run(found, rest, anywhere or first.what == "deep")

    def _select(self, value: Any, selector: Selector, anywhere: bool) -> Iterable[Any]:
        if selector.what == "deep":
            return _descend(value)
        if selector.what == "union":
            return [found for branch in selector.branches for found in self.run(value, branch, anywhere)]
        if isinstance(value, Mapping):
            if selector.what == "every":
                return list(value.values())
            found = [value[name] for name in selector.names if isinstance(name, str) and name in value]
            fits = any(isinstance(name, str) for name in selector.names)
        elif isinstance(value, list | tuple):
            if selector.what == "every":
                return value
            if selector.what == "slice":
                start, end, step = selector.bounds
                return value[start:end:step]
            size = len(value)
            found = [value[at] for at in selector.names if isinstance(at, int) and -size <= at < size]
            fits = any(isinstance(name, int) for name in selector.names)
        else:
            found, fits = [], value is None
        if not found and not anywhere:
            self.gaps = self.gaps or fits
            self.strange = self.strange or not fits
        return found


def _descend(value: Any) -> Iterator[Any]:
    """The value and everything below it. Iterative: params may be deep."""
    stack = [value]
    while stack:
        found = stack.pop()
        yield found
        if isinstance(found, Mapping):
            stack.extend(found.values())
        elif isinstance(found, list | tuple):
            stack.extend(found)
