"""Keeps bare calls apart from suspects: what may end its process is tried while nothing is at stake.

Both terms are those of ``core/crash_loops.py``. The first end of a process cannot be helped: every bare call in flight
becomes a question. The next ones can. When a saga is about to repeat a suspect, the door closes: sagas decide on no
new bare call, and the suspect waits until those in flight have an outcome in the journal. Then the *trial* begins, and
the door opens when it is over. What is held has not been decided, so it is neither in the journal nor in doubt, and a
cancel, a deadline or the end of the process find a saga that merely waits.

Suspects harm no other suspect, because a bare call is asked about and not repeated. Those that have seen one end are
tried together; of those that have seen more, one at a time, so that the third end incriminates it alone.

Nothing waits for ever: a trial begins after ``DRAIN_S`` whatever is in flight, ends after ``TRIAL_S``, and the door
then stays open for ``OPEN_S`` before the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol

from saga_engine.core.crash_loops import (
    bare_in_flight,
    has_bare_calls,
    has_suspects,
    orders_bare,
    suspect_in_flight,
    suspicion,
)
from saga_engine.core.records import AnyRecord
from saga_engine.core.state import State
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.trials")

#: How long, in seconds, a suspect waits for the bare calls that are in flight.
DRAIN_S: Final = 30.0
#: How long a trial keeps bare calls waiting.
TRIAL_S: Final = 30.0
#: How long bare calls may start between two trials: long enough for every saga that was held to decide.
OPEN_S: Final = 1.0


class Driver(Protocol):
    """A saga that is driven here."""

    @property
    def state(self) -> State:
        """Its state, ahead of the journal unless it is at rest."""
        ...

    @property
    def at_rest(self) -> bool:
        """Whether it waits for something, and all that was decided is durable."""
        ...

    def rouse(self) -> None:
        """Have it decide again, if it waits."""


class Trials:
    """The trials of one process. ``drivers`` gives all sagas that are driven here.

    ``active`` is False while there is nothing to keep apart; drivers then ask nothing.
    """

    __slots__ = (
        "_alone",
        "_drivers",
        "_exposed",
        "_held",
        "_inside",
        "_phase",
        "_stopped",
        "_summoned",
        "_suspects",
        "_timer",
        "_turns",
        "_waiting",
        "active",
    )

    def __init__(self, drivers: Callable[[], Iterable[Driver]]) -> None:
        self.active = False
        self._drivers = drivers
        self._stopped = False
        self._phase: Literal["open", "pause", "drain", "trial"] = "open"
        self._timer: asyncio.TimerHandle | None = None
        #: Sagas with suspects.
        self._suspects: set[Driver] = set()
        #: Those of them whose turn has not come, by the number of ends that they have seen.
        self._turns: dict[Driver, int] = {}
        #: Those of them that are on trial, and the one that is the only one of its kind.
        self._inside: set[Driver] = set()
        self._alone: Driver | None = None
        #: Sagas whose bare calls are, or may be, in flight as far as the journal knows: they are awaited.
        self._exposed: set[Driver] = set()
        #: Sagas that wait for the door to open.
        self._held: set[Driver] = set()
        #: Sagas that are to decide again, and perhaps did not wait when they were roused.
        self._summoned: set[Driver] = set()
        #: Calls that had waited for a guard, and now wait here.
        self._waiting: set[asyncio.Future[None]] = set()

    # --- what drivers ask ----------------------------------------------------------------------------------------

    def join(self, driver: Driver) -> None:
        """A saga was taken over that has suspects."""
        if not self._stopped:
            self._suspects.add(driver)
            self._look()

    def admits(self, driver: Driver, decided: Sequence[AnyRecord]) -> bool:
        """Whether a saga may do now what it decided; else it is roused when it may."""
        state = driver.state
        ends = max(suspicion(state, record) for record in decided)
        if ends:
            admitted = self._enter(driver, ends)
        elif self._closed and any(orders_bare(state, record) for record in decided):
            self._held.add(driver)
            admitted = False
        else:
            admitted = True
        self._summoned.discard(driver)
        self._look()
        return admitted

    def frees(self, driver: Driver) -> None:
        """A saga has decided anew, and nothing of it has to wait."""
        self._summoned.discard(driver)
        self._held.discard(driver)
        self._withdraw(driver)
        self._look()

    async def may_begin(self, driver: Driver, ends: int, *, bare: bool) -> None:
        """Wait until a call may begin that has waited for a guard until now."""
        while not self._stopped and not (self._enter(driver, ends) if ends else not (bare and self._closed)):
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(told)
            try:
                await told
            finally:
                self._waiting.discard(told)

    def holds(self, driver: Driver) -> bool:
        """Whether a saga has decided something that it may not do yet: it is to stay awake."""
        return driver in self._held or driver in self._turns or driver in self._summoned

    def proceeds(self, driver: Driver) -> None:
        """All that was decided is durable: the trial may be over for this saga."""
        if driver in self._inside and not suspect_in_flight(driver.state):
            self._leave(driver)
            if not has_suspects(driver.state):
                self._suspects.discard(driver)
            self._look()

    def rests(self, driver: Driver) -> None:
        """A saga begins to wait."""
        if driver in self._exposed and not bare_in_flight(driver.state):
            self._exposed.discard(driver)
            self._drained()
        if driver in self._summoned:
            self._summoned.discard(driver)
            driver.rouse()
        self._look()

    def gone(self, driver: Driver) -> None:
        """A saga is not driven here any more, or sleeps."""
        self._suspects.discard(driver)
        self._held.discard(driver)
        self._summoned.discard(driver)
        self._withdraw(driver)
        if driver in self._inside:
            self._leave(driver)
        if driver in self._exposed:
            self._exposed.discard(driver)
            self._drained()
        self._look()

    def stop(self) -> None:
        """The process is being stopped: sagas decide nothing more, and calls that wait here begin."""
        self._stopped = True
        self._suspects.clear()
        self._turns.clear()
        self._open()
        self._summoned.clear()
        self._look()

    # --- the door ------------------------------------------------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return self._phase in ("drain", "trial")

    def _look(self) -> None:
        self.active = bool(self._suspects or self._held or self._summoned or self._turns) or self._phase != "open"

    def _enter(self, driver: Driver, ends: int) -> bool:
        if self._stopped or driver in self._inside:
            return True
        if self._phase == "trial" and (ends == 1 or self._alone is None):
            self._take_in(driver, ends)
            return True
        self._turns.setdefault(driver, ends)
        if self._phase == "open":
            self._close(driver)
        return driver in self._inside

    def _withdraw(self, driver: Driver) -> None:
        """A saga needs no turn any more."""
        if self._turns.pop(driver, 0) and not self._turns and self._phase in ("drain", "pause"):
            self._open()

    def _take_in(self, driver: Driver, ends: int) -> None:
        self._turns.pop(driver, None)
        self._inside.add(driver)
        if ends > 1:
            self._alone = driver

    def _close(self, asking: Driver | None = None) -> None:
        """Close the door, and begin the trial as soon as nothing bare is in flight.

        What ``asking`` has decided becomes durable before its suspect begins.
        """
        if not self._turns:
            self._set("open")
            return
        self._set("drain", DRAIN_S, self._begin)
        self._exposed = {driver for driver in self._drivers() if _is_exposed(driver, driver is asking)}
        if self._exposed:
            _log.info(
                "saga %s is tried again after its owner ended; bare calls wait, and %d sagas finish theirs first",
                next(iter(self._turns)).state.saga_id,
                len(self._exposed),
            )
        self._drained()

    def _drained(self) -> None:
        if self._phase == "drain" and not self._exposed:
            self._begin()

    def _begin(self) -> None:
        self._exposed.clear()
        self._set("trial", TRIAL_S, self._open)
        self._call_in()  # somebody: without turns there is nothing to begin

    def _call_in(self) -> None:
        """Those whose turn has come go on, in the order of their arrival."""
        for driver, ends in list(self._turns.items()):
            if ends == 1 or self._alone is None:
                self._take_in(driver, ends)
                self._summon(driver)
        self._tell()

    def _leave(self, driver: Driver) -> None:
        self._inside.discard(driver)
        if self._alone is driver:
            self._alone = None
        if self._phase == "trial":
            self._call_in()
            if not self._inside:
                self._open()

    def _open(self) -> None:
        """Let those go on that were held; after a while the next suspects have their turn."""
        self._inside.clear()
        self._exposed.clear()
        self._alone = None
        if self._turns:
            self._set("pause", OPEN_S, self._close)
        else:
            self._set("open")
        held, self._held = self._held, set()
        for driver in held:
            self._summon(driver)
        self._tell()
        self._look()

    def _set(
        self,
        phase: Literal["open", "pause", "drain", "trial"],
        limit_s: float = 0.0,
        then: Callable[[], None] | None = None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._phase = phase
        self._timer = None if then is None else asyncio.get_running_loop().call_later(limit_s, then)
        self._look()

    def _summon(self, driver: Driver) -> None:
        self._summoned.add(driver)
        driver.rouse()

    def _tell(self) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None)


def _is_exposed(driver: Driver, asking: bool) -> bool:
    """Whether the journal has, or may get, a bare call in flight."""
    if asking or driver.at_rest:
        return bare_in_flight(driver.state)
    return bare_in_flight(driver.state) or has_bare_calls(driver.state.plan)
