"""Alarms for calls: many calls share a timer of the event loop.

Nearly every call ends long before its time-out, and a timer of its own would cost more than the rest of the call's
administration. Calls that time out within the same tenth of a second ring together, at its end: never early, and at
most a tenth of a second late. A time-out under a second has a timer of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from saga_engine.ports.machine_clock import machine_clock

_SLOTS_PER_S: Final = 10
_OWN_TIMER_S: Final = 1.0
#: An alarm that rings later than this shows that the loop was blocked: an answer may have arrived unread.
_HELD_UP_S: Final = 0.05
_MAX_RESPITES: Final = 3


class Alarm:
    """Cancels a task at its time-out, and remembers that it did."""

    __slots__ = ("_due_s", "_respites", "_slot", "_timer", "rang", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.rang = False
        self._due_s = 0.0
        self._respites = 0
        self._slot: dict[Alarm, None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, left_s: float) -> None:
        """Ring in ``left_s`` seconds, unless ``stop`` comes first."""
        loop = self.task.get_loop()
        if left_s < _OWN_TIMER_S:
            self._due_s = machine_clock.monotonic() + left_s
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
        self._due_s = machine_clock.monotonic() + number / _SLOTS_PER_S - loop.time()

    def stop(self) -> None:
        """The call has ended."""
        if self._timer is not None:
            self._timer.cancel()
        elif self._slot is not None:
            self._slot.pop(self, None)

    def ring(self) -> None:
        """Time out, but first grant the time for which the loop was blocked, to read an answer that came in time."""
        late_s = machine_clock.monotonic() - self._due_s
        if late_s > _HELD_UP_S and self._respites < _MAX_RESPITES:
            self._respites += 1
            self._due_s = machine_clock.monotonic() + late_s
            self._timer = self.task.get_loop().call_later(late_s, self.ring)
            return
        self.rang = True
        self.task.cancel()


_Slots = dict[int, dict[Alarm, None]]
_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()


def _ring_all(slots: _Slots, number: int) -> None:
    for alarm in slots.pop(number):
        alarm.ring()
