"""This machine's clock: the one place at which the engine reads the time.

What the engine *waits* for (``asyncio.sleep``, ``asyncio.timeout``, ``call_later``) is a timer of the running event
loop, and the loop is the port of waiting already. What it *reads* comes from here. Whoever replaces both, the loop's
``time`` and these functions, has the engine in another time; ``saga_engine.testing.virtual_time`` does.

The time of sagas is not this one but their store's (``saga_engine.execution.clock``), which counts on between two
responses by this one's ``monotonic``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

#: CLOCK_MONOTONIC stops while a laptop sleeps, and its lease expires meanwhile; CLOCK_BOOTTIME does not stop.
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


class MachineClock:
    """Functions that read the time, each as cheap as the one of ``time`` that it is.

    They are values and not methods: a read costs no call more than ``time.monotonic()`` does. Read them at each use
    (``machine_clock.monotonic()``); whoever keeps one keeps its time.
    """

    __slots__ = ("boottime", "monotonic", "thread_cpu", "time", "time_ns")

    def __init__(self) -> None:
        #: Seconds since 1970. May jump: somebody sets the clock.
        self.time: Callable[[], float] = time.time
        #: The same in nanoseconds, a whole number.
        self.time_ns: Callable[[], int] = time.time_ns
        #: Seconds on a clock that never goes back: the one of event loops.
        self.monotonic: Callable[[], float] = time.monotonic
        #: Seconds on a clock that never goes back and never pauses: the one of leases. (macOS and Windows have no such
        #: clock, and Windows cannot look one up by its number.)
        self.boottime: Callable[[], float] = (
            time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME)
        )
        #: Seconds of processor time of the calling thread.
        self.thread_cpu: Callable[[], float] = time.thread_time


#: The clock of this process.
machine_clock: Final = MachineClock()
