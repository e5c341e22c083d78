"""The waits of one saga for events, as the store knows them.

A wait is registered in the store after its record is durable, and again by each new owner of the saga. When its record
says that it is over, the store learns that, and with which event. What the store holds for a wait meanwhile becomes a
message to the saga; so does what it held for an owner that ended. A wait for several events is registered for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core.late_events import late_call
from saga_engine.core.messages import Message, answer
from saga_engine.core.state import State
from saga_engine.core.steps.wait import INVALID, KIND, REFUSALS, REPEATED, entry_of, never_begun, schema_of
from saga_engine.core.waits import Pending
from saga_engine.ports import Channel, DueEvent, EventStore, Store, StoredEvent, Waiter
from saga_engine.runtime.companions import Companion, Kind

#: How long an event that nothing waits for is kept, and the id of any event is known.
EVENT_KEEP_MS: Final = 7 * 86_400_000
#: An event that a step has, which waits for others, is looked at again after this time, or at the time-out.
LOOK_AGAIN_MS: Final = 15 * 60_000
_NO_SCHEMA: Final = msgspec.json.encode({"schema": None})


class Spot(NamedTuple):
    """One event of a step that waits: the step's index, which of its waits, and the event's name and key."""

    step: int
    nth: int
    channel: Channel


#: Brings an event to the saga of its wait, or to that of its ``on_late``, which workers drive if the last word says so.
BringEvent = Callable[[DueEvent, bool], Awaitable[None]]


def waits(store: Store, bring: BringEvent) -> Kind:
    """The waits for events of the sagas that one process drives."""
    return Kind(lambda state: Listening(store, state, bring), "event", _turns, _follows, REFUSALS)


def _turns(state: State) -> bool:
    """Whether there are waits that never begin now; what they wait for may become known later."""
    return state.backward and KIND in {step.builtin for step in state.plan.steps}


def _follows(state: State, companion: Companion | None) -> bool:
    """Whether an event may be held for a wait that never began."""
    known = companion is not None and companion.settled(0)
    return not known and any(True for _ in never_begun(state))


class Listening(Companion):
    """What one driver has told the store about the waits of its saga."""

    __slots__ = ("_bring", "_held", "_moved", "_open", "_refused", "_state", "_store", "_told", "_unsaid")

    def __init__(self, store: Store, state: State, bring: BringEvent) -> None:
        self._store = store
        self._state = state
        self._bring = bring
        #: Events that the store may know to be awaited.
        self._open: set[Spot] = {*self._wanted()}
        #: What this driver has told the store of them: that the step waits (empty), or has the event with this id.
        self._told: dict[Spot, str] = {}
        #: Events that the saga has refused, because they do not fit or come too late.
        self._refused: list[tuple[Message, str]] = []
        #: Events that the store holds for the saga, and that it has not answered.
        self._held: list[Message] = []
        #: Whether the store knows that the waits are over which a saga that turned around has not begun.
        #: The steps that wait, as far as nothing was said of those that never began; None: the saga goes forward.
        self._unsaid: set[int] | None = None
        #: Events that were held for waits which are over, with what they are for now.
        self._moved: list[DueEvent] = []

    def settled(self, now_ms: int) -> bool:
        """Whether the store knows all waits of the saga, and the saga all that the store holds for it."""
        del now_ms
        if self._refused or self._held or self._never_begun():
            return False
        return self._told.keys() == self._open and self._told == self._wanted()

    @property
    def holds(self) -> bool:
        """Whether there is an event that the saga has not answered."""
        return bool(self._held)

    def take(self, now_ms: int) -> Iterator[r.AnyRecord]:
        """The records of the events that the store holds for the saga; each is in the state before the next is made."""
        held, self._held = self._held, []
        for message in held:
            record = answer(self._state, message, now_ms)
            if isinstance(record, r.MessageRefused):
                self.refused(message, record)
            yield record

    def refused(self, message: Message, record: r.MessageRefused) -> None:
        """The saga has refused an event; the store is told once that is durable."""
        if record.code != REPEATED:
            self._refused.append((message, record.code))

    def work(self, *, queued: bool, now_ms: int) -> Coroutine[Any, Any, None]:
        """Tell the store what the state says now, which is durable; learn which events it holds for the saga."""
        del now_ms
        refused, self._refused = self._refused, []
        told = []
        for message, code in refused:
            index = self._state.plan.by_key.get(message.step, -1)
            nth = message.nth or (self._state.steps[index].begun if index >= 0 else 1)
            spot = Spot(index, nth, Channel(message.event, message.key))
            told.append((message, code, spot, left_by(self._state, *spot)))
            if code == INVALID:
                self._told.pop(spot, None)  # it is registered anew
        wanted = self._wanted()
        over = [(spot, left_by(self._state, *spot)) for spot in self._open if spot not in wanted]
        past = self._never_begun()
        new = []
        for spot, source in wanted.items():
            if self._told.get(spot) != source:
                wait = self._state.pending[spot.step]
                schema = schema_of(self._state, spot.step, entry_of(wait, *spot.channel))
                new.append((spot, source, schema, self._again_ms(wait)))
        return self._settle(told, over, new, past, queued=queued)

    async def _settle(
        self,
        told: Sequence[tuple[Message, str, Spot, Left]],
        over: Sequence[tuple[Spot, Left]],
        new: Sequence[tuple[Spot, str, Mapping[str, Any] | None, int]],
        past: Sequence[tuple[Spot, Left]],
        *,
        queued: bool,
    ) -> None:
        events = self._store.event_store()
        for message, code, spot, left in told:
            await self._tell(events, message, code, spot, left)
        for spot, left in over:
            await self._over(events, spot, self._waiter(spot), left)
            self._open.discard(spot)
            self._told.pop(spot, None)
        for spot, source, schema, again_ms in new:
            waiter = self._waiter(spot)
            if source:
                await events.arrived(spot.channel, waiter, source, keep_ms=EVENT_KEEP_MS, again_ms=again_ms)
            else:
                about = msgspec.json.encode({"schema": schema})
                event = await events.register(spot.channel, waiter, about, keep_ms=EVENT_KEEP_MS)
                if event is not None:
                    self._held.append(message_of(spot.channel, waiter, event))
            self._open.add(spot)
            self._told[spot] = source
        for spot, left in past:
            # What was kept for it, and what comes later, goes where it would go if it had waited until now.
            waiter = self._waiter(spot)
            await events.register(spot.channel, waiter, _NO_SCHEMA, keep_ms=EVENT_KEEP_MS)
            await self._over(events, spot, waiter, left)
        if self._unsaid is not None:
            self._unsaid.difference_update(spot.step for spot, _ in past)
        # What was held for waits that are over goes at once to where it belongs now.
        moved, self._moved = self._moved, []
        for due in moved:
            await self._bring(due, queued)

    async def last(self, *, queued: bool) -> None:
        """The waits that are over now, and those that never begin."""
        await self.work(queued=queued, now_ms=0)

    def _never_begun(self) -> Sequence[tuple[Spot, Left]]:
        """Those of which nothing was said yet. A key may become known long after the saga has turned around."""
        state = self._state
        if not state.backward:
            return ()
        if self._unsaid is None:
            self._unsaid = {step.index for step in state.plan.steps if step.builtin == KIND}
        if not self._unsaid:
            return ()
        spots = [Spot(index, 1, Channel(*event)) for index, event in never_begun(state, self._unsaid)]
        return [(spot, left_by(self._state, *spot)) for spot in spots]

    async def _tell(self, events: EventStore, message: Message, code: str, spot: Spot, left: Left) -> None:
        waiter = Waiter(self._state.saga_id, message.step, spot.nth)
        if code == INVALID:
            await events.refuse(spot.channel, waiter, message.id, keep_ms=EVENT_KEEP_MS)
        else:
            await self._over(events, spot, waiter, left)

    async def _over(self, events: EventStore, spot: Spot, waiter: Waiter, left: Left) -> None:
        due = await events.over(spot.channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
        if due is not None:
            self._moved.append(due)

    def _wanted(self) -> dict[Spot, str]:
        """What the store is to know: the events that are awaited, with the ids of those that came."""
        return {
            Spot(index, self._state.steps[index].begun, Channel(*event)): came[entry].source if entry in came else ""
            for index, wait in self._state.pending.items()
            if wait.on == "event"
            for came in (self._state.steps[index].came,)
            for entry, event in enumerate(wait.events())
        }

    def _waiter(self, spot: Spot) -> Waiter:
        return Waiter(self._state.saga_id, self._state.plan.steps[spot.step].key, spot.nth)

    def _again_ms(self, wait: Pending) -> int:
        return again_ms(wait, self._state.at)


def again_ms(wait: Pending, now_ms: int) -> int:
    """When an event that a step has, which waits for others, is looked at again: its owner may end too early."""
    return LOOK_AGAIN_MS if wait.due is None else min(LOOK_AGAIN_MS, max(wait.due - now_ms, 0))


def message_of(channel: Channel, waiter: Waiter, event: StoredEvent) -> Message:
    """The message that brings an event to the saga that waits for it."""
    return Message(
        id=event.id,
        kind="event",
        step=waiter.step,
        event=channel.name,
        key=channel.key,
        nth=waiter.nth,
        output=msgspec.json.decode(event.payload),
    )


class Left(NamedTuple):
    """What a wait that is over leaves: the id of the event that ended it, or else what is for a late event."""

    taken: str = ""
    about: bytes = b""


def left_by(state: State, index: int, nth: int, channel: Channel) -> Left:
    """What a step's wait leaves for events of this name and key; nothing if there is no such step.

    A step has begun to wait again only because it had waited in vain.
    """
    if index < 0:
        return Left()
    anew = nth < state.steps[index].begun
    if not anew and (taken := state.steps[index].took(*channel)):
        return Left(taken)
    call = late_call(state, index, anew=anew)
    return Left("", b"" if call is None else msgspec.json.encode(call))
