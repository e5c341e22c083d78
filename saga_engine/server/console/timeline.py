"""What happened to each step, and when, from the records of a saga: the spans of its timeline.

A span is a stretch of time in which one thing was true of a step in one direction: its call was made, waited for a
guard, for the next attempt, for an event or for a person, or was in doubt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD
from saga_engine.core.records import AnyRecord

Kind = Literal["call", "queue", "retry", "wait", "doubt", "asks", "drift", "probe"]
#: How a span ended: done, undecided (it goes on), not done, or known by other evidence than the call's own response.
End = Literal["", "ok", "failed", "retry", "doubt", "settled"]

_OPEN_KINDS: Final[dict[str, Kind]] = {
    "StepQueued": "queue",
    "StepBegun": "call",
    "StepDeferred": "wait",
    "StepWaiting": "wait",
}
_OF_STEPS: Final = frozenset(_OPEN_KINDS) | {
    "StepIntended",
    "StepSucceeded",
    "StepRetryScheduled",
    "StepFailed",
    "StepBlocked",
    "FallbackChosen",
    "StepInDoubt",
    "StepUnsettled",
    "ProbeIntended",
    "ProbeFailed",
    "StepSkipped",
}
_ENDS: Final = {"SagaCompleted", "SagaCompensated", "SagaWaived"}
#: Records about the whole saga that the timeline marks.
_MARKS: Final = {
    "SagaResumed": "resumed",
    "CancelRequested": "cancelled",
    "CompensationStarted": "turned",
    "CompensationRefused": "refused",
    "DeadlinePassed": "deadline",
    "FinallyStarted": "finally",
    "StepsAdded": "added",
    "SessionClosed": "closed",
}


@dataclass(slots=True)
class Span:
    """A stretch of a step's time. ``stop`` None: it goes on."""

    kind: Kind
    start: int
    stop: int | None = None
    end: End = ""
    attempt: int = 0


@dataclass(slots=True)
class Row:
    """The spans of one step, forward and of its undo."""

    step: str
    forward: list[Span] = field(default_factory=list)
    undo: list[Span] = field(default_factory=list)

    def lane(self, direction: str) -> list[Span]:
        """The spans of one direction."""
        return self.forward if direction == "forward" else self.undo


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the whole saga."""

    kind: str
    at: int
    seq: int


@dataclass(slots=True)
class Timeline:
    """All rows by step key, the marks, and when it began and (None: has not) ended."""

    start: int = 0
    stop: int | None = None
    last: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)

    def row(self, step: str) -> Row:
        """The row of a step."""
        found = self.rows.get(step)
        if found is None:
            found = self.rows[step] = Row(step)
        return found


def timeline(records: Sequence[AnyRecord]) -> Timeline:
    """The timeline of a saga from its records."""
    found = Timeline()
    asked: dict[str, tuple[str, str]] = {}
    for seq, record in enumerate(records):
        kind, at = type(record).__name__, record.at
        if not found.start:
            found.start = at
        found.last = max(found.last, at)
        if kind in _MARKS:
            name = "taken" if kind == "SagaResumed" and not found.rows else _MARKS[kind]
            found.marks.append(Mark(name, at, seq))
        if kind == "SagaResumed":
            _lost(found, at)
        elif kind in _ENDS:
            found.stop = at
        elif isinstance(record, r.QuestionResolved | r.ApprovalExpired):
            step, direction = asked.pop(record.question, (record.step, record.direction))
            _close(found.row(step).lane(direction), at, "settled")
        elif isinstance(record, r.StepEscalated | r.SessionKept):
            direction = getattr(record, "direction", FORWARD)
            asked[record.question] = (record.step, direction)
            lane = found.row(record.step).lane(direction)
            _close(lane, at, "doubt")
            lane.append(Span("drift" if record.kind == "drift" else "asks", at))
        elif kind in _OF_STEPS:
            _of_step(found.row(record.step), kind, at, record)  # type: ignore[union-attr]
    return found


def _of_step(row: Row, kind: str, at: int, record: AnyRecord) -> None:
    lane = row.lane(getattr(record, "direction", FORWARD))
    if kind == "StepIntended":
        _close(lane, at, "settled")
        lane.append(Span("call", at, attempt=getattr(record, "attempt", 1)))
    elif kind in _OPEN_KINDS:
        attempt = lane[-1].attempt if lane else 0
        _close(lane, at, "retry" if kind == "StepDeferred" else "settled")
        lane.append(Span(_OPEN_KINDS[kind], at, attempt=attempt))
    elif kind == "StepSucceeded":
        if not lane or lane[-1].stop is not None:
            lane.append(Span("call", at))
        _close(lane, at, "ok")
    elif kind == "StepRetryScheduled":
        _close(lane, at, "failed")
        lane.append(Span("retry", at))
    elif kind in ("StepFailed", "StepBlocked", "FallbackChosen"):
        if not lane or lane[-1].stop is not None:
            lane.append(Span("call", at))
        _close(lane, at, "failed")
    elif kind in ("StepInDoubt", "StepUnsettled", "ProbeFailed"):
        _close(lane, at, "doubt")
        lane.append(Span("doubt", at, at if kind == "StepUnsettled" else None))
    elif kind == "ProbeIntended":
        _close(lane, at, "doubt")
        lane.append(Span("probe", at))
    elif kind == "StepSkipped":
        lane.append(Span("wait", at, at, "settled"))


def _close(lane: list[Span], at: int, end: End) -> None:
    """End what goes on. A call that was only ordered, and whose outcome came at once, has its end from its outcome."""
    if lane and lane[-1].stop is None:
        lane[-1].stop, lane[-1].end = at, end


def _lost(found: Timeline, at: int) -> None:
    """Another owner took over: whatever was in flight is in doubt from here on."""
    for row in found.rows.values():
        for lane in (row.forward, row.undo):
            if lane and lane[-1].stop is None and lane[-1].kind in ("call", "probe"):
                _close(lane, at, "doubt")
                lane.append(Span("doubt", at))


# --- time without idle stretches -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time and its place on the axis, from 0 to 1. ``idle``: nothing was called, and it is compressed."""

    start: int
    stop: int
    at: float
    width: float
    idle: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """Places on a time axis on which long stretches without a call are short."""

    pieces: Sequence[Piece]

    def place(self, ms: int) -> float:
        """Where a moment stands, from 0 to 1."""
        at = bisect_left(self.pieces, ms, key=lambda piece: piece.stop)
        if at == len(self.pieces):
            return 1.0
        piece = self.pieces[at]
        length = piece.stop - piece.start
        share = 0.0 if length <= 0 else min(max((ms - piece.start) / length, 0.0), 1.0)
        return piece.at + share * piece.width


#: The share of the axis that one compressed stretch gets, and at most all of them.
_IDLE_SHARE: Final = 0.09
_IDLE_MOST: Final = 0.5
#: A stretch is not compressed if it is shorter than this share of the time in which something was called.
_IDLE_FROM: Final = 0.25
_CALLS: Final = frozenset({"call", "queue", "probe"})


def axis_of(rows: Sequence[Row], start: int, stop: int) -> Axis:
    """The axis for these rows, between two moments."""
    stop = max(stop, start + 1)
    busy = _busy(rows, start, stop)
    spent = sum(until - since for since, until in busy)
    stretches: list[tuple[int, int, bool]] = []
    at = start
    for since, until in [*busy, (stop, stop)]:
        if since > at:
            stretches.append((at, since, since - at > max(spent * _IDLE_FROM, 1)))
        if until > since:
            stretches.append((since, until, False))
        at = max(at, until)
    idle = sum(1 for stretch in stretches if stretch[2])
    linear = sum(until - since for since, until, compressed in stretches if not compressed)
    share = 0.0 if not idle else min(_IDLE_SHARE, _IDLE_MOST / idle) if linear else 1.0 / idle
    pieces, place = [], 0.0
    for since, until, compressed in stretches:
        width = share if compressed else (1.0 - share * idle) * (until - since) / linear
        pieces.append(Piece(since, until, place, width, compressed))
        place += width
    return Axis(pieces)


def _busy(rows: Sequence[Row], start: int, stop: int) -> list[tuple[int, int]]:
    """The stretches in which something was called, in order and disjoint."""
    spans = sorted(
        (max(span.start, start), min(stop if span.stop is None else span.stop, stop))
        for row in rows
        for span in (*row.forward, *row.undo)
        if span.kind in _CALLS
    )
    merged: list[tuple[int, int]] = []
    for since, until in spans:
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged
