"""The other sagas that one is tied to: a purge must not remove what another may still need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from saga_engine.core.codec import decode
from saga_engine.core.fold import started_of
from saga_engine.core.records import AnyRecord, EffectTransferred
from saga_engine.core.waiting_records import StepWaiting
from saga_engine.ports import Head, Store
from saga_engine.ports.head import tombstone_of
from saga_engine.runtime.claims import Claims


@dataclass(frozen=True, slots=True)
class Ties:
    """The other sagas of one: its parent, the ``origin`` of its effects, who took over its own, and its children."""

    parent: str = ""
    origin: str = ""
    heirs: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """For the tombstone of an erased saga, whose journal cannot be read any more. Ids are clear anyway."""
        found = {"parent": self.parent, "origin": self.origin, "heirs": sorted(self.heirs)}
        return {name: value for name, value in (found | {"children": sorted(self.children)}).items() if value}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Self:
        """The reverse."""
        names = {name: frozenset(said.get(name, ())) for name in ("heirs", "children")}
        return cls(said.get("parent", ""), said.get("origin", ""), **names)


async def ties_of(store: Store, head: Head) -> Ties:
    """The ties of a saga: from its journal or, of an erased one, from its tombstone. Raises what ``read`` raises."""
    tombstone = tombstone_of(head.summary)
    if tombstone is not None:
        return Ties.from_dict(tombstone.get("ties") or {})
    return await ties_in(store, [decode(piece) for piece in await store.read(head.saga_id)])


async def ties_in(store: Store, records: Sequence[AnyRecord]) -> Ties:
    """The ties of the saga with these records."""
    started = started_of(records)
    given = [record.to for record in records if isinstance(record, EffectTransferred)]
    # The journal of a saga that had ended does not name its forks: their claims do.
    claimed = await Claims(store.guard_store(), started.saga_id).owners()
    waits = [record for record in records if isinstance(record, StepWaiting) and record.on == "child"]
    return Ties(
        parent=started.parent.saga if started.parent is not None else "",
        origin=started.undo_of or started.fork_of,
        heirs=frozenset([*given, *claimed.values()]),
        children=frozenset(str(wait.about["saga"]) for wait in waits),
    )
