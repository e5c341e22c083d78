"""The places of calls on the connections to one server, and how long a call may go without an answer.

A call that waits for a connection waits for other calls of this process, not for the server. That wait is
back-pressure, and does not count as an outage, however long it is, while the server answers the calls before it. Once
it answers none, the wait counts: calls that wait give up when those that were sent do, so an outage is found as soon
for all. Nor does time count that the event loop was too busy to read the answers in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

#: A timer that fires this much too late, in seconds, tells of a busy event loop and nothing of the server.
_LATE_S: Final = 0.5
#: A timer may fire by this much too early, in seconds: the clock of an event loop is that coarse.
_TICK_S: Final = 0.001


class Patience:
    """How much longer one call is tried."""

    __slots__ = ("until_s",)

    def __init__(self, patience_s: float) -> None:
        self.until_s = asyncio.get_running_loop().time() + patience_s

    def left_s(self) -> float:
        """The seconds that remain."""
        return self.until_s - asyncio.get_running_loop().time()

    def excuse_lateness(self, begun_s: float, due_s: float) -> bool:
        """Do not count what began then, if the timer that was to end it at ``due_s`` has fired much later."""
        now_s = asyncio.get_running_loop().time()
        if now_s - due_s <= _LATE_S:
            return False
        self.until_s += now_s - begun_s
        return True


class _Turn:
    """One call that waits for its slot."""

    __slots__ = ("_asked_s", "_due_s", "_patience", "_slots", "_timer", "came")

    def __init__(self, slots: Slots, patience: Patience) -> None:
        loop = asyncio.get_running_loop()
        self._slots = slots
        self._patience = patience
        self._asked_s = loop.time()
        self._due_s = patience.until_s
        self.came: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_at(self._due_s, self._look)

    def end(self) -> None:
        """It waits no more: the time in which the calls before it were answered is not counted."""
        self._timer.cancel()
        self._patience.until_s += self._behind_others_s()

    def _behind_others_s(self) -> float:
        return max(self._slots.answered_s - self._asked_s, 0.0)

    def _look(self) -> None:
        if self.came.done():
            return
        loop = asyncio.get_running_loop()
        if self._patience.excuse_lateness(self._asked_s, self._due_s):
            self._asked_s = loop.time()
        self._due_s = self._patience.until_s + self._behind_others_s()
        if self._due_s - loop.time() > _TICK_S:
            self._timer = loop.call_at(self._due_s, self._look)
        else:
            self.came.set_exception(TimeoutError())


class Slots:
    """At most ``width`` calls at once; the others wait in order."""

    __slots__ = ("_waiting", "answered_s", "failure", "free")

    def __init__(self, width: int) -> None:
        self.free = width
        self._waiting: deque[_Turn] = deque()
        #: When the server last answered a call, and why calls have failed since.
        self.answered_s = 0.0
        self.failure: Exception | None = None

    async def take(self, patience: Patience) -> None:
        """Wait for a slot while none is ``free``.

        Raises ``TimeoutError`` if the server answers no call for the patience of this one.
        """
        turn = _Turn(self, patience)
        self._waiting.append(turn)
        try:
            await turn.came
        except asyncio.CancelledError:
            if turn.came.done() and not turn.came.cancelled() and turn.came.exception() is None:
                self.release()  # it was cancelled after its turn had come
            raise
        finally:
            turn.end()

    def release(self) -> None:
        """Give a slot to the call that has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.came.done():
                turn.came.set_result(None)
                return
        self.free += 1

    def answered(self) -> None:
        """The server has answered a call, so the calls that wait are behind others, and not in an outage."""
        self.answered_s = asyncio.get_running_loop().time()
        self.failure = None

    def failed(self, reason: Exception) -> None:
        """A call found no connection, or got no answer, or one that means 'not now'."""
        if str(reason):  # a time-out has no text, and the reason before it says more
            self.failure = reason
