"""The engine's log on stderr: ``--log-level`` and ``--log-format``, for the commands that run sagas.

Quotes in log records come from tools and from the network: they are made safe before they are printed.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, get_args

import typer

from saga_engine.tools.trace_context import TraceFields

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

LevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="debug, info, warning or error; also SAGA_LOG_LEVEL. Default: warning; of a worker, info.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format", metavar="FORMAT", help="text, or json: one object a line on stderr; also SAGA_LOG_FORMAT."
    ),
]
#: Attributes of log records beside their message, if present; their names in the JSON form.
FIELDS: Final = ("saga_id", "step_id", "tool", "direction", "attempt", "status", "trace_id", "span_id")
_ROOT: Final = "saga_engine"
#: Commands that run for days.
_LASTING: Final = frozenset({"worker", "serve", "mcp"})


class Logging:
    """The log options of this process's command."""

    __slots__ = ("as_json", "dated", "level")

    def __init__(self) -> None:
        self.level = logging.WARNING
        #: Whether lines of text have the date as well: those of a command that runs for days.
        self.dated = False
        #: Whether stderr holds one JSON object a line, and nothing else.
        self.as_json = False

    def choose(self, level: int = logging.WARNING, *, as_json: bool = False, dated: bool = False) -> None:
        """Set the options until the end of this command."""
        from saga_engine.cli import output, words

        self.level, self.as_json, self.dated = level, as_json, dated
        output.note_form(_note_line if as_json else _dated_line if dated else None)
        if as_json:
            words.choose("en")  # a program reads it


CHOSEN: Final = Logging()


def logged(body: Callable[..., int], *, default: Level = "warning") -> Callable[..., int]:
    """Add the two options to a command."""

    @functools.wraps(body)
    def run(*args: Any, log_level: str | None = None, log_format: str | None = None, **options: Any) -> int:
        level = _one_of(Level, log_level, "--log-level", "SAGA_LOG_LEVEL", default)
        form = _one_of(Format, log_format, "--log-format", "SAGA_LOG_FORMAT", "text")
        CHOSEN.choose(getattr(logging, level.upper()), as_json=form == "json", dated=body.__name__ in _LASTING)
        return body(*args, **options)

    # typer reads options from signature and annotations.
    signature = inspect.signature(body, eval_str=True)
    added = {"log_level": LevelOption, "log_format": FormatOption}
    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=of)
            for name, of in added.items()
        ),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {**inspect.get_annotations(body, eval_str=True), **added}
    return run


def _one_of(known: Any, given: str | None, option: str, variable: str, default: str) -> str:
    named = given if given is not None else os.environ.get(variable) or default
    if named.lower() in get_args(known):
        return named.lower()
    words = ", ".join(get_args(known))
    raise typer.BadParameter(f"{named!r} is none of {words}", param_hint=option if given is not None else variable)


class Lines(logging.Handler):
    """Log records as lines on stderr: as JSON objects, or as text through ``say``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(CHOSEN.level)
        self.addFilter(TraceFields())
        self._say = say
        self._json = CHOSEN.as_json
        self._dated = CHOSEN.dated

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record. Of several lines the text form has the first, and all at the level ``debug``."""
        from saga_engine.cli.output import stderr_line

        try:
            if self._json:
                stderr_line(_json_line(record))
            elif self._dated:
                stderr_line(self._text(record))
            else:
                self._say(self._text(record))
        except Exception:  # noqa: BLE001 - logging's own way with what cannot be said
            self.handleError(record)

    def _text(self, record: logging.LogRecord) -> str:
        from saga_engine.cli import times
        from saga_engine.cli.output import shown

        at = (times.local if self._dated else times.clock)(record.created * 1000)
        first, *rest = _whole(record).splitlines() or [""]
        lines = [shown(first), *(f"  {shown(line)}" for line in rest if self.level <= logging.DEBUG)]
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"{at}  {level}" + "\n".join(lines)


def _whole(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
    elif record.exc_text:  # of a sealed store
        text = f"{text}\n{record.exc_text}"
    return text


def json_body(record: logging.LogRecord) -> dict[str, Any]:
    """A record as one object: ``time``, ``level``, ``logger``, ``message``, and its other attributes."""
    message, _, detail = _whole(record).partition("\n")
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": message}
    body |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
    return body | {"traceback": detail} if detail else body


def _json_line(record: logging.LogRecord) -> str:
    # Plain ASCII: no character of a tool's text reaches the terminal unescaped.
    return json.dumps(json_body(record), ensure_ascii=True, default=str).replace("\x7f", "\\u007f")


@contextmanager
def reported(say: Callable[[str], None]) -> Iterator[None]:
    """Print the engine's log as lines on stderr during the block, and nowhere else."""
    handler = Lines(say)
    logger = logging.getLogger(_ROOT)
    propagates, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(CHOSEN.level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)


def _dated_line(text: str) -> str:
    """The command's own messages with their time, as the log has them."""
    from saga_engine.cli import times
    from saga_engine.ports.machine_clock import machine_clock

    return f"{times.local(machine_clock.time_ns() / 1e6)}  {text.rstrip()}"


def _note_line(text: str) -> str:
    """The command's own messages, in the form of the log."""
    word = text.partition(":")[0]
    level = {"error": logging.ERROR, "warning": logging.WARNING}.get(word, logging.INFO)
    return _json_line(logging.LogRecord("saga_engine.cli", level, "", 0, text.rstrip(), None, None))
