"""Take-over: how a saga enters this process, from wherever it comes.

A saga comes from its submission, from its journal on request, from the queue, or from its sleep. A take-over ends with
a driver that has not started, and its first records; or with a result, if there is nothing to drive here. A saga that
became ours and is not driven is released again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from saga_engine.core import transitions as t
from saga_engine.core.codec import encode, made_at
from saga_engine.core.crash_loops import has_suspects, is_tried, suspect_in_flight
from saga_engine.core.decide import Capabilities, decide
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.masking import masked_records
from saga_engine.core.plan_growth import Growth
from saga_engine.core.records import AnyRecord, SagaCompensated, SagaCompleted, SagaResumed, SagaStarted, SagaWaived
from saga_engine.core.report import summary
from saga_engine.core.search_terms import terms_of
from saga_engine.core.state import State
from saga_engine.core.submission import Submission
from saga_engine.errors import Interrupted, LeaseHeld, LeaseLost, QueueFull, SagaError, StoreRefused, StoreUnavailable
from saga_engine.execution.aside import context_of_its_own
from saga_engine.execution.calls import lesson_of
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.event_loops import happens
from saga_engine.execution.ids import other_plan
from saga_engine.execution.observers import Observers
from saga_engine.execution.owner import provably_dead, words_of
from saga_engine.execution.result import SagaResult
from saga_engine.ports import Acquired, Creation, Entry, Held, Store, Taken, Tools
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.companions import TELL_AGAIN_MS, Companions, Kind
from saga_engine.runtime.driver import SagaDriver
from saga_engine.runtime.due_times import AT_ONCE, OFFER_AGAIN_MS, queued_again
from saga_engine.runtime.journal import decoded, drivable, folded_state, read_records
from saga_engine.runtime.lease import Lease
from saga_engine.runtime.pending_releases import PendingReleases
from saga_engine.runtime.performer import Performer, require_secrets
from saga_engine.runtime.quota import Quota
from saga_engine.runtime.saga_task import Running
from saga_engine.runtime.stop_reasons import lost, refusal, reserved
from saga_engine.runtime.trials import DRAIN_S, TRIAL_S, Trials
from saga_engine.runtime.writer import JournalWriter

#: The interval, in seconds, at which a saga of another process is requested: its owner may end with it, or prove that
#: it lives, before its lease ends. A lease that ends later than it did, by more than this, has been renewed.
_AGAIN_S = 1.0
_RENEWED_S = 0.25
#: When a saga is offered again that could not be driven here because a tool or a secret is missing: least and most.
_RETRY_REFUSED_MS = (5_000, 600_000)
#: When the next saga that may have ended its owners is offered again, while another one is tried here.
_NEXT_SUSPECT_MS = 500
#: Of a saga that has ended: others may still have to be told what follows.
_AS_QUEUED = -1
#: For a longer wait for a timer, a saga from the queue returns there.
_REST_MS = 2_000
_ENDS = frozenset({SagaCompleted, SagaCompensated, SagaWaived})


class FromSubmission(NamedTuple):
    """A new saga. ``reused``: what a fork starts with, the effects that it reuses; of a session, also the calls.

    ``detach``: it is only queued, for any worker. ``counted``: the quota of its namespace counts it.
    """

    submission: Submission
    reused: Sequence[AnyRecord] = ()
    detach: bool = False
    counted: bool = True


class FromJournal(NamedTuple):
    """A saga that is in the store already: on request, or after its lease was lost here."""


class FromQueue(NamedTuple):
    """A saga that ``owner``, the lease of this process, has taken from the queue."""

    taken: Taken
    owner: str


class FromSleep(NamedTuple):
    """A saga that slept here, with the driver that knows its state."""

    driver: SagaDriver


Source = FromSubmission | FromJournal | FromQueue | FromSleep
#: A driver and its first records, or the state of a saga that is not driven.
Took = SagaResult | tuple[SagaDriver, Sequence[AnyRecord]]


@dataclass(slots=True, kw_only=True)
class TakeOver:
    """The take-overs of one process. ``keep_ms``, ``room`` and ``on_wait`` are those of ``Supervisor``."""

    store: Store
    tools: Tools
    clock: StoreClock
    capabilities: Capabilities
    pending: PendingReleases
    writer: JournalWriter
    observers: Observers
    trials: Trials
    keep_ms: int
    room: int
    quota: Quota
    #: Whether this process drives a saga.
    drives: Callable[[str], bool]
    #: The lease of this process, and what makes the calls of a saga under it.
    lease: Callable[[], Awaitable[Lease]]
    performer: Callable[[str], Awaitable[Performer]]
    #: Set when nothing is taken over any more.
    stopping: asyncio.Event
    on_wait: Callable[[str, str, float], None] | None
    #: The child sagas of those that are driven here.
    kinds: Sequence[Kind]
    #: Told of a saga that is to be resumed and has nothing to do yet.
    rests_on: Callable[[State], None]
    #: The last saga that may have ended its owners and is tried here, and until when it keeps the others out
    #: (the event loop's time, in seconds).
    suspect: SagaDriver | None = None
    suspect_until_s: float = 0.0
    transfers: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def enter(self, saga: Running, source: Source) -> Took:
        """What the saga is to be driven with, or its result, if there is nothing to drive here."""
        if type(source) is FromSubmission:
            return await self._create(saga, source)
        if type(source) is FromQueue:
            return await self._dequeue(saga, *source)
        if type(source) is FromSleep:
            return source.driver, ()  # its state is the one that fell asleep
        return await self._resume(saga)

    # --- from a submission ---------------------------------------------------------------------------------------

    async def _create(self, saga: Running, source: FromSubmission) -> Took:
        submission, reused, detach, counted = source
        if counted:
            await self.quota.admit(submission.saga_id, submission.plan)
        performer = None
        if detach:
            await self.lease()
        else:
            performer = await self.performer(saga.saga_id)
        started = submission.started(self.clock.now_ms())  # the store's clock, known since there is a lease
        # A fork, and an undo, start with what they reuse, in the same write.
        first = [started, *(msgspec.structs.replace(record, at=started.at) for record in reused)]
        if performer is None:
            return await self._queue(submission, started, first)
        state = begin(started, submission.compiled, Growth(started, self.tools))
        driver = self._driver(saga, state, 0, performer, creation=Creation(digest=started.digest, owned=True))
        for record in first[1:]:
            evolve(state, record)
        return driver, first

    async def _queue(self, submission: Submission, started: SagaStarted, first: Sequence[AnyRecord]) -> SagaResult:
        """Journal a saga without driving it."""
        state = begin(started, submission.compiled, Growth(started, self.tools) if first[1:] else None)
        for record in first[1:]:
            evolve(state, record)
        values: dict[str, bytes] = {}
        entry = Entry(
            saga_id=started.saga_id,
            seq=0,
            epoch=0,
            records=[encode(record, values) for record in first],
            status=state.status,
            summary=msgspec.json.encode(summary(state)),
            values=values or None,
            creation=Creation(digest=started.digest, owned=False, room=self.room),
            due_ms=AT_ONCE,
            terms=terms_of(state),
        )
        ack = await self.writer.append(entry)
        if ack.code == "ok" and self.observers:
            self.observers.measure(state, first)
            await self.observers.tell(started.saga_id, masked_records(first))
        if ack.code == "full":
            raise QueueFull(
                "too many sagas wait for a worker already; nothing was journalled",
                hint="submit it again later, start more workers (`saga worker`), or raise queue_limit",
                saga_id=started.saga_id,
            )
        if ack.code == "reserved":
            raise reserved(started.saga_id, ack.digest)
        if ack.code == "exists":
            if ack.digest != started.digest:
                raise other_plan(started.saga_id)
            return SagaResult(await folded_state(await read_records(self.store, started.saga_id)))
        return SagaResult(state)

    # --- from its journal ----------------------------------------------------------------------------------------

    async def _resume(self, saga: Running) -> Took:
        saga_id = saga.saga_id
        records = await read_records(self.store, saga_id)
        state = await drivable(saga_id, records, self.tools)
        if state.status in t.SAGA_FINAL:
            return SagaResult(state)
        if state.next_overdue() is not None and not self.clock.heard:
            await self.lease()  # for the store's clock, on which approvals expire and reminders are due
        returns = saga.link is not None and all(asked.kind == "session-kept" for asked in state.questions.values())
        if self._rests(state) and not returns and not await self.store.messages(saga_id):
            self.rests_on(state)
            return SagaResult(state)
        idle = saga.link is None and self._is_idle(state)
        if idle:
            head = await self.store.head(saga_id)
            if head.length == len(records) and not (head.owner or head.messages):
                self.rests_on(state)
                return SagaResult(state)
        require_secrets(state.plan)
        performer = await self.performer(saga_id)
        try:
            try:
                acquired = await self._acquire(saga_id)
            except LeaseLost:
                performer.lease.lose()  # the server knows that it has ended before this process does
                performer = await self.performer(saga_id)
                acquired = await self._acquire(saga_id)
        except StoreUnavailable:
            self.pending.add_unsure(saga_id, AT_ONCE)  # the answer was lost
            raise
        try:
            if acquired.seq != len(records):
                records += await read_records(self.store, saga_id, len(records))
                state = await folded_state(records, self.tools)
            await self._learn_again(state, records, performer)
            if saga.link is None and self._is_idle(state) and not acquired.messages:
                self.rests_on(state)
                return await self._leave(state, acquired.epoch, state.binding_deadline or 0)
            if state.status in t.SAGA_FINAL:
                await self.store.release(saga_id, acquired.epoch, _AS_QUEUED)
                return SagaResult(state)
            self.observers.taken_over(state, records)
            return self._continue(saga, state, acquired, performer)
        except Exception as error:
            await self.pending.release(saga_id, acquired.epoch, self.due_after(error))
            raise

    async def transfer_ended(self, saga_id: str, make: Callable[[State], AnyRecord | None]) -> None:
        """Append one record about whose effects those of a saga are that has ended; None: it has it already.

        Raises what ``make`` and ``Store.acquire`` raise, and ``LeaseHeld`` while another process does the same.
        """
        async with self.transfers:  # two of this process would fence each other off
            # What its caller may use stops nothing of it halfway.
            transfer = self._transfer_ended(saga_id, make)
            await asyncio.create_task(transfer, context=context_of_its_own())

    async def _transfer_ended(self, saga_id: str, make: Callable[[State], AnyRecord | None]) -> None:
        await self.lease()
        acquired = await self._acquire(saga_id)
        try:
            state = await folded_state(await read_records(self.store, saga_id))
            record = make(state)
            if record is None:
                await self.store.release(saga_id, acquired.epoch, _AS_QUEUED)
                return
            entry = Entry(
                saga_id=saga_id,
                seq=acquired.seq,
                epoch=acquired.epoch,
                records=[encode(record, {})],
                status=state.status,
                release=True,
                keep_ms=self.keep_ms,
            )
            ack = await self.writer.append(entry)
            if ack.code != "ok":
                raise refusal(saga_id, ack.code, ack.digest)
        except (Exception, asyncio.CancelledError) as error:
            await self.pending.release(saga_id, acquired.epoch, self.due_after(error))
            raise
        if self.observers:
            evolve(state, record)
            self.observers.measure(state, [record])
            await self.observers.tell(saga_id, masked_records([record]))

    async def _learn_again(self, state: State, records: Sequence[AnyRecord], performer: Performer) -> None:
        """Store what operators said for identical calls: the last owner may have ended before it did."""
        for record in records:
            lesson = lesson_of(state, record)
            if lesson is not None:
                await performer.learn(lesson, max(self._now_of(state) - record.at, 0))

    def _rests(self, state: State) -> bool:
        """Whether a saga has nothing to do until an operator answers, or time passes."""
        alerting = self.capabilities.alerting
        if state.status != t.ESCALATED or state.alerts_pending(alerting=alerting):
            return False
        return not state.overdue(self._now_of(state), alerting=alerting)

    def _is_idle(self, state: State) -> bool:
        """Whether it is an open session that waits only for its agent; a record of a take-over would only grow it."""
        able = self.capabilities
        if not state.open or state.in_flight or state.alerts_pending(alerting=able.alerting):
            return False
        now_ms = self._now_of(state)
        return state.next_due(now_ms) in {None, state.binding_deadline} and not decide(state, now_ms, able)

    # --- from the queue ------------------------------------------------------------------------------------------

    async def _dequeue(self, saga: Running, taken: Taken, owner: str) -> Took:
        """Whatever prevents this process from driving the saga sends it back to the queue."""
        saga_id, epoch = taken.saga_id, taken.epoch
        data = taken.records or ()
        try:
            performer = await self.performer(saga_id)
            if performer.lease.owner != owner:
                raise lost(saga_id)
            data = data or await self.store.read(saga_id)
            records = await decoded(self.store, saga_id, data)
            if _has_ended(records):
                return await self._conclude(await folded_state(records), epoch)
            state = await drivable(saga_id, records, self.tools)
            await self._learn_again(state, records, performer)
            if self._rests(state) and not taken.messages:
                return await self._leave(state, epoch, queued_again(state, self._now_of(state)))
            if self._is_idle(state) and not taken.messages:
                return await self._leave(state, epoch, state.binding_deadline or 0)
            require_secrets(state.plan)
            suspected = suspect_in_flight(state)
            if suspected and self._tries_another(saga_id):
                await self.store.release(saga_id, epoch, self.clock.now_ms() + _NEXT_SUSPECT_MS)
                return SagaResult(state)
        except LeaseLost:
            raise
        except Exception as error:
            await self.pending.release(saga_id, epoch, self.due_after(error, made_at(data[-1]) if data else None))
            raise
        self.observers.taken_over(state, records)
        driver, first = self._continue(saga, state, taken, performer)
        if suspected:
            self.suspect = driver
            self.suspect_until_s = asyncio.get_running_loop().time() + DRAIN_S + TRIAL_S
        return driver, first

    async def _conclude(self, state: State, epoch: int) -> SagaResult:
        """The process in which a saga ended has died before it told others what follows."""
        if await Companions(self.kinds, state).ended(queued=True):
            return await self._leave(state, epoch, 0)
        await self.pending.release(state.saga_id, epoch, self.clock.now_ms() + TELL_AGAIN_MS)
        return SagaResult(state)

    def _tries_another(self, saga_id: str) -> bool:
        """Whether another saga is tried here: not for as long as it is driven, but until its suspects have an outcome.

        It may go on for days, and its suspect may wait for what one of the others holds. One that hangs keeps the
        others out no longer than a trial keeps out bare calls.
        """
        tried = self.suspect
        if tried is None or tried.state.saga_id == saga_id:
            return False
        waits = asyncio.get_running_loop().time() < self.suspect_until_s
        return waits and self.drives(tried.state.saga_id) and is_tried(tried.state)

    # --- a saga that is ours -------------------------------------------------------------------------------------

    async def _leave(self, state: State, epoch: int, due_ms: int) -> SagaResult:
        """Release a saga that needs nobody before ``due_ms`` of its own time; 0: nobody at all."""
        await self.store.release(state.saga_id, epoch, due_ms and self.clock.in_store(due_ms, self._now_of(state)))
        return SagaResult(state)

    def _continue(
        self, saga: Running, state: State, ours: Acquired | Taken, performer: Performer
    ) -> tuple[SagaDriver, Sequence[AnyRecord]]:
        """Continue a saga that has just become ours."""
        reason, saga.reason = saga.reason, ""
        returns = saga.link is not None and not saga.begun  # after a lost lease the agent is still there
        resumed = SagaResumed(
            at=self._now_of(state), owner=self.writer.owner, epoch=ours.epoch, reason=reason, agent=returns
        )
        evolve(state, resumed)
        return self._driver(saga, state, ours.seq, performer, messages=bool(ours.messages)), [resumed]

    def _driver(
        self,
        saga: Running,
        state: State,
        seq: int,
        performer: Performer,
        *,
        messages: bool = False,
        creation: Creation | None = None,
    ) -> SagaDriver:
        return SagaDriver(
            state,
            seq=seq,
            creation=creation,
            store=self.store,
            writer=self.writer,
            performer=performer,
            clock=self.clock,
            observers=self.observers,
            trials=self.trials,
            suspected=creation is None and has_suspects(state),
            keep_ms=self.keep_ms,
            journalled=None if creation is None else saga.handle.set_journalled,
            link=saga.link,
            messages=messages,
            rest_ms=_REST_MS if saga.queued else None,
            kinds=self.kinds,
        )

    def _now_of(self, state: State) -> int:
        return self.clock.now_after(state.saga_id, state.at)

    def due_after(self, error: BaseException, since_ms: int | None = None) -> int:
        """When a worker may try again: at once after an outage.

        Later, perhaps elsewhere, after a failure with a reason.

        The longer a saga has made no progress (``since_ms``: when its last record was made), the longer it waits.
        """
        if isinstance(error, StoreUnavailable):
            return AT_ONCE
        now_ms = self.clock.now_ms()
        if isinstance(error, StoreRefused):  # it is full, for example: no fault of the saga
            return now_ms + _RETRY_REFUSED_MS[0]
        if since_ms is None or not isinstance(error, SagaError):
            return now_ms + OFFER_AGAIN_MS
        least_ms, most_ms = _RETRY_REFUSED_MS
        return now_ms + min(max((now_ms - since_ms) // 2, least_ms), most_ms)

    async def _acquire(self, saga_id: str) -> Acquired:
        """Own the saga: at once if its owner is gone, else when its lease ends; an owner that renews it keeps it.

        Raises ``LeaseHeld``, ``Interrupted`` when this process stops meanwhile, and what ``Store.acquire`` raises.
        """
        told, ends_s = "", 0.0
        while True:
            answer = await self.store.acquire(saga_id, self.writer.owner)
            if isinstance(answer, Held) and provably_dead(answer.owner):
                answer = await self.store.acquire(saga_id, self.writer.owner, dead_owner=answer.owner)
            if isinstance(answer, Acquired):
                return answer
            left_s = answer.ttl_ms / 1000
            now_s = machine_clock.boottime()
            if told != answer.owner:
                told, ends_s = answer.owner, now_s + left_s
                if self.on_wait is not None:
                    self.on_wait(saga_id, answer.owner, left_s)
            elif now_s + left_s > ends_s + _RENEWED_S:
                raise LeaseHeld(
                    f"saga {saga_id} is owned by a live process ({words_of(answer.owner)})",
                    hint=f"it continues there; to see its state: saga show {saga_id}",
                    saga_id=saga_id,
                    owner=answer.owner,
                )
            if await happens(self.stopping, min(left_s, _AGAIN_S) + 0.01):
                raise Interrupted(
                    f"saga {saga_id} was not taken over; it stands as its journal says",
                    hint=f"saga resume {saga_id}",
                    saga_id=saga_id,
                )


def _has_ended(records: Sequence[AnyRecord]) -> bool:
    """Whether a journal has an end; who owns its effects may be written after it."""
    return any(type(record) in _ENDS for record in reversed(records))
