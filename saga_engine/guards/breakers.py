"""Circuit breakers (M. Nygard, *Release It!*): a tool that keeps failing is paused, in all processes.

The state is in the store; a process reads it at most so often. Nothing here may fail a call: when the store does not
answer, the call is made.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.guards.waiting import is_undo
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.ports import BreakerState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from saga_engine.guards.waiting import Chores, Counts
    from saga_engine.plan.tool_spec import BreakerPolicy
    from saga_engine.ports import Call, GuardStore
    from saga_engine.tools.invoke import Invocation

_log: Final = logger_of("saga_engine.guards")

R = TypeVar("R")

#: The maximum age of the cached state of all breakers.
FRESH_S: Final = 0.5
#: How long the bookkeeping of breakers may delay a call; then the call continues without it.
_PATIENCE_S: Final = 2.0
#: A trial without an outcome at its time-out plus this much never has one.
_TRIAL_EXTRA_S: Final = 5.0
#: When to ask again while another process makes the trial.
_TRIAL_PAUSE_S: Final = 1.0
#: The mean distance, in seconds, between two calls that wait for one breaker: they look at it one after the other.
_APART_S: Final = 0.05
#: A call that comes so much too early, in seconds and as a part of the rest, waits here: when the rest ends is known
#: only up to the way to the store and back, and who is sent away once more stands behind all others.
_MOMENT_S, _MOMENT_PART = 0.1, 1 / 10
#: The longer a breaker has been open, the more seldom calls look: after this part of that time, at most these seconds.
_PART: Final = 1 / 8
_SELDOM_S: Final = 30.0
#: Codes of calls that failed before the tool was reached: they do not count for the breaker.
_NOT_REACHED: Final = frozenset(
    {"no_time_left", "params_invalid", "request_invalid", "secret_missing", "host_refused", "budget_spent"}
)


def failed(outcome: Outcome) -> bool:
    """Whether an outcome counts as a failure of the tool.

    Unknown does, and so does a failure that may pass or that was unforeseen. A permanent refusal is a valid response.
    """
    if type(outcome) is NotDone:
        return outcome.retryable is True or (outcome.retryable is None and not outcome.definite)
    return type(outcome) is Unknown


class Breakers:
    """This process's view of the breakers of all its tools."""

    __slots__ = (
        "_chores", "_fresh_s", "_lines", "_loop", "_names", "_opens_s", "_read_s", "_reading", "_reports", "_states",
        "_store",
    )  # fmt: skip

    def __init__(
        self, store: GuardStore, names: Callable[[], Sequence[str]], chores: Chores, fresh_s: float = FRESH_S
    ) -> None:
        self._store = store
        self._names = names
        self._chores = chores
        self._fresh_s = fresh_s
        self._states: dict[str, BreakerState] = {}
        self._opens_s: dict[str, float] = {}  # on the loop's clock
        #: Of each open breaker: since when it is known to be open, and the last moment that a waiting call was given.
        self._lines: dict[str, tuple[float, float]] = {}
        self._read_s = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None  # known once the breakers have been read
        self._reading: asyncio.Task[None] | None = None
        self._reports: dict[str, asyncio.Task[BreakerState]] = {}

    async def refusal(self, name: str, policy: BreakerPolicy, call: Call, *, trial: bool) -> NotDone | None:
        """Why the call must not be made now. ``trial``.

        If permitted, it is made at once, also as the one trial call.
        """
        state = await self._state(name)
        if not state.tripped or is_undo(call):
            return None
        left_s = self._left_s(name)
        if 0 < left_s <= min(_MOMENT_S, policy.open_s * _MOMENT_PART):
            await asyncio.sleep(left_s)
        elif left_s > 0:
            return self._later(name, state, left_s)
        if not trial:
            return None
        trial_ms = round((call.timeout_s + _TRIAL_EXTRA_S) * 1000)
        won = await self._bounded(self._store.breaker_trial(name, trial_ms), "asking for a trial")
        if won is not False:
            return None
        await self._read()
        state = self._states.get(name, _CLOSED)
        if not state.tripped:
            return None  # another process's trial has closed it in the meantime
        return self._later(name, state, max(self._left_s(name), min(_TRIAL_PAUSE_S, policy.open_s)))

    def _later(self, name: str, state: BreakerState, left_s: float) -> NotDone:
        """The refusal of a call that looks again later: in the order of the refusals, and not all at one moment."""
        now_s = asyncio.get_running_loop().time()
        since_s, last_s = self._lines[name]
        seldom_s = min((now_s - since_s) * _PART, _SELDOM_S)
        at_s = max(now_s + max(left_s, seldom_s), last_s + _APART_S * random.uniform(0.5, 1.5))
        self._lines[name] = since_s, at_s
        message = said("breaker_open", tool=repr(name), n=state.failures, s=f"{left_s:.1f}")
        error = ErrorInfo("breaker_open", message, retryable=True)
        return NotDone(error, retryable=True, retry_after_s=at_s - now_s, held=True)

    def is_closed(self, name: str) -> bool:
        """Whether the breaker is closed, by a view that is fresh enough; False: the store has to be asked."""
        if self._loop is None or name in self._reports or self._loop.time() - self._read_s >= self._fresh_s:
            return False
        return not self._states.get(name, _CLOSED).tripped

    def has_news(self, name: str, outcome: Outcome) -> bool:
        """Whether ``report`` has anything to do; for most successes it has not."""
        if type(outcome) is not Done:
            return True
        state = self._states.get(name, _CLOSED)
        return bool(state.failures) or state.tripped

    async def report(self, name: str, policy: BreakerPolicy, outcome: Outcome) -> None:
        """Count an outcome of the tool. A failure is written at once; a success only if it changes something."""
        if type(outcome) is NotDone and not outcome.definite and outcome.error.error_code in _NOT_REACHED:
            return
        bad = failed(outcome)
        state = self._states.get(name, _CLOSED)
        if not bad and not state.failures and not state.tripped:
            return
        if not bad:
            self._set(name, _CLOSED)
        open_ms = round(policy.open_s * 1000)
        write = self._write(name, failed=bad, failures=policy.failures, open_ms=open_ms)
        task = self._reports[name] = self._chores.start(write, f"the breaker of {name}")
        if bad:
            # The next call must see it. A success waits for nothing: its outcome belongs in the journal.
            await asyncio.wait({task}, timeout=_PATIENCE_S)

    async def _write(self, name: str, **outcome: Any) -> BreakerState:
        try:
            state = await self._store.breaker_outcome(name, **outcome)
            self._set(name, state)
            return state
        finally:
            if self._reports.get(name) is asyncio.current_task():
                del self._reports[name]

    async def _state(self, name: str) -> BreakerState:
        report = self._reports.get(name)
        if report is not None:
            await asyncio.wait({report}, timeout=_PATIENCE_S)
        if asyncio.get_running_loop().time() - self._read_s >= self._fresh_s:
            await self._read()
        return self._states.get(name, _CLOSED)

    async def _read(self) -> None:
        """Read all breakers; calls that need it at the same moment share one read."""
        if self._reading is None or self._reading.done():
            self._reading = self._chores.start(self._read_all(), "reading the breakers")
        await asyncio.wait({self._reading}, timeout=_PATIENCE_S)

    async def _read_all(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            for name, state in (await self._store.breakers(self._names())).items():
                self._set(name, state)
        finally:
            self._read_s = began_s  # After a failure too: not every call asks about an outage.

    def _set(self, name: str, state: BreakerState) -> None:
        now_s = asyncio.get_running_loop().time()
        self._states[name] = state
        self._opens_s[name] = now_s + state.opens_ms / 1000
        if state.tripped and name not in self._lines:
            self._lines[name] = now_s, now_s
            _log.warning(
                "the breaker of tool %s is open after %d failures in a row: calls wait, the next is tried in %.1f s",
                *(name, state.failures, state.opens_ms / 1000),
            )
        elif not state.tripped and (line := self._lines.pop(name, None)) is not None:
            _log.warning("the breaker of tool %s is closed after %.0f s: its calls go on", name, now_s - line[0])

    def _left_s(self, name: str) -> float:
        return self._opens_s.get(name, 0.0) - asyncio.get_running_loop().time()

    async def _bounded(self, work: Coroutine[Any, Any, R], what: str) -> R | None:
        """The result of some bookkeeping; None if it failed or takes too long."""
        task = self._chores.start(work, what)
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


_CLOSED: Final = BreakerState()


class Peek:
    """Refuses a call early, before it waits for a place or a rate; takes no trial."""

    __slots__ = ("_breakers", "_counts", "_inner", "_name", "_policy")

    def __init__(self, name: str, policy: BreakerPolicy, inner: Invocation, breakers: Breakers, counts: Counts) -> None:
        self._name = name
        self._policy = policy
        self._inner = inner
        self._breakers = breakers
        self._counts = counts

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call if the breaker is closed."""
        refused = await self._breakers.refusal(self._name, self._policy, call, trial=False)
        if refused is not None:
            self._counts["rejected"] += 1
            return refused
        return await self._inner(params, call)


class Breaker(Peek):
    """The guard of one tool, next to the call itself: only its own outcomes count."""

    __slots__ = ()

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call if the breaker is closed, and count its outcome."""
        refused = await self._breakers.refusal(self._name, self._policy, call, trial=True)
        if refused is not None:
            self._counts["rejected"] += 1
            return refused
        outcome = await self._inner(params, call)
        await self._breakers.report(self._name, self._policy, outcome)
        return outcome
