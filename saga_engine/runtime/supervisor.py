"""The sagas of this process: one lease, one writer, and a driver for each saga.

Every saga enters through ``Supervisor.take_over``: one that was submitted, one that is resumed from its journal, one
from the queue and one that slept here. It is driven until it ends or rests, and is taken over again from its journal
when its lease was lost. Its waiters get its end, or the error that stopped it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from functools import partial
from typing import Any

import msgspec

from saga_engine.core import transitions as t
from saga_engine.core.records import AnyRecord
from saga_engine.core.state import State
from saga_engine.core.submission import Submission
from saga_engine.errors import (
    Interrupted,
    JournalConflict,
    LeaseHeld,
    LeaseLost,
    SagaError,
    SagaExists,
    SagaNotFound,
    StoreRefused,
    StoreUnavailable,
)
from saga_engine.execution.aside import context_of_its_own
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.event_loops import pass_on
from saga_engine.execution.governed import Governed, digest_of
from saga_engine.execution.ids import other_plan
from saga_engine.execution.observers import Observers
from saga_engine.execution.planner_requests import capabilities_of
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.loggers import logger_of
from saga_engine.plan.operator_limits import NO_LIMITS, Limits
from saga_engine.plan.tool_spec import Semantic
from saga_engine.ports import Advisor, Escalation, Store, Taken, Tools, Tracing
from saga_engine.runtime.audit import Audit
from saga_engine.runtime.children import BeginUndo, Family, kin
from saga_engine.runtime.driver import SagaDriver
from saga_engine.runtime.due_times import AT_ONCE
from saga_engine.runtime.lease import Lease
from saga_engine.runtime.link import Link
from saga_engine.runtime.listening import BringEvent, waits
from saga_engine.runtime.pending_releases import PendingReleases
from saga_engine.runtime.performer import Performer, TracedPerformer, require_secrets
from saga_engine.runtime.quota import Quota
from saga_engine.runtime.resumptions import Resumptions
from saga_engine.runtime.saga_task import Running
from saga_engine.runtime.stop_reasons import interrupted, lost
from saga_engine.runtime.takeover import FromJournal, FromQueue, FromSleep, FromSubmission, Source, TakeOver
from saga_engine.runtime.trials import Trials
from saga_engine.runtime.watchdog import Watchdog
from saga_engine.runtime.writer import JournalWriter
from saga_engine.tools.trace_context import CALLER

_log = logger_of("saga_engine")

#: How often a saga is taken over again after its lease was lost.
_MAX_LOSSES = 3


class Supervisor:
    """All sagas that this process drives.

    ``keep_ms``: how long finished sagas are kept, and ``expire``: whether they then expire by themselves. ``room``: how
    many sagas of a partition may wait for a worker, 0: unlimited. ``on_wait(saga_id, owner, seconds)`` is called when a
    take-over has to wait. ``begin_undo`` undoes a child that has completed. ``bring_event`` brings an event that was
    held for a wait which is over to where it belongs now. ``on_end`` is awaited when a saga has ended, before its
    waiters get that: with its state if it was driven here.
    """

    def __init__(
        self,
        store: Store,
        tools: Tools,
        clock: StoreClock,
        *,
        lease_s: float,
        keep_ms: int,
        expire: bool = True,
        room: int,
        escalation: Escalation,
        advisor: Advisor | None,
        semantic: Semantic,
        observers: Observers,
        spans: Tracing | None = None,
        on_wait: Callable[[str, str, float], None] | None,
        begin_undo: BeginUndo,
        bring_event: BringEvent,
        limits: Limits = NO_LIMITS,
        governed: Governed | None = None,
        on_end: Callable[[str, State | None], Awaitable[None] | None] = lambda *_: None,
    ) -> None:
        self.clock = clock
        self.closing = False
        #: What a lease of this process records of the rules that hold here.
        self.governed = governed
        self._store = store
        self._tools = tools
        self._lease_s = lease_s
        self._escalation, self._advisor, self._semantic = escalation, advisor, semantic
        self._spans, self._on_end = spans, on_end
        self._capabilities = capabilities_of(escalation, advisor, semantic)
        self._writer = JournalWriter(store, self.clock)
        self._lease: Lease | None = None
        #: By the share of the lease under which they work: one, on one server.
        self._performers: dict[int, Performer] = {}
        self._watchdog: Watchdog | None = None
        self._begun_before = 0
        self._opening: asyncio.Task[Lease] | None = None
        self._running: dict[str, Running] = {}
        self._stopping = asyncio.Event()
        self._trials = Trials(self._driven)
        #: Sagas that rest here, or that an outage stopped, and that a timer resumes.
        self.resumptions = Resumptions(self.resume, self._due_s)
        #: Counts the sagas and the steps that are added.
        self.quota = Quota(store)
        self.pending = PendingReleases(store, self._owner, self._drives)
        #: Compares what the store says of this process with what it drives.
        self.audit = Audit(store.work, self._owner, self._drives, self._covers, self.pending)
        self._entrance = TakeOver(
            store=store,
            tools=tools,
            clock=clock,
            capabilities=self._capabilities,
            pending=self.pending,
            writer=self._writer,
            observers=observers,
            trials=self._trials,
            keep_ms=keep_ms if expire else 0,
            room=room,
            quota=self.quota,
            drives=self._drives,
            lease=self.lease,
            performer=self._performer_for,
            stopping=self._stopping,
            on_wait=on_wait,
            kinds=(waits(store, bring_event), *kin(Family(store, tools, self, limits, begin_undo, keep_ms=keep_ms))),
            rests_on=self.resumptions.rests_on,
        )

    def stop(self) -> None:
        """Start nothing more, in any saga."""
        self.closing = True
        self.resumptions.stop()
        self._stopping.set()
        self._trials.stop()
        for saga in list(self._running.values()):
            if saga.driver is not None:
                saga.driver.stop()
            self._wake(saga)

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, release the sagas, end the lease."""
        self.stop()
        tasks = [saga.task for saga in self._running.values() if saga.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._watchdog is not None:
            self._watchdog.stop()
        await self.audit.stop()
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
            self._wake(saga)

    def begin(
        self,
        submission: Submission,
        *,
        detach: bool = False,
        link: Link | None = None,
        reused: Sequence[AnyRecord] = (),
        queued: bool = False,
        counted: bool = True,
    ) -> Handle:
        """Start a new saga; with ``detach`` journal it and leave it to others. Raises ``SecretMissing``.

        ``reused``: records with which it starts. ``queued``: no caller waits for it; if it only waits itself, it
        returns to the queue. ``counted``: the quota may refuse it, unless it undoes another saga.
        """
        self._still_open()
        require_secrets(submission.compiled)
        parent = "" if submission.parent is None else submission.parent.saga
        caller = "" if self._spans is None else self._spans.caller(parent)
        if not parent:
            caller = caller or CALLER.get()  # a process that exports nothing submits for one that does
        if caller:
            submission = msgspec.structs.replace(submission, traceparent=caller)
        saga = Running(submission.saga_id, digest=submission.digest, link=link, detached=detach, queued=queued)
        return self.take_over(saga, FromSubmission(submission, reused, detach, counted and submission.undoes is None))

    def resume(self, saga_id: str, link: Link | None = None, *, waits: bool = False) -> Handle:
        """Resume a saga from its journal; with a ``link`` for the agent of a session. Raises ``LeaseHeld``.

        ``waits``: no caller waits for its end; if it only waits itself, it returns to the queue.
        """
        self._still_open()
        present = self._running.get(saga_id)
        if present is None or present.detached:
            return self.take_over(Running(saga_id, link=link, queued=waits), FromJournal())
        if link is not None:
            raise LeaseHeld(f"saga {saga_id} is in use in this process", hint="one agent a session")
        present.stay()
        return present.handle

    def adopt(self, taken: Taken, owner: str) -> Handle:
        """Drive a saga that ``owner``, the lease of this process, has taken from the queue.

        It returns there if it need not stay.

        The handle's result may be one that only waits for a timer. Raises ``Interrupted``: the saga then returns to the
        queue.
        """
        if self.closing:
            self.pending.add(taken.saga_id, taken.epoch, AT_ONCE)
        self._still_open()
        return self.take_over(Running(taken.saga_id, queued=True), FromQueue(taken, owner))

    def take_over(self, saga: Running, source: Source) -> Handle:
        """Drive a saga from now on, wherever it comes from: the one entrance of all sagas.

        What was driven here under its id until now ends first: it is being queued, or its epoch is over. Nothing is
        awaited here, so two submissions of one id in this process meet in ``find``.
        """
        before = self._running.get(saga.saga_id)
        if before is not None and before is not saga:
            self._wake(before)
        self._running[saga.saga_id] = saga
        # Its own context for its whole life: the code that wakes a sleeper must not lend it another, and whoever began
        # it may leave.
        saga.context = saga.context or context_of_its_own()
        saga.task = asyncio.create_task(
            self._supervise(saga, source, None if before is None or before is saga else before.task),
            name=f"saga {saga.saga_id}",
            context=saga.context,
        )
        return saga.handle

    async def transfer_ended(self, saga_id: str, make: Callable[[State], AnyRecord | None]) -> None:
        """Journal that another saga owns effects of one that has ended; see ``TakeOver.transfer_ended``."""
        self._still_open()
        await self._entrance.transfer_ended(saga_id, make)

    async def lease(self) -> Lease:
        """The lease of this process, opened anew if it was lost. Raises ``StoreUnavailable``."""
        lease = self._lease
        if lease is not None and lease.valid():
            return lease
        if self._opening is None or self._opening.done():  # what it opened may be over before it is known to be done
            # One task for all who need it: they go on together, and share their first append.
            self._opening = asyncio.create_task(
                self._open_new_lease(), name="saga-lease-opening", context=context_of_its_own()
            )
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)  # one who waits no more must not end it for the others

    def note_quota(self, stated: Sequence[Any]) -> None:
        """Have the lease record, from its next beginning on, which quota this process states."""
        self.governed = msgspec.structs.replace(self.governed or Governed(), quota=digest_of(stated))

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

    def _sleep(self, saga: Running) -> None:
        """The saga waits for a distant timer: until then it is its state and an alarm, and holds no task."""
        assert saga.driver is not None
        saga.task = None
        saga.alarm = asyncio.get_running_loop().call_later(saga.driver.sleeps_s(), self._wake, saga)

    def _wake(self, saga: Running) -> None:
        """Wake a saga that sleeps; nothing happens to one that does not."""
        if saga.alarm is not None:
            saga.alarm.cancel()
            saga.alarm = None
            saga.waking = True
            self.take_over(saga, FromJournal() if saga.driver is None else FromSleep(saga.driver))

    # --- driving -------------------------------------------------------------------------------------------------

    async def _supervise(self, saga: Running, source: Source, before: asyncio.Task[None] | None) -> None:
        """Drive a saga after ``before`` and pass its end to the waiters; one that falls asleep lets them wait on."""
        saga_id = saga.saga_id
        try:
            if before is not None:
                await asyncio.wait([before])
            result = await self._drive(saga, source)
        except asyncio.CancelledError:
            self.pending.add_unsure(saga_id, AT_ONCE)
            saga.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            if not isinstance(error, SagaError):
                self.pending.add_unsure(saga_id, self._entrance.due_after(error))  # a defect, wherever it occurred
            saga.fail(error)
            self._resume_after_outage(saga, error)
        except BaseException:
            # User code wants the process to end, or the loop is torn down: whatever ends a driver releases the saga.
            self.pending.add_unsure(saga_id, AT_ONCE)
            saga.fail(interrupted(saga_id))
            raise
        else:
            heir = self._running.get(saga_id)
            if result is None and heir is not None and heir is not saga:
                # Taken from the queue anew while it was driven: nothing would wake this one; its waiters wait there.
                heir.stay()
                heir.future.add_done_callback(partial(pass_on, saga.future))
            elif result is None:
                self._sleep(saga)
            elif not saga.future.done():
                saga.future.set_result(result)
        finally:
            if self._running.get(saga_id) is saga and saga.alarm is None:
                del self._running[saga_id]

    async def _drive(self, saga: Running, source: Source) -> SagaResult | None:
        """Drive a saga until it ends or rests, taking it over again from its journal when the lease was lost.

        None: it waits for a timer, and need not wait here.
        """
        saga_id, losses = saga.saga_id, 0
        saga.waking = False
        unwritten: FromSubmission | None = None
        while True:
            if type(source) is FromJournal:
                saga.driver = None  # nothing of this saga is in flight: the loss of a lease has nothing to stop
            try:
                took = await self._entrance.enter(saga, source)
            except SagaNotFound:
                if unwritten is None:
                    raise
                source, unwritten = unwritten, None  # the lease was lost before its first record was written
                continue
            if isinstance(took, SagaResult):
                if took.status in t.SAGA_FINAL and (work := self._on_end(saga_id, None)) is not None:
                    await work
                return took
            driver, first = took
            submitted, source = source, FromJournal()  # if it has to be taken over again
            saga.driver = driver
            saga.begun = True
            if self.closing:
                driver.stop()
            try:
                await driver.run(first)
            except SagaExists as error:
                if "reserved_for" in error.context:
                    raise
                if error.context.get("digest") != saga.digest:
                    raise other_plan(saga_id) from error
                saga.handle.set_journalled()
            except (LeaseLost, asyncio.CancelledError) as error:
                losses += 1
                self._absorb(saga, error)
                if type(submitted) is FromSubmission and driver.journalled is not None:
                    unwritten = submitted._replace(counted=False)
                if self.closing or saga.queued or losses > _MAX_LOSSES:
                    # One from the queue is found there again, unless a late request of ours fenced it off.
                    self.pending.add_unsure(saga_id, AT_ONCE)
                    raise lost(saga_id) from error
                _log.warning("saga %s: the lease was lost; taking it up again from its journal", saga_id)
            except Exception as error:
                saga.driver = None  # it is not driven any more; a lease lost meanwhile must not hide the error
                due_ms = self._entrance.due_after(error)
                if isinstance(error, JournalConflict):  # the store may have gone back in time, and with it the epoch
                    self.pending.add_unsure(saga_id, due_ms)
                await self.pending.release(saga_id, driver.state.epoch, due_ms)
                raise
            else:
                if driver.sleeps_until_ms:
                    return None
                if self._is_done(saga, driver):
                    ended = driver.state.status in t.SAGA_FINAL
                    if ended and (work := self._on_end(saga_id, driver.state)) is not None:
                        saga.driver = None  # it has ended: a lease that is lost now stops nothing of it
                        await work
                    return SagaResult(driver.state)
                if driver.stopping:
                    raise interrupted(saga_id)
                # It had just returned to the queue when a caller started to wait for it.

    def _is_done(self, saga: Running, driver: SagaDriver) -> bool:
        """Whether a saga that was driven needs nothing more of this process now."""
        state = driver.state
        if state.status in t.SAGA_FINAL:
            return True
        # Only an operator can continue it, or its agent; or time.
        if state.status == t.ESCALATED or (state.open and (saga.link is None or saga.link.left)):
            if not saga.queued:
                self.resumptions.rest(state)
            return True
        return saga.queued and not driver.stopping  # it waits for a timer in the queue

    def _due_s(self, state: State) -> float | None:
        """In how many seconds a resting saga is due: its deadline, an approval that expires, a reminder."""
        due_ms, now_ms = state.next_overdue(), self.clock.now_after(state.saga_id, state.at)
        if due_ms is None:
            return None
        if due_ms <= now_ms and not state.overdue(now_ms, alerting=self._capabilities.alerting):
            return None  # a reminder, and no hook here to notify
        return max(due_ms - now_ms, 0) / 1000 + 0.001

    def _resume_after_outage(self, saga: Running, error: Exception) -> None:
        """Continue a saga that an outage of the store stopped here, when the store is back.

        One from the queue returns there, and an agent is notified.
        """
        stopped = saga.begun and isinstance(error, StoreUnavailable | StoreRefused | LeaseLost)
        if not stopped or saga.queued or saga.link is not None or self.closing:
            return
        _log.warning("saga %s has stopped and goes on when the store can be reached: %s", saga.saga_id, error)
        self.resumptions.add(saga.saga_id)

    def _absorb(self, saga: Running, error: BaseException) -> None:
        """Absorb a cancellation that we sent because the lease was lost; pass on any other."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if not saga.lost or task is None:
                raise error
            task.uncancel()
        saga.lost = False
        saga.reason = "" if self._lease is None else self._lease.why

    def _owner(self) -> str:
        return self._writer.owner

    def _driven(self) -> list[SagaDriver]:
        found = (saga.driver for saga in self._running.values())
        return [driver for driver in found if driver is not None and driver.running]

    def _drives(self, saga_id: str) -> bool:
        return saga_id in self._running

    # --- the lease -----------------------------------------------------------------------------------------------

    async def _performer_for(self, saga_id: str) -> Performer:
        """The performer of a saga, under a valid share of the lease. Raises ``StoreUnavailable``."""
        while True:
            lease = self._lease
            if lease is None or not lease.share_of(saga_id).valid():
                lease = await self.lease()
            share = lease.share_of(saga_id)
            if share.valid():
                break
            share.lose()  # its time is over, although its renewal has perhaps not noticed yet
            if not lease.lost:
                await lease.reopen(share.partition)
                share = lease.share_of(saga_id)
                break
        performer = self._performers.get(share.partition)
        if performer is None or performer.lease is not share:
            self._begun_before += 0 if performer is None else performer.begun
            settings = (self._tools, share, self._escalation, self._advisor, self._semantic)
            performer = Performer(*settings) if self._spans is None else TracedPerformer(self._spans, *settings)
            self._performers[share.partition] = performer
        return performer

    def _covers(self, partition: int) -> bool:
        """Whether a partition is worth a look: its server answers, as far as a lease can tell."""
        lease = self._lease
        return lease is None or not lease.valid() or lease.covers(partition)

    def _opened(self, opening: asyncio.Task[Lease]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            opening.exception()  # it is raised where it is awaited; perhaps nothing awaits it any more

    async def _open_new_lease(self) -> Lease:
        if self._lease is not None:
            self._lease.lose()  # its time is over, although its renewal has perhaps not noticed yet
            self.pending.clear()
        note = b"" if self.governed is None else self.governed.note()
        lease = Lease(self._store, self.clock, self._lease_s, on_wake=self.notify, note=note)
        await lease.open()
        lease.on_lost(self._lost)
        self._watchdog = Watchdog(lease, self._store, self._tools.held)
        self._watchdog.start()
        self._writer.owner = lease.owner
        self.audit.start()
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
                self._wake(saga)
            elif saga.task is not None and saga.driver is not None and not saga.waking:
                saga.lost = True
                saga.task.cancel()
