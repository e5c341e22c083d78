"""``saga schedule``: ``put``, ``list``, ``show``, ``pause``, ``resume``, ``trigger``, ``backfill`` and ``delete``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.backfill import backfill
from saga_engine.cli.command import command
from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import DebugOption, InputOption, JsonOption, StoreOption, ToolsOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup
from saga_engine.cli.stored_schedules import begin_none, no_schedule, read_schedules
from saga_engine.cli.words import more, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from saga_engine.api.schedules import Schedule, Schedules
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")
#: A tick that is overdue for so long has no worker that fires it.
_OVERDUE_MS: Final = 60_000
_OverlapOption = Annotated[
    str,
    option("putSchedule", "overlap", "--overlap", metavar="RULE"),
]
NameArgument = Annotated[str, argument("showSchedule", "name", metavar="NAME")]

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Templates that start by themselves, at the times of a cron expression or at an interval; workers start them.",
)


def put(
    name: NameArgument,
    *,
    template: Annotated[str, option("putSchedule", "template", "--template", metavar="NAME")],
    cron: Annotated[str, option("putSchedule", "cron", "--cron", metavar="EXPR")] = "",
    time_zone: Annotated[
        str, option("putSchedule", "time_zone", "--time-zone", metavar="ZONE", help="The zone of --cron.")
    ] = "UTC",
    every: Annotated[
        str | None,
        option(
            *("putSchedule", "every_s", "--every"),
            bounds=False,
            metavar="AGE",
            help="Instead of --cron, an interval: 90s, 5m, 2h, 7d.",
        ),
    ] = None,
    given: InputOption = None,
    tags: Annotated[list[str] | None, option("putSchedule", "tags", "--tag", metavar="TAG")] = None,
    overlap: _OverlapOption = "skip",
    catch_up: Annotated[str, option("putSchedule", "catch_up", "--catch-up", metavar="RULE")] = "one",
    pause_after: Annotated[int, option("putSchedule", "pause_after", "--pause-after", metavar="N")] = 3,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Create a schedule, or replace what it starts and when; its last sagas remain known.

    The template is checked with this input as a submission would be. Workers ('saga worker') fire the ticks.

    Examples:
      saga schedule put renewal-42 --template renewal --cron "0 6 1 * *" --time-zone Asia/Tokyo --input customer=42
      saga schedule put sweep --template sweep --every 15m --tools tools.py
    """
    from saga_engine.cli.inputs import input_values, require_used
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.cli.output import hint
    from saga_engine.cli.template import template_of
    from saga_engine.cli.times import age_ms
    from saga_engine.plan.model import load_plan

    chosen: dict[str, Any] = {
        "template": template,
        "cron": cron,
        "time_zone": time_zone,
        "every_s": 0 if every is None else round(age_ms(every, "--every") / 1000),
        "input": input_values(given or []) or None,
        "tags": tags or (),
        "overlap": overlap,
        "catch_up": catch_up,
        "pause_after": pause_after,
    }
    if every is not None and not chosen["every_s"]:
        raise typer.BadParameter(say("schedule.interval"), param_hint="--every")
    settings = settings_for(store, tools)
    # Also where there is no store yet: then there is no such template, and none is created.
    require_used(chosen["input"] or {}, load_plan(template_of(settings, template).plan))
    registry = registry_for(settings)
    checks = settings.names_tools
    made = _written(settings, registry, lambda schedules: schedules.put(name, **chosen, check_tools=checks))
    _tell(made, as_json=as_json)
    if not checks and not as_json:
        hint(say("hint.unchecked"))
    return exit_codes.COMPLETED


def list_schedules(
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the schedules of the store by name.

    Examples:
      saga schedule list
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown, table
    from saga_engine.stores.remote import without_password

    settings = settings_for(store)
    found: Sequence[Schedule] = read_schedules(settings, lambda schedules: schedules.list(), ())
    if as_json:
        document({"schedules": [each.to_dict() for each in found]})
    elif found:
        rows = [[each.name, each.template, _when(each), _next(each), str(each.begun)] for each in found]
        titles = ("of-schedule", "template", "when", "next", "begun")
        data(table([say(f"title.{each}") for each in titles], rows))
        _note_overdue(found)
    else:
        note(say("schedules.none", store=shown(without_password(settings.store))))
    return exit_codes.COMPLETED


def show(
    name: NameArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Show a schedule: what it starts, when, and its last sagas.

    Examples:
      saga schedule show renewal-42
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document

    found: Schedule | None = read_schedules(settings_for(store), lambda schedules: schedules.get(name), None)
    if found is None:
        raise no_schedule(name)
    if as_json:
        document(found.to_dict())
    else:
        data("\n".join(_lines(found)))
        _note_overdue([found])
    return exit_codes.COMPLETED


def pause(
    name: NameArgument,
    *,
    why: Annotated[str, option("pauseSchedule", "note", "--note", metavar="TEXT")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Pause a schedule: no tick happens until it is resumed. Its running sagas go on.

    Examples:
      saga schedule pause renewal-42 --note "the bank is down"
    """
    return _tell(_changed(store, name, lambda schedules: schedules.pause(name, why=why)), as_json=as_json)


def resume(
    name: NameArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Resume a schedule from now on: ticks that the pause has missed do not happen.

    Examples:
      saga schedule resume renewal-42
    """
    return _tell(_changed(store, name, lambda schedules: schedules.resume(name)), as_json=as_json)


def delete(
    name: NameArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Delete a schedule; its sagas go on.

    Examples:
      saga schedule delete renewal-42
    """
    from saga_engine.cli.output import data, document

    _changed(store, name, lambda schedules: schedules.delete(name))
    if as_json:
        document({"deleted": name})
    else:
        data(say("schedule.deleted", name=name))
    return exit_codes.COMPLETED


def trigger(
    name: NameArgument,
    *,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Queue a saga of a schedule now, whatever its timetable, its pause and its overlap say; a worker runs it.

    Examples:
      saga schedule trigger renewal-42 --tools tools.py
    """
    from saga_engine.cli.drive import drive
    from saga_engine.cli.hints import queued_line
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.cli.output import data, document, hint
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.read_only import no_store
    from saga_engine.errors import PlanInvalid

    settings = settings_for(store, tools)
    if no_store(settings) is not None:
        raise no_schedule(name)
    try:
        progress = Progress(say("title.schedule", name=name), {}, many=True)
        saga_id = drive(settings, registry_for(settings), lambda there: there.schedules.trigger(name), progress)
    except PlanInvalid:
        if not settings.names_tools:
            hint(say("hint.no-tools"))
        raise
    if as_json:
        document({"saga_id": saga_id})
    else:
        data(say("schedule.queued", saga=saga_id))
        hint(queued_line(saga_id, settings))
    return exit_codes.COMPLETED


# --- the store -------------------------------------------------------------------------------------------------------


def _changed(url: str | None, name: str, change: Callable[[Schedules], Awaitable[_T]]) -> _T:
    """Change a schedule that exists. Raises ``ScheduleNotFound``, also if there is no store yet."""
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.read_only import no_store
    from saga_engine.tools.registry import ToolRegistry

    settings = settings_for(url)
    if no_store(settings) is not None:
        raise no_schedule(name)
    return _written(settings, ToolRegistry(()), change)


def _written(settings: Settings, registry: ToolRegistry, change: Callable[[Schedules], Awaitable[_T]]) -> _T:
    import asyncio

    from saga_engine.api.schedules import Schedules
    from saga_engine.cli.read_only import writing_to

    async def write() -> _T:
        async with writing_to(settings) as store:
            return await change(Schedules(store, registry, begin_none))

    return asyncio.run(write())


# --- what is printed -------------------------------------------------------------------------------------------------


def _tell(found: Schedule, *, as_json: bool) -> int:
    from saga_engine.cli.output import data, document

    if as_json:
        document(found.to_dict())
    else:
        data(say("schedule.line", name=found.name, what=found.template, when=_when(found), next=_next(found)))
    return exit_codes.COMPLETED


def _lines(found: Schedule) -> list[str]:
    from saga_engine.cli.output import shown

    most = found.pause_after or say("schedule.no-pause")
    lines = [
        say("title.schedule", name=found.name),
        say("schedule.template", template=found.template),
        say("schedule.when", when=_when(found)),
        say("schedule.next", next=_next(found)),
        say("schedule.rules", overlap=found.overlap, catch_up=found.catch_up, n=most),
        say("schedule.input", input=shown(json.dumps(found.input or {}, ensure_ascii=False), 500)),
        say("schedule.begun", n=found.begun, skipped=found.skipped),
    ]
    if found.tags:
        lines.append(say("schedule.tags", tags=", ".join(shown(each) for each in found.tags)))
    if found.recent:
        lines.append(say("schedule.recent", sagas=", ".join(found.recent)))
    if found.why and not found.paused:
        lines.append(say("schedule.failed", why=shown(found.why, 500)))
    return lines


def _when(schedule: Schedule) -> str:
    return f"{schedule.cron} {schedule.time_zone}" if schedule.cron else say("schedule.every", n=schedule.every_s)


def _next(schedule: Schedule) -> str:
    from saga_engine.cli.output import shown
    from saga_engine.cli.times import local

    if schedule.paused:
        return say("schedule.paused-why" if schedule.why else "schedule.paused", why=shown(schedule.why, 500))
    if schedule.next_ms is None:
        return say("schedule.never")
    when = local(schedule.next_ms)
    return say("schedule.late", when=when) if schedule.next_ms < _overdue_ms() else when


def _overdue_ms() -> float:
    """A tick that should have come before this has not been fired."""
    return time.time() * 1000 - _OVERDUE_MS


def _note_overdue(found: Sequence[Schedule]) -> None:
    """Nothing fires a tick but a worker: an operator who forgot it would wait without end."""
    from saga_engine.cli.output import hint

    least = _overdue_ms()
    late = [each.name for each in found if each.next_ms is not None and each.next_ms < least]
    if late:
        hint(say("schedule.overdue", name=late[0], more=more(len(late) - 1)))


for _name, _command, _about in (
    ("put", put, "Create or replace a schedule."),
    ("list", list_schedules, "List the schedules."),
    ("show", show, "Show a schedule."),
    ("pause", pause, "Pause a schedule."),
    ("resume", resume, "Resume a schedule from now on."),
    ("trigger", trigger, "Queue a saga of it now."),
    ("backfill", backfill, "List or queue past ticks."),
    ("delete", delete, "Delete a schedule."),
):
    app.command(_name, cls=PlainCommand, short_help=_about)(command(_command))
