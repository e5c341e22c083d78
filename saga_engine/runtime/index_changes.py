"""What the store's search index does not know of a saga yet."""

from __future__ import annotations

from collections.abc import Sequence

from saga_engine.core.search_terms import terms_from, terms_of
from saga_engine.core.state import State


class IndexChanges:
    """The changes of one saga's entries in the search index.

    ``known``: how many steps have given the index their terms (a new saga: -1), and whether it says that a question is
    open (after a take-over: None). As long as this is so, an entry changes nothing in the index.
    """

    __slots__ = ("known",)

    def __init__(self, state: State, *, new: bool) -> None:
        self.known: tuple[int, bool | None] = (-1, False) if new else (len(state.plan.steps), None)

    def next(self, state: State) -> tuple[Sequence[str], bool | None]:
        """``terms`` and ``asks`` of the saga's next entry."""
        (steps, asked), asks = self.known, bool(state.questions)
        self.known = (len(state.plan.steps), asks)
        return (terms_of(state) if steps < 0 else terms_from(state, steps)), (None if asks == asked else asks)
