"""Dates and durations of ISO 8601 in a plan's computations. Pure: no clock, no zone but the written one."""

from __future__ import annotations

import calendar
import re
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from saga_engine.language.errors import said
from saga_engine.plan.decimals import NotComputable

_DURATION: Final = re.compile(
    r"(-)?P(?=.)(?:(\d{1,6})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})W)?(?:(\d{1,6})D)?"
    r"(?:T(?=.)(?:(\d{1,8})H)?(?:(\d{1,8})M)?(?:(\d{1,10}(?:[.,]\d{1,9})?)S)?)?",
    re.ASCII,
)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
#: A date, and perhaps a time of that day with its distance from UTC.
_WRITTEN: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2})?))?", re.ASCII
)


class Duration(NamedTuple):
    """Months, which have no fixed length, and the rest."""

    months: int
    rest: timedelta

    @property
    def timed(self) -> bool:
        """Whether it counts less than days."""
        return bool(self.rest.seconds or self.rest.microseconds)


def duration(text: Any) -> Duration:
    """``P1Y2M3W4DT5H6M7.5S``, or a part of it, with a minus in front to go back. Raises ``NotComputable``.

    Digits beyond a millionth of a second are cut.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise NotComputable(said("any.duration"))
    *parts, seconds = match.groups()[1:]
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in parts)
    whole, _, fraction = (seconds or "0").replace(",", ".").partition(".")
    micros = int(f"{fraction:0<6}"[:6])
    sign = -1 if match[1] else 1
    rest = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=int(whole), microseconds=micros)
    return Duration(sign * (12 * years + months), sign * rest)


def moment(text: Any) -> date:
    """A date (``2026-02-28``) or a date with a time (``2026-02-28T09:00:00+01:00``). Raises ``NotComputable``."""
    if isinstance(text, str):
        try:
            return date.fromisoformat(text) if _DATE.fullmatch(text) else datetime.fromisoformat(text)
        except ValueError as error:
            if (impossible := _impossible(text)) is not None:
                raise NotComputable(impossible) from error
    raise NotComputable(said("any.date"))


def _impossible(text: str) -> str | None:
    """What does not exist in a date that is written correctly: its day, or the time of that day."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return None
    try:
        date.fromisoformat(match[1])
    except ValueError:
        return f"there is no day {match[1]}"
    return f"there is no time {match[2]}" if match[2] else None


def later(start: date, by: Duration) -> date:
    """The date after a duration: first the months, to the last day of a shorter month, then the rest.

    Raises ``NotComputable`` for a duration of hours after a date without a time, and beyond the years 1 to 9999.
    """
    if by.timed and not isinstance(start, datetime):
        raise NotComputable(said("any.hours"))
    try:
        if by.months:
            years, month = divmod(start.year * 12 + start.month - 1 + by.months, 12)
            day = min(start.day, calendar.monthrange(years, month + 1)[1])
            start = start.replace(year=years, month=month + 1, day=day)
        return start + by.rest
    except (ValueError, OverflowError, calendar.IllegalMonthError) as error:
        raise NotComputable(said("any.years")) from error


def days_between(start: date, end: date) -> int:
    """Whole days from the day of ``start`` to the day of ``end``; negative if that is earlier."""
    return (_day(end) - _day(start)).days


def written(found: date) -> str:
    """As ISO 8601."""
    return found.isoformat()


def _day(found: date) -> date:
    return found.date() if isinstance(found, datetime) else found
