"""Reads sagas back from the files of an archive: no store, no tools and no key are needed."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from saga_engine.analysis.trace_file import Trace, read
from saga_engine.core.records import AnyRecord
from saga_engine.core.state import State
from saga_engine.errors import SagaNotFound, SettingInvalid, TraceBroken
from saga_engine.plan.values import printable
from saga_engine.runtime.archive import SUFFIX
from saga_engine.runtime.journal import state_of

#: The last line but one of a file has the status of its saga, and its report: how much of a file is read for it at
#: first, and at most.
_TAIL_BYTES: Final = 4096
_MOST_TAIL_BYTES: Final = 1 << 24
_HASH_CHARS: Final = len(".0123456789ab")


class Filed(NamedTuple):
    """A file of an archive, as far as its name and its last lines tell. ``day``: on which the saga ended (UTC).

    ``status`` is empty if the file does not end as a file of an archive does. Nothing of it was checked.
    """

    saga_id: str
    day: str
    path: Path
    size: int
    status: str


class Archived(NamedTuple):
    """A saga that was read from a file whose hash chain holds."""

    trace: Trace
    state: State

    @property
    def records(self) -> list[AnyRecord]:
        """The records of its journal."""
        return [entry.record for entry in self.trace.entries]


def filed(folder: Path, saga_ids: Collection[str] | None = None) -> Iterator[Filed]:
    """The files of an archive, or those of some sagas: the last day first. Raises ``SettingInvalid``."""
    if not folder.is_dir():
        raise SettingInvalid(f"there is no archive at {folder}", hint="[retention] archive names it, or --archive DIR")
    try:
        for day in sorted((each for each in folder.iterdir() if each.is_dir()), reverse=True):
            for path in sorted(day.glob(f"[!.]*{SUFFIX}")):
                name = path.name[: -len(SUFFIX)][:-_HASH_CHARS]
                if name and (saga_ids is None or name in saga_ids):
                    yield Filed(name, day.name, path, path.stat().st_size, _status(path))
    except OSError as error:
        raise SettingInvalid(f"the archive {folder} cannot be read: {error}") from error


def found(folder: Path, saga_id: str) -> list[Filed]:
    """The files of a saga: one, or several if its id was used again; the last first.

    Raises ``SagaNotFound`` and ``SettingInvalid``.
    """
    files = sorted(filed(folder, (saga_id,)), key=lambda each: (each.day, each.path.stat().st_mtime_ns), reverse=True)
    if not files:
        raise SagaNotFound(
            f"the archive {folder} has no saga {printable(saga_id, 128)}",
            hint="`saga archive list` names what it has; an erased saga is purged without a file",
            saga_id=saga_id,
        )
    return files


def opened(path: Path) -> Archived:
    """The saga of a file. Raises ``TraceBroken``, ``JournalUnreadable`` and ``SettingInvalid``."""
    try:
        with path.open("rb") as lines:
            traces = list(read(lines))
    except OSError as error:
        raise SettingInvalid(f"{path} cannot be read: {error.strerror}") from error
    if len(traces) != 1:
        raise TraceBroken(f"{path} has {len(traces)} sagas", hint="a file of an archive has one", line=1)
    trace = traces[0]
    return Archived(trace, state_of([entry.record for entry in trace.entries]))


def _status(path: Path) -> str:
    tail, lines = _TAIL_BYTES, [b""]
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        while len(lines) < 3 and tail <= min(_MOST_TAIL_BYTES, 8 * max(size, _TAIL_BYTES)):
            file.seek(max(size - tail, 0))
            lines = file.read().splitlines()
            tail *= 8
    try:
        last: Any = json.loads(lines[-2])
        return str(last["status"]) if last["type"] == "saga-end" else ""
    except (IndexError, KeyError, TypeError, ValueError):
        return ""
