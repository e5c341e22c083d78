"""The limit of calls of a tool per period, in all processes together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import SagaError
from saga_engine.guards.waiting import Waiting, Word, is_undo, store_trouble, turned_away
from saga_engine.loggers import logger_of
from saga_engine.tools.limits import parse_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.core.effects import Outcome
    from saga_engine.guards.waiting import Counts
    from saga_engine.ports import Call, GuardStore
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.invoke import Invocation

_log: Final = logger_of("saga_engine.guards")


class Rate:
    """The guard of one tool: each call reserves its moment in the store and waits for it."""

    __slots__ = ("_burst", "_counts", "_inner", "_interval_us", "_name", "_store", "_waiting")

    def __init__(self, tool: AnyTool, inner: Invocation, store: GuardStore, waiting: Waiting, counts: Counts) -> None:
        assert tool.rate is not None
        self._name = tool.name
        self._interval_us, self._burst = parse_rate(tool.rate)
        self._inner = inner
        self._store = store
        self._waiting = waiting
        self._counts = counts

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call at its reserved moment; an undo takes its moment too, and does not wait for it."""
        undo = is_undo(call)
        most_ms, ends = (None, Word.TURN) if undo else self._waiting.most_ms(call)
        try:
            wait_ms = await self._store.reserve(self._name, self._interval_us, self._burst, most_ms)
        except SagaError as error:
            if not undo:
                return store_trouble(error, f"the rate of tool {self._name!r}")
            _log.warning("an undo by %s is not counted in the tool's rate: %s", self._name, error)
        if undo:
            return await self._inner(params, call)
        if wait_ms:
            # A reservation fits into the deadline already; a rounding of clocks must not lose it.
            unlimited = call._replace(deadline_ms=None)
            word = ends if wait_ms < 0 else await self._waiting.pause(wait_ms / 1000, unlimited, self._counts)
            if word is not Word.TURN:
                return turned_away(word, f"its moment in the rate of tool {self._name!r}")
        return await self._inner(params, call)
