"""Detects a blocked event loop from a thread, names the cause, and keeps lease and resources meanwhile.

An ``async def`` tool or hook that blocks (``time.sleep``, a synchronous client, a long computation) delays every saga
of its process. Without this thread the lease would end, and with it the right to record the outcomes of all other
calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from saga_engine.core.effects import COMPENSATE, CallTool, Probe
from saga_engine.errors import SagaError
from saga_engine.loggers import logger_of
from saga_engine.ports import Store
from saga_engine.ports.foreign import IN_A_THREAD, foreign_code
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.driver import SagaDriver
from saga_engine.runtime.lease import Lease

_log = logger_of("saga_engine.watchdog")

#: The maximum interval, in seconds, between checks of the loop.
_EVERY_S: Final = 0.5
#: A loop that does not respond for so long is blocked.
_BLOCKED_S: Final = 1.0
#: For so long the lease of a blocked loop is renewed; longer only for a call whose own time-out allows it.
_AT_LEAST_S: Final = 60.0
#: Advice about a block that no tool and no hook caused.
_SMALLER: Final = "a plan, a list or a value of this size takes so long: use smaller ones, or a faster machine"
#: The package, the rooms that call a tool's own code, and who calls tools that a program brings in a form of its own.
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
_TOOLS: Final = tuple(f"{_PACKAGE}{room}{os.sep}" for room in ("tools", "sources"))
_CALLERS: Final = (f"{_PACKAGE}guards{os.sep}", f"{_PACKAGE}runtime{os.sep}performer.py")


class Culprit(NamedTuple):
    """What runs in the event loop: whose code, where it is, how long it may take in seconds (0: undeclared)."""

    whose: str
    where: str
    timeout_s: float = 0.0
    advice: str = IN_A_THREAD

    @property
    def text(self) -> str:
        """Whose code it is, and where."""
        return f"{self.whose} at {self.where}"


class Watchdog:
    """Watches the event loop in which it is started for as long as the lease exists."""

    def __init__(self, lease: Lease, store: Store, held: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._lease = lease
        self._held = held
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._every_s = min(_EVERY_S, lease.ttl_s / 6)
        self._answered = True
        self._told = ""
        self._over = threading.Event()

    def start(self) -> None:
        """Watch until ``stop``, or until the lease or the loop is gone."""
        threading.Thread(target=self._watch, name="saga-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()

    def _alive(self) -> None:
        self._answered = True

    def _watch(self) -> None:
        asked_s = machine_clock.boottime()
        while not self._over.wait(self._every_s) and not self._lease.lost:
            now_s = machine_clock.boottime()
            if not self._answered:
                self._look_after(now_s - asked_s)
                continue
            if self._told:
                _log.warning("the event loop goes on after %.1f s", now_s - asked_s)
                self._told = ""
            self._answered, asked_s = False, now_s
            try:
                self._loop.call_soon_threadsafe(self._alive)
            except RuntimeError:
                return  # the loop has been closed

    def _look_after(self, blocked_s: float) -> None:
        if blocked_s < min(_BLOCKED_S, self._lease.ttl_s / 3) or not self._loop.is_running():
            return
        culprit = what_runs(sys._current_frames().get(self._loop_thread))  # noqa: SLF001 - the one way to look there
        self._lease.why = f"the event loop was blocked for {blocked_s:.1f} s by {culprit.text}"
        if self._told != culprit.whose:  # somebody else may go on blocking it in the same turn
            self._told = culprit.whose
            _log.warning(
                "the event loop is blocked by %s: every saga of this process waits for it (%s)",
                culprit.text,
                culprit.advice,
            )
        self._keep(max(_AT_LEAST_S, culprit.timeout_s + self._lease.ttl_s) - blocked_s)

    def _keep(self, left_s: float) -> None:
        """Renew the lease in place of the loop, unless it is fresh, over, or the loop has been blocked for too long."""
        lease = self._lease
        sent_s = machine_clock.boottime()
        remaining_s = lease.valid_until_s - sent_s
        # As often as the loop would: the tickets of a live process are never silent for long.
        if left_s <= 0 or remaining_s <= 0 or remaining_s > lease.ttl_s - min(_BLOCKED_S, lease.ttl_s / 3):
            return
        with contextlib.suppress(SagaError, TimeoutError):  # it is tried again; the loop reports the problem
            renewal = self._store.renew_blocking(lease.owner, round(lease.ttl_s * 1000), remaining_s, self._held())
            if renewal.alive:
                lease.prolong(sent_s + lease.ttl_s, renewal.only)


def what_runs(frame: FrameType | None) -> Culprit:
    """What the event loop's thread executes: the call of a saga, a hook, or the engine; and its place in the code."""
    where = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    called = False
    while frame is not None:
        found = foreign_code(frame)
        if found is not None:
            return Culprit(found.text, where, advice=found.advice)
        if frame.f_code is SagaDriver.run.__code__:
            effects = frame.f_locals.get("effects") or [None]
            return _of(frame.f_locals["self"], effects[0] if called else None, where)
        if frame.f_code is SagaDriver._perform_apart.__code__:  # noqa: SLF001 - as above
            return _of(frame.f_locals["self"], frame.f_locals.get("effect") if called else None, where)
        called = called or _calls_a_tool(frame)
        frame = frame.f_back
    return Culprit("code", where or "a place that cannot be seen")


def _calls_a_tool(frame: FrameType) -> bool:
    """Whether a tool's code runs in this frame, or is called by it; else the engine itself is at work for the saga."""
    outer, own = frame.f_back, frame.f_code.co_filename
    if own.startswith(_TOOLS):
        return True
    brought = not own.startswith(_PACKAGE)
    return brought and outer is not None and outer.f_code.co_filename.startswith(_CALLERS)


def _of(driver: SagaDriver, effect: Any, where: str) -> Culprit:
    state = driver.state
    if not isinstance(effect, CallTool | Probe):
        return Culprit(f"the engine's work for saga {state.saga_id}", where, advice=_SMALLER)
    serving = state.serving(effect.step, effect.direction)
    kind = "the probe of tool" if isinstance(effect, Probe) else "tool"
    undo = ", undo" if effect.direction == COMPENSATE else ""
    step = state.plan.steps[effect.step].key
    whose = f"{kind} '{serving.tool}' (saga {state.saga_id}, step {step}{undo})"
    return Culprit(whose, where, serving.timeout_s)
