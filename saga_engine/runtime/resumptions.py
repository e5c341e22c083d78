"""Resumptions: timers that resume sagas which no task of this process drives.

A saga that rests is resumed when something falls due, and one that an outage stopped when the store may be back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from saga_engine.core.state import State
from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.execution.result import Handle

#: How soon, in seconds, a saga is resumed again while the store is unavailable.
RESUME_AGAIN_S = 5.0
#: How soon, in seconds, at the earliest, if it was not due yet or another process has it.
_NOT_YET_S = 0.1


class Resumptions:
    """The timers of one process, one for each saga at most.

    ``resume`` starts a saga anew. ``due_s`` tells in how many seconds a saga that rests is due; None: never.
    """

    def __init__(self, resume: Callable[[str], Handle], due_s: Callable[[State], float | None]) -> None:
        self._resume = resume
        self._due_s = due_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: Sagas whose timer has fired and which are being resumed.
        self._trying: set[str] = set()
        self._stopped = False

    def __contains__(self, saga_id: str) -> bool:
        """Whether a timer will resume the saga."""
        return saga_id in self._timers

    def add(self, saga_id: str, delay_s: float | None = None) -> None:
        """Resume a saga after ``delay_s``, and not earlier; None: when an outage may be over. Ignored once stopped."""
        if self._stopped:
            return
        known = self._timers.get(saga_id)
        if known is not None:
            known.cancel()
        self._timers[saga_id] = asyncio.get_running_loop().call_later(
            RESUME_AGAIN_S if delay_s is None else delay_s, self._due, saga_id
        )

    def rest(self, state: State) -> None:
        """Resume a saga that rests when something falls due."""
        self._wait(state, 0.0)

    def rests_on(self, state: State) -> None:
        """A saga that is being resumed has nothing to do: if that was for its timer, the timer was early.

        What this process knows of the store's time is corrected with each response, so it may go back.
        """
        if state.saga_id in self._trying:
            self._wait(state, _NOT_YET_S)

    def _wait(self, state: State, least_s: float) -> None:
        delay_s = self._due_s(state)
        if delay_s is not None:
            self.add(state.saga_id, max(delay_s, least_s))

    def stop(self) -> None:
        """Resume nothing any more."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, saga_id: str) -> None:
        del self._timers[saga_id]
        self._trying.add(saga_id)
        handle = self._resume(saga_id)
        handle.when_done(partial(self._resumed, handle))

    def _resumed(self, handle: Handle) -> None:
        """Try again: a store that is unavailable just when a reminder is due must not suppress the reminder."""
        self._trying.discard(handle.saga_id)
        if isinstance(handle.found(), StoreUnavailable | StoreRefused) and handle.saga_id not in self._timers:
            self.add(handle.saga_id)
