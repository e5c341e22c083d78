"""Common to all commands: how they end."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.words import choose, say

#: Commands whose exit code tells how a saga ended, also where its report could not be written.
_OF_A_SAGA: Final = frozenset({"submit", "resume", "cancel", "resolve", "undo", "amend", "fork", "show"})


def command(body: Callable[..., int]) -> Callable[..., None]:
    """Turn a function that returns its exit code into a command.

    A ``SagaError`` becomes its report and its exit code, an interrupt 130, any other error a short message and 1.
    ``as_json`` and ``debug`` are read from the function's own options.
    """

    @functools.wraps(body)
    def run(*args: Any, **options: Any) -> None:
        as_json = bool(options.get("as_json"))
        choose("en" if as_json else "")  # a program reads it
        try:
            code = _with_whole_id(body, args, options)
        except KeyboardInterrupt:
            code = _interrupted(as_json=as_json)
        except BrokenPipeError:
            code = _nobody_reads()
        except Exception as error:  # noqa: BLE001 - the last place where an error can be told
            code = report(error, as_json=as_json, debug=bool(options.get("debug")))
        if code == exit_codes.COMPLETED and body.__name__ not in _OF_A_SAGA and _output_lost():
            code = exit_codes.ERROR
        raise typer.Exit(code)

    # The backspace is typer's mark for lines that stay unwrapped.
    run.__doc__ = inspect.cleandoc(body.__doc__ or "").replace("\n\nExample", "\n\n\b\nExample")
    return run


def _output_lost() -> bool:
    from saga_engine.cli.output import stdout_lost

    return stdout_lost()


def _with_whole_id(body: Callable[..., int], args: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Run the command; if no saga has the typed id, and exactly one id begins so, with that one."""
    from saga_engine.errors import SagaNotFound

    try:
        return body(*args, **options)
    except SagaNotFound as error:
        from saga_engine.cli.ids import whole_id

        found = whole_id(error, options)
        if found is None:
            raise
        return body(*args, **{**options, "saga_id": found})


def report(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Print an error; returns the exit code. Typer's own errors (usage) are raised again."""
    from saga_engine.cli import output
    from saga_engine.errors import SagaError

    if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message"):
        raise error
    debug = debug or os.environ.get("SAGA_DEBUG", "") not in ("", "0")
    if debug:
        import traceback

        for line in "".join(traceback.format_exception(error)).rstrip().splitlines():
            output.note(output.shown(line))
    if isinstance(error, SagaError):
        output.print_error(error, as_json=as_json)
        return exit_codes.of_error(error)
    message = f"{type(error).__name__}: {error}"
    if as_json:
        output.document({"error": {"code": "unexpected", "message": message, "hint": say("error.defect")}})
    else:
        output.note(say("error.plain", message=output.shown(message)))
        if not debug:
            output.hint(say("error.defect"))
    return exit_codes.ERROR


def _interrupted(*, as_json: bool) -> int:
    """Report Ctrl-C while no saga was running."""
    from saga_engine.cli.output import print_error
    from saga_engine.errors import Interrupted

    print_error(Interrupted(say("interrupted")), as_json=as_json)
    return exit_codes.INTERRUPTED


def _nobody_reads() -> int:
    """The reader of stdout has gone (``saga list | head -1``): end quietly, also when Python flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.ERROR
