"""Drives one saga: it tells the machine what happened, appends what must be durable, and performs what may be done.

The order of these steps is the guarantee, and ``core/machine.py`` keeps it: only what has been appended is performed.
The outcome of one call and the intent of the next are one append. If it fails, the machine is invalid and is dropped
with the driver; the journal counts.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.codec import encode_all
from saga_engine.core.crash_loops import is_bare
from saga_engine.core.decide import decide
from saga_engine.core.effects import (
    Alert,
    AnyEffect,
    AskPlanner,
    CallTool,
    Done,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    Probe,
    ReadBefore,
    Unknown,
)
from saga_engine.core.images import Image
from saga_engine.core.machine import Machine, Ready, Result
from saga_engine.core.report import summary
from saga_engine.core.state import State
from saga_engine.core.state_values import Backward
from saga_engine.errors import LeaseLost
from saga_engine.execution.aside import aside
from saga_engine.execution.calls import lessons_of
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.computing import TooMuch, briefly, computed
from saga_engine.execution.observers import MaskedObservers, Observers
from saga_engine.loggers import logger_of
from saga_engine.ports import Ack, Call, Creation, Entry, Store
from saga_engine.runtime.companions import Companions, Kind
from saga_engine.runtime.defect_reports import tell_defect
from saga_engine.runtime.due_times import told_in_head
from saga_engine.runtime.index_changes import IndexChanges
from saga_engine.runtime.link import Link
from saga_engine.runtime.performer import Performer
from saga_engine.runtime.resting import Resting
from saga_engine.runtime.stop_reasons import refusal
from saga_engine.runtime.trials import Trials
from saga_engine.runtime.writer import JournalWriter

_log = logger_of("saga_engine.driver")

#: Effects that call no tool. An operator's answer, a cancel and the end of the process do not wait for them.
_ASIDE: Final = frozenset({Alert, AskPlanner})
_LOOKS: Final = frozenset({ReadBefore, LookAfterUndo})  # no record orders them: the next owner makes them anew
_APART: Final = _ASIDE | {LookAfterUndo}  # they get a task of their own: stopping does not wait for them
#: Effects that call one.
_CALLS: Final = frozenset({CallTool, Probe})
#: How long notifications may still take when the process, or a session's agent, stops.
ALERT_GRACE_S: Final = 5.0


def _tell(written: asyncio.Future[None]) -> None:
    """Whoever waits for a note to be durable goes on."""
    if not written.done():
        written.set_result(None)


class SagaDriver(Resting):
    """The only writer of one saga, as long as its epoch is the saga's.

    ``messages``: whether any may be waiting. ``rest_ms``: if a wait for a timer takes longer, the driver releases the
    saga, and the queue returns it when the timer fires. None: a caller waits for the saga here.
    """

    __slots__ = (
        "_admitted",
        "_clock",
        "_creation",
        "_head_asked",
        "_head_status",
        "_here",
        "_index",
        "_keep_ms",
        "_kept",
        "_link",
        "_machine",
        "_messages",
        "_notes",
        "_observers",
        "_outcomes",
        "_performer",
        "_released",
        "_rest_ms",
        "_seq",
        "_store",
        "_tasks",
        "_trials",
        "_unwritten",
        "_wake",
        "_writer",
        "journalled",
        "running",
        "state",
        "stopping",
        "suspected",
    )

    def __init__(
        self,
        state: State,
        *,
        seq: int,
        creation: Creation | None,
        store: Store,
        writer: JournalWriter,
        performer: Performer,
        clock: StoreClock,
        observers: Observers,
        trials: Trials,
        keep_ms: int,
        suspected: bool = False,
        journalled: Callable[[], None] | None = None,
        link: Link | None = None,
        messages: bool = False,
        rest_ms: int | None = None,
        kinds: Sequence[Kind] = (),
    ) -> None:
        self.state = state
        self._machine = Machine(state, performer)
        self.stopping = False
        self.journalled = journalled
        #: Not 0: ``run`` has returned: only a timer at this time moves the saga. It may be run again, with no records.
        self.sleeps_until_ms = 0
        #: Whether it drives: ``run`` has begun, and has not returned.
        self.running = False
        #: Whether something of the saga may have ended its owners.
        self.suspected = suspected
        self._seq = seq
        self._creation = creation
        self._head_status = "" if creation else state.status
        self._head_asked: tuple[Any, ...] | None = None
        self._index = IndexChanges(state, new=creation is not None)
        self._store = store
        self._writer = writer
        self._performer = performer
        self._clock = clock
        self._trials = trials
        #: Whether the last round of decisions could be recorded, while trials are held.
        self._admitted = True
        # Looked at for each append, and there are mostly none.
        self._observers = MaskedObservers(observers) if observers else None
        self._keep_ms = keep_ms
        self._link = link
        self._rest_ms = rest_ms
        self._messages = messages
        self._kinds = kinds
        self._companions: Companions | None = None
        if state.pending:  # (Its first append may end a wait that the store knows.)
            self._companions = Companions(kinds, state, self.rouse)
            self._companions.begin()
        self._concludes = self._turned = False
        self._outcomes: list[tuple[AnyEffect, Result]] = []
        self._tasks: dict[asyncio.Task[None], AnyEffect] = {}
        self._wake: asyncio.Future[None] | None = None
        self._released = False
        #: The saga is not released before something is learned, even if nothing else follows.
        self._kept = False
        #: Whether the only effect in flight runs in ``run`` itself, which writes nothing meanwhile.
        self._here = False
        #: What calls in their own tasks need to have written before they continue.
        self._notes: list[tuple[Call, Image | None, bool, asyncio.Future[None]]] = []
        #: Why a note of a call, which ``run`` itself made, could not be written.
        self._unwritten: Exception | None = None

    def notify(self) -> None:
        """The saga has messages."""
        self._messages = True
        self.rouse()

    def stop(self) -> None:
        """Start nothing more; journal the outcomes of the calls in flight; then release the saga."""
        if not self.stopping:
            self.stopping = True
            self._drop(AskPlanner)
            self._drop(LookAfterUndo)
            if any(type(effect) is Alert for effect in self._tasks.values()):
                asyncio.get_running_loop().call_later(ALERT_GRACE_S, self._drop, Alert)
        self.rouse()

    def _drop(self, kind: type[Alert | AskPlanner | LookAfterUndo]) -> None:
        """Stop waiting for effects of this kind. They have no external effect and start anew later."""
        for task, effect in self._tasks.items():
            if type(effect) is kind:
                task.cancel()

    def stay(self) -> None:
        """A caller waits for the saga here: it does not return to the queue to wait for a timer."""
        self._rest_ms = None

    def under_way(self) -> int:
        """How many calls, undos and probes are in flight."""
        return len(self.state.in_flight)

    @property
    def at_rest(self) -> bool:
        """Whether it waits for something, and all that it decided is durable."""
        return self._here or (self._wake is not None and not self._wake.done())

    def rouse(self) -> None:
        """Wake the driver: something has changed."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self, first: Sequence[r.AnyRecord]) -> None:
        """Drive the saga until it ends, rests, sleeps or is stopped; ``first`` are the records that start or resume it.

        Raises ``LeaseLost``, ``JournalConflict``, ``StoreUnavailable`` or ``StoreRefused``; then the journal counts.
        """
        machine = self._machine
        machine.begin(first)
        self.sleeps_until_ms = 0
        settled_at: int | None = None  # when the last outcome was interpreted; what follows is decided then
        self._begin()
        try:
            while True:
                consumed = await self._read_messages() if self._messages and not self.stopping else 0
                lessons = lessons_of(self.state, machine.said().records) if consumed else ()
                noted = self._take_notes() if self._notes else ()
                if not self.stopping and (self._link or self._companions):
                    self._take_requests()
                if self.stopping or lessons:  # (else the saga could end before they have been learned)
                    ready = machine.said()
                else:
                    if settled_at is None or settled_at < self.state.at:
                        settled_at = self._clock.now_after(self.state.saga_id, self.state.at)
                    if self.state.plan.computes:
                        ready = await self._ready_aside(settled_at)
                    else:
                        ready = self._ready_in_turn(settled_at) if self._trials.active else machine.ready(settled_at)
                records = ready.records
                if records or consumed or self._kept:
                    self._kept = bool(lessons)
                    self._committed(records, await self._commit(ready, consumed))
                    for lesson in lessons:
                        await self._performer.learn(lesson)
                    for written in noted:
                        _tell(written)
                    if self._observers and records:
                        await self._observers.tell(self.state, records)
                if self._trials.active:
                    self._trials.proceeds(self)
                if self._released:
                    return await self._conclude()
                effects = machine.durable(ready)
                if lessons:
                    continue
                if self.stopping:
                    effects = [effect for effect in effects if type(effect) not in _ASIDE | _LOOKS]
                    if not (effects or self._tasks or self._outcomes):
                        # (A call whose intent has just become durable is made: without that it would be in doubt.)
                        return await self._release()
                self._performer.begun += len(effects)
                if self._companions or self.state.pending or (not self._turned and type(self.state.phase) is Backward):
                    await self._attend(busy=bool(effects or self._tasks))
                if not effects and await self._rests():
                    return None
                if len(effects) == 1 and self._is_alone() and type(effects[0]) not in _APART:
                    # It runs right here, without its own task: the hot path of a sequential saga.
                    settled_at = await self._perform_here(effects[0])
                else:
                    await self._perform(effects)
                    settled_at = None
        finally:
            self.running = False
            if self._link is not None:
                self._link.driver = None
            tasks = [*self._tasks, *(() if self._companions is None else self._companions.tasks())]
            for task in tasks:
                task.cancel()
            if self._trials.active:
                self._trials.gone(self)
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        self.running = True
        if self.suspected:
            self._trials.join(self)
        if self._link is not None:
            self._link.driver = self
            self._link.on_driver(self.state)

    # --- deciding and writing ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """The store's time; never before that of the saga's last record."""
        return self._clock.now_after(self.state.saga_id, self.state.at)

    async def _ready_aside(self, now: int) -> Ready:
        """As ``Machine.ready``, of a plan that computes: a round that computes much is decided in a thread."""
        state, capabilities, found = self.state, self._machine.means.capabilities, None
        while True:
            again = functools.partial(self._ready_in_turn, now, found)
            try:
                return briefly(again)
            except TooMuch:
                found = await aside(lambda: decide(state, now, capabilities))

    def _ready_in_turn(self, now: int, first: Sequence[r.AnyRecord] | None = None) -> Ready:
        """As ``Machine.ready``, while something is held here that may end the process."""
        self._admitted = True
        ready = self._machine.ready(now, self._admits, first)
        if self._admitted and self._trials.active:
            self._trials.frees(self)
        return ready

    def _admits(self, found: Sequence[r.AnyRecord]) -> bool:
        """Whether a round of decisions may be recorded now; else it is decided anew when it may be done."""
        self._admitted = not self._trials.active or self._trials.admits(self, found)
        return self._admitted

    def _is_held(self) -> bool:
        """Whether the saga has something to do that must not begin yet."""
        return self._trials.active and self._trials.holds(self)

    def _take_requests(self) -> None:
        """Events that are held for the saga, and the facts that a session's agent wants recorded.

        An agent's calls and their intents share an append.
        """
        if self._companions is not None and self._companions.holds:
            self._machine.take(self._companions.take(self._now_ms()))
        link = self._link
        if link is not None and link.requests:
            self._machine.take(self._requested(link))

    def _requested(self, link: Link) -> Iterator[r.AnyRecord]:
        while link.requests:
            record = link.requests.popleft()(self.state, self._now_ms())
            if record is not None:
                yield record

    # A call that waits for a guard records that, and then that it starts. Both are durable before it continues.

    def _note(self, call: Call, waits: bool) -> Awaitable[Outcome | None] | None:
        """What a call must await before it waits on, or is made; None: nothing needs to be written."""
        state = self.state
        flight = state.in_flight.get((state.plan.by_key[call.step_id], call.direction))  # type: ignore[arg-type]
        if flight == ("queued" if waits else "call"):
            return None
        if not waits and (self._trials.active or state.plan.images):
            return self._begin_in_turn(call)
        return self._noting(call, waits=waits)

    def _noting(self, call: Call, image: Image | None = None, *, waits: bool) -> Awaitable[None]:
        if self._here:
            return self._write_note(call, image, waits)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notes.append((call, image, waits, written))
        self.rouse()
        return written

    async def _begin_in_turn(self, call: Call) -> NotDone | None:
        state, direction = self.state, call.direction
        index = state.plan.by_key[call.step_id]
        if self._trials.active:
            bare = is_bare(state, index, direction)  # type: ignore[arg-type]
            await self._trials.may_begin(self, state.steps[index].call(direction).crashes, bare=bare)  # type: ignore[arg-type]
        image = await self._performer.images.read_again(state, index, call)
        if isinstance(image, NotDone):
            return image
        await self._noting(call, image, waits=False)
        return None

    def _noted(self, call: Call, image: Image | None, waits: bool) -> None:
        self._machine.note(call.step_id, call.direction, self._now_ms(), waits=waits, image=image)  # type: ignore[arg-type]

    async def _write_note(self, call: Call, image: Image | None, waits: bool) -> None:
        self._here = False
        try:
            self._noted(call, image, waits)
            ready = self._machine.said()
            self._committed(ready.records, await self._commit(ready, 0))
        except Exception as error:
            self._unwritten = error
            raise
        finally:
            self._here = True
        self._machine.durable(ready)
        if self._trials.active:
            self._trials.proceeds(self)
            self._trials.rests(self)
        if self._observers:
            await self._observers.tell(self.state, ready.records)

    def _take_notes(self) -> list[asyncio.Future[None]]:
        """Add the notes of calls to the next append; returns what waits until they are durable."""
        taken, self._notes = self._notes, []
        found: list[asyncio.Future[None]] = []
        for call, image, waits, written in taken:
            if not written.done():  # else its call has been cut off
                self._noted(call, image, waits)
                found.append(written)
        return found

    async def _read_messages(self) -> int:
        """Answer the saga's messages; returns how many. They are removed in the same append."""
        self._messages = False
        waiting = await self._store.messages(self.state.saga_id)
        now = self._now_ms()
        for data in waiting:
            record = self._machine.hear(data, now)
            if isinstance(record, r.MessageRefused):
                self._companions = self._companions or Companions(self._kinds, self.state, self.rouse)
                self._companions.refused(data, record)
        return len(waiting)

    def _commit(self, ready: Ready, consumed: int) -> asyncio.Future[Ack]:
        """Append the records; ``_committed`` handles the acknowledgement."""
        state = self.state
        values: dict[str, bytes] = {}
        data = encode_all(ready.records, values)
        status = state.status if state.status != self._head_status else None
        # What the head says about open questions: a listing reads no journal.
        asked = told_in_head(state) if state.questions or state.pending else None
        final = state.status in t.SAGA_FINAL
        resting = state.status == t.ESCALATED and not state.alerts_pending(
            alerting=self._performer.capabilities.alerting
        )
        kept = self._kept or ready.held or (self._trials.active and self._trials.holds(self))
        stays = final or kept or (self._rest_ms is None and not resting)
        due_ms = self._told_until_ms() if final else 0 if stays else self._due_ms(ready, resting=resting)
        release = final or due_ms > 0 or (resting and not (self._tasks or kept))
        entry = Entry(
            state.saga_id,
            self._seq,
            state.epoch,
            data,
            status,
            None if status is None and asked == self._head_asked else msgspec.json.encode(summary(state)),
            release,
            consumed,
            self._keep_ms if final else 0,
            values or None,
            self._creation,
            due_ms,
            *(() if self._index.known == (len(state.plan.steps), bool(state.questions)) else self._index.next(state)),
        )
        # What follows holds if the append succeeds. If not, this driver is invalid, and is not asked any more.
        self._creation = None
        self._seq += len(data)
        self._head_status = state.status
        self._head_asked = asked
        return self._writer.append(entry)

    def _committed(self, records: Sequence[r.AnyRecord], ack: Ack) -> None:
        """The records are durable; or they are not, and the reason is raised."""
        if ack.code != "ok":
            raise refusal(self.state.saga_id, ack.code, ack.digest)
        final = self._head_status in t.SAGA_FINAL
        if ack.messages and not final:
            self._messages = True
        self._released = ack.released or final  # a message that came in time keeps a saga here that only rests
        if self.journalled is not None:
            self.journalled()
            self.journalled = None
        if self._link is not None:
            self._link.on_durable(records)

    def _in_store(self, due_ms: int) -> int:
        return due_ms and self._clock.in_store(due_ms, self._machine.decided_at)

    # --- doing ---------------------------------------------------------------------------------------------------

    async def _perform(self, effects: Sequence[AnyEffect]) -> None:
        """Start the effects, wait until one has an outcome, and turn it into records."""
        for effect in effects:
            task = asyncio.create_task(self._perform_apart(effect), name=f"saga-call {self.state.saga_id}")
            if not task.done():  # an eager task may have ended already
                self._tasks[task] = effect
        # A driver that stops waits for the calls in flight and checks nothing else: it would check without end.
        waits = bool(self._tasks) if self.stopping else not self._has_post()
        if not (self._outcomes or self._notes) and waits:
            await self._wait()
        outcomes, self._outcomes = self._outcomes, []
        for effect, result in outcomes:
            if isinstance(result, LeaseLost):
                raise result
            await self._learn(effect, result)

    def _has_post(self) -> bool:
        """Whether there are messages to read, or a session's request to record."""
        if self._companions is not None and self._companions.holds:
            return True
        return self._messages or (self._link is not None and bool(self._link.requests))

    def _wanted(self) -> bool:
        """Whether the saga wants no more than the calls that are held; else they are given back, and decided again."""
        ending = self.state.ending
        turned = self.state.backward if ending is None else self._clock.now_ms() >= ending.until
        return not (turned or self.stopping or self._has_post())

    def _is_alone(self) -> bool:
        """Whether an effect is the only thing that the saga waits for; an open session's agent may ask for more."""
        state = self.state
        return not (self._tasks or state.waiting or state.pending or self._outcomes or state.open)

    async def _perform_here(self, effect: AnyEffect) -> int:
        """Perform an effect beside which nothing else runs, and record its outcome; returns when."""
        self._here = True
        if self._trials.active:
            self._trials.rests(self)
        try:
            if type(effect) is CallTool:
                result: Result = await self._performer.call(self.state, effect, self._note, self._wanted)
            else:
                result = await self._performer.perform(self.state, effect, self._note, self._wanted)
        except LeaseLost:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in ``_perform_apart``
            if self._unwritten is not None:
                raise self._unwritten from None
            result = self._defect(effect, error)
        finally:
            self._here = False
        if self._unwritten is not None:  # a guard may have produced an outcome of it
            raise self._unwritten
        if type(result) is not Done or self.state.plan.computes:
            return await self._learn(effect, result)
        # As there, for each call: without a call of its own.
        now = self._clock.now_after(self.state.saga_id, self.state.at)
        self._machine.learn(effect, result, now, random.random())
        return now

    async def _perform_apart(self, effect: AnyEffect) -> None:
        result: Result | LeaseLost
        try:
            result = await self._performer.perform(self.state, effect, self._note, self._wanted)
        except LeaseLost as lost:
            result = lost
        except asyncio.CancelledError:
            self._ended_apart()
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a defect must not leave the saga waiting for ever
            result = self._defect(effect, error)
        self._outcomes.append((effect, result))  # type: ignore[arg-type]
        self._ended_apart()

    def _ended_apart(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.pop(task, None)  # here and not in a callback: the driver relies on it as soon as it wakes
        self.rouse()

    def _defect(self, effect: AnyEffect, error: BaseException) -> Result:
        """The outcome of an effect that failed inside the engine, or in user code around the call: unknown."""
        _log.error("an effect of saga %s failed inside the engine", self.state.saga_id, exc_info=error)
        defect = ErrorInfo(error_code="engine_defect", message=f"{type(error).__name__}: {error}"[:500])
        return defect if type(effect) in _ASIDE else Unknown(defect)

    async def _learn(self, effect: AnyEffect, result: Result) -> int:
        """Record the outcome of an effect; returns when."""
        state = self.state
        now = self._clock.now_after(state.saga_id, state.at)
        if type(result) is not Done and type(effect) in _CALLS:
            tell_defect(state, effect, result)  # type: ignore[arg-type]
        dice = random.random()
        if state.plan.computes and type(effect) in _CALLS:  # (It may compute whether it has failed.)
            self._machine.meant(await computed(lambda: self._machine.meaning(effect, result, now, dice)))
        else:
            self._machine.learn(effect, result, now, dice)
        return now

    async def _wait(self) -> None:
        """Wait for an outcome, a message, a stop, or the next due time."""
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        # Counted from the last decision: what has become due since then has not been considered yet.
        due = None if self.stopping else self._machine.due()
        delay_s = 0.0 if due is None else max(due - self._now_ms(), 0) / 1000 + 0.001
        timer = None if due is None else loop.call_later(delay_s, self.rouse)
        if self._trials.active:
            self._trials.rests(self)
        try:
            await self._wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()
