"""The erasure of a sealed saga, and of the sagas that hold copies of what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import EraseRefused, SettingInvalid
from saga_engine.ports import Store
from saga_engine.ports.head import tombstone_of
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.archived import filed
from saga_engine.runtime.claims import Claims
from saga_engine.runtime.family import Family, Member, family_of
from saga_engine.runtime.listening import EVENT_KEEP_MS

#: So many ids are named in a message; all are in its context.
_NAMED: Final = 10
#: What no process can reach.
_BEYOND: Final = (
    "copies of the store from before, traces that were exported, and results that tools' de-duplication remembers"
)


class Erased(NamedTuple):
    """What an erasure did. ``said``: ``by``, ``why`` and ``at_ms`` of who erased the saga first.

    ``sagas``: those of its family that are erased now, itself first. ``unreached``: what still holds something
    of it, in words.
    """

    said: Mapping[str, Any]
    sagas: Sequence[str]
    unreached: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """As every door returns it."""
        return {**self.said, "sagas": [*self.sagas], "unreached": [*self.unreached]}


async def erase(
    store: Store, saga_id: str, by: str, why: str, *, family: bool = False, archive: Path | None = None
) -> Erased:
    """See ``Coordinator.erase``. ``archive``: where purged sagas were written, as far as this process knows."""
    seal = getattr(store, "erase", None)
    head = await store.head(saga_id)  # there may be no such saga
    tombstone = tombstone_of(head.summary)
    if seal is None or not (head.key or tombstone is not None):
        raise EraseRefused(
            f"saga {saga_id} is not sealed: there is no key to destroy",
            hint="`saga purge` removes ended sagas; docs/privacy.md",
            saga_id=saga_id,
        )
    if tombstone is None and head.status not in SAGA_FINAL:
        raise _running(saga_id, head.status)
    found = await family_of(store, saga_id)
    own, *others = found.members
    left = [member for member in others if not member.erased]
    if tombstone is not None and not family:
        return Erased(_said(tombstone), _erased(found), [*_left(left), *await _unreached(found, archive)])
    if left and not family:
        raise _copies(saga_id, [member.head.saga_id for member in left])
    for member in left:
        if member.head.status not in SAGA_FINAL:
            raise _running(saga_id, member.head.status, member.head.saga_id)
    at_ms = machine_clock.time_ns() // 1_000_000
    said: Mapping[str, Any] = {}
    for member in [*left, own]:  # the one that was named last: what was broken off before is found again from it
        if not (member.head.key or member.erased):
            continue
        for channel in member.channels:
            await store.event_store().forget(channel, member.head.saga_id, keep_ms=EVENT_KEEP_MS)
        ties = member.ties.to_dict() | ({"late": [*member.late]} if member.late else {})
        said = await seal(member.head.saga_id, by=by, why=why, at_ms=at_ms, ties=ties)
    unreached = [*await _unreached(found, archive), *await _since(store, found)]
    return Erased(_said(said), _erased(found, *left, own), unreached)


def _erased(found: Family, *now: Member) -> Sequence[str]:
    """The members that are erased, before or ``now``; the same at each repetition. The first one is the saga's own."""
    ids = {member.head.saga_id for member in now if member.head.key}
    return [each.head.saga_id for each in found.members if each.erased or each.head.saga_id in ids]


def _left(members: Sequence[Member]) -> list[str]:
    """Those that began since the saga was erased: it cannot be read, so nobody says what they have of it."""
    return [
        f"saga {member.head.saga_id}: it holds copies, and is not erased; --family (family) erases it as well"
        for member in members
        if member.head.key
    ]


def _said(tombstone: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: tombstone.get(name) for name in ("by", "why", "at_ms")}


def _running(saga_id: str, status: str, member: str = "") -> EraseRefused:
    named = f"saga {member}, which holds copies of what saga {saga_id} holds," if member else f"saga {saga_id}"
    return EraseRefused(
        f"{named} has not ended ({status}): it needs its payloads to go on, or to be undone",
        hint=f"saga cancel {member or saga_id}, or let it end",
        saga_id=saga_id,
        **({"sagas": [member]} if member else {}),
    )


def _copies(saga_id: str, sagas: Sequence[str]) -> EraseRefused:
    more = f" and {len(sagas) - _NAMED} more" if len(sagas) > _NAMED else ""
    return EraseRefused(
        f"other sagas hold copies of what saga {saga_id} holds: {', '.join(sagas[:_NAMED])}{more}",
        hint="--family (in the API and in Python family) erases them as well",
        saga_id=saga_id,
        sagas=[*sagas],
    )


async def _unreached(found: Family, archive: Path | None) -> list[str]:
    """What holds something of the family and has no key to destroy."""
    said = [
        f"saga {member.head.saga_id}: it began before sealing did, so it is readable until it is purged"
        for member in found.members
        if not (member.head.key or member.erased)
    ]
    said += [
        f"saga {member.head.saga_id}: its journal cannot be read here, so what it was copied to is not known"
        for member in found.members
        if member.unread
    ]
    stored = {member.head.saga_id for member in found.members}
    files = await asyncio.to_thread(_files, archive, stored.union(found.gone))
    # A purge may have been broken off between the file and the removal, or the id was used before.
    said += [f"saga {saga_id}: {path} has a saga of this id in clear" for saga_id, path in files if saga_id in stored]
    for saga_id in found.gone:
        own = [path for name, path in files if name == saga_id]
        said += [f"saga {saga_id}: it was purged, and {path} has it in clear" for path in own]
        if not own:
            said.append(f"saga {saga_id}: it was purged or never began; an archive elsewhere may have it in clear")
    return [*said, _BEYOND]


def _files(archive: Path | None, saga_ids: Collection[str]) -> Sequence[tuple[str, Path]]:
    """The files of the archive that have these sagas; an archive that cannot be read has none that are known."""
    try:
        return [] if archive is None else [(each.saga_id, each.path) for each in filed(archive, saga_ids)]
    except SettingInvalid:
        return []  # there is no archive yet


async def _since(store: Store, found: Family) -> list[str]:
    """Forks and undos that began while the family was being erased."""
    known = {member.head.saga_id for member in found.members}.union(found.gone)
    new: set[str] = set()
    for member in found.members:
        new |= set((await Claims(store.guard_store(), member.head.saga_id).owners()).values()) - known
    return [f"saga {saga_id}: it began meanwhile; erase it as well" for saga_id in sorted(new)]
