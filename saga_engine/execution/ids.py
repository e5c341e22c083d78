"""Saga ids: sortable by time, safe in keys, file names and headers."""

from __future__ import annotations

import os
import re
from typing import Final

from saga_engine.errors import JournalConflict, PlanInvalid, Problem, SagaExists, SagaNotFound
from saga_engine.ports import Store
from saga_engine.ports.machine_clock import machine_clock

_LEGAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def new_saga_id() -> str:
    """A new id in hexadecimal: 48 bits of Unix milliseconds, then 80 random bits (the layout of ULID)."""
    return f"{machine_clock.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def check_saga_id(saga_id: str, given: str = "saga_id") -> str:
    """The id itself. Raises ``PlanInvalid`` if it is no legal part of a key; ``given`` names its argument."""
    if not _LEGAL.fullmatch(saga_id):
        hint = "1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        raise PlanInvalid([Problem("field-invalid", given, f"{saga_id[:80]!r} is not a valid saga id", hint)])
    return saga_id


async def exists(store: Store, saga_id: str) -> bool:
    """Whether there is a saga with this id. Raises ``StoreUnavailable``."""
    try:
        await store.head(saga_id)
    except SagaNotFound:
        return False
    return True


def other_plan(saga_id: str) -> SagaExists:
    """The error of a submission whose id belongs to a saga with another plan or other input."""
    return SagaExists(
        f"saga {saga_id} exists with another plan or other input",
        hint="choose another id (--id), or leave the id out to get a new one",
        saga_id=saga_id,
    )


def went_back(saga_id: str, seq: int) -> JournalConflict:
    """The error of a reader whose journal does not have what it read before ``seq``."""
    return JournalConflict(
        f"the journal of saga {saga_id} does not have the records before seq {seq} that were read: its store went back "
        "to an earlier state (a backup, a fail-over)",
        hint=f"drop what was read and read it anew: saga history {saga_id}",
        saga_id=saga_id,
        seq=seq,
    )
