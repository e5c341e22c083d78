"""The limit of concurrent calls of a tool in this process (M. Nygard, *Release It!*, the bulkhead)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from saga_engine.guards.waiting import Turn, Waiting, Word, settle, turned_away

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.core.effects import Outcome
    from saga_engine.guards.waiting import Counts
    from saga_engine.ports import Call
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.invoke import Invocation


class Places:
    """A number of places; callers without one wait in the order of arrival."""

    __slots__ = ("__weakref__", "_free", "_queue")

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[Turn] = deque()

    def take(self) -> bool:
        """Take a place if there is one at once."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def enter(self, waiting: Waiting, call: Call, counts: Counts) -> Word:
        """Take a place; anything but ``TURN``: there was none in time."""
        # A place is never free while a caller waits: a leaving caller passes it on.
        if self.take():
            return Word.TURN
        if waiting.stopped:
            return Word.INTERRUPTED
        turn: Turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            word = await waiting.until(turn, call, counts, most=waiting.most_ms(call))
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.result() is Word.TURN:
                self.leave()  # The place came in the same moment as the cancellation: the next one has it.
            else:
                self._forget(turn)
            raise
        assert isinstance(word, Word)
        if word is not Word.TURN:
            self._forget(turn)
        return word

    def _forget(self, turn: Turn) -> None:
        if turn in self._queue:
            self._queue.remove(turn)

    def leave(self) -> None:
        """Pass the place to the caller that has waited longest."""
        while self._queue:
            if settle(self._queue.popleft(), Word.TURN):
                return
        self._free += 1


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[AnyTool, Places]] = WeakKeyDictionary()


def places_of(tool: AnyTool, size: int) -> Places:
    """The places of a tool in the running event loop, which is one process in every ordinary program."""
    loop = asyncio.get_running_loop()
    known = _of_loop.get(loop)
    if known is None:
        for closed in [other for other in _of_loop if other.is_closed()]:
            del _of_loop[closed]  # A future that was waited for refers to its loop and would keep it alive.
        known = _of_loop[loop] = WeakKeyDictionary()
    places = known.get(tool)
    if places is None:
        places = known[tool] = Places(size)
    return places


class Bulkhead:
    """The guard of one tool."""

    __slots__ = ("_counts", "_inner", "_places", "_tool", "_waiting")

    def __init__(self, tool: AnyTool, size: int, inner: Invocation, waiting: Waiting, counts: Counts) -> None:
        self._tool = tool
        self._places = places_of(tool, size)
        self._inner = inner
        self._waiting = waiting
        self._counts = counts

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call in one of the tool's places."""
        word = await self._places.enter(self._waiting, call, self._counts)
        if word is not Word.TURN:
            return turned_away(word, f"one of the places of tool {self._tool.name!r}")
        try:
            return await self._inner(params, call)
        finally:
            self._places.leave()
