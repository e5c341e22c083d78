"""The operator's stops: no forward call starts until they are lifted, in any process; undos and probes go on.

Every append replies with the version of the stops (``stop.lua``), and a call is made only after its intent was
appended. So a stop holds every call whose intent is appended after it, and no call costs a round trip more. A call that
is held counts as not made, durably, and is released when the stop is lifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.core.effects import FORWARD, ErrorInfo, NotDone
from saga_engine.errors import SagaError
from saga_engine.execution.stops import ALL, scope_of
from saga_engine.guards.waiting import Waiting, Word, store_trouble, turned_away
from saga_engine.language.errors import said
from saga_engine.ports import StopsSeen
from saga_engine.ports.machine_clock import machine_clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.guards.waiting import Counts
    from saga_engine.ports import Call, GuardStore

#: How often a process looks whether a stop was lifted, while it holds calls.
POLL_S: Final = 1.0
#: After this time a call is given back, not made, where nothing else would tell that its saga has turned around.
GIVEN_BACK_S: Final = 60.0


class Stops:
    """What a process knows of the stops.

    ``seen``: what replies to appends have told, where an append precedes each call. Elsewhere ``fresh_s`` is the
    maximum age of this knowledge.
    """

    __slots__ = ("_fresh_s", "_read_s", "_stops", "_store", "_waiting", "active", "seen", "version")

    def __init__(self, store: GuardStore, waiting: Waiting, seen: StopsSeen | None, fresh_s: float | None) -> None:
        self._store = store
        self._waiting = waiting
        self.seen = StopsSeen() if seen is None else seen
        #: The version that is known, and whether a call may be held even if there is no news.
        self.version = 0
        self.active = fresh_s is not None
        self._fresh_s = fresh_s
        self._read_s = -float("inf")
        self._stops: Mapping[str, str] = {}

    def lets(self, tool: str, call: Call) -> bool:
        """Whether the call may start, as far as is known; False: ``passes`` finds out, and holds it."""
        if call.direction != FORWARD or call.backward:
            return True
        if self.seen.version > self.version:
            return False
        if self._fresh_s is not None and machine_clock.monotonic() - self._read_s > self._fresh_s:
            return False
        return not self._stops or not self._holds(tool, call)

    async def passes(self, tool: str, call: Call, counts: Counts) -> tuple[NotDone | None, bool]:
        """Wait until no stop holds the call. Why it is not made (None: it may start now), and whether it was held."""
        looked, held = False, False
        until_s = float("inf") if self._fresh_s is None else machine_clock.monotonic() + GIVEN_BACK_S
        while True:
            # Of all calls that are held, one looks at a time.
            if not looked or machine_clock.monotonic() - self._read_s >= POLL_S:
                looked, self._read_s = True, machine_clock.monotonic()
                try:
                    self.version, self._stops = await self._store.stops()
                    self.active = self._fresh_s is not None or bool(self._stops)
                except SagaError as error:
                    return store_trouble(error, "whether calls are stopped"), held
            if not self._holds(tool, call):
                return None, held
            if (call.wanted is not None and not call.wanted()) or machine_clock.monotonic() >= until_s:
                message = said("stopped")
                return NotDone(ErrorInfo("stopped", message, retryable=True), retryable=True, counted=False), True
            word = await self._waiting.pause(POLL_S, call, counts)
            if word is not Word.TURN:
                return turned_away(word, "a stop to be lifted"), True
            held = True

    def _holds(self, tool: str, call: Call) -> bool:
        stops = self._stops
        return ALL in stops or scope_of(tool, None) in stops or scope_of(None, call.saga_id) in stops
