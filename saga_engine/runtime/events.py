"""Accepts events from outside, and brings them to the sagas that wait for them.

An event is durable in the store before its sender is told anything. What is held for a saga becomes a message to it,
posted by the sender; if the sender ends first, a worker finds the event again, because its saga has not settled it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core.late_events import LateCall, LatePlan, asking, late_call, with_event
from saga_engine.core.messages import encode_message
from saga_engine.core.records import AnyRecord, StepWaiting
from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.steps.wait import answer_id, entry_of, schema_of
from saga_engine.core.waits import EventName, Pending
from saga_engine.errors import BindingUnresolved, EventRefused, PlanInvalid, SagaError, SagaExists, SagaNotFound
from saga_engine.loggers import logger_of, quoted
from saga_engine.plan.values import plain
from saga_engine.plan.wait import MAX_ID_CHARS, MAX_PAYLOAD_BYTES, key_of, misfit, name_problem
from saga_engine.ports import Channel, DueEvent, ListedEvent, Receipt, Store, StoredEvent, Waiter
from saga_engine.runtime.journal import folded_state, read_records
from saga_engine.runtime.listening import EVENT_KEEP_MS, Left, again_ms, left_by, message_of
from saga_engine.runtime.supervisor import Supervisor

_log = logger_of("saga_engine.events")

#: How many events of one name and key are kept if nothing waits for them.
MOST_KEPT: Final = 100
#: A saga that has not settled an event for so long is told again.
_TELL_AGAIN_MS: Final = 5_000
_TELL_AT_ONCE: Final = 100

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
        late, begun = await self._late_saga(DueEvent(channel, waiter, event.id), receipt)
        return found._replace(late_saga=late, disposition=receipt.disposition if begun is None else "handled")

    async def require_waiting(self, saga_id: str, step: str, entry: int | None = None) -> None:
        """Raises ``EventRefused`` unless the step waits for an event: ``entry`` of those of a wait for several."""
        records = await read_records(self._store, saga_id)
        state = await folded_state(records)
        index = state.plan.by_key.get(step, -1)
        wait = state.pending.get(index)
        if wait is None or wait.on != "event":
            raise _waits_not(state, index, step, _waited(records, step))
        _named(saga_id, step, wait, entry)
        if entry in state.steps[index].came:
            raise _has_another(state, index, entry)

    async def answer(self, saga_id: str, step: str, payload: Any, entry: int | None = None) -> str:
        """Bring a payload to one wait, past the others of its channel. Raises ``EventRefused``.

        ``entry``: which of the events of a wait for several. Each has one answer; who gives the same again changes
        nothing. If the wait is over without its event, its ``on_late`` handles the payload, once; then the id of the
        saga that does so is returned, else an empty text.
        """
        records = await read_records(self._store, saga_id)
        state = await folded_state(records)
        index = state.plan.by_key.get(step, -1)
        wait = state.pending.get(index)
        waits = wait is not None and wait.on == "event"
        meant = wait if waits else _waited(records, step)
        if meant is None:
            raise _waits_not(state, index, step, None)
        channel, event = _checked(*_named(saga_id, step, meant, entry), payload, answer_id(state, index, entry))
        if _is_journalled(state, index, channel, event):
            return ""
        came = None if entry is None else state.steps[index].came.get(entry)
        if came is not None and came.source != event.id:
            raise _has_another(state, index, entry) if waits else _had_its_end(state, step, channel)
        left = None if waits else left_by(state, index, state.steps[index].begun, channel)
        if left is not None and not left.about:
            late = _awaits_late(state, index)
            raise _had_its_end(state, step, channel) if late else _waits_not(state, index, step, meant)
        _require_fits(state, index, payload, entry)
        due = DueEvent(channel, Waiter(saga_id, step, state.steps[index].begun), event.id)
        receipt, found = await self._address(due, event, left)
        return await self._answered(state, index, due, receipt, found)

    async def _address(self, due: DueEvent, event: StoredEvent, left: Left | None) -> tuple[Receipt, Receipt]:
        """Hold an event for its wait, and tell the saga; or the store, if the wait is over (``left``).

        Returns what the store said of it first, and what it knows now.
        """
        channel, waiter, _ = due
        events = self._store.event_store()
        receipt = await events.address(channel, waiter, event, keep_ms=EVENT_KEEP_MS)
        if receipt.disposition == "occupied" and not receipt.known and left is not None:
            # The owner of the saga ended before it could say that the wait is over.
            await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
            receipt = await events.address(channel, waiter, event, keep_ms=EVENT_KEEP_MS)
        if receipt.disposition != "held":
            return receipt, receipt
        if left is None:
            await self._deliver(due, receipt)
        else:
            await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
        return receipt, await events.look(channel, event.id) or receipt

    async def _answered(self, state: State, index: int, due: DueEvent, receipt: Receipt, found: Receipt) -> str:
        """What the sender of an answer is told. Raises ``EventRefused``."""
        channel, waiter, event = due
        match found.disposition:
            case "held" | "taken":
                return ""
            case "handled":
                call = late_call(state, index, anew=True)
                return "" if call is None else call.saga_id(event, *channel)
            case "late" if found.about:
                late, begun = await self._late_saga(due, found)
                if begun is False and not receipt.known:  # it was known once, with another payload perhaps
                    raise EventRefused(
                        f"step {waiter.step} of saga {waiter.saga_id} waits no more, and saga {late} handles another "
                        "answer",
                        hint=_by_name(channel),
                        saga_id=waiter.saga_id,
                    )
                return late
            case "occupied" if not found.known:
                raise EventRefused(
                    f"step {waiter.step} of saga {waiter.saga_id} has another event, about which it has not decided",
                    hint="send it again if the step waits on: see `saga show`",
                    saga_id=waiter.saga_id,
                )
            case "occupied" | "refused":
                what = "has had another answer" if found.disposition == "occupied" else "refused this answer"
                raise EventRefused(
                    f"the wait of step {waiter.step} of saga {waiter.saga_id} {what}",
                    hint=_by_name(channel),
                    saga_id=waiter.saga_id,
                )
            case _:
                raise _had_its_end(state, waiter.step, channel)

    async def _late_saga(self, due: DueEvent, receipt: Receipt) -> tuple[str, bool | None]:
        """Handle a late event here; returns the id of the saga that does so, and whether it is new or as it would be.

        None: a worker has to begin it.
        """
        late = _DECODE(receipt.about).saga_id(due.event, *due.channel)
        try:
            return late, await self._handle_late(due, receipt)
        except SagaError as error:
            _log.info("a worker has to begin saga %s: %s", late, error)
            return late, None

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
            await self.bring(due)

    async def bring(self, due: DueEvent) -> None:
        """Bring an event to the saga of its wait, or begin that of its ``on_late``; if this fails, a worker does.

        Whoever named the event may be slow: what has been settled since (refused, taken, handled) has no payload left.
        """
        try:
            receipt = await self._store.event_store().look(due.channel, due.event)
            if receipt is None or receipt.waiter != due.waiter:
                return
            if receipt.disposition == "late" and receipt.about:
                await self._handle_late(due, receipt)
            elif receipt.disposition == "held" and not await self._settled(due):
                await self._deliver(due, receipt)
        except SagaError as error:
            _log.warning("event %s cannot be brought to saga %s yet: %s", quoted(due.event), due.waiter.saga_id, error)

    async def _handle_late(self, due: DueEvent, receipt: Receipt) -> bool:
        """Begin the saga that handles a late event, and then tell the store: a repeat begins no second one.

        Returns False if there is one with another plan: another process made something else of the event, the call or
        the question; or it is that of another answer, which the store has forgotten.
        """
        call = _DECODE(receipt.about)
        payload = call.output(*due.channel, msgspec.json.decode(receipt.payload))
        late = call.saga_id(due.event, *due.channel)
        begun = False
        with contextlib.suppress(SagaExists):
            await self._begin_call(call, payload, late)
            begun = True
        await self._store.event_store().handled(due.channel, due.event, keep_ms=EVENT_KEEP_MS)
        return begun

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
            state = await folded_state(await read_records(self._store, waiter.saga_id))
        except SagaNotFound:
            await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS)
            return True
        index = state.plan.by_key.get(waiter.step, -1)
        begun = state.steps[index].begun if index >= 0 else 0
        if waiter.nth > begun and state.status not in SAGA_FINAL:
            return False  # a wait, or a step of a session, that this journal does not have yet: it was read too early
        wait = state.pending.get(index) if waiter.nth == begun else None
        entry = -1 if wait is None else entry_of(wait, *channel)
        if wait is not None and entry >= 0:
            return await self._has(due, state, wait, entry)
        left = left_by(state, index, waiter.nth, channel)
        await events.over(channel, waiter, keep_ms=EVENT_KEEP_MS, taken=left.taken, about=left.about)
        return True

    async def _has(self, due: DueEvent, state: State, wait: Pending, entry: int) -> bool:
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


def _waited(records: Sequence[AnyRecord], step: str) -> Pending | None:
    """The last wait of a step for events, which may be over; None: it has not waited."""
    for record in reversed(records):
        if isinstance(record, StepWaiting) and record.step == step:
            return Pending("event", None, record.about) if record.on == "event" else None
    return None


def _awaits_late(state: State, index: int) -> bool:
    """Whether a step that waits no more has a call for a late event."""
    return index >= 0 and state.plan.steps[index].late is not None


def _waits_not(state: State, index: int, step: str, over: Pending | None) -> EventRefused:
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


def _named(saga_id: str, step: str, wait: Pending, entry: int | None) -> EventName:
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


def _is_journalled(state: State, index: int, channel: Channel, event: StoredEvent) -> bool:
    """Whether a wait has this answer, with this payload: it is its output, or it came for a wait for all."""
    step = state.steps[index]
    came = next((each for each in step.came.values() if (each.event, each.key) == channel), None)
    if step.took(*channel) == event.id:
        outputs = step.output if isinstance(step.output, list) else [step.output]
        several = [each["payload"] for each in outputs if came and (each["event"], each["key"]) == channel]
        payload = several[0] if came else step.output
    elif came is not None and came.source == event.id and index in state.pending:
        payload = came.payload
    else:
        return False
    return bool(msgspec.json.encode(payload) == event.payload)


def _has_another(state: State, index: int, entry: int | None) -> EventRefused:
    step = state.plan.steps[index].key
    return EventRefused(
        f"step {step} of saga {state.saga_id} has its event {entry} already", hint="it waits for others"
    )


def _had_its_end(state: State, step: str, channel: Channel) -> EventRefused:
    return EventRefused(
        f"the wait of step {step} of saga {state.saga_id} had its end", hint=_by_name(channel), saga_id=state.saga_id
    )


def _require_fits(state: State, index: int, payload: Any, entry: int | None) -> None:
    if wrong := misfit(schema_of(state, index, entry or 0), payload):
        raise EventRefused(f"the payload does not fit what the step that waits expects: {wrong}")
