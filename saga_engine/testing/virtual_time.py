"""Virtual time: a test that waits for a lease, a retry or a deadline of a day waits for nothing.

Time passes as it always does, and in addition it jumps: whenever an event loop of this module has nothing to do until
its next timer, that timer is due. Whatever waits on the loop (``asyncio.sleep``, ``asyncio.timeout``, ``call_later``),
whatever the engine reads (``machine_clock``) and the server of ``memory://`` all jump together, so that nothing is
early, nothing is late, and timers ring in their order.

The loop does not jump while something is on its way from outside it: a job in a thread, or a socket, a pipe or a
process of this loop. Time is then real. It follows that only ``memory://`` is virtual, and only without servers.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from fakeredis import _helpers
from fakeredis._socket import _base
from fakeredis.commands_mixins import server_mixin

from saga_engine.ports.machine_clock import MachineClock, machine_clock
from saga_engine.tools.threads import calls_in_threads

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
#: While a job is in a thread: how often the loop looks whether it may jump again.
_LOOK_S: Final = 0.005
#: Where the server of ``memory://`` reads its time, each as ``time.time()``.
_SERVER: Final = (_base, server_mixin, _helpers)


def new_virtual_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop that jumps to its next timer; until it is closed, the clocks of this process are virtual.

    A ``loop_factory`` of ``asyncio.Runner`` or of pytest-asyncio. A process has one such loop at a time. Code outside
    the engine that reads ``time.time()`` itself stays in real time.
    """
    return _Loop(_Time())


def run_in_virtual_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Run ``main`` as ``asyncio.run`` does, in virtual time."""
    with asyncio.Runner(loop_factory=new_virtual_event_loop) as runner:
        return runner.run(main)


class _Time:
    """How far the clocks of this process are ahead of the real time: only more and more."""

    def __init__(self) -> None:
        real = MachineClock()
        if machine_clock.monotonic is not real.monotonic:
            raise RuntimeError("this process is in virtual time already: close the other event loop first")
        self._real = {name: getattr(machine_clock, name) for name in MachineClock.__slots__}
        self._servers = {module: module.time for module in _SERVER}
        self._ahead_s = 0.0
        machine_clock.time = lambda: real.time() + self._ahead_s
        machine_clock.time_ns = lambda: real.time_ns() + int(self._ahead_s * 1e9)
        machine_clock.monotonic = lambda: real.monotonic() + self._ahead_s
        machine_clock.boottime = lambda: real.boottime() + self._ahead_s
        for module in _SERVER:
            setattr(module, "time", machine_clock)  # noqa: B010 - mypy forbids the plain form

    def jump(self, seconds: float) -> None:
        """Go on by ``seconds`` at once."""
        self._ahead_s += seconds

    def end(self) -> None:
        """Back to the real time."""
        for name, function in self._real.items():
            setattr(machine_clock, name, function)
        for module, time in self._servers.items():
            setattr(module, "time", time)  # noqa: B010 - mypy forbids the plain form
        self._real, self._servers = {}, {}


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is ``machine_clock``'s and whose waits for timers end at once."""

    def __init__(self, virtual: _Time) -> None:
        self._jobs = 0
        self._virtual = virtual
        super().__init__(_Selector(self._virtual, self._held))

    def time(self) -> float:
        """The time of its timers."""
        return machine_clock.monotonic()

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Run ``func`` in a thread; until this loop knows its end, time does not jump."""
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_ended)
        return job

    def close(self) -> None:
        """Close the loop; the clocks show the real time again."""
        super().close()
        self._virtual.end()

    def _job_ended(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _held(self) -> bool:
        return self._jobs > 0 or calls_in_threads() > 0


class _Selector(selectors.DefaultSelector):
    """A selector that skips a wait if nothing but a timer can end it."""

    def __init__(self, virtual: _Time, held: Callable[[], bool]) -> None:
        super().__init__()
        self._virtual = virtual
        self._held = held

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready. The only file that a loop always reads is the pipe through which threads wake it."""
        if timeout is None or timeout <= 0 or len(self.get_map()) > 1:
            return super().select(timeout)
        # In this order: a thread first wakes the loop and then counts as ended, so its end is not overlooked. Nothing
        # tells the loop that it counts as ended, so that is looked at again and again.
        if self._held():
            return super().select(min(timeout, _LOOK_S))
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            self._virtual.jump(timeout)
        return ready
