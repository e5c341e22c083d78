"""Writes sagas to files before they are purged: one trace for each, in a folder for the day on which it ended.

A file appears whole or not at all, and is on the disk when ``save`` returns. Its name follows from the saga, so one
that is archived again (the process was killed before the purge) replaces the first copy by an equal one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from saga_engine.analysis.trace import Export
from saga_engine.execution.retention import Retention
from saga_engine.files import replacing, sync_folder
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.ports import Head, Store
from saga_engine.runtime.journal import decoded

SUFFIX: Final = ".jsonl"
#: Of the hash of a journal's first record, which tells sagas with the same id apart: its seed is in it.
_DIGITS: Final = 12


class Archive:
    """The folder for ended sagas, by ``rules``. ``catalog``: the tools whose declarations the traces have."""

    def __init__(self, store: Store, rules: Retention, folder: Path, catalog: ToolCatalog) -> None:
        self._store = store
        self._rules = rules
        self._folder = folder
        self._catalog = catalog

    async def save(self, head: Head, data: Sequence[bytes]) -> Path:
        """Write the saga with this journal; returns the file, which is on the disk.

        Raises ``JournalUnreadable`` and ``StoreUnavailable`` (a large value is missing, or cannot be had), ``OSError``.
        """
        records = await decoded(self._store, head.saga_id, data)
        export = Export(self._rules.redaction, full=True, key=self._rules.key)

        def write() -> Path:
            lines = [*export.saga(records, self._catalog), export.end()]
            day = datetime.fromtimestamp(head.changed_ms / 1000, UTC).strftime("%Y-%m-%d")
            name = f"{head.saga_id}.{sha256(data[0]).hexdigest()[:_DIGITS]}{SUFFIX}"
            return _written(self._folder / day / name, "".join(f"{line}\n" for line in lines).encode())

        # In a thread: the disk takes its time, and the sagas that run here must not wait for it.
        return await asyncio.to_thread(write)


def _written(path: Path, body: bytes) -> Path:
    for folder in (path.parent.parent, path.parent):
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder.parent)
    # Readable by its owner alone: it shows as much as a journal.
    with replacing(path) as file:
        file.write(body)
    return path
