"""Data to stdout, messages to stderr, and nothing unescaped.

Names, messages and outputs come from models and from the network. Every foreign text passes through ``shown`` or
``document``: a terminal would act on control characters in it, and right-to-left marks would change how it reads.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO
from unicodedata import combining, east_asian_width

from saga_engine.cli.words import code_of, language, say
from saga_engine.language import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.errors import Problem, SagaError

_CELL_CHARS: Final = 60
#: A narrower column is not readable.
_LEAST_CELL: Final = 8
_TEXT_CHARS: Final = 4000
#: Why stdout cannot be written, once that was seen.
_LOST: Final[list[str]] = []
_NOTE_FORM: Final[list[Callable[[str], str] | None]] = [None]
_COLOURS: Final = {
    "PENDING": "2",
    "SKIPPED": "2",
    "RUNNING": "36",
    "SUCCEEDED": "32",
    "COMPLETED": "32",
    "COMPENSATING": "33",
    "COMPENSATED": "33",
    "IN_DOUBT": "35",
    "FAILED": "31",
    "BLOCKED": "31",
    "COMPENSATION_FAILED": "31",
    "ESCALATED": "1;31",
    "WAIVED": "31",
    "RESOLVED": "34",
    "error": "31",
    "warning": "33",
    "ok": "32",
}


def shown(value: Any, limit_chars: int = _TEXT_CHARS) -> str:
    """A value as one line that is safe to print, cut to ``limit_chars``; a value that is not text shows as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > limit_chars:
        text = text[: limit_chars - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """JSON that is safe on a terminal: unprintable characters are escaped, the rest is readable."""
    text = json.dumps(value, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    # Such characters occur only inside texts, where JSON allows any escape; json leaves DEL and C1 raw.
    return re.sub(r"[^\n -~]", _escaped, text) if not ascii_only else text.replace("\x7f", "\\u007f")


def document(value: Any) -> None:
    """Print one JSON document."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").replace("_", "")
    data(json_text(value, ascii_only=encoding != "utf8"))


def data(text: str) -> None:
    """Print our own text, or one that was made safe, to stdout."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Print a message for the user at the terminal. ``text`` is our own, or was made safe."""
    stderr_line(text if _NOTE_FORM[0] is None else _NOTE_FORM[0](text))


def hint(text: str) -> None:
    """Print what the user may do next. ``text`` is our own, or was made safe."""
    note(say("hint", text=text))


def note_form(form: Callable[[str], str] | None) -> None:
    """Set how ``note`` writes from now on: the text unchanged, or in the form of a log."""
    _NOTE_FORM[0] = form


def stderr_line(text: str) -> None:
    """Print a line to stderr unchanged; it is our own, or was made safe."""
    _write(sys.stderr, text)


def stdout_lost() -> bool:
    """Whether something could not be written to stdout since the last question, which stderr was told of."""
    lost = bool(_LOST)
    _LOST.clear()
    return lost


def _write(stream: TextIO | None, text: str) -> None:
    """Write a line. Where a stream is full or closed, the command goes on: what it does matters more than its words."""
    line = text + "\n"
    try:
        if stream is None:
            raise OSError(errno.EBADF, "it is closed")
        try:
            stream.write(line)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is sys.stderr:
            return  # there is no other place to say it
        if not _LOST:
            _LOST.append(error.strerror or str(error))
            note(say("error.stdout", why=_LOST[0]))
        if stream is not None:  # what it still holds would fail again when Python flushes it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def paint(word: str, text: str | None = None, stream: TextIO | None = None) -> str:
    """``text`` in the colour of a status, on a terminal with colours."""
    text = word if text is None else text
    stream = sys.stdout if stream is None else stream
    colour = _COLOURS.get(code_of(word)) if stream.isatty() else None
    if colour is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    limit_chars: int = _CELL_CHARS,
    stream: TextIO | None = None,
) -> str:
    """Aligned columns. Every cell is made safe; a cell with the name of a status is coloured.

    On a terminal that is too narrow, columns without any value are omitted first, and then cells are cut.
    """
    cells = [[shown("" if cell is None else cell, limit_chars) for cell in row] for row in rows]
    widths = [max([_width(title), *(_width(row[at]) for row in cells)]) for at, title in enumerate(titles)]
    room = _room(sys.stdout if stream is None else stream)
    if room is not None and _whole(widths) > room:
        kept = [at for at in range(len(titles)) if at == 0 or any(row[at] for row in cells)]
        titles, widths = [titles[at] for at in kept], [widths[at] for at in kept]
        cells = [[row[at] for at in kept] for row in cells]
    if room is not None and _whole(widths) > room:
        widths = _fitted(widths, room - 2 * (len(widths) - 1))
        cells = [[_cut(cell, widths[at]) for at, cell in enumerate(row)] for row in cells]
        titles = [_cut(title, widths[at]) for at, title in enumerate(titles)]
    lines = [_line(list(titles), list(titles), widths)]
    lines += [_line(row, [paint(cell, stream=stream) for cell in row], widths) for row in cells]
    return "\n".join(lines)


def fits(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    limit_chars: int = _CELL_CHARS,
    stream: TextIO | None = None,
) -> bool:
    """Whether a table fits the terminal, with nothing cut. In a pipe it does."""
    room = _room(sys.stdout if stream is None else stream)
    if room is None:
        return True
    longest = [
        [_width(title), *(_width(shown(row[at], limit_chars)) for row in rows)] for at, title in enumerate(titles)
    ]
    return _whole([max(column) for column in longest]) <= room


def line_fits(text: str, stream: TextIO | None = None) -> bool:
    """Whether a line is no wider than the terminal; in a pipe every line fits."""
    room = _room(sys.stdout if stream is None else stream)
    return room is None or _width(text) <= room


def _whole(widths: Sequence[int]) -> int:
    """The width of a table with such columns."""
    return sum(widths) + 2 * (len(widths) - 1)


def _room(stream: TextIO) -> int | None:
    """The columns of the terminal that a table has to fit into; None if the output is not a terminal."""
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def _fitted(widths: list[int], room: int) -> list[int]:
    """Narrower columns: the widest shrink first. The first has ids and stays unchanged."""
    made = list(widths)
    while sum(made) > room:
        widest = max(range(1, len(made)), key=lambda at: made[at], default=0)
        if widest == 0 or made[widest] <= _LEAST_CELL:
            break
        made[widest] -= 1
    return made


def _cut(text: str, width: int) -> str:
    """The beginning of a text that fits."""
    if _width(text) <= width:
        return text
    kept = text
    while kept and _width(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _line(plain: list[str], painted: list[str], widths: list[int]) -> str:
    last = max((at for at, cell in enumerate(plain) if cell), default=0)
    parts = [painted[at] + (" " * (widths[at] - _width(plain[at])) if at < last else "") for at in range(last + 1)]
    return "  ".join(parts)


def problems_table(problems: Sequence[Problem], stream: TextIO | None = None) -> str:
    """The problems of a plan: one row each, and lines if the rows are too wide for the terminal."""
    rows = [[problem.code, problem.path, problem.message, problem.hint] for problem in problems]
    titles = [say(f"title.{each}") for each in ("code", "path", "message", "hint")]
    if fits(titles, rows, limit_chars=300, stream=stream):
        return table(titles, rows, limit_chars=300, stream=stream)
    lines = []
    for problem in problems:
        message = shown(problem.message, 300)
        lines.append(say("problem", path=shown(problem.path, 300), message=message, code=shown(problem.code)))
        if problem.hint:
            lines.append(f"  {say('hint', text=shown(problem.hint, 300))}")
    return "\n".join(lines)


def print_error(error: SagaError, *, as_json: bool) -> None:
    """An error: one document on stdout, or lines on stderr."""
    if as_json:
        document({"error": error.to_dict()})
        return
    from saga_engine.language.errors import translated

    problems: Sequence[Problem] = getattr(error, "problems", ())
    message = error.message
    if problems:  # the first is printed with the others
        only = problems[0]
        key = "error.at" if only.path.startswith("$") else "error.in"
        place = "" if only.path in ("", "$") else say(key, path=only.path)
        message = f"{only.message}{place}" if len(problems) == 1 else say("error.problems", n=len(problems))
    said = shown(f"{_meaning(error.code)}{translated(error.code, message, language())}")
    note(say("error", error=paint("error", say("error.word"), sys.stderr), message=said, code=error.code))
    if len(problems) > 1:
        note(problems_table(problems, sys.stderr))
    elif error.hint:
        hint(shown(translated(error.code, error.hint, language())))


def _meaning(code: str) -> str:
    """What errors of a kind mean, in words before the message of one; nothing in English, which that is."""
    if language() == LANGUAGES[0]:
        return ""
    from saga_engine.language.refusals import REFUSALS

    return REFUSALS[code][LANGUAGES.index(language())] if code in REFUSALS else ""


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """While tools run here, their output and that of their children goes to stderr: stdout is for the result alone."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        kept = -1  # the caller closed it
    try:
        if kept >= 0:
            with suppress(OSError):
                os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)
