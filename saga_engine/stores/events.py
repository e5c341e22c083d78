"""Events and the waits for them, in the same Redis or Valkey as the journals.

The name and the key of an event decide its partition, so one script settles what becomes of it. The saga that waits may
lie in another partition: an event is held for it until its owner has journalled the outcome (``events.lua``)::

    saga:{p07}:event:<hash>          hash    the events and waits of one name and key
    saga:{p07}:event-kept:<hash>     zset    events that nothing has
    saga:{p07}:event-seen:<hash>     zset    ids of events
    saga:{p07}:event-waits:<hash>    zset    waits
    saga:{p07}:events                zset    names and keys with events, by the last arrival
    saga:{p07}:events-due            zset    events that a saga has not settled, by the time when it was told
"""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from saga_engine.ports.events import Channel, DueEvent, ListedEvent, Receipt, StoredEvent, Waiter
from saga_engine.stores.guards import bounded_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.stores.connection import Argument
    from saga_engine.stores.repair import Mender

#: So many events of one channel are listed.
_LISTED_OF_ONE: Final = 100


class RedisEvents:
    """An ``EventStore`` (see ``ports.events``) beside the journals of a ``RedisStore``."""

    def __init__(self, mender: Mender, tags: Sequence[str]) -> None:
        self._mender = mender
        self._tags = tags

    async def send(self, channel: Channel, event: StoredEvent, *, keep_ms: int, most: int) -> Receipt:
        """Accept an event; see ``ports.events``."""
        return _receipt(await self._run("send", channel, keep_ms, event.id, event.payload, most))

    async def address(self, channel: Channel, waiter: Waiter, event: StoredEvent, *, keep_ms: int) -> Receipt:
        """Accept an event for one wait."""
        mark = hashlib.sha256(event.payload).hexdigest()[:32]
        return _receipt(await self._run("address", channel, keep_ms, _name(waiter), event.id, event.payload, mark))

    async def first(self, channel: Channel) -> bytes | None:
        """The ``about`` of the wait that gets the next event."""
        found: bytes | None = await self._run("first", channel, 0)
        return found

    async def register(self, channel: Channel, waiter: Waiter, about: bytes, *, keep_ms: int) -> StoredEvent | None:
        """A step waits from now on; returns the event that is held for it."""
        found = await self._run("register", channel, keep_ms, _name(waiter), about)
        return StoredEvent(_text(found[0]), found[1]) if found else None

    async def over(
        self, channel: Channel, waiter: Waiter, *, keep_ms: int, taken: str = "", about: bytes = b""
    ) -> DueEvent | None:
        """A step waits no more; returns the event that was held for it, and what it is to be brought to."""
        found = await self._run("over", channel, keep_ms, _name(waiter), taken, "", about)
        return DueEvent(channel, Waiter(*msgspec.json.decode(found[0])), _text(found[1])) if found else None

    async def refuse(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int) -> None:
        """An event that was held for a wait does not fit."""
        await self._run("over", channel, keep_ms, _name(waiter), "", event, b"")

    async def arrived(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int, again_ms: int) -> None:
        """A step has an event, and waits for others."""
        await self._run("arrived", channel, keep_ms, _name(waiter), event, bounded_ms(again_ms, 0))

    async def handled(self, channel: Channel, event: str, *, keep_ms: int) -> None:
        """A late event was handled."""
        await self._run("handled", channel, keep_ms, event)

    async def forget(self, channel: Channel, saga_id: str, *, keep_ms: int) -> None:
        """Remove the content of a saga's events."""
        await self._run("forget", channel, keep_ms, msgspec.json.encode([saga_id])[:-1] + b",")

    async def look(self, channel: Channel, event: str) -> Receipt | None:
        """What the store knows of an event."""
        found = await self._run("look", channel, 0, event)
        return _receipt(found) if found else None

    async def due(self, partitions: Sequence[int], *, older_ms: int, limit: int) -> Sequence[DueEvent]:
        """Events that sagas have not settled for some time."""
        keys = [(f"{self._tags[number]}events-due",) for number in partitions]
        found: list[DueEvent] = []
        for reply in await self._mender.spread("events_due", keys, [older_ms, limit]):
            for member in reply:
                channel, waiter, event = _text(member).split("\n")
                found.append(DueEvent(_channel(channel), Waiter(*msgspec.json.decode(waiter)), event))
        return found

    async def listed(self, channel: Channel | None, limit: int) -> Sequence[ListedEvent]:
        """The events of a channel, or of all, the last ones first."""
        channels = [channel] if channel is not None else await self._channels(limit)
        found: list[ListedEvent] = []
        for each in channels:
            reply = await self._run("list", each, 0, min(limit, _LISTED_OF_ONE) if channel is None else limit)
            for at in range(0, len(reply), 5):
                event, at_ms, word, waiter, payload = reply[at : at + 5]
                found.append(ListedEvent(each, _text(event), at_ms, _text(word), _waiter(waiter), payload))  # type: ignore[arg-type]
        return heapq.nlargest(limit, found, key=lambda event: event.at_ms)

    async def _channels(self, limit: int) -> Sequence[Channel]:
        found: list[Channel] = []
        for tag in self._tags:
            names = await self._mender.plain("ZREVRANGE", f"{tag}events", 0, limit - 1)
            found += [_channel(_text(name)) for name in names]
        return found

    async def _run(self, verb: str, channel: Channel, keep_ms: int, *args: Argument) -> Any:
        title = msgspec.json.encode(channel)
        name = hashlib.sha256(title).hexdigest()[:32]
        tag = self._tags[crc32(title) % len(self._tags)]
        keys = [f"{tag}event:{name}", *(f"{tag}event-{part}:{name}" for part in ("kept", "seen", "waits"))]
        keys += [f"{tag}events", f"{tag}events-due"]
        return await self._mender.run("events", keys, [verb, title, bounded_ms(keep_ms), *args])


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _name(waiter: Waiter) -> bytes:
    return msgspec.json.encode(waiter if waiter.nth > 1 else waiter[:2])


def _channel(title: str) -> Channel:
    return Channel(*msgspec.json.decode(title))


def _waiter(name: bytes) -> Waiter | None:
    return Waiter(*msgspec.json.decode(name)) if name else None


def _receipt(reply: Sequence[Any]) -> Receipt:
    known, word, waiter, payload, about = reply
    return Receipt(_text(word), known == 1, _waiter(waiter), payload, about)  # type: ignore[arg-type]
