"""The origin of an exception, for the journal and the log: files, lines, functions, source lines.

It contains no values and no messages: those may hold secrets, and the message has its own field in an error, where
secrets are removed. What remains is the tool's source as its author wrote it.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, walk_tb
from typing import Final

#: The first and the last frames of a deep stack are the most useful.
_FIRST_FRAMES: Final = 3
_LAST_FRAMES: Final = 9
_MAX_CAUSES: Final = 3
_MAX_LINE_CHARS: Final = 200
_MAX_CHARS: Final = 4000
_ENGINE: Final = str(Path(__file__).parent)
_STANDARD: Final = str(Path(linecache.__file__).parent)
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
#: The frames that lead to the tool's call are not part of the tool.
_CARRIERS: Final = frozenset(str(Path(_ENGINE, "tools", name)) for name in ("calling.py", "threads.py"))


def traceback_of(error: BaseException) -> str:
    """The frames of an exception and of its causes, the innermost last, bounded; never raises."""
    try:
        text = "\n".join(_lines(error))
    except Exception:  # noqa: BLE001 - an exception that cannot be looked at still has a name
        text = type(error).__name__
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_CHARS else f"…{text[1 - _MAX_CHARS :]}"


def place_outside_the_engine(error: BaseException) -> str:
    """``file:line`` of the user's own code that broke, or that called what broke; an empty text if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 1}"
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    others = [place for place in frames if not place[0].startswith((_ENGINE, "<frozen"))]
    own = [place for place in others if not _is_library(place[0])]
    file, line = (own or others or [("", 0)])[-1]
    return f"{file}:{line}" if file else ""


def _is_library(file: str) -> bool:
    return file.startswith(_STANDARD) or not _INSTALLED.isdisjoint(Path(file).parts)


def _lines(error: BaseException) -> Iterator[str]:
    chain = [error]
    while len(chain) <= _MAX_CAUSES:
        last = chain[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or cause in chain:
            break
        chain.append(cause)
    for each in reversed(chain):
        if each is not chain[-1]:
            yield "which led to:"
        yield from _frames(each)
        yield _shown(type(each).__qualname__)


def _frames(error: BaseException) -> Iterator[str]:
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if _counts(frame.f_code.co_filename)]
    left_out = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
    if left_out > 0:
        frames = frames[:_FIRST_FRAMES] + frames[-_LAST_FRAMES:]
    linecache.checkcache()
    for at, found in enumerate(StackSummary.extract(iter(frames), limit=None, lookup_lines=True)):
        if left_out > 0 and at == _FIRST_FRAMES:
            yield f"  … {left_out} more"
        yield from _told(found)


def _counts(file: str) -> bool:
    return file not in _CARRIERS


def _told(frame: FrameSummary) -> Iterator[str]:
    yield _shown(f'File "{frame.filename}", line {frame.lineno}, in {frame.name}')
    if frame.line:
        yield f"    {_shown(frame.line)}"


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[: _MAX_LINE_CHARS - 1]}…"
