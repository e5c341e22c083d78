"""Files that appear whole or not at all, and are on the disk then."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

#: What the name of an unfinished file ends in. A killed process leaves one behind, which can be deleted.
UNFINISHED: Final = ".part"


@contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` at the end of the block; an exception leaves ``path`` alone.

    It has a name that did not exist, so no link is followed, and only its owner can read it until it is whole. Then it
    gets ``mode``, and it and its name are on the disk after the block. Raises ``OSError``.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=UNFINISHED, dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if mode != 0o600:
                part.chmod(mode)
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new name in a folder is on the disk only when the folder is. Raises ``OSError``."""
    if os.name == "nt":
        return  # Windows has no such call: its folders are journalled
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
