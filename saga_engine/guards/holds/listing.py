"""What sagas hold, for people; and how an operator takes it away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saga_engine.core.states import SAGA_FINAL
from saga_engine.guards.holds.holding import note_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.ports import GuardStore


@dataclass(frozen=True, slots=True)
class Held:
    """A resource that a saga holds, ``alone`` or beside others that read, since when.

    ``by``: the saga of the family whose call took it, with ``tool`` and ``step``; at the end of ``saga`` it is free.
    ``overdue``: it is held for longer than ``max_s``. ``waiting``: who waits for it, and since when.
    """

    resource: str
    saga: str
    family: str
    alone: bool
    since_ms: int
    by: str
    tool: str
    step: str
    max_s: float | None
    overdue: bool
    waiting: Sequence[tuple[str, int]]
    token: str

    def is_of(self, saga_id: str) -> bool:
        """Whether a saga holds it, itself or by its family."""
        return saga_id in {self.saga, self.family, self.by}

    def body(self) -> dict[str, Any]:
        """As JSON."""
        waiting = [{"saga_id": who, "since_ms": since} for who, since in self.waiting]
        found = {"resource": self.resource, "saga_id": self.saga, "alone": self.alone, "since_ms": self.since_ms}
        by = {"by": self.by, "tool": self.tool, "step_id": self.step}
        return {**found, **by, "max_s": self.max_s, "overdue": self.overdue, "waiting": waiting}


async def held_in(store: GuardStore, now_ms: int) -> list[Held]:
    """What sagas hold that have not ended, the longest held first. Raises ``StoreUnavailable``."""
    found = await store.holds()
    sagas = sorted({holder.saga for each in found for holder in each.holders})
    statuses = await asyncio.gather(*map(store.saga_status, sagas))
    alive = {
        saga for saga, status in zip(sagas, statuses, strict=True) if status is not None and status not in SAGA_FINAL
    }
    made = []
    for each in found:
        waiting = [(ticket.partition(" ")[0], since) for ticket, since in each.waiting]
        for holder in each.holders:
            if holder.saga in alive:
                note = note_of(holder)
                overdue = note.max_s is not None and holder.since_ms + note.max_s * 1000 < now_ms
                held = (note.key, holder.saga, holder.family, holder.write, holder.since_ms)
                made.append(Held(*held, note.saga, note.tool, note.step, note.max_s, overdue, waiting, note.token))
    return sorted(made, key=lambda held: (held.since_ms, held.resource, held.saga))


async def sweep(store: GuardStore) -> None:
    """Give back what sagas hold that have ended: their process died before it did so. Raises ``StoreUnavailable``."""
    for each in await store.holds():
        for holder in each.holders:
            status = await store.saga_status(holder.saga)
            if status is None or status in SAGA_FINAL:
                await store.unhold(note_of(holder).token, holder.family, holder.saga, holder.since_ms)


async def unhold(store: GuardStore, held: Held) -> bool:
    """Take it away; whether it was held still. Raises ``StoreUnavailable``."""
    return await store.unhold(held.token, held.family, held.saga, held.since_ms)
