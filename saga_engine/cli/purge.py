"""``saga purge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from saga_engine.execution.retention import Retention
    from saga_engine.runtime.retention import Purged
    from saga_engine.settings import Settings

_STATUSES = ("completed", "compensated", "waived")
_NAMED = 20


def purge(
    *,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="completed, compensated or waived; repeatable. Default: all."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Ended so long ago: 90s, 5m, 2h or 30d. Default: [retention]."
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", metavar="DIR", help="Write each saga to a file there first. Default: [retention]."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Remove sagas that ended long ago from the store.

    Live sagas are never removed, and neither are those that another saga may still need: a child before its parent, an
    undo or a fork before the saga whose effects it has. Workers do the same by themselves if saga.toml has [retention].

    Examples:
      saga purge --older-than 30d --dry-run
      saga purge --status completed --older-than 90d --archive /var/lib/saga/archive
      saga purge
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.runtime.retention import TROUBLES

    settings = settings_for(store, tools)
    rules = _rules(settings, status, older_than, archive)
    found = asyncio.run(_purged(settings, rules, dry_run=dry_run))
    _tell(found, rules, dry_run=dry_run, as_json=as_json)
    return exit_codes.ERROR if any(found.kept[reason] for reason in TROUBLES) else exit_codes.COMPLETED


def _rules(settings: Settings, status: list[str] | None, older_than: str | None, archive: Path | None) -> Retention:
    """The rules of the options; what they do not say is that of ``[retention]``."""
    from dataclasses import replace

    from saga_engine.cli.retention import retention_in, rules_of
    from saga_engine.cli.times import age_ms
    from saga_engine.execution.retention import STATUSES

    names = [name.lower() for name in status or _STATUSES]
    unknown = sorted(set(names) - set(_STATUSES))
    if unknown:
        known = ", ".join(_STATUSES)
        raise typer.BadParameter(f"{unknown[0]!r} is no status of an ended saga: {known}", param_hint="--status")
    written = retention_in(settings)
    if older_than is None and written is None:
        raise typer.BadParameter(
            "say how old: --older-than 30d (saga.toml has no [retention])", param_hint="--older-than"
        )
    chosen = written or rules_of(settings, {}, Path(), "saga purge")
    if older_than is None:
        ages = {STATUSES[name]: chosen.age_ms[STATUSES[name]] for name in names if STATUSES[name] in chosen.age_ms}
    else:
        ages = dict.fromkeys((STATUSES[name] for name in names), int(age_ms(older_than, "--older-than")))
    return replace(chosen, age_ms=ages, archive=archive or chosen.archive)


async def _purged(settings: Settings, rules: Retention, *, dry_run: bool) -> Purged:
    from saga_engine.api import Coordinator
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.read_only import looking_at_all, nothing_stored, writing_to
    from saga_engine.runtime.retention import Purged

    if nothing_stored(settings):
        return Purged()
    if dry_run:
        async with looking_at_all(settings) as coordinator:
            return await coordinator.purge(rules, dry_run=True)
    registry = registry_for(settings) if rules.archive is not None and settings.names_tools else ()
    async with writing_to(settings) as opened, Coordinator.open(opened, registry, settings=settings) as coordinator:
        return await coordinator.purge(rules)


def _tell(found: Purged, rules: Retention, *, dry_run: bool, as_json: bool) -> None:
    from saga_engine.cli import times
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.runtime.retention import kept_texts

    kept = {reason: count for reason, count in sorted(found.kept.items()) if count}
    archive = None if rules.archive is None else str(rules.archive)
    if as_json:
        body: dict[str, Any] = {"dry_run": dry_run, "purged": sorted(found.purged), "kept": kept, "archive": archive}
        document(body)
        return
    count = len(found.purged)
    sagas = f"{count} saga{'' if count == 1 else 's'}"
    data(f"{sagas} would be removed" if dry_run else f"{sagas} removed")
    for saga_id in sorted(found.purged)[:_NAMED] if dry_run else ():
        data(f"  {shown(saga_id)}")
    if dry_run and count > _NAMED:
        data(f"  and {count - _NAMED} more")
    if archive is not None and count:
        note(f"archive: {shown(archive)}")
    for line in kept_texts(kept):
        note(f"kept {line}")
    if not count and not kept:
        ages = {age for age in rules.age_ms.values() if age}
        old = f" that ended more than {times.duration(min(ages))} ago" if ages else ""
        which = ", ".join(sorted(status for status, age in rules.age_ms.items() if age or not ages))
        note(f"there is no saga{old} with the status {which}; `saga list` shows when each changed last")
