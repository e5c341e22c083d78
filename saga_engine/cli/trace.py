"""``saga trace export``, ``saga trace verify`` and ``saga trace replay``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.command import command
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption
from saga_engine.cli.trace_key import KeyOption, trace_key, trace_settings

if TYPE_CHECKING:
    from saga_engine.analysis.replay import Changed, Divergence, Moment, Replay
    from saga_engine.analysis.trace import Export
    from saga_engine.analysis.trace_file import Trace
    from saga_engine.api import Engine
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_MAX_SAGAS: Final = 1_000_000
#: A longer line was not exported by this engine: it ends the reading before it exhausts the memory.
_MAX_LINE_BYTES: Final = 1 << 30
_DETAIL_CHARS: Final = 120
#: How a replayed line names itself elsewhere.
_SAID: Final = frozenset({"k", "at", "step", "direction", "v", "refs", "params", "output", "plan", "steps", "options"})

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A trace, or - to read it from stdin.")]

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Record of a run: export it, verify it, replay it offline.",
)


def export(
    saga_id: Annotated[str | None, typer.Argument(metavar="ID", help="The saga's id.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All sagas of the store, in one file.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to a file, whole or not at all.")
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            metavar="RULE",
            help="Leave a field out, such as params.card, output.*.ssn or **.ssn. Repeatable; adds to [trace] redact.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Write values over 31 KiB whole, not in their cut form.")
    ] = False,
    sign: Annotated[
        str | None,
        typer.Option("--sign", metavar="KEYFILE", help="Sign the trace with the key in this file; also [trace] sign."),
    ] = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Write a saga's run as lines of JSON that need no store: calls, decisions and the end.

    Without -o the lines go to stdout. If tools are given, the trace includes their declarations and can be replayed
    without them. No tool is called.

    Examples:
      saga trace export trip-42 -o trip-42.jsonl
      saga trace export trip-42 --redact params.card --redact '**.ssn'
      saga trace export --all -o all.jsonl
      saga trace export trip-42 -o trip-42.jsonl --sign trace.key
    """
    import asyncio

    from saga_engine.analysis.trace import Export
    from saga_engine.cli.output import document, note
    from saga_engine.cli.temporal import settings_there
    from saga_engine.core.redaction import Redaction

    if (saga_id is None) != every:
        raise typer.BadParameter("give the id of a saga, or --all", param_hint="ID")
    if as_json and out is None:
        raise typer.BadParameter("the trace itself goes to stdout: --json goes with -o", param_hint="--json")
    settings = settings_there(runtime, task_queue, store, tools)
    table = trace_settings(settings)
    key = trace_key(sign) if sign is not None else table.key
    made = Export(Redaction([*table.redact, *(redact or [])]), full=full, key=key)
    registry = _declaring(settings, asked=bool(tools))
    with _target(out) as target:
        failed = asyncio.run(_export(settings, registry, made, saga_id, target))
    if as_json:
        document({"file": str(out), "sagas": made.sagas, "lines": made.lines, "hash": made.last})
    else:
        note(f"{made.sagas} saga{'' if made.sagas == 1 else 's'}, {made.lines} lines; hash of the last: {made.last}")
    return exit_codes.ERROR if failed else exit_codes.COMPLETED


def _declaring(settings: Settings, *, asked: bool) -> ToolRegistry | None:
    """The tools whose declarations are included. A journal can be exported even if its tools cannot be loaded."""
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.output import note, shown
    from saga_engine.errors import SagaError

    if not settings.names_tools:
        note("hint: no tools are configured, so the trace has no tool declarations; a replay then needs --tools")
        return None
    try:
        return registry_for(settings)
    except SagaError as error:
        if asked:
            raise
        note(f"warning: the tools' declarations are left out: {shown(error.message)}")
        return None


async def _export(
    settings: Settings, registry: ToolRegistry | None, made: Export, named: str | None, target: BinaryIO
) -> bool:
    """Write the lines; returns whether a saga could not be exported. A saga that was named must be."""
    from saga_engine.cli.output import note, shown
    from saga_engine.cli.read_only import looking, nothing_stored
    from saga_engine.errors import JournalUnreadable, SagaNotFound

    failed = False
    if named is None and nothing_stored(settings):
        _write(target, [made.end()])
        return failed
    async with looking(settings, named or "", registry) as coordinator:
        for saga_id in await _all(coordinator) if named is None else [named]:
            try:
                lines = await coordinator.trace(saga_id, into=made)
            except (SagaNotFound, JournalUnreadable) as error:
                if named is not None:
                    raise
                if isinstance(error, SagaNotFound):
                    continue  # purged since it was listed
                failed = True
                note(f"error: saga {shown(saga_id)} is left out: {shown(error.message)}")
                continue
            _write(target, lines)
        _write(target, [made.end()])
    return failed


async def _all(coordinator: Engine) -> list[str]:
    heads = await coordinator.list(limit=_MAX_SAGAS)
    return [head.saga_id for head in sorted(heads, key=lambda head: (head.created_ms, head.saga_id))]


def _write(target: BinaryIO, lines: Iterable[str]) -> None:
    target.writelines(line.encode() + b"\n" for line in lines)
    target.flush()


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """The destination of the lines. A file appears once it is whole: half a trace would look truncated."""
    from saga_engine.errors import SettingInvalid
    from saga_engine.files import replacing

    if out is None:
        yield sys.stdout.buffer
        return
    try:
        # Readable by its owner alone: a trace shows as much as the journal.
        with replacing(out) as file:
            yield file
    except OSError as error:
        raise SettingInvalid(f"{out} cannot be written: {error.strerror or error}") from error


def verify(
    file: FileArgument,
    *,
    key: KeyOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Check that no line of a trace was changed, dropped, added or moved. The exit code is 1 if one was.

    The chain itself has no key: a rewrite of the whole file is not detected. --key requires the signature that
    `export --sign` made; without it, compare the printed hash with one that was kept elsewhere.

    Examples:
      saga trace verify trip-42.jsonl
      saga trace verify trip-42.jsonl --key trace.key
    """
    from saga_engine.analysis.trace_file import verify as verified
    from saga_engine.cli.output import data, document, note, paint, shown

    secret = None if key is None else trace_key(key)
    with _lines(file) as lines:
        found = verified(lines, secret)
    broken = found.broken
    if as_json:
        document(
            {
                "whole": broken is None,
                "lines": found.lines,
                "sagas": [{"saga_id": each[0], "status": each[1], "complete": each[2]} for each in found.sagas],
                "hash": found.last,
                "signed": found.signed,
                "verified": found.verified,
                "broken": None if broken is None else {"line": broken.context["line"], "message": broken.message},
            }
        )
    elif broken is None:
        sagas = f"{len(found.sagas)} saga{'' if len(found.sagas) == 1 else 's'}"
        data(f"{paint('ok')}: {found.lines} lines, {sagas}; hash of the last line: {found.last}")
        if found.verified:
            data("  signature: made with this key")
        elif found.signed:
            note("hint: it is signed; the signature is verified with --key KEYFILE")
        for saga_id, status, complete in found.sagas:
            data(f"  {shown(saga_id)}: {shown(status)}{'' if complete else ', exported before its end'}")
    else:
        data(f"{paint('error', 'broken')}: {shown(broken.message)}")
        note(f"{found.lines} lines before it are as they were written")
    return exit_codes.COMPLETED if broken is None else exit_codes.ERROR


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    from saga_engine.errors import SettingInvalid

    if file == "-":
        yield _bounded(sys.stdin.buffer)
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - only its opening is checked here
    except OSError as error:
        raise SettingInvalid(f"{file} cannot be read: {error.strerror}", hint="saga trace export ID -o FILE") from error
    with stream:
        yield _bounded(stream)


def _bounded(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(_MAX_LINE_BYTES):
        yield line


def replay(
    file: FileArgument,
    *,
    tools: ToolsOption = None,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="A plan to use in place of the one in the trace.")
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter before each decision.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Run a trace again, offline: today's engine gets the recorded responses and must make the recorded decisions.

    No tool is called and no store is opened. The trace's declarations stand in for tools that are not given. The exit
    code is 0 if all decisions are the same, and 6 at the first that differs; both sides are shown.

    Examples:
      saga trace replay trip-42.jsonl
      saga trace replay trip-42.jsonl --tools tools.py --step
      saga trace replay trip-42.jsonl --plan better.json --tools tools.py
    """
    from saga_engine.analysis.trace_file import read
    from saga_engine.cli.check import load_told
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.cli.output import document

    if step and (as_json or file == "-" or not sys.stdin.isatty()):
        raise typer.BadParameter("it waits for Enter: stdin must be a terminal, without --json", param_hint="--step")
    settings = settings_for(None, tools)
    registry = registry_for(settings) if settings.names_tools else None
    changed_plan = None if plan is None else load_told(plan, registry)
    told: list[dict[str, Any]] = []
    diverged = False
    with _lines(file) as lines:
        for trace in read(lines):
            body = _replayed(trace, registry, changed_plan, step=step, aloud=not as_json)
            diverged = diverged or body["divergence"] is not None
            told.append(body)
    if as_json:
        document({"same": not diverged, "sagas": told})
    return exit_codes.CONFLICT if diverged else exit_codes.COMPLETED


def _replayed(trace: Trace, registry: ToolRegistry | None, plan: Any, *, step: bool, aloud: bool) -> dict[str, Any]:
    """One saga of the file, replayed; printed as it proceeds, or as one object."""
    from saga_engine.analysis.replay import Replay, changed_tools
    from saga_engine.analysis.replay_inputs import told
    from saga_engine.analysis.trace import DeclaredTools
    from saga_engine.tools.schema_check import SchemaCheck

    catalog = DeclaredTools(trace.header, registry, SchemaCheck)
    again = Replay(trace, catalog, plan)
    changed = changed_tools(trace, catalog)
    if aloud:
        _tell_header(trace, changed, catalog.as_declared())
    moments: list[dict[str, Any]] = []
    for moment in again.run():
        if step and moment.sort == "decided" and not _waited():
            step = False
        if aloud:
            _tell(moment)
        else:
            moments.append({"line": moment.line, "sort": moment.sort, "record": told(moment.record)})
    divergence = again.divergence
    if aloud:
        _tell_end(trace, again, divergence)
    return {
        "saga_id": trace.saga_id,
        "status": trace.status,
        "complete": trace.complete,
        "changed_tools": [each.to_dict() for each in changed],
        "moments": moments,
        "divergence": None if divergence is None else divergence.to_dict(),
    }


def _waited() -> bool:
    """Wait for Enter; False at the end of the input."""
    sys.stderr.write("[Enter] ")
    sys.stderr.flush()
    return bool(sys.stdin.readline())


def _tell_header(trace: Trace, changed: Sequence[Changed], as_declared: Sequence[str]) -> None:
    from saga_engine._version import __version__
    from saga_engine.cli.output import data, note, shown

    engine = str(trace.header.get("engine") or "an unknown version")
    data(f"saga {shown(trace.saga_id)}, recorded by {shown(engine, 40)}, replayed by {__version__}")
    for each in changed:
        recorded, today = shown(each.recorded[:12] or "unknown"), shown(each.today[:12])
        facts = f" ({', '.join(each.facts)})" if each.facts else ""
        data(f"  the tool {shown(each.tool)} has changed: {recorded} then, {today} now{facts}")
    if as_declared:
        note(f"hint: as the trace declares them: {shown(', '.join(as_declared), 500)}")


def _tell(moment: Moment) -> None:
    from saga_engine.cli import times
    from saga_engine.cli.output import data, shown

    record = _fields(moment)
    about = f" step {record['step']}" if "step" in record else ""
    undo = " undo" if record.get("direction") == "compensate" else ""
    tool = moment.body.get("tool", "")
    said = [f"{name}={shown(value, _DETAIL_CHARS)}" for name, value in record.items() if name not in _SAID]
    text = " ".join([f"{record['k']}{about}{undo}", *([str(tool)] if tool else []), *said])
    arrow = "=>" if moment.sort == "decided" else "  "
    data(f"{moment.line:>5}  {times.local(record['at'])}  {moment.sort:<8}  {arrow} {shown(text)}")


def _fields(moment: Moment) -> dict[str, Any]:
    from saga_engine.analysis.replay_inputs import told

    return told(moment.record)


def _tell_end(trace: Trace, again: Replay, divergence: Divergence | None) -> None:
    from saga_engine.cli.output import data, paint, shown

    if divergence is None:
        data(f"{paint('ok', 'same')}: every decision is the same; {shown(again.state.status)}")
        return
    data(f"{paint('error', 'diverged')} at line {divergence.line}: {shown(divergence.what)}")
    for side, records in (("then", divergence.recorded), ("now", divergence.today)):
        data(f"  {side}: {'nothing' if not records else ''}".rstrip())
        for record in records:
            data(f"    {shown(record)}")
    if not trace.complete:
        data("  (the saga had not ended when it was exported)")


for _name, _body, _about in (
    ("export", export, "Write a saga's run as lines of JSON."),
    ("verify", verify, "Check that a trace was not changed."),
    ("replay", replay, "Run a trace again, offline."),
):
    app.command(_name, cls=PlainCommand, short_help=_about)(command(_body))
