"""Accepts events from outside, and brings them to the sagas that wait for them.

An event is durable in the store before its sender is told anything. What is held for a saga becomes a message to it,
posted by the sender; if the sender ends first, a worker finds the event again, because its saga has not settled it.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core.late_events import LateCall, LatePlan, asking, with_event
from saga_engine.core.messages import encode_message
from saga_engine.core.records import AnyRecord, StepWaiting
from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.steps.wait import entry_of, schema_of
from saga_engine.core.waits import EventName, Wait
from saga_engine.errors import BindingUnresolved, EventRefused, PlanInvalid, SagaError, SagaExists, SagaNotFound
from saga_engine.plan.values import plain
from saga_engine.plan.wait import MAX_ID_CHARS, MAX_PAYLOAD_BYTES, key_of, misfit, name_problem
from saga_engine.ports import Channel, DueEvent, ListedEvent, Receipt, Store, StoredEvent, Waiter
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.runtime.listening import EVENT_KEEP_MS, again_ms, left_by, message_of
from saga_engine.runtime.supervisor import Supervisor

_log = logging.getLogger("saga_engine.events")

#: How many events of one name and key are kept if nothing waits for them.
MOST_KEPT: Final = 100
#: A saga that has not settled an event for so long is told again.
_TELL_AGAIN_MS: Final = 5_000
_TELL_AT_ONCE: Final = 100
#: In place of an event's id, that of what answered a wait that was over. No sender's id has it: ids are printable.
_ANSWERED: Final = "\n"

_DECODE: Final = msgspec.json.Decoder(LateCall).decode


class EventReceipt(NamedTuple):
    """What became of an event that was sent.

    ``disposition``: ``held`` for the step of a saga that waits, which decides; ``kept`` until a step waits for it;
    ``taken`` or ``refused`` by that step; ``late``: the step that waited for it waits no more; ``handled``: that, and
    the saga of its ``on_late`` has begun. ``repeated``: an event with this id had arrived before, and this one was
    dropped. ``late_saga``: the saga that calls ``on_late``; a worker begins it unless this process has the tool.
    """

    event_id: str
    disposition: str
    repeated: bool
    saga_id: str = ""
    step: str = ""
    late_saga: str = ""


#: Begins the saga that handles a late event, with an id; one that exists with the same plan is that saga.
BeginLate = Callable[[LatePlan, str], Awaitable[None]]


class Events:
    """The events of one store, as this process sends and delivers them."""

    def __init__(self, store: Store, supervisor: Supervisor, begin_late: BeginLate) -> None:
        self._store = store
        self._begin_late = begin_late
        self._supervisor = supervisor

    async def send(self, name: str, key: str | int, payload: Any, event_id: str | None) -> EventReceipt:
        """Accept an event once. Raises ``EventRefused``, ``StoreUnavailable``, ``StoreRefused``."""
        channel, event = _checked(name, key, payload, event_id)
        events = self._store.event_store()
        about = await events.first(channel)
        if about is not None and (wrong := misfit(msgspec.json.decode(about)["schema"], payload)):
            raise EventRefused(
                f"the payload does not fit what the step that waits expects: {wrong}",
                hint="send it again with a payload that fits; nothing was recorded",
            )
        receipt = await events.send(channel, event, keep_ms=EVENT_KEEP_MS, most=MOST_KEPT)
        if receipt.disposition == "full":
            raise EventRefused(
                f"{MOST_KEPT} events {name} with this key are kept already, and nothing waits for them",
                hint="`saga events` lists them; they expire by themselves",
            )
        if receipt.disposition == "held" and receipt.waiter is not None:
            await self._deliver(DueEvent(channel, receipt.waiter, event.id), receipt)
            # The saga may have ended meanwhile, or before its owner could say so.
            receipt = (await events.look(channel, event.id) or receipt)._replace(known=receipt.known)
        waiter = receipt.waiter
        found = EventReceipt(event.id, receipt.disposition, receipt.known)
        if waiter is None:
            return found
        found = found._replace(saga_id=waiter.saga_id, step=waiter.step)
        if receipt.disposition != "late" or not receipt.about:
            return found
        late = _DECODE(receipt.about).saga_id(event.id, *channel)
        try:
            await self._handle_late(DueEvent(channel, waiter, event.id), receipt)
        except SagaError as error:
            _log.info("a worker has to begin saga %s: %s", late, error)
            return found._replace(late_saga=late)
        return found._replace(late_saga=late, disposition="handled")

    async def require_waiting(self, saga_id: str, step: str, entry: int | None = None) -> None:
        """Raises ``EventRefused`` unless the step waits for an event: ``entry`` of those of a wait for several."""
        records = await read_records(self._store, saga_id)
        state = state_of(records)
        index = state.plan.by_key.get(step, -1)
        wait = state.waits.get(index)
        if wait is None or wait.on != "event":
            raise _waits_not(state, index, step, _waited(records, step))
        _named(saga_id, step, wait, entry)
        _require_absent(state, index, entry)

    async def answer(self, saga_id: str, step: str, payload: Any, entry: int | None = None) -> str:
        """Bring a payload to one wait, past the others of its channel. Raises ``EventRefused``.

        ``entry``: which of the events of a wait for several. If the wait is over without its event, its ``on_late``
        handles the payload, once; then the id of the saga that does so is returned, else an empty text.
        """
        records = await read_records(self._store, saga_id)
        state = state_of(records)
        index = state.plan.by_key.get(step, -1)
        wait = state.waits.get(index)
        if wait is None or wait.on != "event":
            over = _waited(records, step)
            if over is None or not _awaits_late(state, index):
                raise _waits_not(state, index, step, over)
            channel, event = _checked(*_named(saga_id, step, over, entry), payload, None)
            return await self._answer_late(state, index, channel, event, entry)
        channel, event = _checked(*_named(saga_id, step, wait, entry), payload, None)
        _require_absent(state, index, entry)
        _require_fits(state, index, payload, entry)
        message = message_of(channel, Waiter(saga_id, step), event)
        await self._store.post(saga_id, encode_message(message), spare_ms=0)
        self._supervisor.notify(saga_id)
        return ""

    async def _answer_late(
        self, state: State, index: int, channel: Channel, event: StoredEvent, entry: int | None
    ) -> str:
        """Begin the saga that handles the payload for a wait that is over: one wait has one for each of its events."""
        saga_id, step = state.saga_id, state.plan.steps[index].key
        left = left_by(state, index, channel)
        if not left.about or entry in state.steps[index].came:
            raise EventRefused(
                f"the wait of step {step} of saga {saga_id} had its end", hint=_by_name(channel), saga_id=saga_id
            )
        payload = msgspec.json.decode(event.payload)
        _require_fits(state, index, payload, entry)
        call = _DECODE(left.about)
        late = call.saga_id(_ANSWERED, *channel)
        try:
            await self._begin_call(call, call.output(*channel, payload), late)
        except PlanInvalid as error:
            raise EventRefused(
                f"the wait is over, and this process cannot begin its on_late: {error.message}",
                hint=_by_name(channel),
                saga_id=saga_id,
            ) from error
        except SagaExists as error:
            raise EventRefused(
                f"step {step} of saga {saga_id} waits no more, and saga {late} handles another answer",
                hint=_by_name(channel),
                saga_id=saga_id,
            ) from error
        return late

    async def listed(self, name: str | None, key: str | int | None, limit: int) -> Sequence[ListedEvent]:
        """The events of a name and key, or of all, the last ones first. Raises ``EventRefused`` for no key."""
        try:
            channel = None if name is None or key is None else Channel(name, key_of(key))
        except ValueError as error:
            raise EventRefused(str(error), hint="use the key that the plan's 'wait' step has") from error
        found = await self._store.event_store().listed(channel, limit)
        return [event for event in found if name is None or event.channel.name == name]

    async def tell_again(self, partitions: Sequence[int]) -> None:
        """Bring sagas the events that they have not settled: their senders, or their owners, ended first."""
        events = self._store.event_store()
        for due in await events.due(partitions, older_ms=_TELL_AGAIN_MS, limit=_TELL_AT_ONCE):
            try:
                receipt = await events.look(due.channel, due.event)
                if receipt is None or receipt.waiter != due.waiter:
                    continue
                if receipt.disposition == "late" and receipt.about:
                    await self._handle_late(due, receipt)
                elif not await self._settled(due):
                    await self._deliver(due, receipt)
            except SagaError as error:
                _log.warning("event %s cannot be brought to saga %s yet: %s", due.event, due.waiter.saga_id, error)

    async def _handle_late(self, due: DueEvent, receipt: Receipt) -> None:
        """Begin the saga that handles a late event, and then tell the store: a repeat begins no second one."""
        call = _DECODE(receipt.about)
        payload = call.output(*due.channel, msgspec.json.decode(receipt.payload))
        late = call.saga_id(due.event, *due.channel)
        with contextlib.suppress(SagaExists):  # another process made something else of it: the call, or the question
            await self._begin_call(call, payload, late)
        await self._store.event_store().handled(due.channel, due.event, keep_ms=EVENT_KEEP_MS)

    async def _begin_call(self, call: LateCall, payload: Any, late: str) -> None:
        """Begin the saga that handles a late event. Raises ``PlanInvalid`` if this process has no such tool."""
        try:
            await self._begin_late(with_event(call, payload), late)
        except (BindingUnresolved, PlanInvalid) as error:
            if any(problem.code == "tool-unknown" for problem in getattr(error, "problems", ())):
                raise  # another process has it
            await self._begin_late(asking(call, payload, error.message), late)

    async def _deliver(self, due: DueEvent, receipt: Receipt) -> None:
        """Post a held event to its saga; or settle it, if the saga is gone or has ended."""
        channel, waiter, event = due
        message = message_of(channel, waiter, StoredEvent(event, receipt.payload))
        try:
            head = await self._store.post(waiter.saga_id, encode_message(message), spare_ms=0)
        except SagaNotFound:
            await self._store.event_store().over(channel, waiter, keep_ms=EVENT_KEEP_MS)
            return
        if head.status in SAGA_FINAL:
            await self._settled(due)
        else:
            self._supervisor.notify(waiter.saga_id)

    async def _settled(self, due: DueEvent) -> bool:
        """Whether the journal of the saga says that the wait is over; then the store is told."""
        channel, waiter, _ = due
        events = self._store.event_store()
        try:
            state = state_of(await read_records(self._store, waiter.saga_id))
        except SagaNotFound:
            await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS)
            return True
        index = state.plan.by_key.get(waiter.step, -1)
        wait = state.waits.get(index)
        entry = -1 if wait is None else entry_of(wait, *channel)
        if wait is not None and entry >= 0:
            return await self._has(due, state, wait, entry)
        if state.status not in SAGA_FINAL and index < 0:
            return False  # a step of a session that this process has not read
        left = left_by(state, index, channel)
        await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
        return True

    async def _has(self, due: DueEvent, state: State, wait: Wait, entry: int) -> bool:
        """Whether the step, which waits, has the event already, or another in its place; then the store is told."""
        came = state.steps[state.plan.by_key[due.waiter.step]].came.get(entry)
        if came is None:
            return False
        again = again_ms(wait, state.at)
        events = self._store.event_store()
        await events.arrived(due.channel, due.waiter, came.source, keep_ms=EVENT_KEEP_MS, again_ms=again)
        return True


def _checked(name: str, key: str | int, payload: Any, event_id: str | None) -> tuple[Channel, StoredEvent]:
    """The event as the store keeps it. Raises ``EventRefused`` and ``ValueNotJson``."""
    if problem := name_problem(name):
        raise EventRefused(problem, hint="use the name that the plan's 'wait' step has")
    try:
        channel = Channel(name, key_of(key))
    except ValueError as error:
        raise EventRefused(str(error), hint="use the key that the plan's 'wait' step has") from error
    chosen = secrets.token_hex(8) if event_id is None else event_id
    if not chosen or not chosen.isprintable() or len(chosen) > MAX_ID_CHARS:
        raise EventRefused(
            f"the id of an event is 1 to {MAX_ID_CHARS} printable characters", hint="use the sender's own id of it"
        )
    data = msgspec.json.encode(plain(payload))
    if len(data) > MAX_PAYLOAD_BYTES:
        raise EventRefused(
            f"the payload has {len(data)} bytes of JSON, but only {MAX_PAYLOAD_BYTES} are allowed",
            hint="send a reference to it",
        )
    return channel, StoredEvent(chosen, data)


def _waited(records: Sequence[AnyRecord], step: str) -> Wait | None:
    """The last wait of a step for events, which may be over; None: it has not waited."""
    for record in reversed(records):
        if isinstance(record, StepWaiting) and record.step == step:
            return Wait("event", None, record.about) if record.on == "event" else None
    return None


def _awaits_late(state: State, index: int) -> bool:
    """Whether a step that waits no more has a call for a late event."""
    return index >= 0 and state.plan.steps[index].late is not None


def _waits_not(state: State, index: int, step: str, over: Wait | None) -> EventRefused:
    """The refusal of an event for a step that does not wait, with what can be done about it."""
    saga_id = state.saga_id
    if over is None:
        message, hint = f"step {step} of saga {saga_id} does not wait for an event", "it may later: see `saga show`"
    else:
        message, hint = f"step {step} of saga {saga_id} waits for an event no more", "see `saga show`"
        event = over.events()[0]
        if _awaits_late(state, index):
            hint = f"its on_late handles what comes too late: {_by_name(Channel(*event))}"
    return EventRefused(message, hint=hint, saga_id=saga_id)


def _by_name(channel: Channel) -> str:
    """The way on which an event reaches whatever waits for it, or has waited."""
    return f"send another event under its name and key: `saga event {channel.name} {channel.key} PAYLOAD`"


def _named(saga_id: str, step: str, wait: Wait, entry: int | None) -> EventName:
    """The event of a wait that is meant. Raises ``EventRefused``."""
    events = wait.events()
    if entry is None and wait.word:
        names = ", ".join(f"{number}: {each.event} {each.key}" for number, each in enumerate(events))
        raise EventRefused(
            f"step {step} of saga {saga_id} waits for several events", hint=f"say which (entry): {names}"
        )
    if not 0 <= (entry or 0) < len(events) or (entry is not None and not wait.word):
        raise EventRefused(f"step {step} of saga {saga_id} waits for no event {entry}", hint="see `saga show`")
    return events[entry or 0]


def _require_absent(state: State, index: int, entry: int | None) -> None:
    if entry in state.steps[index].came:
        step = state.plan.steps[index].key
        raise EventRefused(
            f"step {step} of saga {state.saga_id} has its event {entry} already", hint="it waits for others"
        )


def _require_fits(state: State, index: int, payload: Any, entry: int | None) -> None:
    if wrong := misfit(schema_of(state, index, entry or 0), payload):
        raise EventRefused(f"the payload does not fit what the step that waits expects: {wrong}")
