"""The waits of one saga for events, as the store knows them.

A wait is registered in the store after its record is durable, and again by each new owner of the saga. When its record
says that it is over, the store learns that, and with which event. What the store holds for a wait meanwhile becomes a
message to the saga; so does what it held for an owner that ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core.evolve import evolve
from saga_engine.core.late_events import late_call
from saga_engine.core.messages import Message, answer
from saga_engine.core.state import State
from saga_engine.core.steps.wait import INVALID, schema_of
from saga_engine.core.waits import Wait
from saga_engine.ports import Channel, EventStore, Store, StoredEvent, Waiter

#: How long an event that nothing waits for is kept, and the id of any event is known.
EVENT_KEEP_MS: Final = 7 * 86_400_000


class Listening:
    """What one driver has told the store about the waits of its saga."""

    __slots__ = ("_held", "_open", "_refused", "_registered", "_state", "_store", "task")

    def __init__(self, store: Store, state: State) -> None:
        self._store = store
        self._state = state
        #: Waits that the store may know, by step: what each waits for.
        self._open: dict[int, Channel] = {index: channel_of(wait) for index, wait in self._waits().items()}
        #: Those of them that this driver has registered.
        self._registered: set[int] = set()
        #: Events that the saga has refused, because they do not fit or come too late.
        self._refused: list[tuple[Message, str]] = []
        #: Events that the store holds for the saga, and that it has not answered.
        self._held: list[Message] = []
        #: While calls are made, the store is told beside them.
        self.task: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        """Whether the store knows all waits of the saga, and the saga all that the store holds for it."""
        return not (self._refused or self._held) and self._registered == self._open.keys() == self._waits().keys()

    @property
    def holds(self) -> bool:
        """Whether there is an event that the saga has not answered."""
        return bool(self._held)

    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What still tells the store."""
        return () if self.task is None else (self.task,)

    def take(self, now_ms: int) -> Sequence[r.AnyRecord]:
        """The records of the events that the store holds for the saga; the state has changed with them."""
        made: list[r.AnyRecord] = []
        for message in self._held:
            record = answer(self._state, message, now_ms)
            evolve(self._state, record)
            self.answered(message, record)
            made.append(record)
        self._held.clear()
        return made

    def answered(self, message: Message, record: r.AnyRecord) -> None:
        """The saga has answered an event; the store is told once that is durable."""
        if isinstance(record, r.MessageRefused):
            self._refused.append((message, record.code))

    def settle(self) -> Coroutine[Any, Any, None]:
        """Tell the store what the state says now, which is durable; learn which events it holds for the saga.

        The work is chosen at once; the state may change while it is done.
        """
        refused, self._refused = self._refused, []
        told = [(message, code, self._left(self._state.plan.by_key.get(message.step, -1))) for message, code in refused]
        waits = self._waits()
        over = [(index, self._left(index)) for index in self._open if index not in waits]
        new = [(index, wait, schema_of(self._state, index)) for index, wait in waits.items()]
        return self._settle(told, over, new)

    async def _settle(
        self,
        told: Sequence[tuple[Message, str, Left]],
        over: Sequence[tuple[int, Left]],
        new: Sequence[tuple[int, Wait, Mapping[str, Any] | None]],
    ) -> None:
        events = self._store.event_store()
        for message, code, left in told:
            await self._tell(events, message, code, left)
        for index, left in over:
            waiter = self._waiter(index)
            await events.over(self._open[index], waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
            del self._open[index]
            self._registered.discard(index)
        for index, wait, schema in new:
            if index in self._registered:
                continue
            channel, waiter = channel_of(wait), self._waiter(index)
            about = msgspec.json.encode({"schema": schema})
            event = await events.register(channel, waiter, about, keep_ms=EVENT_KEEP_MS)
            self._open[index] = channel
            self._registered.add(index)
            if event is not None:
                self._held.append(message_of(channel, waiter, event))

    def _left(self, index: int) -> Left:
        return left_by(self._state, index)

    async def _tell(self, events: EventStore, message: Message, code: str, left: Left) -> None:
        channel, waiter = Channel(message.event, message.key), Waiter(self._state.saga_id, message.step)
        if code == INVALID:
            await events.refuse(channel, waiter, message.id, keep_ms=EVENT_KEEP_MS)
            self._registered.discard(self._state.plan.by_key[message.step])  # it is registered anew
        else:
            await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)

    def _waits(self) -> dict[int, Wait]:
        return {index: wait for index, wait in self._state.waits.items() if wait.on == "event"}

    def _waiter(self, index: int) -> Waiter:
        return Waiter(self._state.saga_id, self._state.plan.steps[index].key)


def channel_of(wait: Wait) -> Channel:
    """The name and the key of the event that a step waits for."""
    return Channel(wait.about["event"], wait.about["key"])


def message_of(channel: Channel, waiter: Waiter, event: StoredEvent) -> Message:
    """The message that brings an event to the saga that waits for it."""
    payload: Any = msgspec.json.decode(event.payload)
    return Message(id=event.id, kind="event", step=waiter.step, event=channel.name, key=channel.key, output=payload)


class Left(NamedTuple):
    """What a wait that is over leaves: the id of the event that ended it, or else what is for a late event."""

    taken: str = ""
    about: bytes = b""


def left_by(state: State, index: int) -> Left:
    """What a step's wait leaves; nothing if there is no such step."""
    if index < 0 or state.steps[index].event:
        return Left(state.steps[index].event if index >= 0 else "")
    call = late_call(state, index)
    return Left("", b"" if call is None else msgspec.json.encode(call))
