"""What the names of tools suggest: which one takes another back, which one tells whether it happened, which only reads.

A guess is for a person to check. Nothing in the engine relies on one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
#: What takes back what a verb does, as tools are called.
_BACK: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("create", "add", "insert", "put", "write", "upload"), ("delete", "remove", "destroy")),
    **dict.fromkeys(("book", "reserve", "order", "schedule", "submit", "place"), ("cancel", "release")),
    **dict.fromkeys(("delete", "remove"), ("restore", "create", "add")),
    "open": ("close",),
    "close": ("reopen", "open"),
    "start": ("stop", "cancel"),
    "stop": ("start",),
    "enable": ("disable",),
    "disable": ("enable",),
    "lock": ("unlock",),
    "assign": ("unassign",),
    "archive": ("unarchive", "restore"),
    "grant": ("revoke",),
    "charge": ("refund",),
    "pay": ("refund",),
}
_LOOK: Final = ("get", "find", "read", "show", "search", "list")
#: Verbs of tools that change nothing, as a rule.
_READS: Final = frozenset(
    {*_LOOK, "check", "count", "describe", "download", "fetch", "has", "is", "look", "lookup", "query", "view", "web"}
)


def reads(name: str) -> bool:
    """Whether a name says that the tool only reads: ``search_web``, ``getOrder``; its first word decides."""
    first = _WORD.search(name)
    return first is not None and first[0].lower() in _READS


def back_of(name: str, names: Collection[str]) -> str:
    """The tool that takes back what another one does, as far as names tell; else an empty text."""
    return _renamed(name, names, lambda verb: _BACK.get(verb, ()))


def probe_of(name: str, names: Collection[str]) -> str:
    """The tool that tells whether a call of another one happened, as far as names tell; else an empty text."""
    return _renamed(name, names, lambda verb: _LOOK if verb in _BACK else ())


def _renamed(name: str, names: Collection[str], others: Callable[[str], Sequence[str]]) -> str:
    wanted = {_key(other): other for other in names}
    for word in _WORD.finditer(name):
        for verb in others(word[0].lower()):
            found = wanted.get(_key(f"{name[: word.start()]} {verb} {name[word.end() :]}"))
            if found is not None and found != name:
                return found
    return ""


def _key(name: str) -> str:
    """A name in one spelling; the plural counts as the singular."""
    return " ".join(word.lower().rstrip("s") for word in _WORD.findall(name))
