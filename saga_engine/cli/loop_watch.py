"""Ends a process whose event loop computes without end: nothing else can, because SIGTERM waits for that loop, too.

It is for processes that serve many (``saga serve``, ``saga mcp --http``, workers), and never for a program that embeds
the engine. What counts is CPU time of the loop's thread without one turn of the loop: a machine that was suspended, or
a loop that waits for a slow disk, has used none. The sagas of the process are taken over by others.

Two clocks look at it. A thread knows the loop's own CPU time and logs where it is. But code that holds the
interpreter's lock stops that thread as well; so the kernel counts the CPU time of the process from the thread's last
look, writes the stacks to stderr and ends the process by SIGPROF.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from traceback import extract_stack
from typing import Any, Final, TypeVar

from saga_engine.cli import exit_codes
from saga_engine.loggers import logger_of

_T = TypeVar("_T")
_log = logger_of("saga_engine.watchdog")

_EVERY_S: Final = 1.0
#: The process may use so much more CPU time, in seconds, until the stack is written.
_WRITING_S: Final = 30.0
#: The kernel's clock counts all threads of the process; it is the second one to speak.
_KERNELS_SHARE: Final = 1.5
_FRAMES: Final = 30


async def watched(job: Coroutine[Any, Any, _T], cpu_s: float) -> _T:
    """Await a job, and end the process if the loop uses so much CPU time in one turn; 0: never."""
    if not cpu_s:
        return await job
    with _LoopWatch(cpu_s).running():
        return await job


class _LoopWatch:
    """Watches the running event loop, in whose thread it is made."""

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        clock = getattr(time, "pthread_getcpuclockid", None)
        self._clock = None if clock is None else clock(self._thread)
        self._turned = True
        self._over = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch meanwhile."""
        kernel = _kernel_can_watch()
        if kernel:
            faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)
        thread = threading.Thread(target=self._watch, args=(kernel,), name="saga-loop-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            if kernel:
                signal.setitimer(signal.ITIMER_PROF, 0)
                faulthandler.unregister(signal.SIGPROF)

    def _used_s(self) -> float:
        return time.process_time() if self._clock is None else time.clock_gettime(self._clock)

    def _turn(self) -> None:
        self._turned = True

    def _watch(self, kernel: bool) -> None:
        begun_s = self._used_s()
        every_s = min(_EVERY_S, self._cpu_s / 4)
        while True:
            if kernel:
                signal.setitimer(signal.ITIMER_PROF, self._cpu_s * _KERNELS_SHARE)
            if self._over.wait(every_s):
                return
            used_s = self._used_s()
            if self._turned:
                self._turned, begun_s = False, used_s
                try:
                    self._loop.call_soon_threadsafe(self._turn)
                except RuntimeError:
                    return  # the loop has been closed
            elif used_s - begun_s >= self._cpu_s:
                if kernel:  # which must not cut off what is written now, while the loop still computes
                    signal.setitimer(signal.ITIMER_PROF, _WRITING_S)
                self._end(used_s - begun_s)

    def _end(self, used_s: float) -> None:
        from saga_engine.runtime.watchdog import what_runs

        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the one way to look there
        lines = [f"{each.filename}:{each.lineno} in {each.name}" for each in extract_stack(frame)[-_FRAMES:]]
        _log.critical(
            "the event loop has used %.0f s of CPU time without a turn, in %s: this process ends, and its sagas are "
            "taken over (loop_cpu_s)\n%s",
            used_s,
            what_runs(frame).text,
            "\n".join(lines),
        )
        logging.shutdown()
        sys.stderr.flush()
        os._exit(exit_codes.ERROR)


def _kernel_can_watch() -> bool:
    """Whether the kernel counts CPU time here, nobody else, such as a profiler, asks it to, and stacks have a file."""
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGPROF) != signal.SIG_DFL:
        return False
    try:
        sys.stderr.fileno()
    except (OSError, ValueError):  # io.UnsupportedOperation is both: what replaces stderr is no file
        return False
    return True
