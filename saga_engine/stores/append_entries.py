"""The entries of a group commit in the form that ``append.lua`` reads, and errors about damaged heads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.states import SAGA_FINAL, SAGA_STATES
from saga_engine.errors import JournalUnreadable, StoreRefused
from saga_engine.ports import Ack, AckCode, Head

if TYPE_CHECKING:
    from saga_engine.ports import Entry
    from saga_engine.stores.connection import Argument


_RELEASED: Final = 4
_FULL: Final = 5
_CODES: Final[Sequence[AckCode]] = ("ok", "fenced", "conflict", "missing")


def options(entry: Entry) -> list[Argument]:
    """The flags of an entry and their arguments, in the order that ``append.lua`` reads them."""
    check(entry)
    flags = ""
    args: list[Argument] = []
    if entry.creation:
        flags += "co" if entry.creation.owned else "c"
        args.append(entry.creation.digest)
        if entry.creation.room:
            flags += "f"
            args.append(entry.creation.room)
        if entry.creation.key:
            flags += "w"
            args.append(entry.creation.key)
    if entry.values:
        flags += "v"
        args.append(len(entry.values))
        for digest, value in entry.values.items():
            args += (digest, value)
    if entry.status:
        flags += "s"
        args.append(entry.status)
    if entry.summary is not None:
        flags += "m"
        args.append(entry.summary)
    if entry.release:
        flags += "r"
    if entry.consumed:
        flags += "i"
        args.append(entry.consumed)
    if entry.keep_ms:
        flags += "k"
        args.append(entry.keep_ms)
    if entry.due_ms:
        flags += "d"
        args.append(entry.due_ms)
    if entry.terms:
        flags += "t"
        args += (len(entry.terms), *entry.terms)
    if entry.asks is not None:
        flags += "q"
        args.append(int(entry.asks))
    return [flags, *args]


def check(entry: Entry) -> None:
    """Refuse an entry that would break a law of the store: an error of the caller, found before anything is sent."""
    if entry.creation and (entry.seq != 0 or not entry.records):
        raise ValueError(f"{entry.saga_id}: a creation starts a journal at 0 with at least one record")
    if entry.consumed and not entry.records:
        raise ValueError(f"{entry.saga_id}: what consumes a message must bring the records that say so")
    if entry.status and entry.status not in SAGA_STATES:
        raise ValueError(f"{entry.saga_id}: {entry.status!r} is no status of a saga")
    if entry.keep_ms and entry.status not in SAGA_FINAL:
        raise ValueError(f"{entry.saga_id}: only a finished saga expires")
    if entry.terms and not (all(entry.terms) and "".join(entry.terms).isprintable()):
        raise ValueError(f"{entry.saga_id}: a term is a printable text")
    if entry.due_ms and not (entry.release or (entry.creation and not entry.creation.owned)):
        raise ValueError(f"{entry.saga_id}: a saga that is owned wants no worker")


def damaged_head(saga_id: str, why: str) -> JournalUnreadable:
    """The error for a saga whose head a foreign writer damaged."""
    return JournalUnreadable(
        f"the head of saga {saga_id} is damaged: {why}",
        hint="another program wrote to its keys: restore them from a backup; no other saga is concerned",
        saga_id=saga_id,
    )


def head_of(saga_id: str, fields: Sequence[Any]) -> Head:
    """Parse a head. Raises ``JournalUnreadable`` if a foreign writer damaged it."""
    if len(fields) == 1:
        raise damaged_head(saga_id, str(fields[0], "utf-8", "replace"))
    status, epoch, owner, owner_ttl_ms, digest, created_ms, changed_ms, length, messages, summary, key = fields
    try:
        return Head(
            saga_id=saga_id,
            status=str(status, "utf-8"),
            epoch=int(epoch),
            owner=str(owner, "utf-8"),
            owner_ttl_ms=owner_ttl_ms,
            digest=str(digest, "utf-8"),
            created_ms=int(created_ms),
            changed_ms=int(changed_ms),
            length=length,
            messages=messages,
            summary=summary,
            key=key,
        )
    except (TypeError, ValueError) as error:
        raise damaged_head(saga_id, "its fields are missing, or are not what the engine wrote") from error


def ack_of(code: int | bytes | list[bytes]) -> Ack:
    """The ack that a code of ``append.lua`` means."""
    if isinstance(code, list):
        return Ack("late")
    if isinstance(code, bytes):
        text = str(code, "utf-8")
        return Ack("reserved", 0, text[1:]) if text.startswith("!") else Ack("exists", 0, text)
    kind = code % 8
    if kind == _RELEASED:
        return Ack("ok", code // 8, released=True)
    if kind == _FULL:
        return Ack("full")
    return Ack(_CODES[kind], code // 8)


def failed(error: StoreRefused) -> asyncio.Future[Ack]:
    """The ack of an entry that the server refused."""
    found: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
    found.set_exception(error)
    found.exception()  # a caller that needs it reads it; no caller has to
    return found
