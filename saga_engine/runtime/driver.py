"""Drives one saga: decide, append, perform, interpret, and again, until it rests or ends.

The order of these steps is the guarantee. The driver evolves records into the state and appends them in one write. Only
when that write is durable does it perform the effects that the records order. The outcome of one call and the intent of
the next are one append. If it fails, the state in memory is invalid and is dropped with the driver; the journal counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.codec import encode_all
from saga_engine.core.crash_loops import is_bare
from saga_engine.core.decide import ORDERS, decide, effects_of
from saga_engine.core.effects import (
    Alert,
    AnyEffect,
    AskPlanner,
    CallTool,
    Done,
    ErrorInfo,
    NotDone,
    Outcome,
    ReadBefore,
    Unknown,
)
from saga_engine.core.evolve import evolve
from saga_engine.core.images import Image, note_of
from saga_engine.core.interpret import Advice, interpret, interpret_alert
from saga_engine.core.messages import answer_to, decode_message
from saga_engine.core.report import summary
from saga_engine.core.state import State
from saga_engine.core.state_values import Backward
from saga_engine.core.steps.wait import REFUSALS as EVENT_REFUSALS
from saga_engine.errors import LeaseLost
from saga_engine.execution.calls import lessons_of
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.observers import MaskedObservers, Observers
from saga_engine.loggers import logger_of
from saga_engine.ports import Ack, Call, Creation, Entry, Store
from saga_engine.runtime.children import Children, Family
from saga_engine.runtime.defect_reports import tell_defect
from saga_engine.runtime.due_times import told_in_head
from saga_engine.runtime.index_changes import IndexChanges
from saga_engine.runtime.link import Link
from saga_engine.runtime.listening import Listening
from saga_engine.runtime.pending_images import PendingImages
from saga_engine.runtime.performer import Performer
from saga_engine.runtime.resting import Resting
from saga_engine.runtime.stop_reasons import refusal
from saga_engine.runtime.trials import Trials
from saga_engine.runtime.writer import JournalWriter

_log = logger_of("saga_engine.driver")

Result = Outcome | Advice | ErrorInfo | Image | None

#: Effects that call no tool. An operator's answer, a cancel and the end of the process do not wait for them.
_ASIDE: Final = frozenset({Alert, AskPlanner})
#: How long notifications may still take when the process, or a session's agent, stops.
ALERT_GRACE_S: Final = 5.0


class SagaDriver(Resting):
    """The only writer of one saga, as long as its epoch is the saga's.

    ``messages``: whether any may be waiting. ``rest_ms``: if a wait for a timer takes longer, the driver releases the
    saga, and the queue returns it when the timer fires. None: a caller waits for the saga here.
    """

    __slots__ = (
        "_children",
        "_clock",
        "_creation",
        "_decided_at",
        "_family",
        "_head_asked",
        "_head_status",
        "_here",
        "_images",
        "_index",
        "_keep_ms",
        "_kept",
        "_link",
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
        family: Family | None = None,
    ) -> None:
        self.state = state
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
        self._decided_at = 0
        self._head_status = "" if creation else state.status
        self._head_asked: tuple[Any, ...] | None = None
        self._index = IndexChanges(state, new=creation is not None)
        self._store = store
        self._writer = writer
        self._performer = performer
        self._clock = clock
        self._trials = trials
        # Looked at for each append, and there are mostly none.
        self._observers = MaskedObservers(observers) if observers else None
        self._keep_ms = keep_ms
        self._link = link
        self._rest_ms = rest_ms
        self._messages = messages
        #: What the store knows of its waits for events, once it has any.
        self._listening: Listening | None = Listening(store, state) if state.waits else None
        self._family = family
        #: What was done about its children, once it has any.
        self._children: Children | None = None
        self._concludes = self._turned = False
        self._outcomes: list[tuple[AnyEffect, Result]] = []
        self._tasks: dict[asyncio.Task[None], AnyEffect] = {}
        self._images = PendingImages(state)
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
            if any(type(effect) is Alert for effect in self._tasks.values()):
                asyncio.get_running_loop().call_later(ALERT_GRACE_S, self._drop, Alert)
        self.rouse()

    def _drop(self, kind: type[Alert | AskPlanner]) -> None:
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
        records: list[r.AnyRecord] = list(first)
        self.sleeps_until_ms = 0
        settled_at: int | None = None  # when the last outcome was interpreted; what follows is decided then
        self._begin()
        try:
            while True:
                consumed = await self._read_messages(records) if self._messages and not self.stopping else 0
                lessons = lessons_of(self.state, records) if consumed else ()
                noted = self._take_notes(records) if self._notes else ()
                if not self.stopping:
                    if self._link is not None or self._listening is not None or self._children is not None:
                        self._take_requests(records)
                    if not lessons:  # else the saga could end before they have been learned
                        self._decide(records, settled_at)
                if records or consumed or self._kept:
                    self._kept = bool(lessons)
                    self._committed(records, await self._commit(records, consumed))
                    for lesson in lessons:
                        await self._performer.learn(lesson)
                    for written in noted:
                        if not written.done():
                            written.set_result(None)
                    if self._observers and records:
                        await self._observers.tell(self.state, records)
                if self._trials.active:
                    self._trials.proceeds(self)
                if self._released:
                    return await self._settle_waits()
                if lessons:
                    records = []
                    continue
                effects: list[AnyEffect] = []
                for record in records:
                    if type(record) in ORDERS and (effect := effects_of(self.state, record)):
                        effects.append(effect)  # noqa: PERF401 - for each append: without a function of its own
                if self._images.waiting:
                    effects += self._images.reads(self._tasks.values(), self._outcomes)
                if self.stopping:
                    effects = [effect for effect in effects if type(effect) not in (*_ASIDE, ReadBefore)]
                if self.stopping and not (effects or self._tasks or self._outcomes):
                    # (A call whose intent has just become durable is made: without that it would be in doubt.)
                    return await self._release()
                self._performer.begun += len(effects)
                records = []
                if self.state.waits or self._listening or (not self._turned and type(self.state.phase) is Backward):
                    await self._listen(busy=bool(effects or self._tasks))
                if not effects and await self._rests():
                    return None
                if len(effects) == 1 and self._is_alone() and type(effects[0]) not in _ASIDE:
                    # It runs right here, without its own task: the hot path of a sequential saga.
                    settled_at = self._interpret(effects[0], await self._perform_here(effects[0]), records)
                else:
                    await self._perform(effects, records)
                    settled_at = None
        finally:
            self.running = False
            if self._link is not None:
                self._link.driver = None
            tasks = [*self._tasks, *self._beside()]
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

    def _decide(self, records: list[r.AnyRecord], now: int | None) -> None:
        """Decide until nothing more follows from the state; each round is evolved before the next."""
        state = self.state
        if now is None or now < state.at:
            now = self._clock.now_after(state.saga_id, state.at)
        self._decided_at = now
        capabilities, trials = self._performer.capabilities, self._trials
        while found := decide(state, now, capabilities):
            if trials.active and not trials.admits(self, found):
                return  # it is decided anew when it may be done
            if state.plan.images and not (found := self._images.completed(found, now)):
                break
            for record in found:
                evolve(state, record)
            records.extend(found)
        if trials.active:
            trials.frees(self)

    def _is_held(self) -> bool:
        """Whether the saga has something to do that must not begin yet."""
        return self._trials.active and self._trials.holds(self)

    def _take_requests(self, records: list[r.AnyRecord]) -> None:
        """Events that are held for the saga, and the facts that a session's agent wants recorded.

        An agent's calls and their intents share an append.
        """
        for waits in (self._listening, self._children):
            if waits is not None and waits.holds:
                records += waits.take(self._now_ms())
        link = self._link
        while link is not None and link.requests:
            record = link.requests.popleft()(self.state, self._now_ms())
            if record is not None:
                evolve(self.state, record)
                records.append(record)

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

    def _noted(self, call: Call, image: Image | None, waits: bool) -> r.AnyRecord:
        record = note_of(self._now_ms(), call.step_id, call.direction, image, waits=waits)  # type: ignore[arg-type]
        evolve(self.state, record)
        return record

    async def _write_note(self, call: Call, image: Image | None, waits: bool) -> None:
        self._here = False
        try:
            records = [self._noted(call, image, waits)]
            self._committed(records, await self._commit(records, 0))
        except Exception as error:
            self._unwritten = error
            raise
        finally:
            self._here = True
        if self._trials.active:
            self._trials.proceeds(self)
            self._trials.rests(self)
        if self._observers:
            await self._observers.tell(self.state, records)

    def _take_notes(self, records: list[r.AnyRecord]) -> list[asyncio.Future[None]]:
        """Add the notes of calls to the next append; returns what waits until they are durable."""
        taken, self._notes = self._notes, []
        found: list[asyncio.Future[None]] = []
        for call, image, waits, written in taken:
            if not written.done():  # else its call has been cut off
                records.append(self._noted(call, image, waits))
                found.append(written)
        return found

    async def _read_messages(self, records: list[r.AnyRecord]) -> int:
        """Answer the saga's messages; returns how many. They are removed in the same append."""
        self._messages = False
        waiting = await self._store.messages(self.state.saga_id)
        now = self._now_ms()
        for data in waiting:
            record = answer_to(self.state, data, now)
            evolve(self.state, record)
            records.append(record)
            if isinstance(record, r.MessageRefused) and record.code in EVENT_REFUSALS:
                self._listening = self._listening or Listening(self._store, self.state)
                self._listening.answered(decode_message(data), record)
        return len(waiting)

    def _commit(self, records: list[r.AnyRecord], consumed: int) -> asyncio.Future[Ack]:
        """Append the records; ``_committed`` handles the acknowledgement."""
        state = self.state
        values: dict[str, bytes] = {}
        data = encode_all(records, values)
        status = state.status if state.status != self._head_status else None
        # What the head says about open questions: a listing reads no journal.
        asked = told_in_head(state) if state.questions or state.waits else None
        final = state.status in t.SAGA_FINAL
        resting = state.status == t.ESCALATED and not state.alerts_pending(
            alerting=self._performer.capabilities.alerting
        )
        kept = self._kept or bool(self._images.waiting) or (self._trials.active and self._trials.holds(self))
        stays = final or kept or (self._rest_ms is None and not resting)
        due_ms = self._told_until_ms() if final else 0 if stays else self._due_ms(resting=resting)
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

    def _committed(self, records: list[r.AnyRecord], ack: Ack) -> None:
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
        return due_ms and self._clock.in_store(due_ms, self._decided_at)

    # --- doing ---------------------------------------------------------------------------------------------------

    async def _perform(self, effects: Sequence[AnyEffect], records: list[r.AnyRecord]) -> None:
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
            self._interpret(effect, result, records)

    def _has_post(self) -> bool:
        """Whether there are messages to read, or a session's request to record."""
        if (self._listening is not None and self._listening.holds) or (self._children and self._children.holds):
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
        return not (self._tasks or state.waiting or state.waits or self._outcomes or state.open)

    async def _perform_here(self, effect: AnyEffect) -> Result:
        """The outcome of an effect beside which nothing else runs."""
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
        return result

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

    def _interpret(self, effect: AnyEffect, result: Result, records: list[r.AnyRecord]) -> int:
        """Record the outcome of an effect; returns when."""
        state = self.state
        now = self._clock.now_after(state.saga_id, state.at)
        if type(effect) is Alert:
            remind_ms = self._performer.remind_ms
            record = interpret_alert(state, effect.question, result, now, random.random(), remind_ms)  # type: ignore[arg-type]
        elif type(effect) is AskPlanner:
            record = self._performer.interpret_advice(state, effect, result, now)  # type: ignore[arg-type]
        elif type(effect) is ReadBefore:
            self._images.learn(effect, result)
            return now
        else:
            if type(result) is not Done:
                tell_defect(state, effect, result)  # type: ignore[arg-type]
            record = interpret(state, effect, result, now, random.random())  # type: ignore[arg-type]
        evolve(state, record)
        records.append(record)
        return now

    async def _wait(self) -> None:
        """Wait for an outcome, a message, a stop, or the next due time."""
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        # Counted from the last decision: what has become due since then has not been considered yet.
        due = None if self.stopping else self.state.next_due(self._decided_at)
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
