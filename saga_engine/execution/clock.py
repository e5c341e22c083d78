"""The clock of sagas and guards: the store's, or Temporal's, as this process knows it."""

from __future__ import annotations

from saga_engine.ports.machine_clock import machine_clock

#: The store's time may lag by this much behind the time that was reported here, because responses take time: the clock
#: then stops until the store has caught up. A greater lag means another time, which counts from now on.
_JITTER_MS = 1_000
#: The number of sagas for which the start of their lead over the store's clock is stored.
_AHEAD_KEPT = 10_000


class StoreClock:
    """The store's clock as this process knows it: the last response's time plus the time that has passed here since.

    Until the store has responded it is this machine's clock, which may be hours ahead and is not authoritative.

    The store's clock may step back: it was corrected, or a replica with another clock took over. Records that were made
    before are then in the future, and so are the times that their sagas wait for. Each such saga has its own time
    (``now_after``), which continues from its last record: a wait takes no longer than intended.
    """

    __slots__ = ("_ahead", "_base_ms", "_base_s", "_heard", "_last_ms")

    def __init__(self) -> None:
        self._base_ms = machine_clock.time_ns() // 1_000_000
        self._base_s = machine_clock.monotonic()
        self._heard = False
        self._last_ms = 0
        self._ahead: dict[str, tuple[int, float]] = {}

    @property
    def heard(self) -> bool:
        """Whether the store has reported its time; until then this is the clock of this machine."""
        return self._heard

    def set(self, now_ms: int) -> None:
        """The store has just reported its time."""
        self._heard = True
        self._base_ms = now_ms
        self._base_s = machine_clock.monotonic()
        if now_ms < self._last_ms - _JITTER_MS:
            self._last_ms = now_ms

    def now_ms(self) -> int:
        """Unix milliseconds; once the store has responded, never less than before unless its clock stepped back."""
        now = self._base_ms + int((machine_clock.monotonic() - self._base_s) * 1000)
        if not self._heard:
            return now
        if now > self._last_ms:  # noqa: PLR1730 - read several times for each call: without a call of its own
            self._last_ms = now
        return self._last_ms

    def now_after(self, saga_id: str, at_ms: int) -> int:
        """The time of a saga whose last record was made at ``at_ms``: never before that, and never constant."""
        now = self.now_ms()
        if now >= at_ms:
            if self._ahead:
                self._ahead.pop(saga_id, None)
            return now
        known = self._ahead.get(saga_id)
        if known is None or known[0] != at_ms:
            if len(self._ahead) >= _AHEAD_KEPT:
                self._ahead.clear()  # their waits start anew
            known = self._ahead[saga_id] = (at_ms, machine_clock.monotonic())
        return at_ms + int((machine_clock.monotonic() - known[1]) * 1000)

    def in_store(self, due_ms: int, saga_now_ms: int) -> int:
        """What the store's clock will show when a saga's time, now ``saga_now_ms``, is ``due_ms``."""
        return due_ms - max(saga_now_ms - self.now_ms(), 0)
