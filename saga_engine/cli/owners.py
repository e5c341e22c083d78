"""Owners of sagas in a readable form: a process of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.cli.output import shown

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
        verb = "differs" if len(owners) == 1 else "differ"
        yield f"the {difference.part} of {_named(owners, found)} {verb} from that of {_named(usual, found)}"


def _named(owners: Sequence[str], found: Mapping[str, Governed]) -> str:
    def words(owner: str) -> str:
        files = ", ".join(shown(path, 200) for path in found[owner].files)
        return f"{process_words(owner)} ({files or 'no file'})"

    more = f" and {len(owners) - _MOST_NAMED} more" if len(owners) > _MOST_NAMED else ""
    return "; ".join(words(owner) for owner in owners[:_MOST_NAMED]) + more
