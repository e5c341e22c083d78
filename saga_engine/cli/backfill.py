"""``saga schedule backfill``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.api.schedules import Tick

_WRITTEN = ": 2026-03-01 or with a time."
_SINCE = Annotated[str, option("backfillSchedule", "since", "--since", metavar="TIME", more=_WRITTEN)]
_UNTIL = Annotated[str | None, option("backfillSchedule", "until", "--until", metavar="TIME", more="; by default now.")]


def backfill(
    name: Annotated[str, argument("backfillSchedule", "name", metavar="NAME")],
    *,
    since: _SINCE,
    until: _UNTIL = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Refuse more ticks than this.")] = 100,
    yes: Annotated[bool, typer.Option("--yes", help="Queue their sagas; without it they are only listed.")] = False,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the ticks of a past time that have not happened, and with --yes queue a saga for each.

    A tick happens once: one whose saga exists is not repeated. A time without a zone is UTC.

    Examples:
      saga schedule backfill renewal-42 --since 2026-03-01
      saga schedule backfill renewal-42 --since 2026-03-01T00:00 --until 2026-03-04 --yes --tools tools.py
    """
    from saga_engine.cli.output import data, document, hint, note
    from saga_engine.cli.words import counted, say

    first, last = _moment(since, "--since"), datetime.now(UTC) if until is None else _moment(until, "--until")
    if last < first:
        raise typer.BadParameter("it is before --since", param_hint="--until")
    found = _found(name, first, last, limit, begin=yes, tools=tools, store=store)
    left = [tick for tick in found if not tick.begun]
    if as_json:
        document({"schedule": name, "queued": yes, "ticks": [tick.to_dict() for tick in found]})
        return exit_codes.COMPLETED
    for tick in found:
        how = "happened" if tick.begun else "queued" if yes else "missed"
        data(say(f"tick.{how}", saga=tick.saga_id))
    if not found:
        note(say("tick.none"))
    elif left and not yes:
        hint(counted("tick.yes", len(left)))
    return exit_codes.COMPLETED


def _found(
    name: str, first: datetime, last: datetime, limit: int, *, begin: bool, tools: list[str] | None, store: str | None
) -> list[Tick]:
    """The ticks; ``begin``: the sagas of those that had not happened are queued now."""
    from saga_engine.api.coordinator import Coordinator
    from saga_engine.cli.drive import drive
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.cli.output import hint
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.read_only import no_store
    from saga_engine.cli.stored_schedules import no_schedule, read_schedules
    from saga_engine.cli.words import say
    from saga_engine.errors import PlanInvalid

    settings = settings_for(store, tools)
    if no_store(settings) is not None:
        raise no_schedule(name)
    if not begin:
        nothing: Sequence[Tick] = ()
        return list(read_schedules(settings, lambda there: there.ticks(name, first, last, limit=limit), nothing))

    async def begun(there: Coordinator) -> list[Tick]:
        found = await there.schedules.ticks(name, first, last, limit=limit)
        await there.schedules.backfill(name, first, last, limit=limit)
        return list(found)

    try:
        return drive(settings, registry_for(settings), begun, Progress(say("title.schedule", name=name), {}, many=True))
    except PlanInvalid:
        if not settings.names_tools:
            hint(say("hint.no-tools"))
        raise


def _moment(text: str, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is no time: write 2026-03-01 or 2026-03-01T06:00+09:00"
        raise typer.BadParameter(message, param_hint=option) from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if found > datetime.now(UTC):
        raise typer.BadParameter(f"{text!r} lies ahead: workers fire the ticks to come", param_hint=option)
    return found
