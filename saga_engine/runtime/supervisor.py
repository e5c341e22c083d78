"""The sagas of this process: one lease, one writer, and a driver for each saga.

A saga enters as a new plan or from its journal, is driven until it ends or rests, and is taken over again from its
journal when its lease was lost. Its waiters get its end, or the error that stopped it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from saga_engine.core import transitions as t
from saga_engine.core.codec import encode
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.masking import masked_records
from saga_engine.core.plan_growth import Growth
from saga_engine.core.records import AnyRecord, EffectReused
from saga_engine.core.report import summary
from saga_engine.core.state import State
from saga_engine.core.submission import Submission
from saga_engine.errors import (
    Interrupted,
    JournalConflict,
    LeaseHeld,
    LeaseLost,
    QueueFull,
    SagaError,
    SagaExists,
    StoreRefused,
    StoreUnavailable,
)
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.ids import other_plan
from saga_engine.execution.observers import Observers
from saga_engine.execution.planner_requests import capabilities_of
from saga_engine.execution.result import Handle, SagaResult, pass_on
from saga_engine.plan.tool_spec import Semantic
from saga_engine.ports import Advisor, Creation, Entry, Escalation, Store, Taken, Tools
from saga_engine.runtime.audit import Audit
from saga_engine.runtime.driver import AT_ONCE, Link, SagaDriver
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.runtime.lease import Lease
from saga_engine.runtime.pending_releases import PendingReleases
from saga_engine.runtime.performer import Performer, require_secrets
from saga_engine.runtime.saga_task import Running
from saga_engine.runtime.stop_reasons import interrupted, lost
from saga_engine.runtime.takeover import TakeOver
from saga_engine.runtime.watchdog import Watchdog
from saga_engine.runtime.writer import JournalWriter

_log = logging.getLogger("saga_engine")

#: How often a saga is taken over again after its lease was lost.
_MAX_TAKE_UPS = 3
#: A saga from the queue does not wait in memory for a timer that is further away than this.
_REST_MS = 2_000
#: When, in seconds, a resting saga is woken again if the store was unavailable.
_WAKE_AGAIN_S = 5.0
#: The end of a saga here; None: it sleeps.
Work = Coroutine[Any, Any, SagaResult | None]


class Supervisor:
    """All sagas that this process drives.

    ``keep_ms``: how long finished sagas are kept. ``room``: how many sagas of a partition may wait for a worker, 0:
    unlimited. ``on_wait(saga_id, owner, seconds)`` is called when a take-over has to wait.
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
        observers: Observers,
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
        self._capabilities = capabilities_of(escalation, advisor, semantic)
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._observers = observers
        self._writer = JournalWriter(store, self.clock)
        self._lease: Lease | None = None
        #: By the share of the lease under which they work: one, on one server.
        self._performers: dict[int, Performer] = {}
        self._watchdog: Watchdog | None = None
        self._begun_before = 0
        self._opening: asyncio.Task[Lease] | None = None
        self._running: dict[str, Running] = {}
        self.pending = PendingReleases(store, lambda: self._writer.owner, lambda saga_id: saga_id in self._running)
        self._audit = Audit(
            store.work, lambda: self._writer.owner, lambda name: name in self._running, self._covers, self.pending
        )
        self._stopping = asyncio.Event()
        self._take_over = TakeOver(
            store,
            tools,
            clock,
            self._capabilities,
            self.pending,
            owner=lambda: self._writer.owner,
            drives=lambda saga_id: saga_id in self._running,
            open_lease=self.lease,
            performer=self._performer_for,
            driver=self._driver_of,
            stopping=self._stopping,
            on_wait=on_wait,
        )

    def stop(self) -> None:
        """Start nothing more, in any saga."""
        self.closing = True
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        self._stopping.set()
        for saga_id, saga in list(self._running.items()):
            if saga.driver is not None:
                saga.driver.stop()
            self._rouse(saga_id)

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, release the sagas, end the lease."""
        self.stop()
        tasks = [saga.task for saga in self._running.values() if saga.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._watchdog is not None:
            self._watchdog.stop()
        await self._audit.stop()
        await self._writer.close()
        if self._lease is not None:
            await self.pending.settle_at_the_end()
            await self._lease.close(clean=self.pending.none)

    # --- the ways in ---------------------------------------------------------------------------------------------

    def find(self, saga_id: str) -> Running | None:
        """The saga, if this process drives it."""
        return self._running.get(saga_id)

    def notify(self, saga_id: str) -> None:
        """A saga has messages; nothing happens if another process drives it."""
        saga = self._running.get(saga_id)
        if saga is not None and saga.driver is not None:
            saga.driver.notify()
            self._rouse(saga_id)

    def begin(
        self,
        submission: Submission,
        journalled: asyncio.Future[None] | None = None,
        *,
        detach: bool = False,
        link: Link | None = None,
        taken: Sequence[EffectReused] = (),
    ) -> Handle:
        """Start a new saga; with ``detach`` journal it and leave it to others. Raises ``SecretMissing``.

        Nothing is awaited here, so two submissions of one id in this process meet in ``find``.
        """
        self._still_open()
        require_secrets(submission.compiled)
        saga = Running(submission.digest, link)
        saga.journalled = journalled
        saga.detached = detach
        work = self._create_detached(submission) if detach else self._create(saga, submission, taken)
        return self._take_on(submission.saga_id, saga, work)

    def resume(self, saga_id: str, link: Link | None = None) -> Handle:
        """Resume a saga from its journal; with a ``link`` for the agent of a session. Raises ``LeaseHeld``."""
        self._still_open()
        present = self._running.get(saga_id)
        saga = Running("", link)
        if present is not None and present.detached:
            return self._take_on(saga_id, saga, self._drive_after(present, saga_id, saga))
        if present is not None:
            if link is not None:
                raise LeaseHeld(f"saga {saga_id} is in use in this process", hint="one agent a session")
            present.stay()
            return Handle(saga_id, present.future)
        return self._take_on(saga_id, saga, self._drive(saga_id, saga, None, ()))

    def adopt(self, taken: Taken, owner: str) -> Handle:
        """Drive a saga that ``owner``, the lease of this process, has taken from the queue.

        It returns there if it need not stay.

        The handle's result may be one that only waits for a timer. Raises ``Interrupted``: the saga then returns to the
        queue.
        """
        if self.closing:
            self.pending.add(taken.saga_id, taken.epoch, AT_ONCE)
        self._still_open()
        saga = Running("", queued=True)
        self._rouse(taken.saga_id)
        before = self._running.get(taken.saga_id)
        work = self._adopt(taken, owner, saga, None if before is None else before.task)
        return self._take_on(taken.saga_id, saga, work)

    async def lease(self) -> Lease:
        """The lease of this process, opened anew if it was lost. Raises ``StoreUnavailable``."""
        lease = self._lease
        if lease is not None and lease.valid():
            return lease
        if self._opening is None:
            # One task for all who need it: they go on together, and share their first append.
            self._opening = asyncio.create_task(self._open_new_lease(), name="saga-lease-opening")
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)  # one who waits no more must not end it for the others

    async def verify_store(self) -> None:
        """Verify that the store still keeps the configured durability.

        Raises ``DurabilityInsufficient`` and ``StoreUnavailable``.
        """
        await self._store.verify()

    def count(self) -> tuple[int, int, int]:
        """How many sagas are driven here, how many effects are in flight, and how many were ever started."""
        drivers = [saga.driver for saga in self._running.values() if saga.driver is not None]
        begun = self._begun_before + sum(performer.begun for performer in self._performers.values())
        return len(self._running), sum(driver.under_way() for driver in drivers), begun

    def _still_open(self) -> None:
        if self.closing:
            raise Interrupted("the coordinator is closing", hint="open another one")

    def _take_on(self, saga_id: str, saga: Running, work: Work) -> Handle:
        self._running[saga_id] = saga
        # Its own context for its whole life: the code that wakes a sleeper must not lend it another.
        saga.context = saga.context or copy_context()
        saga.task = asyncio.create_task(
            self._see_through(saga_id, saga, work), name=f"saga {saga_id}", context=saga.context
        )
        return Handle(saga_id, saga.future)

    def _put_to_sleep(self, saga_id: str, saga: Running) -> None:
        """The saga is parked on a distant timer: until then it is its state and an alarm, and holds no task."""
        assert saga.driver is not None
        saga.task = None
        saga.alarm = asyncio.get_running_loop().call_later(saga.driver.sleeps_s(), self._rouse, saga_id)

    def _rouse(self, saga_id: str) -> None:
        """Wake a saga that sleeps; nothing happens to one that does not."""
        saga = self._running.get(saga_id)
        if saga is None or saga.alarm is None:
            return
        saga.alarm.cancel()
        saga.alarm = None
        saga.waking = True
        self._take_on(saga_id, saga, self._drive(saga_id, saga, saga.driver, ()))

    async def _create(self, saga: Running, submission: Submission, taken: Sequence[EffectReused]) -> SagaResult | None:
        performer = await self._performer_for(submission.saga_id)
        started = submission.started(self.clock.now_ms())  # the store's clock, known since there is a lease
        creation = Creation(digest=started.digest, owned=True)
        state = begin(started, submission.compiled, Growth(started, self._tools))
        driver = self._driver_of(state, 0, performer, saga, creation=creation)
        first: list[AnyRecord] = [started]
        for record in taken:  # a fork starts with what it reuses, in the same write
            first.append(msgspec.structs.replace(record, at=started.at))
            evolve(state, first[-1])
        return await self._drive(started.saga_id, saga, driver, first)

    async def _create_detached(self, submission: Submission) -> SagaResult:
        await self.lease()  # for the store's clock, on which the deadline counts
        started = submission.started(self.clock.now_ms())
        state = begin(started, submission.compiled)
        values: dict[str, bytes] = {}
        entry = Entry(
            saga_id=started.saga_id,
            seq=0,
            epoch=0,
            records=[encode(started, values)],
            status=t.PENDING,
            summary=msgspec.json.encode(summary(state)),
            values=values or None,
            creation=Creation(digest=started.digest, owned=False, room=self._room),
            due_ms=AT_ONCE,
        )
        ack = await self._writer.append(entry)
        if ack.code == "ok" and self._observers:
            await self._observers.tell(started.saga_id, masked_records([started]))
        if ack.code == "full":
            raise QueueFull(
                "too many sagas wait for a worker already; nothing was journalled",
                hint="submit it again later, start more workers (`saga worker`), or raise queue_limit",
                saga_id=started.saga_id,
            )
        if ack.code == "exists":
            if ack.digest != started.digest:
                raise other_plan(started.saga_id)
            return SagaResult(state_of(await read_records(self._store, started.saga_id)))
        return SagaResult(state)

    async def _drive_after(self, detached: Running, saga_id: str, saga: Running) -> SagaResult | None:
        """Drive a saga that is just being queued, as soon as it is in the queue."""
        await detached.created()
        return await self._drive(saga_id, saga, None, ())

    # --- driving -------------------------------------------------------------------------------------------------

    async def _see_through(self, saga_id: str, saga: Running, work: Work) -> None:
        """Run ``work`` and pass its end to the waiters; None: it sleeps, and they wait on."""
        try:
            outcome = await work
        except asyncio.CancelledError:
            self.pending.add_unsure(saga_id, AT_ONCE)
            saga.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            if not isinstance(error, SagaError):
                self.pending.add_unsure(saga_id, self._take_over.due_after(error))  # a defect, wherever it occurred
            if not saga.future.done():
                saga.future.set_exception(error)
                saga.future.exception()  # if it has no waiter, its journal says so: asyncio need not warn
            self._go_on_later(saga_id, saga, error)
        except BaseException:
            # User code wants the process to end, or the loop is torn down: whatever ends a driver releases the saga.
            self.pending.add_unsure(saga_id, AT_ONCE)
            if not saga.future.done():
                saga.future.set_exception(interrupted(saga_id))
                saga.future.exception()
            raise
        else:
            heir = self._running.get(saga_id)
            if outcome is None and heir is not None and heir is not saga:
                # Taken from the queue anew while it was driven: nothing would wake this one; its waiters wait there.
                heir.stay()
                heir.future.add_done_callback(partial(pass_on, saga.future))
            elif outcome is None:
                self._put_to_sleep(saga_id, saga)
            elif not saga.future.done():
                saga.future.set_result(outcome)
        finally:
            if self._running.get(saga_id) is saga and saga.alarm is None:
                del self._running[saga_id]

    async def _drive(
        self, saga_id: str, saga: Running, driver: SagaDriver | None, first: Sequence[AnyRecord]
    ) -> SagaResult | None:
        """Drive a saga until it ends or rests, taking it over again from its journal when the lease was lost.

        None: it waits for a timer, and need not wait here.
        """
        take_ups = 0
        saga.waking = False
        while True:
            if driver is None:
                saga.driver = None  # nothing of this saga is in flight: the loss of a lease has nothing to stop
                taken = await self._take_over.take(saga_id, saga)
                if isinstance(taken, SagaResult):
                    return taken
                driver, resumed = taken
                first = [resumed]
            saga.driver = driver
            saga.begun = True
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
                    # One from the queue is found there again, unless a late request of ours fenced it off.
                    self.pending.add_unsure(saga_id, AT_ONCE)
                    raise lost(saga_id) from error
                _log.warning("saga %s: the lease was lost; taking it up again from its journal", saga_id)
                driver = None
            except Exception as error:
                saga.driver = None  # it is not driven any more; a lease lost meanwhile must not hide the error
                if isinstance(error, JournalConflict):  # the store may have gone back in time, and with it the epoch
                    self.pending.add_unsure(saga_id, self._take_over.due_after(error))
                await self.pending.release(saga_id, driver.state.epoch, self._take_over.due_after(error))
                raise
            else:
                if driver.sleeps_until_ms:
                    return None
                if driver.state.status in t.SAGA_FINAL:
                    return SagaResult(driver.state)
                if driver.state.status == t.ESCALATED:
                    if not saga.queued:
                        self._wake_later(driver.state)
                    return SagaResult(driver.state)
                if saga.queued and not driver.stopping:
                    return SagaResult(driver.state)  # it waits for a timer, or for its agent
                if driver.state.open and (saga.link is None or saga.link.left):
                    if not saga.queued:
                        self._wake_later(driver.state)
                    return SagaResult(driver.state)  # only its agent can go on with it
                if not driver.stopping:  # it had just returned to the queue when a caller started to wait for it
                    driver = None
                    continue
                raise interrupted(saga_id)

    def _wake_later(self, state: State) -> None:
        """Resume a saga at its deadline, or when an approval expires or a reminder is due, if still alive."""
        due_ms, now_ms = state.next_overdue(), self.clock.now_after(state.saga_id, state.at)
        if due_ms is None or self.closing:
            return
        if due_ms <= now_ms and not state.overdue(now_ms, alerting=self._capabilities.alerting):
            return  # a reminder, and no hook here to notify
        self._wake_in(state.saga_id, max(due_ms - now_ms, 0) / 1000 + 0.001)

    def _go_on_later(self, saga_id: str, saga: Running, error: Exception) -> None:
        """Continue a saga that an outage of the store stopped here, when the store is back.

        One from the queue returns there, and an agent is told.
        """
        stopped = saga.begun and isinstance(error, StoreUnavailable | StoreRefused | LeaseLost)
        if not stopped or saga.queued or saga.link is not None or self.closing:
            return
        _log.warning("saga %s has stopped and goes on when the store can be reached: %s", saga_id, error)
        self._wake_in(saga_id, _WAKE_AGAIN_S)

    def _wake_in(self, saga_id: str, delay_s: float) -> None:
        alarm = self._alarms.pop(saga_id, None)
        if alarm is not None:
            alarm.cancel()
        self._alarms[saga_id] = asyncio.get_running_loop().call_later(delay_s, self._wake, saga_id)

    def _wake(self, saga_id: str) -> None:
        del self._alarms[saga_id]
        if not self.closing:
            handle = self.resume(saga_id)
            handle.when_done(partial(self._wake_again, handle))

    def _wake_again(self, handle: Handle) -> None:
        """Try again: a store that is unavailable just when a reminder is due must not suppress the reminder."""
        away = isinstance(handle.found(), StoreUnavailable | StoreRefused)
        if away and not self.closing and handle.saga_id not in self._alarms:
            self._wake_in(handle.saga_id, _WAKE_AGAIN_S)

    def _absorb(self, saga: Running, error: BaseException) -> None:
        """Absorb a cancellation that we sent because the lease was lost; pass on any other."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if not saga.lost or task is None:
                raise error
            task.uncancel()
        saga.lost = False
        saga.reason = "" if self._lease is None else self._lease.why

    def _driver_of(
        self,
        state: State,
        seq: int,
        performer: Performer,
        saga: Running,
        messages: bool = False,
        *,
        creation: Creation | None = None,
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
            messages=messages,
            rest_ms=_REST_MS if saga.queued else None,
        )

    async def _adopt(
        self, taken: Taken, owner: str, saga: Running, before: asyncio.Task[None] | None
    ) -> SagaResult | None:
        if before is not None:
            await asyncio.wait([before])  # an earlier epoch of it ends here: it is fenced, and is told
        took = await self._take_over.adopt(taken, owner, saga)
        if isinstance(took, SagaResult):
            return took
        driver, resumed = took
        return await self._drive(taken.saga_id, saga, driver, [resumed])

    async def _performer_for(self, saga_id: str) -> Performer:
        """The performer of a saga, under a valid share of the lease. Raises ``StoreUnavailable``."""
        lease = await self.lease()
        share = lease.share_of(saga_id)
        if not share.valid():
            share.lose()  # its time is over, although its renewal has perhaps not noticed yet
            if lease.lost:
                return await self._performer_for(saga_id)
            await lease.reopen(share.partition)
            share = lease.share_of(saga_id)
        performer = self._performers.get(share.partition)
        if performer is None or performer.lease is not share:
            self._begun_before += 0 if performer is None else performer.begun
            performer = Performer(self._tools, share, self._escalation, self._advisor, self._semantic)
            self._performers[share.partition] = performer
        return performer

    def _covers(self, partition: int) -> bool:
        """Whether a partition is worth a look: its server answers, as far as a lease can tell."""
        lease = self._lease
        return lease is None or not lease.valid() or lease.covers(partition)

    def _opened(self, opening: asyncio.Task[Lease]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # it is raised where it is awaited; perhaps nothing awaits it any more

    async def _open_new_lease(self) -> Lease:
        if self._lease is not None:
            self._lease.lose()  # its time is over, although its renewal has perhaps not noticed yet
            self.pending.clear()
        lease = Lease(self._store, self.clock, self._lease_s, on_wake=self.notify)
        await lease.open()
        lease.on_lost(self._lost)
        self._watchdog = Watchdog(lease, self._store, self._tools.held)
        self._watchdog.start()
        self._writer.owner = lease.owner
        self._audit.start()
        self._lease = lease
        return lease

    def _lost(self, partitions: Container[int]) -> None:
        """Stop waiting for outcomes in these partitions: the new owner of the sagas settles what is in doubt."""
        assert self._lease is not None
        for saga_id, saga in list(self._running.items()):
            if self._lease.partition_of(saga_id) not in partitions:
                continue
            if saga.alarm is not None:
                saga.driver = None  # it takes itself over again from its journal
                self._rouse(saga_id)
            elif saga.task is not None and saga.driver is not None and not saga.waking:
                saga.lost = True
                saga.task.cancel()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
