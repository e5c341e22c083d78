"""Limits of callers: how often, and how many requests of theirs are held open."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from saga_engine.errors import QuotaExceeded
from saga_engine.ports.machine_clock import machine_clock

#: So many callers are remembered; the one that has not called for longest is forgotten first.
_REMEMBERED: Final = 10_000


#: The checks and simulations of all callers, and of each.
_MOST_CHECKS: Final = 32
_MOST_CHECKS_EACH: Final = 4
#: The processor time that each of them may use, in seconds.
CHECK_S: Final = 20.0


class Rates:
    """Token buckets by caller: ``burst`` at once, then ``per_s``."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        #: What is left, and when that was.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str, cost: float = 1.0) -> float:
        """Take ``cost``, and return 0; or take nothing, and return after how many seconds it would succeed.

        What costs more than a whole burst is taken from a full bucket, which then has to recover.
        """
        now = machine_clock.monotonic()
        left, at = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        needed = min(cost, self._burst)
        fits = left >= needed
        self._left[caller] = (left - cost if fits else left, now)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0.0 if fits else (needed - left) / self._per_s


class Places:
    """The requests of one kind that are held open: of all callers, and of each.

    ``what`` and ``hint`` say what one is, and what a caller without a place does. A tenth of the places is kept for
    operators: a server whose callers all wait can still be operated.
    """

    def __init__(self, most: int, most_each: int, what: str, hint: str) -> None:
        self._most = most
        self._most_each = most_each
        self._what = what
        self._hint = hint
        self._open: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str, *, operator: bool = False) -> Iterator[None]:
        """One more. Raises ``QuotaExceeded``."""
        most = self._most if operator else self._most - self._most // 10
        if self._open.total() >= most or self._open[caller] >= self._most_each:
            raise QuotaExceeded(f"too many {self._what}", hint=self._hint, retry_after_s=5)
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


def checks() -> Places:
    """Those of the checks and simulations behind one door: two are at work, and the others wait for one of them."""
    what, hint = "plans are being checked or simulated", "wait until one of yours has ended"
    return Places(_MOST_CHECKS, _MOST_CHECKS_EACH, what, hint)


def readings() -> Places:
    """Those of the large requests behind one door whose values are counted."""
    what, hint = "large requests are being read", "wait until one of yours has been read"
    return Places(_MOST_CHECKS, _MOST_CHECKS_EACH, what, hint)
