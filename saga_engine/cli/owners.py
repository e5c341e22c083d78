"""Owners of sagas in a readable form: a process of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.cli.output import shown
from saga_engine.cli.words import more, named, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from saga_engine.execution.governed import Difference, Governed

_MOST_NAMED = 3


def process_words(owner: str) -> str:
    """``pid 4711 on vm`` for the name that a process gives its lease; other names unchanged."""
    from saga_engine.execution.owner import words_of

    return shown(words_of(owner), 80)


def difference_words(difference: Difference, found: Mapping[str, Governed]) -> Iterator[str]:
    """Which processes differ from those of the first group, and in what; a sentence for each other group."""
    (_, usual), *others = difference.groups
    for _, owners in others:
        key = "differ" if len(owners) == 1 else "differ.many"
        part = named("differing", difference.part)
        yield say(key, part=part, others=_named(owners, found), usual=_named(usual, found))


def _named(owners: Sequence[str], found: Mapping[str, Governed]) -> str:
    def words(owner: str) -> str:
        files = ", ".join(shown(path, 200) for path in found[owner].files)
        return process_words(owner) + say("because", why=files or say("differ.no-file"))

    return "; ".join(words(owner) for owner in owners[:_MOST_NAMED]) + more(len(owners) - _MOST_NAMED)
