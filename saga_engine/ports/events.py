"""Events from outside and the steps that wait for them, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol


class Channel(NamedTuple):
    """Events and waits find each other by a name and a key."""

    name: str
    key: str


class Waiter(NamedTuple):
    """A step that waits. ``nth``: how often it has begun to; what is said of one of its waits changes no other."""

    saga_id: str
    step: str
    nth: int = 1


class StoredEvent(NamedTuple):
    """An event: its id, unique in its channel, and its payload (JSON)."""

    id: str
    payload: bytes


#: What became of an event. ``kept``: nothing waits for it yet. ``held``: for a step that waits, whose saga decides, or
#: which waits for others, too.
#: ``taken``: it is the step's output. ``refused``: it does not fit the step's schema. ``late``: the step that waited
#: for it waits no more. ``handled``: it was late, and a saga of its own has begun for it. ``full``: its channel keeps
#: as many as it may; it was not accepted. ``occupied``: nor was an event for one wait, which holds another one, or was
#: addressed another one before (``known``).
Disposition = Literal["kept", "held", "taken", "refused", "late", "handled", "full", "occupied"]


class Receipt(NamedTuple):
    """What the store knows of an event. ``known``: it had arrived before, and this one was dropped.

    ``waiter``: the step for which it is held, that took or refused it, or that waited last. ``about``: of a late event,
    what that step's wait left for it.
    """

    disposition: Disposition
    known: bool
    waiter: Waiter | None = None
    payload: bytes = b""
    about: bytes = b""


class DueEvent(NamedTuple):
    """An event that is to be brought to the saga of a wait, or that is too late for it."""

    channel: Channel
    waiter: Waiter
    event: str


class ListedEvent(NamedTuple):
    """An event as a listing shows it. ``at_ms``: when it arrived, in Unix ms on the store's clock."""

    channel: Channel
    id: str
    at_ms: int
    disposition: Disposition
    waiter: Waiter | None
    payload: bytes


class EventStore(Protocol):
    """Events by channel, and the waits for them. Every verb is atomic, uses the server's clock, and is safe to repeat.

    An event is for one wait: the first one in its channel that was registered and has none, or the one that its sender
    addressed. It is held for that wait until the owner of the saga has journalled what became of it, and says so with
    ``over``.

    ``keep_ms``: how long an event that nothing waits for is kept, and its id is known. All methods raise
    ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``.
    """

    async def send(self, channel: Channel, event: StoredEvent, *, keep_ms: int, most: int) -> Receipt:
        """Accept an event. At most ``most`` events of a channel are kept if nothing waits for them."""
        ...

    async def address(self, channel: Channel, waiter: Waiter, event: StoredEvent, *, keep_ms: int) -> Receipt:
        """Accept an event for one wait and no other, which may be registered later, or be over.

        It is held for it, and due, until the wait is ``over``; if that did not take it, it is late, and nobody else's.
        Not accepted (``occupied``): one for a wait that holds another event; and an id that is known with another
        payload, for as long as it is known.
        """
        ...

    async def first(self, channel: Channel) -> bytes | None:
        """The ``about`` of the wait that gets the next event; None: nothing waits."""
        ...

    async def register(self, channel: Channel, waiter: Waiter, about: bytes, *, keep_ms: int) -> StoredEvent | None:
        """A step waits from now on; returns the event that is held for it, if there is one already."""
        ...

    async def over(
        self, channel: Channel, waiter: Waiter, *, keep_ms: int, taken: str = "", about: bytes = b""
    ) -> DueEvent | None:
        """A step waits no more, and its journal says so. ``taken`` is the event that ended the wait.

        Another event that was held for it is given to the next wait, or is late: then ``about`` is for it. It is
        returned with the wait that has it now, or is too late for it; None: nothing is to be done about it. What comes
        after a wait that was registered, and of which this is said for the first time, is late, too.
        """
        ...

    async def arrived(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int, again_ms: int) -> None:
        """The journal has the event, and its step waits for others; the event is held until the wait is ``over``.

        It is due again after ``again_ms``.
        """

    async def handled(self, channel: Channel, event: str, *, keep_ms: int) -> None:
        """The saga that handles a late event has begun. No wait changes, and the next event is late, too."""
        ...

    async def refuse(self, channel: Channel, waiter: Waiter, event: str, *, keep_ms: int) -> None:
        """An event that was held for a wait does not fit, and its journal says so; the wait is registered anew."""

    async def forget(self, channel: Channel, saga_id: str, *, keep_ms: int) -> None:
        """Remove the content of the events that the waits of a saga took or that came too late for them.

        Their ids stay known for as long as before. No ``on_late`` of the saga is called for an event that comes after
        this. A channel without anything else is listed no more.
        """
        ...

    async def look(self, channel: Channel, event: str) -> Receipt | None:
        """What the store knows of an event."""
        ...

    async def due(self, partitions: Sequence[int], *, older_ms: int, limit: int) -> Sequence[DueEvent]:
        """Events that sagas were told of ``older_ms`` ago and have not settled. They count as told now."""
        ...

    async def listed(self, channel: Channel | None, limit: int) -> Sequence[ListedEvent]:
        """The events of a channel, or of all, the last ones first."""
        ...
