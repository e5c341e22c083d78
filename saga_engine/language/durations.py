"""Stretches of time as text."""

from __future__ import annotations

from typing import Final

from saga_engine.language import LANGUAGES, Fragment, catalogue

DURATIONS: Final[Fragment] = {
    "duration.ms": ("{n} ms", "{n} 毫秒"),
    "duration.s": ("{n} s", "{n} 秒"),
    "duration.min": ("{n} min {s} s", "{n} 分 {s} 秒"),
    "duration.h": ("{n} h {min} min", "{n} 小时 {min} 分"),
    "duration.d": ("{n} d {h} h", "{n} 天 {h} 小时"),
    "ago.s": ("{n} s ago", "{n} 秒前"),
    "ago.min": ("{n} min ago", "{n} 分钟前"),
    "ago.h": ("{n} h ago", "{n} 小时前"),
    "ago.d": ("{n} d ago", "{n} 天前"),
}
_TEXTS: Final = {each: catalogue(each, DURATIONS) for each in LANGUAGES}


def duration(ms: float, language: str = "en") -> str:
    """Milliseconds in the two largest units; ``-`` for less than none."""
    say = _TEXTS[language]
    if ms < 0:
        return "-"
    if ms < 1000:
        return say["duration.ms"].format(n=f"{ms:.0f}")
    seconds = ms / 1000
    if seconds < 60:
        return say["duration.s"].format(n=f"{seconds:.1f}")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return say["duration.min"].format(n=minutes, s=rest)
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return say["duration.h"].format(n=hours, min=minutes)
    days, hours = divmod(hours, 24)
    return say["duration.d"].format(n=days, h=hours)


def ago(seconds: float, language: str = "en") -> str:
    """How long ago it was, in the largest unit; a time slightly ahead of this clock counts as now."""
    seconds = max(seconds, 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit != "d" and seconds >= size):
            return _TEXTS[language][f"ago.{unit}"].format(n=int(seconds // size))
    return _TEXTS[language]["ago.s"].format(n=int(seconds))
