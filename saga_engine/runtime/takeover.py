"""Take-over: from the journal on request, or from the queue.

A take-over ends with a driver that has not started, and its first record; or with a result, if there is nothing to
drive. A saga that became ours and is not driven is released again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from saga_engine.core import transitions as t
from saga_engine.core.decide import Capabilities, decide
from saga_engine.core.evolve import evolve
from saga_engine.core.records import AnyRecord, SagaResumed
from saga_engine.core.state import State
from saga_engine.errors import Interrupted, LeaseHeld, LeaseLost, SagaError, StoreRefused, StoreUnavailable
from saga_engine.execution.calls import lesson_of
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.result import SagaResult
from saga_engine.ports import Acquired, Held, Store, Taken, Tools
from saga_engine.runtime.driver import AT_ONCE, OFFER_AGAIN_MS, SagaDriver, queued_again
from saga_engine.runtime.journal import decoded, drivable, read_records, state_of
from saga_engine.runtime.lease import Lease, lease_clock_s
from saga_engine.runtime.owner import parse, provably_dead
from saga_engine.runtime.pending_releases import PendingReleases
from saga_engine.runtime.performer import Performer, require_secrets
from saga_engine.runtime.saga_task import Running
from saga_engine.runtime.stop_reasons import lost

#: The interval, in seconds, at which a saga of another process is requested: its owner may end with it, or prove that
#: it lives, before its lease ends. A lease that ends later than it did, by more than this, has been renewed.
_AGAIN_S = 1.0
_RENEWED_S = 0.25
#: When a saga is offered again that could not be driven here because a tool or a secret is missing: least and most.
_RETRY_REFUSED_MS = (5_000, 600_000)
#: When the next saga that may have ended its owners is offered again, while another one is tried here.
_NEXT_SUSPECT_MS = 500
#: A driver and its first record, or the state of a saga that is not driven.
Took = SagaResult | tuple[SagaDriver, AnyRecord]


class TakeOver:
    """The take-overs of one process.

    ``owner``: this process's owner. ``drives``: whether it drives a saga. ``open_lease``: its lease.
    ``performer``: makes the calls of a saga.
    ``driver(state, seq, performer, saga, messages)`` creates a driver. ``on_wait`` is called when a take-over waits.
    """

    def __init__(
        self,
        store: Store,
        tools: Tools,
        clock: StoreClock,
        capabilities: Capabilities,
        pending: PendingReleases,
        *,
        owner: Callable[[], str],
        drives: Callable[[str], bool],
        open_lease: Callable[[], Awaitable[Lease]],
        performer: Callable[[str], Awaitable[Performer]],
        driver: Callable[[State, int, Performer, Running, bool], SagaDriver],
        stopping: asyncio.Event,
        on_wait: Callable[[str, str, float], None] | None,
    ) -> None:
        self._store = store
        self._tools = tools
        self._clock = clock
        self._capabilities = capabilities
        self._pending = pending
        self._owner = owner
        self._drives = drives
        self._open_lease = open_lease
        self._performer = performer
        self._driver = driver
        self._stopping = stopping
        self._on_wait = on_wait
        self._suspect = ""  # the last saga that may have ended its owners and is tried here

    async def take(self, saga_id: str, saga: Running) -> Took:
        """Take a saga over from its journal; a result if there is nothing to drive."""
        records = await read_records(self._store, saga_id)
        state = drivable(saga_id, records, self._tools)
        if state.status in t.SAGA_FINAL:
            return SagaResult(state)
        if state.next_overdue() is not None and not self._clock.heard:
            await self._open_lease()  # for the store's clock, on which approvals expire and reminders are due
        if self._rests(state) and not await self._store.messages(saga_id):
            return SagaResult(state)
        idle = saga.link is None and self._is_idle(state)
        if idle:
            head = await self._store.head(saga_id)
            if head.length == len(records) and not (head.owner or head.messages):
                return SagaResult(state)
        require_secrets(state.plan)
        performer = await self._performer(saga_id)
        try:
            try:
                acquired = await self._acquire(saga_id)
            except LeaseLost:
                performer.lease.lose()  # the server knows that it has ended before this process does
                performer = await self._performer(saga_id)
                acquired = await self._acquire(saga_id)
        except StoreUnavailable:
            self._pending.add_unsure(saga_id, AT_ONCE)  # the answer was lost
            raise
        try:
            if acquired.seq != len(records):
                records += await read_records(self._store, saga_id, len(records))
                state = state_of(records, self._tools)
            await self._learn_again(state, records, performer)
            if saga.link is None and self._is_idle(state) and not acquired.messages:
                await self._leave_idle(state, acquired.epoch)
                return SagaResult(state)
            return await self._take_up(saga, state, acquired, performer)
        except Exception as error:
            await self._pending.release(saga_id, acquired.epoch, self.due_after(error))
            raise

    async def _learn_again(self, state: State, records: Sequence[AnyRecord], performer: Performer) -> None:
        """Store what operators said for identical calls: the last owner may have ended before it did."""
        for record in records:
            lesson = lesson_of(state, record)
            if lesson is not None:
                await performer.learn(lesson, max(self._now_of(state) - record.at, 0))

    def _rests(self, state: State) -> bool:
        """Whether a saga has nothing to do until an operator answers, or time passes."""
        alerting = self._capabilities.alerting
        if state.status != t.ESCALATED or state.alerts_pending(alerting=alerting):
            return False
        return not state.overdue(self._now_of(state), alerting=alerting)

    def _is_idle(self, state: State) -> bool:
        """Whether it is an open session that waits only for its agent; a record of a take-over would only grow it."""
        if (
            not state.open
            or state.in_flight
            or state.asking
            or state.alerts_pending(alerting=self._capabilities.alerting)
        ):
            return False
        now_ms = self._now_of(state)
        return state.next_due(now_ms) in {None, state.binding_deadline} and not decide(
            state, now_ms, self._capabilities
        )

    async def _leave_idle(self, state: State, epoch: int) -> None:
        due_ms = state.binding_deadline or 0
        await self._store.release(state.saga_id, epoch, due_ms and self._clock.in_store(due_ms, self._now_of(state)))

    def _now_of(self, state: State) -> int:
        return self._clock.now_after(state.saga_id, state.at)

    async def _take_up(self, saga: Running, state: State, acquired: Acquired, performer: Performer) -> Took:
        """Continue a saga that has just become ours."""
        owner, saga.reason, reason = self._owner(), "", saga.reason
        resumed = SagaResumed(at=self._now_of(state), owner=owner, epoch=acquired.epoch, reason=reason)
        if state.status in t.SAGA_FINAL:
            await self._store.release(state.saga_id, acquired.epoch)
            return SagaResult(state)
        evolve(state, resumed)
        return self._driver(state, acquired.seq, performer, saga, bool(acquired.messages)), resumed

    async def adopt(self, taken: Taken, owner: str, saga: Running) -> Took:
        """Start with a saga that was taken from the queue.

        Whatever prevents this process from driving it sends it back there.
        """
        saga_id, epoch = taken.saga_id, taken.epoch
        records: list[AnyRecord] = []
        try:
            performer = await self._performer(saga_id)
            if performer.lease.owner != owner:
                raise lost(saga_id)
            data = taken.records
            records = (
                await read_records(self._store, saga_id) if data is None else await decoded(self._store, saga_id, data)
            )
            state = drivable(saga_id, records, self._tools)
            await self._learn_again(state, records, performer)
            if self._rests(state) and not taken.messages:
                now_ms = self._now_of(state)
                due_ms = queued_again(state, now_ms)
                await self._store.release(saga_id, epoch, due_ms and self._clock.in_store(due_ms, now_ms))
                return SagaResult(state)
            if self._is_idle(state) and not taken.messages:
                await self._leave_idle(state, epoch)
                return SagaResult(state)
            require_secrets(state.plan)
            if is_suspect(state):
                if self._suspect != saga_id and self._drives(self._suspect):
                    await self._store.release(saga_id, epoch, self._clock.now_ms() + _NEXT_SUSPECT_MS)
                    return SagaResult(state)
                self._suspect = saga_id
        except LeaseLost:
            raise
        except Exception as error:
            await self._pending.release(saga_id, epoch, self.due_after(error, records[-1].at if records else None))
            raise
        resumed = SagaResumed(at=self._now_of(state), owner=owner, epoch=epoch)
        evolve(state, resumed)
        return self._driver(state, taken.seq, performer, saga, taken.messages > 0), resumed

    def due_after(self, error: Exception, since_ms: int | None = None) -> int:
        """When a worker may try again: at once after an outage.

        Later, perhaps elsewhere, after a failure with a reason.

        The longer a saga has made no progress (``since_ms``: when its last record was made), the longer it waits.
        """
        if isinstance(error, StoreUnavailable):
            return AT_ONCE
        now_ms = self._clock.now_ms()
        if isinstance(error, StoreRefused):  # it is full, for example: no fault of the saga
            return now_ms + _RETRY_REFUSED_MS[0]
        if since_ms is None or not isinstance(error, SagaError):
            return now_ms + OFFER_AGAIN_MS
        least_ms, most_ms = _RETRY_REFUSED_MS
        return now_ms + min(max((now_ms - since_ms) // 2, least_ms), most_ms)

    async def _acquire(self, saga_id: str) -> Acquired:
        return await acquire(self._store, saga_id, self._owner, self._stopping, self._on_wait)


async def acquire(
    store: Store,
    saga_id: str,
    owner: Callable[[], str],
    stopping: asyncio.Event,
    on_wait: Callable[[str, str, float], None] | None,
) -> Acquired:
    """Own the saga: at once if its owner is gone, else when its lease ends; an owner that renews it keeps it.

    ``owner`` is this process's owner. ``on_wait(saga_id, owner, seconds)`` is called with the owner it waits for.
    Raises ``LeaseHeld``, ``Interrupted`` once ``stopping`` is set, and what ``Store.acquire`` raises.
    """
    told, ends_s = "", 0.0
    while True:
        answer = await store.acquire(saga_id, owner())
        if isinstance(answer, Held) and provably_dead(answer.owner):
            answer = await store.acquire(saga_id, owner(), dead_owner=answer.owner)
        if isinstance(answer, Acquired):
            return answer
        left_s = answer.ttl_ms / 1000
        now_s = lease_clock_s()
        if told != answer.owner:
            told, ends_s = answer.owner, now_s + left_s
            if on_wait is not None:
                on_wait(saga_id, answer.owner, left_s)
        elif now_s + left_s > ends_s + _RENEWED_S:
            raise LeaseHeld(
                f"saga {saga_id} is owned by a live process ({_who(answer.owner)})",
                hint=f"it continues there; to see its state: saga show {saga_id}",
                saga_id=saga_id,
                owner=answer.owner,
            )
        if await _happens(stopping, min(left_s, _AGAIN_S) + 0.01):
            raise Interrupted(
                f"saga {saga_id} was not taken over; it stands as its journal says",
                hint=f"saga resume {saga_id}",
                saga_id=saga_id,
            )


def is_suspect(state: State) -> bool:
    """Whether a call of the saga, an alert or a model's answer was awaited when owners ended: it may have ended them.

    One such saga is driven at a time, so that the next end of a process incriminates it alone.
    """
    if any(alert.crashes >= 1 and alert.in_flight for alert in state.alerts.values()):
        return True
    if any(state.ask_crashes.get(index) for index in state.asking):
        return True
    return any(state.steps[index].call(direction).crashes >= 1 for index, direction in state.in_flight)


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True


def _who(owner: str) -> str:
    known = parse(owner)
    return owner if known is None else f"pid {known.pid} on {known.host}"
