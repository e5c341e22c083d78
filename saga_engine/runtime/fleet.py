"""The sagas of this process: one lease, one writer, and a driver for each saga.

A saga comes here as a new plan or from its journal, is driven to its end or rest, and is taken up again from its
journal when the lease was lost under it. Whoever waits for it gets its end, or the error that stopped it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from saga_engine.core import transitions as t
from saga_engine.core.codec import encode
from saga_engine.core.evolve import begin, evolve
from saga_engine.core.growth import Growth
from saga_engine.core.records import AnyRecord, SagaResumed, SagaStarted, StepTakenOver
from saga_engine.core.report import summary
from saga_engine.core.state import State
from saga_engine.errors import (
    Interrupted,
    LeaseLost,
    QueueFull,
    SagaError,
    SagaExists,
    SagaNotFound,
    SagaOwned,
    StoreRefused,
    StoreUnavailable,
)
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.tooling import Semantic
from saga_engine.ports import Acquired, Advisor, Creation, Entry, Escalation, Held, Observer, Store, Taken, Tools
from saga_engine.runtime.driver import AT_ONCE, OFFER_AGAIN_MS, Link, SagaDriver, queued_again
from saga_engine.runtime.journal import decoded, drivable, read_records, state_of
from saga_engine.runtime.lease import Lease, StoreClock, lease_clock_s
from saga_engine.runtime.outcome import Handle, Outcome
from saga_engine.runtime.owner import provably_dead
from saga_engine.runtime.performer import Performer, means_of, secret_value
from saga_engine.runtime.writer import JournalWriter

_log = logging.getLogger("saga_engine")

#: How often a saga is taken up again after the lease was lost under it.
_MAX_TAKE_UPS = 3
#: How often, in seconds, a saga that another process owns is asked for: its owner may end with it, or prove that it
#: lives, before its lease ends. A lease that ends later than it did, by more than this, has been renewed.
_ACQUIRE_AGAIN_S = 1.0
_RENEWED_S = 0.25
#: A saga from the queue that waits for a timer for longer than this does not wait in memory.
_REST_MS = 2_000
#: After how long a saga is offered again that could not be driven here, for want of a tool or a secret: least and most.
_RETRY_REFUSED_MS = (5_000, 600_000)
#: The epoch of a saga that may be ours: the answer that would say so was lost.
_UNKNOWN = -1


class Running:
    """A saga of this process: its driver of the moment, and those who wait for it."""

    __slots__ = ("digest", "driver", "future", "journalled", "link", "lost", "queued", "task")

    def __init__(self, digest: str, link: Link | None = None, *, queued: bool = False) -> None:
        self.digest = digest
        #: It came from the queue and nobody waits for it here: where it need not stay it goes back there.
        self.queued = queued
        #: To the agent of a session.
        self.link = link
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.driver: SagaDriver | None = None
        self.task: asyncio.Task[None] | None = None
        self.lost = False
        #: Resolved when the saga is in the store, for a submission that waits for no more than that.
        self.journalled: asyncio.Future[None] | None = None

    def stay(self) -> None:
        """Somebody waits for it here now: it stays until it ends or rests."""
        self.queued = False
        if self.driver is not None:
            self.driver.stay()


class Fleet:
    """All sagas that this process drives.

    ``keep_ms``: how long finished sagas are kept. ``room``: how many sagas of a partition may wait for a worker, 0: any
    number. ``on_wait(saga_id, owner, seconds)`` is told when a take-over has to wait.
    """

    def __init__(
        self,
        store: Store,
        tools: Tools,
        clock: StoreClock,
        *,
        lease_s: float,
        keep_ms: int,
        room: int,
        escalation: Escalation,
        advisor: Advisor | None,
        semantic: Semantic,
        observers: Sequence[Observer],
        on_wait: Callable[[str, str, float], None] | None,
    ) -> None:
        self.clock = clock
        self.closing = False
        self._store = store
        self._tools = tools
        self._lease_s = lease_s
        self._keep_ms = keep_ms
        self._room = room
        self._escalation = escalation
        self._advisor = advisor
        self._semantic = semantic
        self._means = means_of(escalation, advisor, semantic)
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._observers = tuple(observers)
        self._on_wait = on_wait
        self._writer = JournalWriter(store, self.clock)
        self._performer: Performer | None = None
        self._begun_before = 0
        self._opening = asyncio.Lock()
        self._running: dict[str, Running] = {}
        #: Sagas that could not be given up, because the store could not be told: epoch and due time.
        self._owed: dict[str, tuple[int, int]] = {}
        self._unsure = False
        self._stopping = asyncio.Event()

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, give the sagas up, end the lease."""
        self.closing = True
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        self._stopping.set()
        running = list(self._running.values())
        for saga in running:
            if saga.driver is not None:
                saga.driver.stop()
        await asyncio.gather(*(saga.task for saga in running if saga.task is not None), return_exceptions=True)
        await self._writer.close()
        if self._performer is not None:
            if self._owed:
                try:
                    await asyncio.wait_for(self.settle_debts(), 1.0)
                except (SagaError, TimeoutError) as error:
                    _log.info("sagas could not be given up (%s); workers find them", error)
            await self._performer.lease.close(clean=not (self._owed or self._unsure))

    # --- the ways in ---------------------------------------------------------------------------------------------

    def find(self, saga_id: str) -> Running | None:
        """The saga, if this process drives it."""
        return self._running.get(saga_id)

    def notify(self, saga_id: str) -> None:
        """There is mail for a saga; nothing happens if another process drives it."""
        saga = self._running.get(saga_id)
        if saga is not None and saga.driver is not None:
            saga.driver.notify()

    def begin(
        self,
        started: SagaStarted,
        plan: CompiledPlan,
        journalled: asyncio.Future[None] | None = None,
        *,
        detach: bool = False,
        link: Link | None = None,
        taken: Sequence[StepTakenOver] = (),
    ) -> Handle:
        """A new saga; with ``detach`` it is journalled and left to others. Raises ``SecretMissing``.

        Nothing is awaited here, so two submissions of one id in this process meet in ``find``.
        """
        self._still_open()
        _require_secrets(plan)
        saga = Running(started.digest, link)
        saga.journalled = journalled
        work = self._create_detached(started, plan) if detach else self._create(saga, started, plan, taken)
        return self._take_on(started.saga_id, saga, work)

    def resume(self, saga_id: str, link: Link | None = None) -> Handle:
        """A saga from its journal; with a ``link`` for the agent of a session. Raises ``SagaOwned``."""
        self._still_open()
        present = self._running.get(saga_id)
        if present is not None:
            if link is not None:
                raise SagaOwned(f"saga {saga_id} is in use in this process", hint="one agent a session")
            present.stay()
            return Handle(saga_id, present.future)
        saga = Running("", link)
        return self._take_on(saga_id, saga, self._drive(saga_id, saga, None, ()))

    def adopt(self, taken: Taken, owner: str) -> Handle:
        """A saga that ``owner``, the lease of this process, has taken from the queue; it goes back if it need not stay.

        The handle's outcome may be one that only waits for a timer. Raises ``Interrupted``: the saga then goes back.
        """
        if self.closing:
            self.owe(taken)
        self._still_open()
        saga = Running("", queued=True)
        before = self._running.get(taken.saga_id)
        work = self._adopt(taken, owner, saga, None if before is None else before.task)
        return self._take_on(taken.saga_id, saga, work)

    async def lease(self) -> Lease:
        """The lease of this process, opened anew if it was lost. Raises ``StoreUnavailable``."""
        return (await self._open_lease()).lease

    def count(self) -> tuple[int, int, int]:
        """How many sagas are driven here, how many effects are under way, and how many were ever begun."""
        drivers = [saga.driver for saga in self._running.values() if saga.driver is not None]
        begun = self._begun_before + (0 if self._performer is None else self._performer.begun)
        return len(self._running), sum(driver.under_way() for driver in drivers), begun

    def owe(self, taken: Taken) -> None:
        """A saga from the queue that is not driven here: it is given up with ``settle_debts``."""
        self._owed[taken.saga_id] = (taken.epoch, AT_ONCE)

    def unsure(self) -> None:
        """This process may own sagas that it does not know of: the end of its lease must have others look for them."""
        self._unsure = True

    async def settle_debts(self) -> None:
        """Give up what could not be given up when its driver ended. Raises ``StoreUnavailable``."""
        for saga_id, debt in list(self._owed.items()):
            epoch, due_ms = debt
            if epoch != _UNKNOWN:
                await self._store.release(saga_id, epoch, due_ms)
            elif saga_id not in self._running:
                await self._release_if_ours(saga_id, due_ms)
            if self._owed.get(saga_id) == debt:
                del self._owed[saga_id]

    async def _release_if_ours(self, saga_id: str, due_ms: int) -> None:
        try:
            head = await self._store.head(saga_id)
        except SagaNotFound:
            return
        if head.owner == self._writer.owner and saga_id not in self._running:
            await self._store.release(saga_id, head.epoch, due_ms)

    def _still_open(self) -> None:
        if self.closing:
            raise Interrupted("the coordinator is closing", hint="open another one")

    def _take_on(self, saga_id: str, saga: Running, work: Coroutine[Any, Any, Outcome]) -> Handle:
        self._running[saga_id] = saga
        saga.task = asyncio.create_task(self._see_through(saga_id, saga, work), name=f"saga {saga_id}")
        return Handle(saga_id, saga.future)

    async def _create(
        self, saga: Running, started: SagaStarted, compiled: CompiledPlan, taken: Sequence[StepTakenOver]
    ) -> Outcome:
        met = self._performer is not None
        performer = await self._open_lease()
        if not met:  # the deadline counts on the store's clock, which is known only now
            started = msgspec.structs.replace(started, at=self.clock.now_ms())
        creation = Creation(digest=started.digest, owned=True)
        state = begin(started, compiled, Growth(started, self._tools))
        driver = self._driver(state, 0, performer, saga, creation)
        first: list[AnyRecord] = [started]
        for record in taken:  # a fork begins with what it took over, in the same write
            first.append(msgspec.structs.replace(record, at=started.at))
            evolve(state, first[-1])
        return await self._drive(started.saga_id, saga, driver, first)

    async def _create_detached(self, started: SagaStarted, compiled: CompiledPlan) -> Outcome:
        await self._open_lease()  # for the store's clock, on which the deadline counts
        started = msgspec.structs.replace(started, at=self.clock.now_ms())
        values: dict[str, bytes] = {}
        entry = Entry(
            saga_id=started.saga_id,
            seq=0,
            epoch=0,
            records=[encode(started, values)],
            status=t.PENDING,
            summary=msgspec.json.encode(summary(begin(started, compiled))),
            values=values or None,
            creation=Creation(digest=started.digest, owned=False, room=self._room),
            due_ms=AT_ONCE,
        )
        ack = await self._writer.append(entry)
        if ack.verdict == "full":
            raise QueueFull(
                "too many sagas wait for a worker already; nothing was journalled",
                hint="submit it again later, start more workers (`saga worker`), or raise queue_limit",
                saga_id=started.saga_id,
            )
        if ack.verdict == "exists":
            if ack.digest != started.digest:
                raise other_plan(started.saga_id)
            return Outcome(state_of(await read_records(self._store, started.saga_id)))
        return Outcome(begin(started, compiled))

    # --- driving -------------------------------------------------------------------------------------------------

    async def _see_through(self, saga_id: str, saga: Running, work: Coroutine[Any, Any, Outcome]) -> None:
        """Run ``work`` and hand its end to those who wait."""
        try:
            outcome = await work
        except asyncio.CancelledError:
            self._owed.setdefault(saga_id, (_UNKNOWN, AT_ONCE))
            saga.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            if not saga.future.done():
                saga.future.set_exception(error)
                saga.future.exception()  # if nobody waits for it, its journal says so: asyncio need not warn
        else:
            if not saga.future.done():
                saga.future.set_result(outcome)
        finally:
            if self._running.get(saga_id) is saga:
                del self._running[saga_id]

    async def _drive(
        self, saga_id: str, saga: Running, driver: SagaDriver | None, first: Sequence[AnyRecord]
    ) -> Outcome:
        """Drive a saga to its end or rest, taking it up again from its journal when the lease was lost under it."""
        take_ups = 0
        while True:
            if driver is None:
                saga.driver = None  # nothing of this saga is in flight: the loss of a lease has nothing to stop
                taken = await self._take(saga_id, saga)
                if isinstance(taken, Outcome):
                    return taken
                driver, resumed = taken
                first = [resumed]
            saga.driver = driver
            if self.closing:
                driver.stop()
            try:
                await driver.run(first)
            except SagaExists as error:
                if error.context.get("digest") != saga.digest:
                    raise other_plan(saga_id) from error
                if saga.journalled is not None:
                    _resolve(saga.journalled)
                driver = None
            except (LeaseLost, asyncio.CancelledError) as error:
                take_ups += 1
                self._absorb(saga, error)
                if self.closing or saga.queued or take_ups > _MAX_TAKE_UPS:
                    raise _lost(saga_id) from error  # (one from the queue is found there again)
                _log.warning("saga %s: the lease was lost; taking it up again from its journal", saga_id)
                driver = None
            except Exception as error:
                saga.driver = None  # it drives no more; a lease lost meanwhile must not hide the error
                await self._give_up(saga_id, driver.state.epoch, self._due_after(error))
                raise
            else:
                if driver.state.status in t.SAGA_FINAL:
                    return Outcome(driver.state)
                if driver.state.status == t.ESCALATED:
                    if not saga.queued:
                        self._wake_later(driver.state)
                    return Outcome(driver.state)
                if saga.queued and not driver.stopping:
                    return Outcome(driver.state)  # it waits for a timer, or for its agent
                if driver.state.open and (saga.link is None or saga.link.left):
                    return Outcome(driver.state)  # only its agent can go on with it
                if not driver.stopping:  # it had just gone back into the queue when somebody came to wait for it
                    driver = None
                    continue
                raise Interrupted(
                    f"saga {saga_id} was interrupted; it stands as its journal says",
                    hint=f"saga resume {saga_id}",
                    saga_id=saga_id,
                )

    def _wake_later(self, state: State) -> None:
        """Take a resting saga up again when an approval expires or people are to be reminded, if this process lives."""
        due_ms, now_ms = state.next_overdue(), self.clock.now_ms()
        if due_ms is None or self.closing:
            return
        if due_ms <= now_ms and not state.overdue(now_ms, alerting=self._means.alerting):
            return  # a reminder, and nobody here to remind
        delay_s = max(due_ms - now_ms, 0) / 1000 + 0.001
        alarm = self._alarms.pop(state.saga_id, None)
        if alarm is not None:
            alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarms[state.saga_id] = loop.call_later(delay_s, self._wake, state.saga_id)

    def _wake(self, saga_id: str) -> None:
        del self._alarms[saga_id]
        if not self.closing:
            self.resume(saga_id)

    def _absorb(self, saga: Running, error: BaseException) -> None:
        """A cancellation that we sent because the lease was lost is ours to end; any other is not."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if not saga.lost or task is None:
                raise error
            task.uncancel()
        saga.lost = False

    def _due_after(self, error: Exception, since_ms: int | None = None) -> int:
        """When a worker may try again: at once after an outage; later, elsewhere perhaps, what failed for a reason.

        The longer nothing has come of a saga (``since_ms``: when its last record was made), the longer it waits.
        """
        if isinstance(error, StoreUnavailable):
            return AT_ONCE
        now_ms = self.clock.now_ms()
        if isinstance(error, StoreRefused):  # it is full, say: no fault of the saga's, and perhaps over in a moment
            return now_ms + _RETRY_REFUSED_MS[0]
        if since_ms is None or not isinstance(error, SagaError):
            return now_ms + OFFER_AGAIN_MS
        least_ms, most_ms = _RETRY_REFUSED_MS
        return now_ms + min(max((now_ms - since_ms) // 2, least_ms), most_ms)

    async def _give_up(self, saga_id: str, epoch: int, due_ms: int) -> None:
        """After a defect or an outage: let others take the saga over, if the store can be told."""
        try:
            await asyncio.wait_for(self._store.release(saga_id, epoch, due_ms), 1.0)
        except (SagaError, TimeoutError) as error:
            self._owed[saga_id] = (epoch, due_ms)
            _log.info("saga %s could not be given up yet (%s)", saga_id, error)

    def _driver(
        self,
        state: State,
        seq: int,
        performer: Performer,
        saga: Running,
        creation: Creation | None = None,
        *,
        mail: bool = False,
    ) -> SagaDriver:
        return SagaDriver(
            state,
            seq=seq,
            creation=creation,
            store=self._store,
            writer=self._writer,
            performer=performer,
            clock=self.clock,
            observers=self._observers,
            keep_ms=self._keep_ms,
            journalled=None if saga.journalled is None else partial(_resolve, saga.journalled),
            link=saga.link,
            mail=mail,
            rest_ms=_REST_MS if saga.queued else None,
        )

    async def _take(self, saga_id: str, saga: Running) -> Outcome | tuple[SagaDriver, AnyRecord]:
        """Take a saga over from its journal; an outcome if there is nothing to drive."""
        records = await read_records(self._store, saga_id)
        state = drivable(saga_id, records, self._tools)
        if state.status in t.SAGA_FINAL:
            return Outcome(state)
        if self._rests(state) and not await self._store.inbox(saga_id):
            return Outcome(state)
        _require_secrets(state.plan)
        performer = await self._open_lease()
        try:
            try:
                acquired = await self._acquire(saga_id)
            except LeaseLost:
                performer.lease.lose()  # the server knows that it has ended before this process does
                performer = await self._open_lease()
                acquired = await self._acquire(saga_id)
        except StoreUnavailable:
            self._owed[saga_id] = (_UNKNOWN, AT_ONCE)  # it may be ours, and the answer was lost
            raise
        try:
            if acquired.seq != len(records):
                records += await read_records(self._store, saga_id, len(records))
                state = state_of(records, self._tools)
            return await self._take_up(saga, state, acquired, performer)
        except Exception as error:
            await self._give_up(saga_id, acquired.epoch, self._due_after(error))
            raise

    def _rests(self, state: State) -> bool:
        """Whether a saga has nothing to do until a person answers, or time passes."""
        alerting = self._means.alerting
        if state.status != t.ESCALATED or state.alerts_pending(alerting=alerting):
            return False
        return not state.overdue(self.clock.now_ms(), alerting=alerting)

    async def _take_up(
        self, saga: Running, state: State, acquired: Acquired, performer: Performer
    ) -> Outcome | tuple[SagaDriver, AnyRecord]:
        """Go on with a saga that has just become ours."""
        resumed = SagaResumed(at=max(self.clock.now_ms(), state.at), owner=self._writer.owner, epoch=acquired.epoch)
        if state.status in t.SAGA_FINAL:
            await self._store.release(state.saga_id, acquired.epoch)
            return Outcome(state)
        evolve(state, resumed)
        return self._driver(state, acquired.seq, performer, saga, mail=bool(acquired.inbox)), resumed

    async def _adopt(self, taken: Taken, owner: str, saga: Running, before: asyncio.Task[None] | None) -> Outcome:
        """Drive a saga that was taken from the queue; whatever keeps this process from it sends it back there."""
        saga_id, epoch = taken.saga_id, taken.epoch
        if before is not None:
            await asyncio.wait([before])  # an earlier epoch of it ends here: it is fenced, and hears of it
        records: list[AnyRecord] = []
        try:
            performer = await self._open_lease()
            if performer.lease.owner != owner:
                raise _lost(saga_id)
            data = taken.records
            records = (
                await read_records(self._store, saga_id) if data is None else await decoded(self._store, saga_id, data)
            )
            state = drivable(saga_id, records, self._tools)
            if self._rests(state) and not taken.inbox:
                await self._store.release(saga_id, epoch, queued_again(state, self.clock.now_ms()))
                return Outcome(state)
            _require_secrets(state.plan)
        except LeaseLost:
            raise
        except Exception as error:
            await self._give_up(saga_id, epoch, self._due_after(error, records[-1].at if records else None))
            raise
        resumed = SagaResumed(at=max(self.clock.now_ms(), state.at), owner=owner, epoch=epoch)
        evolve(state, resumed)
        driver = self._driver(state, taken.seq, performer, saga, mail=taken.inbox > 0)
        return await self._drive(saga_id, saga, driver, [resumed])

    async def _acquire(self, saga_id: str) -> Acquired:
        """Own the saga: at once if its owner is gone, else when its lease ends; an owner that renews it keeps it."""
        told, ends_s = "", 0.0
        while True:
            owner = self._writer.owner
            answer = await self._store.acquire(saga_id, owner)
            if isinstance(answer, Held) and provably_dead(answer.owner):
                answer = await self._store.acquire(saga_id, owner, dead_owner=answer.owner)
            if isinstance(answer, Acquired):
                return answer
            left_s = answer.ttl_ms / 1000
            now_s = lease_clock_s()
            if told != answer.owner:
                told, ends_s = answer.owner, now_s + left_s
                if self._on_wait is not None:
                    self._on_wait(saga_id, answer.owner, left_s)
            elif now_s + left_s > ends_s + _RENEWED_S:
                raise SagaOwned(
                    f"saga {saga_id} is owned by a live process ({_who(answer.owner)})",
                    hint="it goes on there; `saga show` follows it",
                    saga_id=saga_id,
                    owner=answer.owner,
                )
            if await self._closes_within(min(left_s, _ACQUIRE_AGAIN_S) + 0.01):
                raise Interrupted(
                    f"saga {saga_id} was not taken over; it stands as its journal says",
                    hint=f"saga resume {saga_id}",
                    saga_id=saga_id,
                )

    async def _closes_within(self, seconds: float) -> bool:
        """Wait; True at once when the coordinator is being closed."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _open_lease(self) -> Performer:
        performer = self._performer
        if performer is not None and performer.lease.valid():
            return performer
        async with self._opening:
            performer = self._performer
            if performer is not None:
                if performer.lease.valid():
                    return performer
                performer.lease.lose()  # its time is over, although its renewal has not noticed yet
                self._owed.clear()  # with the lease its sagas became nobody's
                self._begun_before += performer.begun
            lease = Lease(self._store, self.clock, self._lease_s, on_wake=self.notify)
            await lease.open()
            lease.on_lost(self._lost)
            self._writer.owner = lease.owner
            self._performer = Performer(self._tools, lease, self._escalation, self._advisor, self._semantic)
            return self._performer

    def _lost(self) -> None:
        """Stop waiting for answers: whoever owns the sagas now settles what is in doubt."""
        for saga in self._running.values():
            if saga.task is not None and saga.driver is not None:
                saga.lost = True
                saga.task.cancel()


def _require_secrets(compiled: CompiledPlan) -> None:
    """Raises ``SecretMissing`` before anything is journalled or taken over."""
    for call in compiled.calls():
        for name in call.params.secrets:
            secret_value(name)
        if call.rollback is not None:
            for name in call.rollback.params.secrets:
                secret_value(name)


def other_plan(saga_id: str) -> SagaExists:
    """The error of a submission whose id belongs to a saga with another plan or other input."""
    return SagaExists(
        f"saga {saga_id} exists with another plan or other input",
        hint="choose another id (--id), or leave the id out to get a new one",
        saga_id=saga_id,
    )


def _lost(saga_id: str) -> LeaseLost:
    return LeaseLost(
        f"the lease of saga {saga_id} was lost; this process stopped before the next effect",
        hint=f"saga resume {saga_id}",
        saga_id=saga_id,
    )


def _who(owner: str) -> str:
    parts = owner.split("/")
    return f"pid {parts[3]} on {parts[0]}" if len(parts) == 6 else owner


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
