"""The command line: one file per command, combined here.

Only typer is imported at start-up; a command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.amend import amend
from saga_engine.cli.archive import app as archive
from saga_engine.cli.cancel import cancel
from saga_engine.cli.check import check
from saga_engine.cli.command import command
from saga_engine.cli.doctor import doctor
from saga_engine.cli.erase import erase
from saga_engine.cli.event import event, events
from saga_engine.cli.fork import fork
from saga_engine.cli.graph import graph
from saga_engine.cli.history import history
from saga_engine.cli.inbox import inbox
from saga_engine.cli.init import init
from saga_engine.cli.inspect import inspect
from saga_engine.cli.keys import app as keys
from saga_engine.cli.listing import list_sagas
from saga_engine.cli.logs import CHOSEN, logged
from saga_engine.cli.mcp import mcp
from saga_engine.cli.param_types import GroupedGroup, PlainCommand
from saga_engine.cli.plan import plan
from saga_engine.cli.purge import purge
from saga_engine.cli.release import release
from saga_engine.cli.resolve import resolve
from saga_engine.cli.resume import resume
from saga_engine.cli.schedule import app as schedule
from saga_engine.cli.schema import schema
from saga_engine.cli.serve import serve
from saga_engine.cli.show import show
from saga_engine.cli.simulate import simulate
from saga_engine.cli.stop import go, stop
from saga_engine.cli.submit import submit
from saga_engine.cli.template import app as template
from saga_engine.cli.token import app as token
from saga_engine.cli.tools import tools
from saga_engine.cli.top import top
from saga_engine.cli.trace import app as trace
from saga_engine.cli.undo import undo
from saga_engine.cli.worker import worker

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="saga",
    cls=GroupedGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: people, pipes and models read it
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: Commands that run sagas, and so have a log.
_DRIVING = ("submit", "resume", "worker", "cancel", "resolve", "amend", "fork", "undo", "mcp", "serve")
#: The commands in the groups of ``saga --help``, each group in the order in which one meets them.
_GROUPS: tuple[tuple[str, tuple[tuple[str, Any, str], ...]], ...] = (
    (
        "Run",
        (
            ("submit", submit, "Journal a plan and run it to its end."),
            ("resume", resume, "Continue a saga, or all that can continue."),
            ("cancel", cancel, "Cancel sagas and compensate them."),
            ("undo", undo, "Undo a saga that has completed."),
            ("amend", amend, "Add steps to a running saga."),
            ("fork", fork, "Run a changed plan; reuse unchanged steps."),
            ("event", event, "Send an event to the saga that waits for it."),
        ),
    ),
    (
        "Look",
        (
            ("list", list_sagas, "List sagas, the last changed first."),
            ("show", show, "Show a saga: steps, report, questions."),
            ("history", history, "Print a saga's journal."),
            ("events", events, "List the events that arrived."),
            ("graph", graph, "Draw a plan or a saga."),
            ("top", top, "Watch the queue and the workers."),
            ("inspect", inspect, "Sum up what observed agents did."),
            ("trace", trace, "Export, verify and replay a saga's run."),
        ),
    ),
    (
        "Decide",
        (
            ("inbox", inbox, "List the open questions and how to answer."),
            ("resolve", resolve, "Answer questions of sagas."),
            ("stop", stop, "Stop forward calls in every process."),
            ("go", go, "Lift a stop."),
            ("release", release, "What sagas hold; take it away."),
        ),
    ),
    (
        "Make",
        (
            ("init", init, "Write a folder that runs: settings, tools, a plan, a test."),
            ("tools", tools, "List tools with their guards and defects."),
            ("check", check, "Check a plan; nothing runs."),
            ("simulate", simulate, "Simulate every failure of a plan."),
            ("plan", plan, "Ask a model for a plan for a goal."),
            ("schema", schema, "Print the JSON Schema of a plan."),
            ("template", template, "Named plans: put, list, show, delete."),
            ("schedule", schedule, "Templates that start by themselves."),
        ),
    ),
    (
        "Serve",
        (
            ("worker", worker, "Run sagas from the queue."),
            ("serve", serve, "Serve the HTTP API and the console."),
            ("mcp", mcp, "Serve the tools to an MCP agent, with undo."),
            ("token", token, "Who may use saga serve: create, list, revoke."),
        ),
    ),
    (
        "Keep",
        (
            ("doctor", doctor, "Examine store, tools and settings."),
            ("purge", purge, "Remove sagas that ended long ago."),
            ("archive", archive, "Sagas that were purged: list, show."),
            ("erase", erase, "Destroy the key of a sealed saga."),
            ("keys", keys, "Keys that seal payloads: new, list, rewrap."),
        ),
    ),
)
for _group, _commands in _GROUPS:
    for _name, _body, _about in _commands:
        if isinstance(_body, typer.Typer):
            app.add_typer(_body, name=_name, short_help=_about)
            continue
        if _name in _DRIVING:
            _body = logged(_body, default="info" if _name == "worker" else "warning")
        app.command(_name, cls=PlainCommand, short_help=_about)(command(_body))
GroupedGroup.groups = {group: [name for name, _, _ in commands] for group, commands in _GROUPS}


def _print_version(wanted: bool) -> None:
    if wanted:
        from saga_engine.cli.version import versions

        sys.stdout.write(versions())
        raise typer.Exit


@app.callback()
def _saga(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the versions and end."),
    ] = False,
) -> None:
    """Run an agent's plan of tool calls as one unit: every step completes, or all are undone, or an operator is asked.

    Results go to stdout, progress and hints to stderr. Every command but mcp and serve accepts --json.

    Exit codes: 0 completed, 1 error, 2 usage, 3 failed and compensated, 4 waits for an operator, 5 not found,
    6 conflict, 7 plan invalid, 8 still running, 130 interrupted.
    """


def main() -> None:
    """The entry point ``saga``; never returns."""
    if sys.stdout is None:
        _hold_stdout()
    try:
        code = run(sys.argv[1:])
    except SystemExit as ended:  # typer's, when the reader of the output is gone
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    if "temporalio.bridge" in sys.modules:
        # Threads of Temporal's core call Python while the interpreter is being finalized, which aborts the process.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the reader is gone, as in `saga list | head`: nobody is left to tell
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _hold_stdout() -> None:
    """Give a stdout that was closed a stream that cannot be written, so that no file or socket gets its number."""
    held = os.open(os.devnull, os.O_RDONLY)
    if held != 1:
        os.dup2(held, 1)
        os.close(held)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays open to the end


@functools.cache
def built() -> Any:
    """The commands as typer builds them, once in a process: that takes longer than most of a short command."""
    return typer.main.get_command(app)


def run(args: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    CHOSEN.choose()
    try:
        code = built()(args=list(args), prog_name="saga", standalone_mode=False)
    except typer.Abort:
        return exit_codes.INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _misused(error, args)
    return code if isinstance(code, int) else exit_codes.COMPLETED


def _misused(error: Exception, args: Sequence[str]) -> int:
    """Report a usage error: by typer, or as JSON if that was requested."""
    if "--json" in args:
        from saga_engine.cli.output import document

        document({"error": {"code": "usage", "message": error.format_message(), "verdict": "fix"}})  # type: ignore[attr-defined]
    elif hasattr(error, "show"):
        error.show()
    return int(getattr(error, "exit_code", exit_codes.USAGE))
