"""Schedules: templates that start by themselves. Here is what is stored of one, and what its ticks decide.

A tick is claimed first: a write to the schedule, fenced by its revision, says which occurrence begins and when the next
one is due. Then its saga is submitted under an id that is made of schedule and occurrence, and only then is the claim
cleared. Whoever claims and dies leaves the claim behind; another worker submits the same saga. So an occurrence begins
once, whichever workers race and die.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from saga_engine.core.states import ESCALATED, SAGA_FINAL, WAIVED
from saga_engine.errors import SettingInvalid
from saga_engine.execution.timetable import Timetable
from saga_engine.plan.values import cut

Overlap = Literal["skip", "buffer-one", "allow", "cancel"]
CatchUp = Literal["one", "all", "none"]
#: From the id of a saga to its status; None: there is none (any more).
StatusOf = Callable[[str], Awaitable[str | None]]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}", re.ASCII)
#: A claim that is not cleared for so long is taken up by another worker; a submission that fails is repeated.
CLAIM_MS: Final = 10_000
_TRIES: Final = 5
#: A tick that is later than this is missed.
_LATE_MS: Final = 60_000
#: How long a tick that waits for an earlier saga waits between two looks: a tenth of its wait, within these bounds.
_LOOK_MS: Final = (2_000, 60_000)
MAX_PAUSE_AFTER: Final = 100


class Pending(msgspec.Struct, omit_defaults=True):
    """A tick that is claimed and not cleared."""

    at_ms: int
    saga_id: str
    tries: int = 0


class ScheduleBody(msgspec.Struct, omit_defaults=True):
    """What is stored of a schedule."""

    template: str
    timetable: Timetable
    input: dict[str, Any] | None = None
    tags: list[str] = []
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"
    pause_after: int = 3
    paused: bool = False
    #: Why it paused itself, or what its last submission failed with.
    why: str = ""
    next_ms: int | None = None
    pending: Pending | None = None
    #: A tick that waits for an earlier saga, and since when.
    buffered_ms: int | None = None
    waits_since_ms: int = 0
    #: With ``catch_up`` all: the last tick that was missed, until when somebody has looked at what came meanwhile, and
    #: whether the next tick, a missed one, waits for an earlier saga.
    missed_until_ms: int = 0
    seen_ms: int = 0
    held: bool = False
    #: The last sagas that it began, the latest last.
    recent: list[str] = []
    begun: int = 0
    skipped: int = 0
    failed_in_a_row: int = 0
    #: Made anew by each writer: two of them never write the same body.
    writer: str = ""

    def due_ms(self, now_ms: int) -> int:
        """When a worker has to look at it; 0: never."""
        if self.pending is not None:
            return now_ms + CLAIM_MS
        if self.paused:
            return 0
        found = [] if self.next_ms is None or self.held else [self.next_ms]
        if self.buffered_ms is not None or self.held:
            waited = (now_ms - self.waits_since_ms) // 10
            found.append(now_ms + min(max(waited, _LOOK_MS[0]), _LOOK_MS[1]))
        return min(found, default=0)

    def resumed(self, now_ms: int) -> None:
        """It is due again from now on; what was missed while it was paused does not happen."""
        self.paused, self.why, self.failed_in_a_row = False, "", 0
        self.recent, self.buffered_ms, self.held = self.recent[-1:], None, False
        self.next_ms = self.timetable.next_after(now_ms)


def check_name(name: str) -> str:
    """The name. Raises ``SettingInvalid``."""
    if _NAME.fullmatch(name) is None:
        hint = "1 to 48 letters, digits, '.', '_' and '-', of which the first is a letter or a digit"
        raise SettingInvalid(f"{cut(name, 80)} is no name of a schedule", hint=hint)
    return name


def occurrence_id(name: str, at_ms: int) -> str:
    """The id of the saga of a tick."""
    return f"{name}-{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"


def tags_of(name: str, body: ScheduleBody) -> Sequence[str]:
    """The tags of its sagas."""
    return [*body.tags, f"schedule:{name}"]


class Turn:
    """A look at a schedule that is due. ``take`` changes ``body``; the caller then writes it, and does what it says."""

    def __init__(self, name: str, body: ScheduleBody, now_ms: int) -> None:
        self.name = name
        self.body = body
        self.now_ms = now_ms
        #: A saga that is to be cancelled, because the next tick waits for it.
        self.cancels: str | None = None

    async def take(self, status_of: StatusOf) -> None:
        """Claim a tick (``body.pending``), or let it wait, skip it, or pause the schedule."""
        body = self.body
        if body.pending is not None or body.paused:
            return
        if body.buffered_ms is None and not self._is_due():
            return
        last = await status_of(body.recent[-1]) if body.recent and body.overlap != "allow" else None
        running = last is not None and last not in SAGA_FINAL
        missed = self._missed()
        body.held = missed and (running or body.buffered_ms is not None)
        tick = None if body.held else self._tick()
        if running:
            self._wait(tick)
            return
        if tick is None and body.buffered_ms is None:
            return
        if await self._pauses(status_of):
            return
        at_ms, body.buffered_ms = (body.buffered_ms, tick) if body.buffered_ms is not None else (tick, None)
        if body.buffered_ms is not None and body.overlap == "cancel":
            at_ms, body.buffered_ms = body.buffered_ms, None
            body.skipped += 1
        assert at_ms is not None
        body.waits_since_ms = self.now_ms
        body.pending = Pending(at_ms, occurrence_id(self.name, at_ms))

    def _is_due(self) -> bool:
        return self.body.next_ms is not None and self.body.next_ms <= self.now_ms

    def _missed(self) -> bool:
        """Whether the tick that is due was missed, and has its turn once the saga before it has ended."""
        body = self.body
        if body.catch_up != "all" or body.overlap == "allow" or body.next_ms is None or not self._is_due():
            return False
        known = max(body.missed_until_ms, body.seen_ms)
        if body.next_ms > known and self.now_ms - body.next_ms > _LATE_MS:
            body.missed_until_ms = body.timetable.latest(body.next_ms, self.now_ms)
        if body.next_ms > body.missed_until_ms:
            return False
        body.seen_ms = self.now_ms
        return True

    def _tick(self) -> int | None:
        """The tick that is due, if there is one; the next one follows it."""
        body = self.body
        if body.next_ms is None or not self._is_due():
            return None
        tick: int | None = body.next_ms
        if body.catch_up != "all":
            tick = body.timetable.latest(body.next_ms, self.now_ms)
        elif body.missed_until_ms < body.next_ms <= body.seen_ms:
            return self._meanwhile(body.next_ms)
        assert tick is not None
        body.next_ms = body.timetable.next_after(tick)
        if body.catch_up == "none" and self.now_ms - tick > _LATE_MS:
            body.skipped += 1
            return None
        return tick

    def _meanwhile(self, first_ms: int) -> int | None:
        """Of the ticks that came while missed ones had their turn, and met an unfinished saga, the one that waited."""
        body = self.body
        latest = body.timetable.latest(first_ms, body.seen_ms)
        body.next_ms = body.timetable.next_after(latest)
        body.skipped += body.overlap == "skip" or latest != first_ms
        return {"skip": None, "buffer-one": first_ms}.get(body.overlap, latest)

    def _wait(self, tick: int | None) -> None:
        """An earlier saga has not ended."""
        body = self.body
        if tick is None:
            return
        if body.overlap == "cancel" or (body.overlap == "buffer-one" and body.buffered_ms is None):
            body.skipped += body.buffered_ms is not None
            body.waits_since_ms = self.now_ms if body.buffered_ms is None else body.waits_since_ms
            body.buffered_ms = tick
        else:
            body.skipped += 1
        if body.overlap == "cancel":
            self.cancels = body.recent[-1]

    async def _pauses(self, status_of: StatusOf) -> bool:
        """Whether the last sagas all need, or needed, an operator: then it pauses itself."""
        body = self.body
        row = body.recent[-body.pause_after :] if body.pause_after else []
        if not row or len(row) < body.pause_after:
            return False
        for saga_id in reversed(row):
            if await status_of(saga_id) not in (ESCALATED, WAIVED):
                return False
        body.paused = True
        body.why = f"its last {len(row)} sagas needed an operator: {', '.join(row)}"
        return True

    def begun(self) -> None:
        """The saga of the claimed tick exists."""
        body = self.body
        assert body.pending is not None
        body.recent = [*body.recent, body.pending.saga_id][-max(body.pause_after, 1) :]
        body.begun += 1
        body.pending, body.failed_in_a_row, body.why = None, 0, ""

    def failed(self, why: str) -> None:
        """The saga of the claimed tick could not be submitted: it is tried again, and given up in the end."""
        body = self.body
        assert body.pending is not None
        body.why = why[:500]
        body.pending.tries += 1
        if body.pending.tries < _TRIES:
            return
        body.pending = None
        body.skipped += 1
        body.failed_in_a_row += 1
        if body.pause_after and body.failed_in_a_row >= body.pause_after:
            body.paused = True


def body_of(data: bytes) -> ScheduleBody:
    """A stored schedule."""
    return msgspec.json.decode(data, type=ScheduleBody)


def checked_body(
    template: str,
    timetable: Timetable,
    *,
    given: Mapping[str, Any] | None,
    tags: Sequence[str],
    overlap: str,
    catch_up: str,
    pause_after: int,
) -> ScheduleBody:
    """A new schedule. Raises ``SettingInvalid``."""
    timetable.check()
    for what, said, known in (
        ("overlap", overlap, ("skip", "buffer-one", "allow", "cancel")),
        ("catch-up", catch_up, ("one", "all", "none")),
    ):
        if said not in known:
            raise SettingInvalid(f"{cut(said, 80)} is no {what}", hint=", ".join(known))
    if not 0 <= pause_after <= MAX_PAUSE_AFTER:
        raise SettingInvalid(f"pause_after is 0 to {MAX_PAUSE_AFTER}, not {pause_after}", hint="0 never pauses it")
    return msgspec.convert(
        {
            "template": template,
            "timetable": timetable,
            "input": dict(given) if given else None,
            "tags": list(tags),
            "overlap": overlap,
            "catch_up": catch_up,
            "pause_after": pause_after,
        },
        ScheduleBody,
    )
