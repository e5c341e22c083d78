"""Posts messages to sagas, waits until they are read, and continues sagas that have messages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from saga_engine.core.messages import Message, check_amendment, decode_message, encode_message, repeats, to_post
from saga_engine.core.records import MessageRefused
from saga_engine.core.states import COMPENSATING, ESCALATED, PENDING, RUNNING, SAGA_FINAL
from saga_engine.errors import (
    AmendRefused,
    CancelRefused,
    DecisionRefused,
    ForkRefused,
    JournalUnreadable,
    LeaseHeld,
    SagaError,
    SecretMissing,
    ToolMissing,
)
from saga_engine.execution.owner import is_owned
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.loggers import logger_of
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.ports import PAGE_START, Acquired, Head, PagePlace, Store
from saga_engine.runtime.audit import clear_away
from saga_engine.runtime.fork import Fork, Forking
from saga_engine.runtime.journal import beside_state, folded_state, read_records, shown, state_of
from saga_engine.runtime.stop_reasons import interrupted
from saga_engine.runtime.supervisor import Supervisor

_log = logger_of("saga_engine")

#: The intervals, in seconds, at which the head of a saga that others drive is read: ever longer.
_LOOK_AGAIN_S: Final = (0.02, 0.5)
#: How many sagas are resumed at the same time.
_RESUME_AT_ONCE: Final = 256
_REFUSALS = {
    "cancel": CancelRefused,
    "close": CancelRefused,
    "keep": CancelRefused,
    "amend": AmendRefused,
    "transfer": ForkRefused,
    "resolve": DecisionRefused,
}


async def check_added(store: Store, tools: ToolCatalog, saga_id: str, steps: Sequence[Mapping[str, Any]]) -> None:
    """Raises what refuses an addition to the saga as it stands."""
    records = await read_records(store, saga_id)
    await beside_state(records, lambda: check_amendment(state_of(records, tools), steps), steps)


async def say(
    store: Store, supervisor: Supervisor, tools: ToolCatalog, saga_id: str, message: Message, *, wait: bool
) -> SagaResult:
    """Post a cancel or an answer; with ``wait``, wait until the saga ends or rests.

    Repeating a message that the saga has already received is no conflict. Raises ``SagaNotFound``, and the refusal of
    the message.
    """
    records = await read_records(store, saga_id)
    state = await folded_state(records, tools)
    # Before the store has answered, its time is unknown here; the owner checks whether a question has expired.
    now_ms = max(supervisor.clock.now_ms(), state.at) if supervisor.clock.heard else state.at
    checked = to_post(state, records, await store.messages(saga_id), message, now_ms)
    if not wait:
        if checked is None:
            return await _look(store, saga_id)
        found = await send(store, supervisor, saga_id, checked)
        if message.kind == "resolve":
            await _require_first(store, tools, saga_id, checked)
        return found
    try:
        return await (
            _go_on(store, supervisor, saga_id) if checked is None else deliver(store, supervisor, saga_id, checked)
        )
    except (ToolMissing, SecretMissing) as error:
        raise type(error)(
            f"the message is recorded, but the saga cannot go on here: {error.message}",
            hint="resume the saga where its tools and secrets are; a process without tools posts with wait=False",
            **error.context,
        ) from error


async def send(store: Store, supervisor: Supervisor, saga_id: str, message: Message) -> SagaResult:
    """Only post a message: the saga's owner acts on it, or else a worker, at once, or the next resume."""
    await store.post(saga_id, encode_message(message), spare_ms=0)
    supervisor.notify(saga_id)
    return await _look(store, saga_id)


async def received(store: Store, saga_id: str, message: Message) -> SagaResult | None:
    """The saga, if it has read a message with this id, or will; else None. Raises its refusal, and ``SagaNotFound``."""
    unread = await store.messages(saga_id)  # before the records: what is in neither has not come
    for record in await read_records(store, saga_id):
        if getattr(record, "message", "") == message.id:
            if isinstance(record, MessageRefused):
                raise _REFUSALS[message.kind](record.reason, hint=f"`saga history {saga_id}` shows it")
            return await _look(store, saga_id)
    known = any(_id_of(data) == message.id for data in unread)
    return await _look(store, saga_id) if known else None


def _id_of(data: bytes) -> str:
    try:
        return decode_message(data).id
    except JournalUnreadable:
        return ""  # a newer engine's; its owner reports it


async def _require_first(store: Store, tools: ToolCatalog, saga_id: str, message: Message) -> None:
    """Raise ``DecisionRefused`` if another answer, posted or read at the same time, came before this one.

    The owner reads messages in their order, so the first one holds although nobody has read it yet.
    """
    unread = await store.messages(saga_id)  # before the records: what is in neither cannot be missed
    records = await read_records(store, saga_id)
    first = encode_message(message)
    if any(getattr(record, "message", "") == message.id for record in records):
        refused = any(isinstance(record, MessageRefused) and record.message == message.id for record in records)
        before: Sequence[bytes] = ()
    else:
        refused, before = first in unread, unread[: unread.index(first)] if first in unread else ()
    if refused:
        state = await folded_state(records, tools)
        to_post(state, records, before, message, state.at)  # raises, unless the same answer was given twice


async def _go_on(store: Store, supervisor: Supervisor, saga_id: str) -> SagaResult:
    """Drive a saga on that has received the message already, unless a live process drives it."""
    head = await store.head(saga_id)
    if supervisor.find(saga_id) is None and is_owned(head):
        return await _look(store, saga_id)
    try:
        return await supervisor.resume(saga_id).wait()
    except LeaseHeld:  # a worker was faster
        return await _look(store, saga_id)


async def _look(store: Store, saga_id: str) -> SagaResult:
    return await shown(store, saga_id)


async def deliver(store: Store, supervisor: Supervisor, saga_id: str, message: Message) -> SagaResult:
    """Post a message; if no other live process drives the saga, drive it here until it ends or rests.

    Raises ``SagaNotFound``, and the refusal that fits the message if it was not read or not accepted.
    """
    handle = await post(store, supervisor, saga_id, message)
    present = supervisor.find(saga_id)
    if present is not None:
        present.stay()
    if handle is None:
        outcome = await _look(store, saga_id)
    else:
        try:
            outcome = await handle.wait()
            if not outcome.ended and encode_message(message) in await store.messages(saga_id):
                # It was just being released, at its rest or because a session's agent had gone, and this was not read.
                outcome = await supervisor.resume(saga_id).wait()
        except LeaseHeld:  # a worker was faster, and reads it
            outcome = await _look(store, saga_id)
    await _require_heard(store, message, outcome)
    return outcome


async def post(store: Store, supervisor: Supervisor, saga_id: str, message: Message) -> Handle | None:
    """Post a message and make sure that an owner reads it; None if that is another live process.

    Raises ``SagaNotFound``.
    """
    head = await store.post(saga_id, encode_message(message))
    present = supervisor.find(saga_id)
    if present is not None:
        supervisor.notify(saga_id)
        return present.handle
    return None if is_owned(head) else supervisor.resume(saga_id)


async def _require_heard(store: Store, message: Message, outcome: SagaResult) -> None:
    """Raise if the message was refused, or the saga ended without reading it: the second to answer must learn that."""
    refusal = _REFUSALS[message.kind]
    records = await read_records(store, outcome.saga_id)
    for record in records:
        if getattr(record, "message", "") == message.id:
            if isinstance(record, MessageRefused):
                if repeats(records, message):
                    return  # two posted the same message at the same time
                raise refusal(record.reason, hint="another request was recorded first: see `saga history`")
            return
    if outcome.ended:
        if repeats(records, message):
            return
        raise refusal(f"saga {outcome.saga_id} ended ({outcome.status}) before this was read", hint="see `saga show`")


async def transfer(store: Store, supervisor: Supervisor, forking: Forking, fork: Fork) -> None:
    """Have the forked saga transfer what is reused, and undo the rest. A crash in between loses nothing."""
    if fork.transfer == "done":  # an earlier attempt died here
        try:
            await supervisor.resume(fork.of).wait()
        except LeaseHeld:
            return  # it continues elsewhere; the effects that are reused have been transferred
    elif fork.transfer == "due":
        message = Message(id=secrets.token_hex(8), kind="transfer", steps=fork.steps, to=fork.saga_id)
        try:
            await deliver(store, supervisor, fork.of, message)
        except ForkRefused:
            # An earlier attempt, which died, may have been read in its place.
            if not await forking.transferred(fork):
                raise
            return
        if not await forking.transferred(fork):
            raise LeaseHeld(
                f"saga {fork.of} is driven by a live process, which has not handed over yet",
                hint="try the same fork again: it goes on where this one was",
                saga_id=fork.of,
            )


async def run_fork(  # noqa: PLR0917
    store: Store,
    supervisor: Supervisor,
    forking: Forking,
    fork: Fork,
    run_from: str | None,
    on_chosen: Callable[[Fork], None] | None,
    *,
    detach: bool = False,
) -> SagaResult:
    """Make the effects the fork's own, and drive it; with ``detach`` it is queued for a worker.

    Raises what ``Coordinator.fork`` raises.
    """
    if not fork.begun:
        fork = await forking.claim(fork, run_from)
    if on_chosen is not None:
        on_chosen(fork)
    await transfer(store, supervisor, forking, fork)
    if detach and fork.begun:
        return await _look(store, fork.saga_id)
    present = supervisor.find(fork.saga_id)
    if present is not None:
        return await present.handle.wait()
    return await supervisor.begin(fork.submission, detach=detach, reused=fork.first).wait()


async def settled(store: Store, saga_id: str) -> SagaResult:
    """Read a saga's head until it has ended, or rests with no message unread; raises ``SagaNotFound``."""
    pause_s = _LOOK_AGAIN_S[0]
    while True:
        head = await store.head(saga_id)
        rests = head.status == ESCALATED and not head.owner and not head.messages
        if rests or head.status in SAGA_FINAL:
            return await shown(store, saga_id, full=True)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LOOK_AGAIN_S[1])


async def enqueue(store: Store, supervisor: Supervisor, saga_id: str) -> None:
    """Queue a saga for a worker now. Raises ``SagaNotFound`` and ``LeaseHeld``."""
    if (await store.head(saga_id)).status in SAGA_FINAL:
        return
    taken = (
        None if supervisor.find(saga_id) is not None else await store.acquire(saga_id, (await supervisor.lease()).owner)
    )
    if not isinstance(taken, Acquired):
        raise LeaseHeld(
            f"saga {saga_id} is driven by a live process", hint="it goes on there: see `saga show`", saga_id=saga_id
        )
    await store.release(saga_id, taken.epoch, due_ms=1)  # a time that is past is now


async def resume_all(store: Store, supervisor: Supervisor) -> dict[str, SagaResult | SagaError]:
    """Resume every saga that can continue; an error stands in its saga's place, whatever ended its driver here.

    The sagas are looked up page by page, and some hundreds are resumed at a time.
    """
    results: dict[str, SagaResult | SagaError] = {}
    begun: set[str] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def ended(handle: Handle) -> None:
        over = asyncio.Event()
        handle.when_done(over.set)
        await over.wait()
        results[handle.saga_id] = _what_came(handle)

    try:
        async for head in _can_go_on(store, supervisor):
            if head.saga_id in begun:
                continue  # its status has changed meanwhile
            begun.add(head.saga_id)
            if len(tasks) >= _RESUME_AT_ONCE:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            tasks.add(asyncio.create_task(ended(supervisor.resume(head.saga_id, waits=_waits(head)))))
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    try:
        await clear_away(store.work())
    except SagaError as error:
        _log.info("what processes that are gone have left was not cleared away: %s", error)
    return dict(sorted(results.items()))


def _what_came(handle: Handle) -> SagaResult | SagaError:
    """The end of a saga's driver here; a cancellation of its task, and a defect, are errors of that saga alone."""
    found = handle.found()
    if isinstance(found, SagaResult | SagaError):
        return found
    if not isinstance(found, Exception):
        return interrupted(handle.saga_id)
    stopped = SagaError(
        f"saga {handle.saga_id} has stopped: {type(found).__name__}: {found}"[:1000],
        hint="this is a defect of the engine or of code that it calls: see the log",
        saga_id=handle.saga_id,
    )
    stopped.__cause__ = found
    return stopped


async def _can_go_on(store: Store, supervisor: Supervisor) -> AsyncIterator[Head]:
    for status in (PENDING, RUNNING, COMPENSATING, ESCALATED):
        at: PagePlace | None = PAGE_START
        while at is not None:
            found, at = await store.page(status, at)
            if status == ESCALATED and not supervisor.clock.heard and any(_due_ms(head) for head in found):
                await supervisor.lease()  # only the store's clock tells what is overdue
            for head in found:
                if head.messages or _can_move(head, supervisor.clock.now_ms()):
                    yield head


def _can_move(head: Head, now_ms: int) -> bool:
    """Whether a saga does not only wait for an operator, an event or a time that has not come."""
    if head.status == ESCALATED:
        return _overdue(head, now_ms)
    # What an owner has not released may have to be, if its process has ended.
    if not head.owner and head.summary and "children" in msgspec.json.decode(head.summary):
        return True  # one may have ended, and its process before it told this one
    wakes_ms = _wakes_ms(head) if _waits(head) and not head.owner else 0
    return wakes_ms is not None and wakes_ms <= now_ms


def _waits(head: Head) -> bool:
    """Whether a saga's steps wait for time, an event or another saga, and nothing else goes on in it."""
    return bool(head.summary) and "waits" in msgspec.json.decode(head.summary)


def _wakes_ms(head: Head) -> int | None:
    found: int | None = msgspec.json.decode(head.summary)["wakes_ms"]
    return found


def _overdue(head: Head, now_ms: int) -> bool:
    """Whether a resting saga has an expired approval, a due reminder, or a deadline that has passed."""
    due_ms = _due_ms(head)
    return due_ms is not None and due_ms <= now_ms


def _due_ms(head: Head) -> int | None:
    due_ms: int | None = msgspec.json.decode(head.summary).get("due_ms") if head.summary else None
    return due_ms
