"""What sagas share, sealed with the store's own key: guards' memory, events, documents, values, the queue's journals.

Names that would reveal a value become keyed, unless the store was used before sealing began (``store_key.About``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saga_engine.errors import SagaError
from saga_engine.loggers import logger_of
from saga_engine.ports import (
    Channel,
    Claim,
    Document,
    DocumentKind,
    DueEvent,
    HeldResource,
    HoldAnswer,
    HoldClaim,
    Holder,
    ListedEvent,
    Load,
    Receipt,
    StoredEvent,
    Taken,
    Taking,
    Waiter,
)
from saga_engine.privacy.cipher import opened_records, place

if TYPE_CHECKING:
    from saga_engine.ports import DocumentStore, EventStore, GuardStore, ValueStore, WorkStore
    from saga_engine.privacy.store_key import Sealer, StoreKey

_log = logger_of("saga_engine.privacy")


class _Verbs:
    """Verbs around those of an inner part; what is not here is the inner part's."""

    def __init__(self, inner: Any, store: Sealer) -> None:
        self._inner = inner
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def _key(self) -> StoreKey:
        return self._store.shared


class SealedGuards(_Verbs):
    """A ``GuardStore`` whose results, tallies and stops are sealed."""

    if TYPE_CHECKING:
        _inner: GuardStore

    # --- stops: what they hold is clear, who said so and why is not ---

    async def stops(self) -> tuple[int, Mapping[str, str]]:
        """The stops that hold now. A process without keys obeys them, too."""
        version, found = await self._inner.stops()
        return version, self._said(found)

    async def set_stop(self, scope: str, entry: str | None) -> Mapping[str, str]:
        """Set or lift a stop."""
        sealed = None if entry is None else self._key.key.seal_text(place("stop", scope), entry)
        return self._said(await self._inner.set_stop(scope, sealed))

    def _said(self, found: Mapping[str, str]) -> Mapping[str, str]:
        return {scope: self._entry(scope, entry) for scope, entry in found.items()}

    def _entry(self, scope: str, entry: str) -> str:
        try:
            return self._key.open_text(place("stop", scope), entry)
        except SagaError:
            return entry  # it stops, whatever it says

    # --- de-duplication and last good results ---

    async def claim(self, tool: str, digest: str, owner: str, ttl_ms: int) -> Claim:
        """Claim a call."""
        found = await self._inner.claim(tool, self._call(tool, digest), owner, ttl_ms)
        if not found.result:
            return found
        holder = found.owner or owner
        return found._replace(result=self._key.open(place("result", tool, holder), found.result))

    async def remember(self, tool: str, digest: str, owner: str, result: bytes, ttl_ms: int) -> None:
        """Store the result of a claimed call."""
        sealed = self._key.key.seal_bytes(place("result", tool, owner), result)
        await self._inner.remember(tool, self._call(tool, digest), owner, sealed, ttl_ms)

    async def recollect(self, tool: str, owner: str) -> bytes | None:
        """The result of an owner's call."""
        found = await self._inner.recollect(tool, owner)
        return None if found is None else self._key.open(place("result", tool, owner), found)

    async def keep_good(self, tool: str, digest: str, result: bytes, ttl_ms: int) -> None:
        """Store the last good result of a read."""
        sealed = self._key.key.seal_bytes(place("good", tool, digest), result)
        await self._inner.keep_good(tool, self._call(tool, digest), sealed, ttl_ms)

    async def good(self, tool: str, digest: str) -> tuple[bytes, int] | None:
        """The last good result of a read and its age in ms."""
        found = await self._inner.good(tool, self._call(tool, digest))
        return None if found is None else (self._key.open(place("good", tool, digest), found[0]), found[1])

    def _call(self, tool: str, digest: str) -> str:
        return self._key.name("call", tool, digest)

    # --- resources and rates, whose names bind params ---

    async def take(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Join the queue for a resource."""
        return await self._inner.take(self._key.name("resource", resource), tickets, ttl_ms)

    async def keep(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Stay in the queue for a resource."""
        return await self._inner.keep(self._key.name("resource", resource), tickets, ttl_ms)

    async def give(self, resource: str, ticket: str) -> str:
        """Leave the queue for a resource."""
        return await self._inner.give(self._key.name("resource", resource), ticket)

    async def free(self, resource: str, ticket: str, ttl_ms: int, silent_ms: int) -> str:
        """Drop a dead process's place in the queue for a resource."""
        return await self._inner.free(self._key.name("resource", resource), ticket, ttl_ms, silent_ms)

    async def hold(self, resource: str, claim: HoldClaim, ttl_ms: int) -> HoldAnswer:
        """Hold a resource; what is noted with it is sealed."""
        sealed = self._key.key.seal_text(place("hold", claim.saga), claim.note)
        found = await self._inner.hold(self._key.name("resource", resource), claim._replace(note=sealed), ttl_ms)
        return found._replace(others=[self._holder(each) for each in found.others])

    async def leave(self, resource: str, ticket: str) -> None:
        """Stand in line no more."""
        await self._inner.leave(self._key.name("resource", resource), ticket)

    async def unhold(self, resource: str, family: str, saga: str, since_ms: int) -> bool:
        """Hold a resource no more."""
        return await self._inner.unhold(self._key.name("resource", resource), family, saga, since_ms)

    async def holds(self) -> Sequence[HeldResource]:
        """Every resource that is held."""
        found = await self._inner.holds()
        return [each._replace(holders=[self._holder(one) for one in each.holders]) for each in found]

    def _holder(self, holder: Holder) -> Holder:
        try:
            return holder._replace(note=self._key.open_text(place("hold", holder.saga), holder.note))
        except SagaError:
            return holder._replace(note="")  # it holds, whatever it says

    async def reserve(self, rate: str, interval_us: int, burst: int, max_wait_ms: int | None) -> int:
        """Reserve the next moment of a rate limit."""
        return await self._inner.reserve(self._key.name("rate", rate), interval_us, burst, max_wait_ms)

    # --- tallies ---

    async def tally(self, name: str, saga_id: str = "") -> Mapping[str, str]:
        """The entries of a tally."""
        key, found = self._key, await self._inner.tally(self._key.name("tally", name), saga_id)
        return {owner: key.open_text(place("tally", name, saga_id, owner), text) for owner, text in found.items()}

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int, saga_id: str = "") -> None:
        """Set or remove an owner's entry."""
        sealed = None if entry is None else self._key.key.seal_text(place("tally", name, saga_id, owner), entry)
        await self._inner.tally_set(self._key.name("tally", name), owner, sealed, ttl_ms, saga_id)


class SealedEvents(_Verbs):
    """An ``EventStore`` whose payloads are sealed; keys and ids of events are tokens that only the key reads."""

    if TYPE_CHECKING:
        _inner: EventStore

    def _channel(self, channel: Channel) -> Channel:
        return Channel(channel.name, self._key.token("event key", channel.name, channel.key))

    def _clear(self, channel: Channel) -> Channel:
        return Channel(channel.name, self._key.untoken("event key", channel.name, channel.key))

    def _id(self, channel: Channel, event: str) -> str:
        return self._key.token("event id", *channel, event) if event else event

    def _clear_id(self, channel: Channel, event: str) -> str:
        return self._key.untoken("event id", *channel, event) if event else event

    def _event(self, channel: Channel, event: StoredEvent) -> StoredEvent:
        payload = self._key.key.seal_bytes(place("event", *channel, event.id), event.payload)
        return StoredEvent(self._id(channel, event.id), payload)

    def _payload(self, channel: Channel, event: str, payload: bytes) -> bytes:
        return self._key.open(place("event", *channel, event), payload) if payload else payload

    def _seal_about(self, channel: Channel, about: bytes) -> bytes:
        return self._key.key.seal_bytes(place("wait", *channel), about) if about else about

    def _about(self, channel: Channel, about: bytes) -> bytes:
        return self._key.open(place("wait", *channel), about) if about else about

    def _receipt(self, channel: Channel, event: str, found: Receipt) -> Receipt:
        payload, about = self._payload(channel, event, found.payload), self._about(channel, found.about)
        return found._replace(payload=payload, about=about)

    async def send(self, channel: Channel, event: StoredEvent, *, keep_ms: int, most: int) -> Receipt:
        """Accept an event."""
        found = await self._inner.send(self._channel(channel), self._event(channel, event), keep_ms=keep_ms, most=most)
        return self._receipt(channel, event.id, found)

    async def address(self, channel: Channel, waiter: Waiter, event: StoredEvent, *, keep_ms: int) -> Receipt:
        """Accept an event for one wait. The same payload has the same sealed form, so a repeat is known."""
        found = await self._inner.address(self._channel(channel), waiter, self._event(channel, event), keep_ms=keep_ms)
        return self._receipt(channel, event.id, found)

    async def first(self, channel: Channel) -> bytes | None:
        """The ``about`` of the wait that gets the next event."""
        found = await self._inner.first(self._channel(channel))
        return None if found is None else self._about(channel, found)

    async def register(self, channel: Channel, waiter: Waiter, about: bytes, *, keep_ms: int) -> StoredEvent | None:
        """A step waits from now on."""
        sealed = self._seal_about(channel, about)
        found = await self._inner.register(self._channel(channel), waiter, sealed, keep_ms=keep_ms)
        if found is None:
            return None
        event = self._clear_id(channel, found.id)
        return StoredEvent(event, self._payload(channel, event, found.payload))

    async def over(
        self, channel: Channel, waiter: Waiter, *, keep_ms: int, taken: str = "", about: bytes = b""
    ) -> DueEvent | None:
        """A step waits no more."""
        taken, about = self._id(channel, taken), self._seal_about(channel, about)
        due = await self._inner.over(self._channel(channel), waiter, keep_ms=keep_ms, taken=taken, about=about)
        return None if due is None else DueEvent(channel, due.waiter, self._clear_id(channel, due.event))

    async def arrived(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int, again_ms: int) -> None:
        """A step has an event, and waits for others."""
        there, event = self._channel(channel), self._id(channel, event)
        await self._inner.arrived(there, waiter, event, keep_ms=keep_ms, again_ms=again_ms)

    async def handled(self, channel: Channel, event: str, *, keep_ms: int) -> None:
        """A late event was handled."""
        await self._inner.handled(self._channel(channel), self._id(channel, event), keep_ms=keep_ms)

    async def refuse(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int) -> None:
        """An event does not fit."""
        await self._inner.refuse(self._channel(channel), waiter, self._id(channel, event), keep_ms=keep_ms)

    async def forget(self, channel: Channel, saga_id: str, *, keep_ms: int) -> None:
        """Remove the content of a saga's events."""
        await self._inner.forget(self._channel(channel), saga_id, keep_ms=keep_ms)

    async def look(self, channel: Channel, event: str) -> Receipt | None:
        """What the store knows of an event."""
        found = await self._inner.look(self._channel(channel), self._id(channel, event))
        return None if found is None else self._receipt(channel, event, found)

    async def due(self, partitions: Sequence[int], *, older_ms: int, limit: int) -> Sequence[DueEvent]:
        """Events that sagas have not settled for some time."""
        found: list[DueEvent] = []
        for due in await self._inner.due(partitions, older_ms=older_ms, limit=limit):
            channel = self._clear(due.channel)
            found.append(DueEvent(channel, due.waiter, self._clear_id(channel, due.event)))
        return found

    async def listed(self, channel: Channel | None, limit: int) -> Sequence[ListedEvent]:
        """The events of a channel, or of all."""
        found: list[ListedEvent] = []
        for each in await self._inner.listed(None if channel is None else self._channel(channel), limit):
            named = self._clear(each.channel)
            event = self._clear_id(named, each.id)
            found.append(each._replace(channel=named, id=event, payload=self._payload(named, event, each.payload)))
        return found


class SealedDocuments(_Verbs):
    """A ``DocumentStore`` whose bodies are sealed; the same body always has the same sealed form."""

    if TYPE_CHECKING:
        _inner: DocumentStore

    async def read(self, kind: DocumentKind, name: str) -> Document | None:
        """A document."""
        found = await self._inner.read(kind, name)
        return None if found is None else found._replace(body=self._key.open(place("document", kind, name), found.body))

    async def write(self, kind: DocumentKind, document: Document, due_ms: int = 0) -> Document | None:
        """Replace a document."""
        body = self._key.key.seal_bytes(place("document", kind, document.name), document.body)
        written = await self._inner.write(kind, document._replace(body=body), due_ms)
        return None if written is None else written._replace(body=document.body)


class SealedValues(_Verbs):
    """A ``ValueStore`` whose values are sealed, under keyed digests."""

    if TYPE_CHECKING:
        _inner: ValueStore

    async def put(self, digest: str, data: bytes, ttl_ms: int) -> None:
        """Store the bytes."""
        await self._inner.put(self._name(digest), self._key.key.seal_bytes(place("value", digest), data), ttl_ms)

    async def get(self, digest: str) -> bytes | None:
        """The bytes."""
        found = await self._inner.get(self._name(digest))
        return None if found is None else self._key.open(place("value", digest), found)

    def _name(self, digest: str) -> str:
        return self._key.name("shared value", digest)


class SealedWork(_Verbs):
    """A ``WorkStore`` that opens the journals of the sagas that it takes."""

    if TYPE_CHECKING:
        _inner: WorkStore

    async def take(self, owner: str, nonce: str, limit: int, partitions: Sequence[int]) -> Taking:
        """Acquire sagas. One whose journal cannot be opened comes without it: reading it says why."""
        found = await self._inner.take(owner, nonce, limit, partitions)
        if not found.sagas:
            return found
        return found._replace(sagas=await asyncio.gather(*map(self._opened, found.sagas)))

    async def overview(self) -> Load:
        """The pending work, the workers, and the notes of owners that can be opened."""
        found = await self._inner.overview()
        notes: dict[str, bytes] = {}
        for owner, note in found.notes.items():
            try:
                notes[owner] = self._key.open(place("lease", owner), note)
            except SagaError as error:
                _log.debug("the note of %s cannot be read: %s", owner, error)
        return replace(found, notes=notes)

    async def _opened(self, taken: Taken) -> Taken:
        if taken.records is None:
            return taken
        try:
            key = await self._store.key_of(taken.saga_id)
            return taken._replace(records=opened_records(taken.saga_id, key, 0, taken.records))
        except SagaError as error:
            _log.debug("the journal of saga %s is read by itself: %s", taken.saga_id, error)
            return taken._replace(records=None)

    async def restore_terms(self, saga_id: str, terms: Sequence[str]) -> None:
        """Add to the terms of a saga."""
        sealed = (await self._store.key_of(saga_id)) is not None
        await self._inner.restore_terms(saga_id, [self._store.term(text) for text in terms] if sealed else terms)
