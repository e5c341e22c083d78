"""The sagas that hold copies of one another's payloads: what an erasure of one of them has to reach."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from saga_engine.core.codec import decode
from saga_engine.core.fold import started_of
from saga_engine.core.late_events import late_saga_id, late_token
from saga_engine.core.records import AnyRecord, CompensationStarted, SagaStarted
from saga_engine.core.steps.wait import never_begun
from saga_engine.core.waiting_records import StepWaiting
from saga_engine.core.waits import Pending
from saga_engine.errors import EraseRefused, JournalUnreadable, SagaErased, SagaNotFound
from saga_engine.ports import Head, Store
from saga_engine.ports.events import Channel, ListedEvent
from saga_engine.ports.head import tombstone_of
from saga_engine.runtime.claims import Claims
from saga_engine.runtime.journal import at_hand, folded_state
from saga_engine.runtime.ties import Ties, ties_in

#: How many events of one name and key are looked through for those of a saga.
_EVENTS: Final = 10_000
#: A family that is larger is erased in parts, saga by saga.
_MEMBERS: Final = 10_000


class Member(NamedTuple):
    """A saga of a family. ``late``: the sagas that handled its late events. ``channels``: the events it waited for.

    ``unread``: its journal cannot be read, so what it is tied to is not known.
    """

    head: Head
    ties: Ties
    late: Collection[str] = ()
    channels: Sequence[Channel] = ()
    unread: bool = False

    @property
    def erased(self) -> bool:
        """Whether its key was destroyed before."""
        return tombstone_of(self.head.summary) is not None

    @property
    def near(self) -> set[str]:
        """The sagas that hold something of it, or of which it holds something."""
        near = {self.ties.parent, self.ties.origin, *self.ties.heirs, *self.ties.children, *self.late}
        return {saga_id for saga_id in near if saga_id}


class Family(NamedTuple):
    """A saga and all that its payloads were copied to or from, in the order in which they were found.

    ``gone``: the ids of those that are stored no more.
    """

    members: Sequence[Member]
    gone: Sequence[str]


async def family_of(store: Store, saga_id: str) -> Family:
    """The family of a saga. Raises ``EraseRefused`` if it is too large, and what the store raises."""
    members: list[Member] = []
    gone: list[str] = []
    seen, found = {saga_id}, [saga_id]
    for each in found:  # it grows while it is walked
        try:
            member = await _member(store, await store.head(each))
        except SagaNotFound:
            gone.append(each)
            continue
        members.append(member)
        found += sorted(member.near - seen)
        seen |= member.near
        if len(found) > _MEMBERS:
            raise EraseRefused(
                f"more than {_MEMBERS:,} sagas hold copies of what saga {saga_id} holds",
                hint="erase its children, undos and forks first, which have smaller families",
                saga_id=saga_id,
            )
    return Family(members, gone)


async def _member(store: Store, head: Head) -> Member:
    tombstone = tombstone_of(head.summary)
    if tombstone is not None:
        said = tombstone.get("ties") or {}
        ties = Ties.from_dict(said)
        since = await Claims(store.guard_store(), head.saga_id).owners()  # forks that had read it before
        return Member(head, replace(ties, heirs=ties.heirs.union(since.values())), said.get("late", ()))
    try:
        records = [decode(piece) for piece in await store.read(head.saga_id)]
        ties = await ties_in(store, records)
        channels = list(dict.fromkeys([*_channels(records), *await _never_begun(store, head.saga_id, records)]))
    except SagaErased:  # by another process, a moment ago
        return await _member(store, await store.head(head.saga_id))
    except JournalUnreadable:
        return Member(head, Ties(), unread=True)
    started = started_of(records)
    late: set[str] = set()
    for channel in channels:
        for event in await store.event_store().listed(channel, _EVENTS):
            late |= await _late(store, started, event)
    return Member(head, ties, sorted(late), channels)


def _channels(records: Sequence[AnyRecord]) -> Sequence[Channel]:
    """The names and keys of the events for which its steps waited."""
    waits = [record for record in records if isinstance(record, StepWaiting) and record.on == "event"]
    named = [Channel(*name) for wait in waits for name in Pending(wait.on, about=wait.about).events()]
    return list(dict.fromkeys(named))


async def _never_begun(store: Store, saga_id: str, records: list[AnyRecord]) -> Sequence[Channel]:
    """The names and keys of the events for which its steps would have waited if it had not turned around."""
    if not any(type(record) is CompensationStarted for record in records):
        return ()
    state = await folded_state(await at_hand(store, saga_id, records))
    return [Channel(*event) for _, event in never_begun(state)]


async def _late(store: Store, started: SagaStarted, event: ListedEvent) -> set[str]:
    """The saga that handled a late event. One that a saga still has to handle refuses the erasure."""
    if event.waiter is None or event.waiter.saga_id != started.saga_id:
        return set()
    if event.disposition in ("held", "late"):
        known = await store.event_store().look(event.channel, event.id)
        if known is not None and (known.disposition == "held" or known.about):
            raise EraseRefused(
                f"saga {started.saga_id} has an event about which nothing is settled yet",
                hint="a worker does so within a minute; then erase it",
                saga_id=started.saga_id,
            )
    token = late_token(started.seed, started.saga_id, event.waiter.step)
    ids = {late_saga_id(started.saga_id, token, event.id, *event.channel, several=several) for several in (False, True)}
    return ids if event.disposition == "handled" else set()
