"""Alarms for calls: many calls share a timer of the event loop.

Nearly every call ends long before its time is up, and a timer of its own would cost more than the rest of the call's
administration. Calls whose time is up within the same tenth of a second ring together, at the end of it: never early,
and at most a tenth of a second late. A time-out under a second has a timer of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

_SLOTS_PER_S: Final = 10
_OWN_TIMER_S: Final = 1.0


class Alarm:
    """Cancels a task when its time is up, and remembers that it was the one who did."""

    __slots__ = ("_slot", "_timer", "rang", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.rang = False
        self._slot: dict[Alarm, None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, left_s: float) -> None:
        """Ring in ``left_s`` seconds, unless ``stop`` comes first."""
        loop = self.task.get_loop()
        if left_s < _OWN_TIMER_S:
            self._timer = loop.call_later(left_s, self.ring)
            return
        number = int((loop.time() + left_s) * _SLOTS_PER_S) + 1
        slots = _SLOTS.get(loop)
        if slots is None:
            slots = _SLOTS[loop] = {}
        slot = slots.get(number)
        if slot is None:
            slot = slots[number] = {}
            loop.call_at(number / _SLOTS_PER_S, _ring_all, slots, number)
        slot[self] = None
        self._slot = slot

    def stop(self) -> None:
        """The call has ended."""
        if self._slot is not None:
            self._slot.pop(self, None)
        elif self._timer is not None:
            self._timer.cancel()

    def ring(self) -> None:
        """Time is up."""
        self.rang = True
        self.task.cancel()


_Slots = dict[int, dict[Alarm, None]]
_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()


def _ring_all(slots: _Slots, number: int) -> None:
    for alarm in slots.pop(number):
        alarm.ring()
