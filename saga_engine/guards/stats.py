"""Statistics of guarded tools, summed in the store over all processes. Nothing depends on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.effects import Ask, Blocked, Done, Drifted, NotDone, Outcome, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.guards.waiting import Chores
    from saga_engine.ports import Call, GuardStore
    from saga_engine.tools.invoke import Invocation

#: How long counts stay in this process.
_FLUSH_S: Final = 1.0
#: The counter of each outcome.
KINDS: Final = {
    Done: "done",
    NotDone: "not_done",
    Unknown: "unknown",
    Blocked: "blocked",
    Ask: "asked",
    Drifted: "asked",
}
#: What is counted, in the order in which it is shown. ``rejected``: by the breaker (these are also ``not_done``).
COUNTERS: Final = ("calls", "done", "not_done", "unknown", "rejected", "blocked", "asked", "deduplicated", "waited_us")


class Counting:
    """The counts of this process that the store does not have yet."""

    __slots__ = ("_chores", "_counts", "_store", "_timer")

    def __init__(self, store: GuardStore, chores: Chores) -> None:
        self._store = store
        self._chores = chores
        self._counts: dict[str, Counter[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def of(self, tool: str) -> Counter[str]:
        """The counts of a tool, to add to."""
        return self._counts.setdefault(tool, Counter())

    def changed(self) -> None:
        """Make sure that the store is updated before long."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self._chores.start(self.flush(), "writing statistics")

    async def flush(self) -> None:
        """Write the counts. A failed write is dropped: it may have arrived, and counting twice would be worse."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for tool, counts in list(self._counts.items()):  # a tool may be called for the first time meanwhile
            if counts:
                taken = dict(counts)
                counts.clear()
                await self._store.count(tool, taken)


class Counted:
    """The outermost guard of a tool."""

    __slots__ = ("_counting", "_counts", "_inner")

    def __init__(self, inner: Invocation, counts: Counter[str], counting: Counting) -> None:
        self._inner = inner
        self._counts = counts
        self._counting = counting

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call and count its outcome."""
        self._counts["calls"] += 1
        self._counting.changed()
        outcome = await self._inner(params, call)
        self._counts[KINDS[type(outcome)]] += 1
        return outcome
