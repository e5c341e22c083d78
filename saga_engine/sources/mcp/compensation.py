"""What a server says of the tool that takes back what another one did: a claim, which an operator confirms.

The protocol has no field for it yet. A proposal (SEP-3172, open) adds ``recovery`` to a tool's annotations; servers and
libraries in use write annotations such as ``x-compensation-pair``, or a field of ``_meta``. So any field of the two
counts whose name says what it is, and whose value names another tool of the same list. The gateway writes ``FIELD``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

#: Where the gateway says it of its own tools: ``{"tool": NAME}``.
FIELD: Final = "saga-engine.dev/compensation"
_NAMES: Final = re.compile(
    r"recover(y|s|ed)?|compensat\w*|undo\w*|undone\w*|roll_?back\w*|revert\w*|revers(e|al|es|ed)\w*|inverse\w*"
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: A field that says the opposite: its tool is what is taken back by the other one.
_TURNED: Final = re.compile(r"compensates(_for)?|undoes|reverses|reverts|inverse_of|undo_of|compensation_for")
_DEEP: Final = 4


def claimed_undo(declared: Mapping[str, Any]) -> list[str]:
    """The names that an entry of ``tools/list`` gives to what may be its undo, the likeliest first."""
    found = [text for name, value in _fields(declared) if _says_undo(name) for text in _texts(value)]
    return list(dict.fromkeys(found))


def undo_among(declared: Collection[str], name: str, names: Collection[str]) -> str:
    """The one of these that is a tool of the same server, and not the tool itself; empty if none is."""
    return next((each for each in declared if each in names and each != name), "")


def _fields(declared: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for place in ("_meta", "annotations"):
        table = declared.get(place)
        if isinstance(table, Mapping):
            yield from ((str(name), value) for name, value in table.items())


def _says_undo(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name.rpartition("/")[2])]
    joined = "_".join(words)
    if _TURNED.search(joined):
        return False
    return any(_NAMES.fullmatch(word) for word in (*words, joined))


def _texts(value: Any, deep: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif deep < _DEEP and isinstance(value, Mapping):
        for name in ("tool", "name"):  # before a reason, a description or its params
            yield from _texts(value.get(name), deep + 1)
        for name, each in value.items():
            if name not in ("tool", "name"):
                yield from _texts(each, deep + 1)
    elif deep < _DEEP and isinstance(value, list):
        for each in value:
            yield from _texts(each, deep + 1)
