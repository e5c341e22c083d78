"""When a schedule is due: cron expressions in a time zone, and intervals. Callers pass the time.

Both changes of summer time are those of Debian's cron, as ``cronsim`` has them. A time that does not exist on the day
of the change is due right after the gap, and a time that exists twice is due once. Expressions with ``*`` in the hour
or the minute follow the time that passes.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from saga_engine.errors import SettingInvalid
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = 5
#: A look back from the present begins so long before the last tick: a change of summer time lies within it.
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_BACK = timedelta(days=1)


class Timetable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Either a cron expression with a time zone, or an interval in seconds from ``start_ms`` on."""

    cron: str = ""
    time_zone: str = "UTC"
    every_s: int = 0
    start_ms: int = 0

    def check(self) -> None:
        """Raises ``SettingInvalid``."""
        if bool(self.cron) == bool(self.every_s):
            raise SettingInvalid("a schedule has either a cron expression or an interval", hint="give one of the two")
        if self.every_s and not 1 <= self.every_s <= 10 * 366 * 86_400:
            raise SettingInvalid(f"an interval of {self.every_s} s is out of range", hint="1 second to 10 years")
        if self.cron:
            self._zone()
            if next(self._ticks(_SOME_DAY), None) is None:
                raise SettingInvalid(f"the cron expression {cut(self.cron, 80)} is never due", hint="check the date")

    def next_after(self, at_ms: int) -> int | None:
        """The first tick after ``at_ms`` (Unix ms); None: there is none."""
        if self.every_s:
            step = self.every_s * 1000
            return self.start_ms + max((at_ms - self.start_ms) // step + 1, 1) * step
        # (In an hour that the clocks show twice, the first ticks after the second showing lie in the first.)
        ticks = (round(tick.timestamp() * 1000) for tick in self._ticks(datetime.fromtimestamp(at_ms / 1000, UTC)))
        return next((tick for tick in ticks if tick > at_ms), None)

    def latest(self, first_ms: int, now_ms: int) -> int:
        """The latest tick until ``now_ms``, where ``first_ms`` is one; its cost does not grow with the time between."""
        if self.every_s:
            return first_ms + (now_ms - first_ms) // (self.every_s * 1000) * self.every_s * 1000
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        back = next(self._ticks(now, reverse=True), None)
        at = first_ms if back is None else max(first_ms, round((back - _BACK).timestamp() * 1000))
        found = first_ms
        while (at_next := self.next_after(at)) is not None and at_next <= now_ms:
            found = at = at_next
        return found

    def between(self, first_ms: int, last_ms: int) -> Iterator[int]:
        """The ticks from ``first_ms`` to ``last_ms``, both included."""
        at = self.next_after(first_ms - 1)
        while at is not None and at <= last_ms:
            yield at
            at = self.next_after(at)

    def _zone(self) -> zoneinfo.ZoneInfo:
        try:
            return zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise SettingInvalid(
                f"there is no time zone {cut(self.time_zone, 80)}", hint="a name such as Europe/Berlin, or UTC"
            ) from error

    def _ticks(self, start: datetime, *, reverse: bool = False) -> Iterator[Any]:
        from cronsim import CronSim, CronSimError

        if len(self.cron.split()) != _FIELDS:
            raise SettingInvalid(
                f"{cut(self.cron, 80)} is no cron expression", hint="minute hour day-of-month month day-of-week"
            )
        zone = self._zone()
        try:
            return CronSim(self.cron, start.astimezone(UTC if zone.key == "UTC" else zone), reverse=reverse)
        except CronSimError as error:
            raise SettingInvalid(
                f"{cut(self.cron, 80)} is no cron expression: {error}",
                hint="minute hour day-of-month month day-of-week",
            ) from error
