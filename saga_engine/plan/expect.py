"""``expect``: a write that is made only if the value is still what its saga last read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from saga_engine.plan.jsonpath import Tail, TailFault, parse

#: The value that the tool's ``before`` reads, as the saga knows it.
KNOWN: Final = "$before"
#: The error of a write that was not made because the value is another one by now. A tool says it, too.
CHANGED: Final = "changed_meanwhile"

_HINT: Final = 'write expect="$before", or expect={"version": "$before.version"}: what the call gets of the value'
_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_MOST: Final = 8


class Expect(NamedTuple):
    """Who compares. ``params``: the other side, and these params tell it what was read; none: the engine does."""

    params: tuple[tuple[str, Tail | None], ...] = ()


def read_expect(given: Any) -> Expect | None:
    """The declaration from its JSON form. Raises ``ValueError`` with the problem and a hint."""
    if given is None:
        return None
    if given == KNOWN:
        return Expect()
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MOST:
        raise ValueError(f"expect={given!r} has no meaning", _HINT)
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in given.items()):
        raise ValueError(f"expect={given!r} has a param that binds nothing", _HINT)
    return _read(tuple(given.items()))


@lru_cache(maxsize=256)
def _read(given: tuple[tuple[str, str], ...]) -> Expect:
    made: list[tuple[str, Tail | None]] = []
    for name, text in given:
        if not _NAME.fullmatch(name) or not text.startswith(KNOWN):
            raise ValueError(f"expect: {name!r} gets {text!r}, which is nothing of the value", _HINT)
        tail = parse(text[len(KNOWN) :]) if text != KNOWN else None
        fault = tail if isinstance(tail, TailFault) else None
        if fault is not None:
            raise ValueError(f"expect: {text!r} is no path: {fault.message}", fault.hint)
        made.append((name, tail))  # type: ignore[arg-type]
    return Expect(tuple(made))


def filled(given: Any) -> tuple[str, ...]:
    """The params that the engine fills, which no plan and no model sees."""
    return tuple(map(str, given)) if isinstance(given, Mapping) else ()
