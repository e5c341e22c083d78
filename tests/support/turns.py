"""Watches the turns of an event loop, in processor time: a busy machine changes nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
import time


class Turns:
    """The turns of the loop: how many, the longest, and the processor time of all that the process did meanwhile.

    A turn has the time of the loop's own thread: what others compute beside it is none of its own, however seldom the
    loop gets a core. Full collections are left out: what they take depends on all that the tests of this process hold.
    """

    def __init__(self) -> None:
        self.count = 0
        self._loop = threading.get_ident()
        self._collected = self._since = 0.0
        gc.callbacks.append(self._collects)
        self.longest = self.whole = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        begun, last = time.process_time(), self._now()
        while True:
            await asyncio.sleep(0.001)
            now = self._now()
            self.count += 1
            self.longest, last = max(self.longest, now - last), now
            self.whole = time.process_time() - begun

    def _now(self) -> float:
        return time.thread_time() - self._collected

    def _collects(self, phase: str, about: dict[str, int]) -> None:
        if about["generation"] != 2 or threading.get_ident() != self._loop:
            return
        if phase == "start":
            self._since = time.thread_time()
        else:
            self._collected += time.thread_time() - self._since

    def end(self) -> None:
        self._task.cancel()
        gc.callbacks.remove(self._collects)
