"""Chooses the tools that a model sees at first, and names the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.tools.tool_search import select_tools, words

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

#: Chooses tools for a text: at most a given number, with their undos and probes beside them.
SelectTools = Callable[[str, "ToolCatalog", int], Sequence["ToolSpec"]]

#: Tools that are shown, whatever the limit, if the words of a goal cannot choose between them.
_MOST: Final = 400
#: Words choose if at least this part of the goal's words occurs in the tools' texts.
_LEAST_SHARED: Final = 0.25


def select_by_words(goal: str, catalog: ToolCatalog, limit: int) -> list[ToolSpec]:
    """The tools whose texts share the most words with a goal."""
    return select_tools(goal, catalog, limit=limit)


class Chosen(NamedTuple):
    """Tools that are shown whole, and those that are only named."""

    shown: list[ToolSpec]
    hidden: list[ToolSpec]


def choose_tools(
    goal: str, catalog: ToolCatalog, limit: int, *, tags: Iterable[str] = (), select: SelectTools | None = None
) -> Chosen:
    """The tools for a goal: all if there are at most ``limit``, else those that match it best.

    ``select`` replaces the comparison of words (embeddings, a search of your own) where no tags are given. Without it
    the words decide, unless they cannot: a goal in another language than the tools' texts shares none of them, and then
    nothing is hidden (of more than 400 tools, the first 400 are shown).
    """
    tags = tuple(tags)
    everything = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
    if len(everything) <= limit:
        return Chosen(everything if not tags else select_tools(goal, catalog, limit=limit, tags=tags), [])
    if select is not None and select is not select_by_words and not tags:
        shown = list(select(goal, catalog, limit))
    else:
        blind = not tags and not _comparable(goal, everything)
        shown = select_tools(goal, catalog, limit=max(limit, _MOST) if blind else limit, tags=tags)
    names = {spec.name for spec in shown}
    return Chosen(shown, [spec for spec in everything if spec.name not in names])


def _comparable(goal: str, specs: Sequence[ToolSpec]) -> bool:
    """Whether the words of a goal can tell the tools apart."""
    wanted = set(words(goal[:10_000]))
    if not wanted:
        return False
    found: set[str] = set()
    for spec in specs:
        found.update(words(" ".join([spec.name, *spec.tags, spec.use_when, spec.description, spec.returns])))
    return len(wanted & found) >= _LEAST_SHARED * len(wanted)
