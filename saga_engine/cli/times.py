"""Times and durations as text."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from saga_engine.cli.words import language
from saga_engine.language import durations

_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def local(at_ms: float | None) -> str:
    """Unix milliseconds as ISO 8601 in local time, to the second; ``-`` for none."""
    if not at_ms:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"  # beyond the calendar; a damaged journal may contain it


def clock(at_ms: float) -> str:
    """Unix milliseconds as a local time of day."""
    return local(at_ms)[11:19] or "-"


def duration(ms: float) -> str:
    """Milliseconds in the two largest units."""
    return durations.duration(ms, language())


def ago(at_ms: float, now_ms: float) -> str:
    """How long ago it was, in the largest unit; a time slightly ahead of this clock counts as now."""
    return durations.ago((now_ms - at_ms) / 1000, language())


def age_ms(text: str, option: str) -> float:
    """``90s``, ``5m``, ``2h``, ``7d`` as milliseconds. Raises ``typer.BadParameter``."""
    import typer

    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > 9:
        raise typer.BadParameter(f"{text!r} is no age: write 90s, 5m, 2h or 7d", param_hint=option)
    return int(number) * _UNITS[unit]


def between(start_ms: float | None, end_ms: float | None) -> str:
    """The duration of something; ``-`` unless it has begun and ended."""
    return duration(end_ms - start_ms) if start_ms and end_ms else "-"
