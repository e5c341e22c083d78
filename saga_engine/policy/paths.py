"""Whether a path lies in a folder: by its final target, not by its spelling.

Everything here reads the file system and must not run in the event loop.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

MAX_PATH_CHARS: Final = 4096

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
#: A slash, a dot, a backslash, a percent sign or a zero, escaped: a program that decodes it reads another path.
_ESCAPED: Final = re.compile(r"%(2[eEfF5]|5[cC]|00)")
_MEANINGFUL: Final = "/.\\~:%"


def inside(value: Any, folders: Sequence[Path]) -> bool | str:
    """Whether the path ``value`` leads into one of the folders (or is one); a text says why that is not certain.

    A relative path counts from the working folder, as it does when it is opened. Symbolic links are followed, also
    where the last part of the path does not exist yet.
    """
    doubt = _odd(value)
    if doubt:
        return doubt
    try:
        # Programs that remove '..' before they open a path end elsewhere than the kernel does behind a link.
        targets = {_real(value), _real(os.path.normpath(value))}
        roots = [_real(folder) for folder in folders]
        words = {_lies_in(target, roots) for target in targets}
    except (OSError, ValueError, RuntimeError) as error:
        return f"it cannot be resolved ({type(error).__name__})"
    if len(words) > 1:
        return "where it leads depends on who follows it"
    return words.pop()


def _odd(value: Any) -> str:
    """Why a value is not accepted as a path; empty if it is."""
    if not isinstance(value, str):
        return "it is no text"
    if not value or len(value) > MAX_PATH_CHARS:
        return "it is empty" if not value else f"it is longer than {MAX_PATH_CHARS} characters"
    if any(unicodedata.category(char)[0] == "C" for char in value):
        return "it has control characters"
    if value != value.strip():
        return "it begins or ends with white space"
    if "\\" in value:
        return "it has a backslash"
    if value.startswith("~"):
        return "it begins with '~'"
    if _URL.match(value):
        return "it looks like a URL or a drive"
    if _ESCAPED.search(value):
        return "it has escapes ('%')"
    if _marks(unicodedata.normalize("NFKC", value)) != _marks(value):
        return "it has characters that can be read as a slash or a dot"
    return ""


def _marks(text: str) -> str:
    return "".join(char for char in text if char in _MEANINGFUL)


def _real(path: str | Path) -> Path:
    """The path without links and '..'. Raises ``OSError`` where that cannot be seen; what is not there is no doubt."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))


def _lies_in(target: Path, roots: Sequence[Path]) -> bool | str:
    if any(target.is_relative_to(root) for root in roots):
        return True
    # The same folder can have two names: on a disk that ignores case, or mounted twice.
    known = {identity for root in roots if (identity := _identity(root)) is not None}
    if known and any(_identity(folder) in known for folder in _upwards(target)):
        return "it leads there by another name"
    return False


def _upwards(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
