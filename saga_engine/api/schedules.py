"""Schedules, as a user puts, looks at and changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from saga_engine.api.requests import submission_of
from saga_engine.errors import PlanInvalid, SagaExists, ScheduleNotFound, SettingInvalid, StoreRefused
from saga_engine.execution.aside import beside
from saga_engine.execution.ids import exists
from saga_engine.execution.schedules import (
    CatchUp,
    Overlap,
    ScheduleBody,
    body_of,
    check_name,
    checked_body,
    occurrence_id,
    tags_of,
)
from saga_engine.execution.search import check_tags
from saga_engine.execution.templates import Templates
from saga_engine.execution.timetable import Timetable
from saga_engine.language.errors import said
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.ports import Document, Store
from saga_engine.runtime.ticks import write

if TYPE_CHECKING:
    from saga_engine.tools.registry import ToolRegistry

#: Writers that change one schedule at the same time take turns.
_TRIES: Final = 20
_PAGE: Final = 1000
MAX_BACKFILL: Final = 1000
#: Times of ticks that can be asked for.
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it stands. Times are Unix ms; ``next_ms`` is the next tick, None while it is paused.

    ``recent`` are its last sagas, the latest last; ``why`` says why it paused itself or a submission failed.
    """

    name: str
    template: str
    cron: str
    time_zone: str
    every_s: int
    input: dict[str, Any] | None
    tags: Sequence[str]
    overlap: Overlap
    catch_up: CatchUp
    pause_after: int
    paused: bool
    why: str
    next_ms: int | None
    recent: Sequence[str]
    begun: int
    skipped: int

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of a schedule: the id of its saga, when it is (Unix ms), and whether that saga exists."""

    saga_id: str
    at_ms: int
    begun: bool

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


class Schedules:
    """The schedules of a store."""

    def __init__(
        self,
        store: Store,
        tools: ToolRegistry,
        submit: Callable[[str, ScheduleBody, str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._tools = tools
        self._submit = submit

    async def put(
        self,
        name: str,
        *,
        template: str,
        cron: str = "",
        time_zone: str = "UTC",
        every_s: int = 0,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        tags: Sequence[str] = (),
        overlap: Overlap = "skip",
        catch_up: CatchUp = "one",
        pause_after: int = 3,
        check_tools: bool = True,
    ) -> Schedule:
        """Create a schedule, or replace what it starts and when; its last sagas remain known.

        An interval counts from the second of its first put; the same interval put again keeps that rhythm.

        ``template`` is ``NAME`` (the latest version at each tick) or ``NAME@VERSION``. Raises ``SettingInvalid``,
        ``TemplateNotFound``, and ``PlanInvalid`` if the template could not be submitted with this input now; without
        ``check_tools`` tools and their params are not checked.
        """
        now_ms = await self._now_ms()
        timetable = Timetable(cron, time_zone, every_s, now_ms // 1000 * 1000 if every_s else 0)
        body = checked_body(
            template,
            timetable,
            given=input,
            tags=tags,
            overlap=overlap,
            catch_up=catch_up,
            pause_after=pause_after,
        )
        check_tags(tags_of(check_name(name), body))
        templates = Templates(self._store.documents(), self._tools)
        found = await templates.get(template)
        plan = await templates.expanded(found.plan)
        given = found.checked_input(input)

        def check() -> None:
            if check_tools:
                submission_of(plan, "checked", given, self._tools)
            elif problems := check_plan(load_plan(plan), None, input=given):
                raise PlanInvalid(problems)

        await beside(check, plan, given)
        for _ in range(_TRIES):
            there = await self._store.documents().read("schedule", name)
            if there is not None:
                old = body_of(there.body)
                if every_s and old.timetable.every_s == every_s:
                    body.timetable = old.timetable  # put again, perhaps by a repeated request, it keeps its rhythm
                body.recent, body.begun, body.skipped, body.pending = old.recent, old.begun, old.skipped, old.pending
            body.next_ms = body.timetable.next_after(now_ms)
            place = Document(name, 0, b"") if there is None else there
            if await write(self._store, place, body, now_ms) is not None:
                return _schedule(name, body)
        raise _contended(name)

    async def get(self, name: str) -> Schedule:
        """Raises ``ScheduleNotFound``."""
        return _schedule(name, body_of((await self._read(name)).body))

    async def list(self) -> Sequence[Schedule]:
        """All schedules, by name."""
        documents, found, after = self._store.documents(), [], ""
        while names := await documents.names("schedule", after, _PAGE):
            after = names[-1]
            for name in names:
                there = await documents.read("schedule", name)
                if there is not None:
                    found.append(_schedule(name, body_of(there.body)))
        return found

    async def pause(self, name: str, *, why: str = "") -> Schedule:
        """No tick happens until it is resumed. Raises ``ScheduleNotFound``."""

        def change(body: ScheduleBody, _: int) -> None:
            body.paused, body.why, body.buffered_ms = True, why[:500], None

        return await self._change(name, change)

    async def resume(self, name: str) -> Schedule:
        """Ticks happen again from now on; those that it missed do not. Raises ``ScheduleNotFound``."""
        return await self._change(name, lambda body, now_ms: body.resumed(now_ms) if body.paused else None)

    async def trigger(self, name: str, *, key: str = "") -> str:
        """Start its saga now, whatever its timetable and its overlap say; returns the saga's id.

        Of triggers with the same ``key`` only the first starts one.
        """
        now_ms = await self._now_ms()
        saga_id = f"{name}-manual-{key or now_ms}"
        body = body_of((await self._read(name)).body)
        try:
            await self._submit(name, body, saga_id)
        except SagaExists:
            if not key:
                raise
            # It was triggered under this key, with what the schedule was then.

        def change(body: ScheduleBody, _: int) -> None:
            if saga_id in body.recent:
                return
            body.recent = [*body.recent, saga_id][-max(body.pause_after, 1) :]
            body.begun += 1

        await self._change(name, change)
        return saga_id

    async def ticks(self, name: str, since: datetime, until: datetime, *, limit: int = MAX_BACKFILL) -> Sequence[Tick]:
        """The ticks in a span of time, and which of them have happened; starts nothing. Raises as ``backfill``."""
        body = body_of((await self._read(name)).body)
        return [
            Tick(saga_id, at_ms, begun=await exists(self._store, saga_id))
            for at_ms, saga_id in _between(name, body, since, until, limit)
        ]

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, limit: int = MAX_BACKFILL
    ) -> Sequence[str]:
        """Start the sagas of all ticks in a span of time that have not happened; returns the ids of all of them.

        A tick that has happened already is not repeated: its saga has the same id. Raises ``SettingInvalid`` for more
        ticks than ``limit`` (at most 1,000), and for times without a zone.
        """
        body = body_of((await self._read(name)).body)
        ids = [saga_id for _, saga_id in _between(name, body, since, until, limit)]
        for saga_id in ids:
            try:
                await self._submit(name, body, saga_id)
            except SagaExists:
                continue  # the tick has happened, with what the schedule was then
        return ids

    async def delete(self, name: str) -> None:
        """Delete a schedule; its sagas go on. Raises ``ScheduleNotFound``."""
        for _ in range(_TRIES):
            there = await self._read(name)
            if await self._store.documents().remove("schedule", name, there.revision):
                return
        raise _contended(name)

    async def _change(self, name: str, change: Callable[[ScheduleBody, int], None]) -> Schedule:
        for _ in range(_TRIES):
            there, now_ms = await self._read(name), await self._now_ms()
            body = body_of(there.body)
            change(body, now_ms)
            if await write(self._store, there, body, now_ms) is not None:
                return _schedule(name, body)
        raise _contended(name)

    async def _read(self, name: str) -> Document:
        found = await self._store.documents().read("schedule", check_name(name))
        if found is None:
            raise ScheduleNotFound(said("schedule_not_found", name=name), hint=said("schedule_not_found.hint"))
        return found

    async def _now_ms(self) -> int:
        return (await self._store.documents().due("schedule", 1)).now_ms


def _between(name: str, body: ScheduleBody, since: datetime, until: datetime, limit: int) -> Sequence[tuple[int, str]]:
    """The ticks in a span of time, with the ids of their sagas."""
    if since.tzinfo is None or until.tzinfo is None:
        raise SettingInvalid("a time needs a zone", hint="2026-03-01T00:00:00+00:00")
    if not 1 <= limit <= MAX_BACKFILL:
        raise SettingInvalid(f"a limit of {limit} ticks is out of range", hint=f"1 to {MAX_BACKFILL}")
    if not _FIRST <= since <= _LAST or not _FIRST <= until <= _LAST:
        raise SettingInvalid("a time is out of range", hint=f"from {_FIRST.year} to {_LAST.year}")
    found: list[tuple[int, str]] = []
    for at_ms in body.timetable.between(round(since.timestamp() * 1000), round(until.timestamp() * 1000)):
        found.append((at_ms, occurrence_id(name, at_ms)))
        if len(found) > limit:
            raise SettingInvalid(
                f"more than {limit} ticks lie in that time", hint="take a part of it, or another limit"
            )
    return found


def _contended(name: str) -> StoreRefused:
    return StoreRefused(f"schedule {name} is being changed by too many at once", hint="try again")


def _schedule(name: str, body: ScheduleBody) -> Schedule:
    return Schedule(
        name=name,
        template=body.template,
        cron=body.timetable.cron,
        time_zone=body.timetable.time_zone,
        every_s=body.timetable.every_s,
        input=body.input,
        tags=tuple(body.tags),
        overlap=body.overlap,
        catch_up=body.catch_up,
        pause_after=body.pause_after,
        paused=body.paused,
        why=body.why,
        next_ms=None if body.paused else body.next_ms,
        recent=tuple(body.recent),
        begun=body.begun,
        skipped=body.skipped,
    )
