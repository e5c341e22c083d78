"""The append-only file in an embedded store's folder, inspected outside the server.

Two kinds of damage would otherwise remain unnoticed. Without its manifest the server takes the folder for a new one and
overwrites the journal. A file whose end is missing is loaded up to the cut.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOLDER: Final = "appendonlydir"
MANIFEST: Final = "appendonly.aof.manifest"
#: A base file without any key is smaller. A server that was killed during its first start leaves just that.
_EMPTY_BASE_BYTES: Final = 256
_CUT: Final = re.compile(r"(\d\d? \w{3} \d{4} \d\d:\d\d:\d\d).*Truncating the AOF (\S+) at offset (\d+)")
#: What the server's log says of a tool that the wheel does not contain.
_ADVICE: Final = re.compile(r"[:.]? *(make a backup of your AOF file|You can: 1\)).*", re.IGNORECASE)
_DAMAGED: Final = re.compile(r"Bad file format|Unexpected end of file|AOF.*manifest|doesn't exist|Wrong signature|CRC")

REPAIR_HINT: Final = (
    "restore the folder of the store from a backup; a tool that repairs such files comes with a full installation "
    "of Valkey or Redis, and is no part of this engine"
)


def missing_manifest(data: Path) -> str | None:
    """Why no server may start on this data: its files exist but the manifest that lists them does not."""
    folder = data / FOLDER
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return None
    kept = [
        path.name
        for path in sorted(folder.iterdir())
        if (path.name.endswith(".incr.aof") and path.stat().st_size > 0)
        or (".base." in path.name and path.stat().st_size > _EMPTY_BASE_BYTES)
    ]
    if not kept:
        return None
    return f"{folder / MANIFEST} is missing beside {', '.join(kept)}: a server would take it for a new store"


def cuts(log: Path, start: int = 0) -> Sequence[str]:
    """A message for each time that a server found the end of its file missing. ``start``: a position in the log."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [
        f"on {when} the end of {name} was missing; what followed byte {offset} was dropped"
        for when, name, offset in _CUT.findall(text)
    ]


def last_words(log: Path) -> tuple[str, str | None]:
    """The last lines of the log without advice that does not apply here, and a hint if the files are damaged."""
    lines = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
    said = " / ".join(_ADVICE.sub("", line).strip() for line in lines) or "its log is empty"
    return said, REPAIR_HINT if any(_DAMAGED.search(line) for line in lines) else None
