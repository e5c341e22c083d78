"""``saga archive list`` and ``saga archive show``: sagas that were purged, from their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.command import command
from saga_engine.cli.options import DebugOption, FullOption, JsonOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from saga_engine.core.records import AnyRecord
    from saga_engine.runtime.archived import Archived, Filed
    from saga_engine.settings import Settings

FolderOption = Annotated[
    Path | None, typer.Option("--archive", metavar="DIR", help="The archive. Default: that of [retention].")
]

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Sagas that left the store for an archive (docs/privacy.md).",
)


def list_archived(
    *,
    archive: FolderOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 50,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the sagas of an archive, those of the last day first. No store is needed.

    Examples:
      saga archive list
      saga archive list --archive /var/lib/saga/archive --limit 1000 --json
    """
    from itertools import islice

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown, table
    from saga_engine.cli.render import size_words
    from saga_engine.runtime.archived import filed

    listed = list(islice(filed(_folder(settings_for(None), archive)), limit + 1))
    more, files = len(listed) > limit, listed[:limit]
    if as_json:
        document({"sagas": [_body(each) for each in files], "has_more": more})
        return exit_codes.COMPLETED
    if files:
        rows = [
            [shown(each.saga_id), shown(each.status or "?"), each.day, size_words(each.size), shown(each.path.name)]
            for each in files
        ]
        data(table(["ID", "STATUS", "ENDED", "SIZE", "FILE"], rows))
    else:
        note("the archive has no sagas")
    if more:
        note(f"hint: there are more; --limit shows more than {limit}")
    return exit_codes.COMPLETED


def show_archived(
    saga: Annotated[str, typer.Argument(metavar="ID|FILE", help="The saga's id, or a file of the archive.")],
    *,
    archive: FolderOption = None,
    history: Annotated[bool, typer.Option("--history", help="Print its journal, one record a line.")] = False,
    full: FullOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Show a saga of an archive: its steps, its report and its outputs, or its journal. No store is needed.

    Every line is checked against the chain of hashes; a file that was changed is refused. The exit code is that of its
    status: 0 completed, 3 compensated or waived.

    Examples:
      saga archive show trip-42
      saga archive show trip-42 --history
      saga archive show /mnt/old/2026-01-02/trip-42.0123456789ab.jsonl --json
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.core.report import answers
    from saga_engine.execution.result import SagaResult
    from saga_engine.runtime.archived import found, opened

    settings = settings_for(None)
    if saga.endswith(".jsonl"):
        path, others = Path(saga), []
    else:
        first, *others = found(_folder(settings, archive), saga)
        path = first.path
    archived = opened(path)
    if history:
        _tell_history(archived, full=full, as_json=as_json)
    else:
        said = answers(archived.state, [entry.record for entry in archived.trace.entries])
        body = SagaResult(archived.state, full=full, answers=said).to_dict(full=full)
        if as_json:
            document(body | {"file": str(path)})
        else:
            from saga_engine.cli.render import whole_lines

            data("\n".join(whole_lines(body, settings, full=full)))
            note(f"from {shown(str(path))}")
            if archived.trace.redacted:
                note("hint: values were left out when it was archived: sensitive ones, or those of [trace] redact")
    if others:
        note(f"hint: its id was used before: {', '.join(shown(str(each.path)) for each in others)}")
    return exit_codes.of_status(archived.state.status)


def _tell_history(archived: Archived, *, full: bool, as_json: bool) -> None:
    from saga_engine.cli.history import told
    from saga_engine.core.views import entry

    records = [entry(seq, _as_in_a_journal(record)) for seq, record in enumerate(archived.records)]
    told(archived.trace.saga_id, records, full=full, as_json=as_json)


def _as_in_a_journal(record: AnyRecord) -> dict[str, Any]:
    """A trace states each value of a record; a journal leaves out those that are what the kind has by default."""
    import msgspec

    usual = {each.name: each.default for each in msgspec.structs.fields(record)}
    return {
        name: value for name, value in msgspec.to_builtins(record).items() if name not in usual or usual[name] != value
    }


def _folder(settings: Settings, given: Path | None) -> Path:
    """The archive. Raises ``SettingInvalid`` if none is named."""
    from saga_engine.cli.retention import retention_in
    from saga_engine.errors import SettingInvalid

    if given is not None:
        return given
    rules = retention_in(settings)
    if rules is None or rules.archive is None:
        raise SettingInvalid("no archive is configured", hint="--archive DIR, or archive in [retention] of saga.toml")
    return rules.archive


def _body(each: Filed) -> dict[str, Any]:
    return {
        "saga_id": each.saga_id,
        "status": each.status or None,
        "day": each.day,
        "bytes": each.size,
        "file": str(each.path),
    }


app.command("list", cls=PlainCommand, short_help="List the sagas of an archive.")(command(list_archived))
app.command("show", cls=PlainCommand, short_help="Show a saga of an archive.")(command(show_archived))
