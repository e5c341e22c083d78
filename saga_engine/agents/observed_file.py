"""The file of what observed sessions did: a line of JSON for each event, and its sum over a period.

A call has two lines, one before it is made and one with its outcome: a call that a crash interrupted has the first
alone. Params are there by name and digest, never by value. The lines of ``saga mcp observe --to`` are read as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from saga_engine.errors import SettingInvalid
from saga_engine.loggers import logger_of
from saga_engine.plan.name_guesses import back_of, reads
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.sources.toml import key, value

_log = logger_of("saga_engine")


class ObservedFile:
    """Appends events to a file. Each is on its way to the disk before what it announces begins.

    What cannot be written, on a disk that is full, is missing in the file, and stops no call: it is logged once.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises ``SettingInvalid``."""
        self.path = path
        self._lost = False
        try:
            self._file: TextIO = path.open("a", encoding="utf-8")
        except OSError as error:
            raise SettingInvalid(f"what is observed cannot be written to {path}: {error.strerror}") from error

    def add(self, session: str, **event: Any) -> None:
        """Append one event of a session."""
        line = {"at_ms": machine_clock.time_ns() // 1_000_000, "session": session, **event}
        try:
            self._file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            self._file.flush()
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not self._lost:
            self._lost = True
            _log.error("what is observed cannot be written to %s: %s; the calls go on", self.path, error.strerror)


@dataclass(slots=True)
class ToolSum:
    """What was seen of one tool: calls by outcome, and by kind what the engine ``would`` have done."""

    calls: int = 0
    effect: str = "undeclared"
    undo: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    would: Counter[str] = field(default_factory=Counter)

    @property
    def never_undoable(self) -> bool:
        """Whether nothing takes its calls back, as far as anybody said."""
        return self.effect in ("write", "undeclared") and not self.undo

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        found = {"calls": self.calls, "effect": self.effect, "undo": self.undo, "never_undoable": self.never_undoable}
        return {**found, "outcomes": dict(self.outcomes), "would": dict(self.would)}


@dataclass(slots=True)
class Observed:
    """The sum of a period. ``whys``: how often the engine would have said what, by its words."""

    first_ms: int = 0
    last_ms: int = 0
    sessions: int = 0
    failed: int = 0
    undone: int = 0
    left: int = 0
    unread: int = 0
    tools: dict[str, ToolSum] = field(default_factory=dict)
    whys: Counter[str] = field(default_factory=Counter)
    known: set[str] = field(default_factory=set)

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "sessions": self.sessions,
            "failed": self.failed,
            "would_undo": self.undone,
            "would_leave": self.left,
            "unreadable_lines": self.unread,
            "tools": {name: each.to_dict() for name, each in sorted(self.tools.items())},
            "would": dict(self.whys),
            "draft": draft(self),
        }


def summed(paths: Iterable[Path], *, since_ms: int = 0) -> Observed:
    """The sum of the events in these files from ``since_ms`` (Unix ms) on. Raises ``SettingInvalid``."""
    found = Observed()
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            hint = "observe = true in [saga], or saga mcp observe --to FILE, writes one"
            raise SettingInvalid(f"{path} cannot be read: {error.strerror}", hint=hint) from error
        calls: dict[tuple[Any, Any], str] = {}
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = None  # the last line of a process that died while it wrote, say
            if not _fits(event):
                found.unread += 1
            elif event.get("at_ms", since_ms) >= since_ms:
                _count(found, event, calls)
    return found


#: What the fields of an event are, as far as they are summed.
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "at_ms": (int, float),
    **dict.fromkeys(("session", "call"), (str, int, type(None))),
    **dict.fromkeys(("tools", "would", "would_undo", "would_leave"), list),
    **dict.fromkeys(("tool", "outcome", "end"), str),
    **dict.fromkeys(("server", "effect", "manifest", "undo"), (str, type(None))),
}


def _fits(event: Any) -> bool:
    """Whether a line is an event: somebody may have edited the file, or another program written it."""
    if not isinstance(event, dict):
        return False
    if not all(isinstance(event[name], of) for name, of in _TYPES.items() if name in event):
        return False
    woulds = event.get("would", ())
    named = all(isinstance(name, str) for name in event.get("tools", ()))
    return named and all(
        isinstance(each, dict) and isinstance(each.get("do"), str) and isinstance(each.get("why"), str)
        for each in woulds
    )


def _count(found: Observed, event: Mapping[str, Any], calls: dict[tuple[Any, Any], str]) -> None:
    at = event.get("at_ms")
    if isinstance(at, int):
        found.first_ms = min(found.first_ms or at, at)
        found.last_ms = max(found.last_ms, at)
    place = (event.get("session"), event.get("call"))
    if "tools" in event:
        found.sessions += 1
        found.known |= set(event["tools"])
    elif "tool" in event:
        server = event.get("server")
        name = f"{server}.{event['tool']}" if server else str(event["tool"])
        tool = found.tools.setdefault(name, ToolSum())
        tool.calls += 1
        tool.effect = event.get("effect") or event.get("manifest") or "undeclared"
        tool.undo = event.get("undo") or ""
        calls[place] = name
        tool.outcomes[event.get("outcome", "no outcome")] += 1
        _would(found, tool, event)
    elif "outcome" in event and place in calls:
        tool = found.tools[calls[place]]
        tool.outcomes["no outcome"] -= 1
        tool.outcomes[event["outcome"]] += 1
        tool.outcomes = +tool.outcomes
        _would(found, tool, event)
    elif "end" in event:
        found.failed += event["end"] == "failed"
        found.undone += len(event.get("would_undo", ()))
        found.left += len(event.get("would_leave", ()))


def _would(found: Observed, tool: ToolSum, event: Mapping[str, Any]) -> None:
    for would in event.get("would", ()):
        tool.would[would["do"]] += 1
        found.whys[would["why"]] += 1


def draft(found: Observed) -> str:
    """Tables for ``saga.toml``: what names suggest of tools that nobody declared, each to be checked by a person."""
    known = found.known | set(found.tools)
    lines: list[str] = []
    for name, tool in sorted(found.tools.items()):
        if not tool.never_undoable or "." in name:  # a server's tools have a draft of their own: saga mcp init
            continue
        back = back_of(name, known)
        if tool.effect == "undeclared" and reads(name):
            lines += [f"[tools.{key(name)}]", 'effect = "read"          # a guess by its name: check it']
        elif back:
            lines += [f"[tools.{key(name)}]", f"undo = {value(back)}          # a guess by its name: check it"]
        else:
            lines += [
                f"# [tools.{key(name)}]",
                '# undo = "…"             # the tool that takes it back, if there is one',
            ]
        lines.append("")
    return "\n".join(lines)


def told(found: Observed) -> Sequence[str]:
    """The sum as lines of text, without the draft."""
    lines = [f"{_many(found.sessions, 'session')}, {found.failed} failed"]
    for name, tool in sorted(found.tools.items(), key=lambda each: (-each[1].calls, each[0])):
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tool.outcomes.items()))
        back = f"undone by {tool.undo}" if tool.undo else "nothing takes it back" if tool.never_undoable else ""
        lines.append(f"{name}: {_many(tool.calls, 'call')} ({outcomes}); {tool.effect}{'; ' if back else ''}{back}")
    lines.append(f"would have been undone: {_many(found.undone, 'call')}; would have been left: {found.left}")
    lines += [f"would, {_many(count, 'time')}: {why}" for why, count in sorted(found.whys.items())]
    return [*lines, f"{_many(found.unread, 'line')} could not be read"] if found.unread else lines


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
