"""A saga as a Temporal workflow: decide, start activities, interpret their outcomes, and repeat.

The pure core runs here unchanged. The workflow's history is the journal's storage: an activity is scheduled in the same
commands that follow from its intent, so a call is made only when its intent is durable. The records themselves are a
function of the history, and the workflow keeps them for queries. Time and randomness are the workflow's own.

Temporal never repeats a call by itself: every activity has one attempt. A call that is not known to have happened is in
doubt, and the core settles doubts as in the built-in runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.codec import decode, encode, inflate
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
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
    Unknown,
)
from saga_engine.core.fold import started_of, state_at_start, state_of
from saga_engine.core.images import Image, image_of
from saga_engine.core.machine import FixedMeans, Machine, Ready, Result
from saga_engine.core.messages import Message, answer, check_amendment, check_cancel, check_decision
from saga_engine.core.state import State
from saga_engine.core.state_values import Place, Replanning
from saga_engine.errors import SagaError
from saga_engine.execution.calls import Lesson, lesson_of
from saga_engine.loggers import logger_of
from saga_engine.plan.undo_looks import look_of
from saga_engine.temporal import payloads
from saga_engine.temporal.activity_calls import (
    growing,
    perform_alert,
    perform_call,
    perform_lesson,
    perform_question,
    refused,
    the_means,
)
from saga_engine.temporal.activity_inputs import CallOrder, Orders
from saga_engine.temporal.declarations import CheckMaker, Declarations

_log = logger_of("saga_engine.worker")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

#: A worker is asked about operators and planners once they matter; until then nothing depends on them.
_ANY: Final = Capabilities(alerting=True, planner=True)


class SagaFlow:
    """One saga, as ``body`` (a ``payloads.Begin``) begins or continues it.

    The composition root makes a workflow of it; ``check`` makes the checks of params. Everything is set up before the
    workflow begins to run: a message may come first.
    """

    def __init__(self, check: CheckMaker, body: Mapping[str, Any]) -> None:
        self._check = check
        self._machine: Machine | None = None
        self._catalog: Declarations | None = None
        self._records: list[bytes] = []
        self._values: dict[str, bytes] = {}
        self._messages: set[str] = set()
        self._lessons: list[Lesson] = []
        self._outcomes: list[tuple[AnyEffect, Result]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._capabilities: Capabilities | None = None
        #: The calls that no worker could begin yet, and why.
        self._waits: dict[Place, ErrorInfo] = {}
        self._told = ""
        self._roused = False
        self._cancel_taken = False
        self._carried = 0
        self._begin = self._load(body)

    # --- the loop ------------------------------------------------------------------------------------------------

    async def drive(self) -> dict[str, Any]:
        """Run the saga to its end; returns its status and its journal, packed."""
        begin = self._begin
        while True:
            try:
                await self._turn(begin)
            except asyncio.CancelledError:
                if workflow.cancellation_reason() is None or self._cancel_taken:
                    raise  # this worker merely drops the workflow from its cache
                self._cancelled()
            if self._here().status in t.SAGA_FINAL:
                return self._end()
            if self._leaving(begin) and not (self._tasks or self._outcomes or self._roused):
                self._continue(begin)  # (no handler ever awaits anything, so none is cut off)

    async def _turn(self, begin: payloads.Begin) -> None:
        """Interpret new outcomes, decide, start the effects, and wait for more."""
        self._roused = False
        outcomes, self._outcomes = self._outcomes, []
        for effect, result in outcomes:
            self._learn(effect, result)
        while self._lessons:
            await self._teach(self._lessons[0])
            self._lessons.pop(0)
        state = self._here()
        if self._capabilities is None and (self._matters() or state.reminders or state.looks_for_able()):
            await self._learn_means()
        leaving, machine = self._leaving(begin), self._driven()
        ready = machine.said() if leaving else self._ready()
        self._tell_status()
        if state.status in t.SAGA_FINAL:
            return
        orders = Orders(state, self._now_ms(), workflow.random().getrandbits)
        for effect in machine.durable(ready):  # (what is recorded is in the history with the commands of this turn)
            self._start(effect, orders, begin.lease_s)
        if not leaving or self._tasks:
            await self._wait(timers=not leaving)

    def _ready(self) -> Ready:
        machine = self._driven()
        said = len(machine.said().records)
        ready = machine.ready(self._now_ms(), lambda _: self._capabilities is not None or not self._matters())
        self._journal(ready.records[said:])
        if self._capabilities is None and self._matters():
            self._roused = True  # ask first, then continue
        return ready

    def _matters(self) -> bool:
        """Whether what follows may depend on the capabilities of operators and planners."""
        state = self._here()
        return bool(state.alerts or state.to_escalate) or isinstance(state.phase, Replanning)

    async def _wait(self, *, timers: bool) -> None:
        """Wait for an outcome, a message, or the next due time."""
        due = self._driven().due() if timers else None
        timeout = None if due is None else max(due - self._now_ms(), 0) / 1000 + 0.001
        try:
            await workflow.wait_condition(lambda: bool(self._outcomes) or self._roused, timeout=timeout)
        except TimeoutError:
            return  # a timer is due

    # --- records -------------------------------------------------------------------------------------------------

    def _record(self, record: r.AnyRecord) -> None:
        """Record a fact from outside."""
        if isinstance(record, r.QuestionResolved) and record.decision == "retry":
            self._forget_change(record)
        self._driven().take([record])
        self._journal([record])

    def _journal(self, records: Sequence[r.AnyRecord]) -> None:
        for record in records:
            self._records.append(encode(record, self._values))
            self._messages.add(getattr(record, "message", ""))
            lesson = lesson_of(self._here(), record)
            if lesson is not None:
                self._lessons.append(lesson)

    def _learn(self, effect: AnyEffect, result: Result) -> None:
        """Record the outcome of an effect."""
        machine = self._driven()
        said = len(machine.said().records)
        machine.looks = self._looks_after(effect, result)
        machine.learn(effect, result, self._now_ms(), workflow.random().random())
        self._journal(machine.said().records[said:])

    def _looks_after(self, effect: AnyEffect, result: Result) -> bool:
        """Whether the undo that happened is looked at. Only then does the history have the mark of that."""
        if not isinstance(effect, CallTool | Probe) or effect.direction != COMPENSATE or type(result) is not Done:
            return False
        state = self._here()
        by = look_of(state.acting(effect.step), state.whole_rollback(effect.step), image=False)
        return bool(by) and workflow.patched("undo-looks")

    def _forget_change(self, record: r.QuestionResolved) -> None:
        """An operator wants a call made whose tool had changed: the worker checks anew whether it fits."""
        question = self._here().questions.get(record.question)
        if question is not None and question.kind == "tool-changed" and self._catalog is not None:
            serving = self._here().serving(question.step, question.direction)
            self._catalog.restore(serving.tool)
            self._catalog.respecify(self._here().plan)

    # --- effects -------------------------------------------------------------------------------------------------

    def _start(self, effect: AnyEffect, orders: Orders, lease_s: float) -> None:
        """Start the effect of a record. The order is built here, from the current state, not when its task runs."""
        state = self._here()
        work: Coroutine[Any, Any, Any]
        if type(effect) is Alert:
            work = perform_alert(orders.question(effect), self._now_ms(), lease_s)
        elif type(effect) is AskPlanner:
            body = {
                "journal": payloads.pack_journal(self._records),
                "values": {digest: payloads.pack(data) for digest, data in self._values.items()},
                "step": state.plan.steps[effect.step].key,
                "purpose": effect.purpose,
            }
            work = perform_question(body, lease_s)
        else:
            assert isinstance(effect, CallTool | Probe | LookAfterUndo)
            try:
                order = orders.look(effect) if isinstance(effect, LookAfterUndo) else orders.call(effect)
            except SagaError as error:
                self._outcomes.append((effect, Unknown(ErrorInfo("engine_defect", error.message[:1000]))))
                self._roused = True
                return
            work = self._called(effect, order, lease_s)
        self._tasks.add(asyncio.create_task(self._performed(effect, work)))

    async def _performed(self, effect: AnyEffect, work: Any) -> None:
        result: Result
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - a defect must not leave the saga waiting for ever
            workflow.logger.exception("an effect of saga %s failed inside the engine", self._here().saga_id)
            defect = ErrorInfo("engine_defect", f"{type(error).__name__}: {error}"[:500])
            result = defect if isinstance(effect, Alert | AskPlanner) else Unknown(defect)
        if isinstance(effect, AskPlanner) and isinstance(result, dict):
            assert self._catalog is not None
            self._catalog.learn(result.get("declared", {}))
            result = payloads.read_advice(result)
        self._outcomes.append((effect, result))
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)

    async def _called(
        self, effect: CallTool | Probe | LookAfterUndo, order: CallOrder, lease_s: float
    ) -> Image | Outcome:
        begin = self._begin
        assert begin is not None
        direction = COMPENSATE if type(effect) is LookAfterUndo else effect.direction  # type: ignore[union-attr]
        place = (effect.step, direction)

        def unwanted() -> bool:
            # A call that nobody can begin must not keep a long history from being continued in another run.
            return self._unwanted(effect) or self._leaving(begin)

        try:
            answered = await perform_call(order, lease_s, unwanted, partial(self._waits.__setitem__, place))
        finally:
            self._waits.pop(place, None)
        if isinstance(answered, dict):
            # The declaration of the tool has changed, and the params do not fit it. Nothing was called.
            assert self._catalog is not None
            self._catalog.renew(answered["declared"])
            self._catalog.respecify(self._here().plan)
            return NotDone(payloads.read_error(answered["error"]), counted=False)
        if type(effect) is LookAfterUndo and effect.by == "check":
            check = self._here().acting(effect.step).check
            assert check is not None
            return image_of(check, answered)
        return answered

    def _unwanted(self, effect: CallTool | Probe | LookAfterUndo) -> bool:
        """Whether a call that nobody could begin yet is no longer wanted."""
        state = self._here()
        if type(effect) is not CallTool or effect.direction != FORWARD or state.steps[effect.step].forward.doubt:
            return False
        return state.turns and state.ending is None and state.plan.steps[effect.step].compensates is None

    async def _teach(self, lesson: Lesson) -> None:
        """Have a worker remember an operator's 'happened'. In a task of its own: a cancel is meant for the workflow."""
        if workflow.patched("lessons"):
            body = {**lesson._asdict(), "call": payloads.call_fields(lesson.call)}
            taught = asyncio.create_task(perform_lesson(body))
            await workflow.wait_condition(taught.done)

    async def _learn_means(self) -> None:
        """Ask a worker for its capabilities. In a task of its own: a cancel is meant for the workflow."""
        asked = asyncio.create_task(the_means())
        await workflow.wait_condition(asked.done)
        said = asked.result()
        self._capabilities = Capabilities(bool(said["alerting"]), bool(said["planner"]), said["semantic"])
        self._driven().means = FixedMeans(self._capabilities, int(said["remind_ms"]), self._catalog)

    # --- begin, continuation in another run, and end ---------------------------------------------------------------

    def _load(self, body: Mapping[str, Any]) -> payloads.Begin:
        begin = payloads.read_begin(body)
        self._catalog = Declarations(begin.declared, begin.fresh, self._check)
        if not begin.journal:
            started = payloads.started_of(begin, self._now_ms())
            state = state_at_start(started, self._catalog)
            self._machine = Machine(state, FixedMeans(_ANY, 0, self._catalog))
            self._records.append(encode(started, self._values))
            self._told = state.status
            return begin
        self._values = {digest: payloads.unpack(text) for digest, text in begin.values.items()}
        self._records = payloads.unpack_journal(begin.journal)
        records = payloads.whole_records(self._records, self._values)
        state = state_of(records, self._catalog)
        self._machine = Machine(state, FixedMeans(_ANY, 0, self._catalog))
        self._messages = {getattr(record, "message", "") for record in records}
        self._told = state.status
        self._carried = len(records)
        return begin

    def _leaving(self, begin: payloads.Begin) -> bool:
        """Whether this run's history is long enough: no new effect starts, and effects in progress are awaited."""
        if len(self._records) <= self._carried:
            return False  # a run that settled nothing would be continued for ever
        info = workflow.info()
        length = info.get_current_history_length()
        long = length >= begin.events if begin.events else info.is_continue_as_new_suggested()
        return long and self._carries(begin)

    def _carries(self, begin: payloads.Begin) -> bool:
        """Whether the data that a further run needs fits into its input."""
        if begin.offloads:
            return True
        size = sum(map(len, self._records)) // 4 + sum(map(len, self._values.values()))
        return size < payloads.MOST_INLINE_BYTES

    def _continue(self, begin: payloads.Begin) -> None:
        catalog = self._catalog
        assert catalog is not None
        further = msgspec.structs.replace(
            begin,
            declared=catalog.declared,
            fresh=catalog.fresh,
            journal=payloads.pack_journal(self._records),
            values={digest: payloads.pack(data) for digest, data in self._values.items()},
            runs=begin.runs + 1,
        )
        workflow.continue_as_new(msgspec.to_builtins(further))

    def _end(self) -> dict[str, Any]:
        """The data that remains when no worker is left. Large outputs are omitted; a worker can still return them."""
        planned = {
            ref.digest
            for data in self._records
            if b'"refs"' in data
            for name, ref in getattr(decode(data), "refs", {}).items()
            if name != "output"
        }
        values = {digest: payloads.pack(self._values[digest]) for digest in sorted(planned)}
        if not workflow.unsafe.is_replaying():
            _log.info("saga %s ended: %s", self._here().saga_id, self._here().status)
        return {"status": self._here().status, "journal": payloads.pack_journal(self._records), "values": values}

    def _tell_status(self) -> None:
        state = self._here()
        if state.status != self._told:
            self._told = state.status
            workflow.upsert_memo({payloads.MEMO: {"digest": state.digest, "status": state.status}})

    def _cancelled(self) -> None:
        """Handle a cancelled workflow: for a saga that means to be compensated, not to be cut off."""
        self._cancel_taken = True
        state = self._here()
        message = Message(id=f"temporal:{workflow.info().run_id}", kind="cancel", note="the workflow was cancelled")
        self._record(answer(state, message, self._now_ms()))

    # --- queries and updates -------------------------------------------------------------------------------------

    @workflow.query(name="journal", description="The saga's records from one on, as JSON texts, one page of them.")
    def journal(self, start: int) -> dict[str, Any]:
        """The status of the saga, and its records from ``start`` on."""
        state = self._here()
        page: list[str] = []
        size = 0
        for data in self._records[start:]:
            size += len(data)
            if page and size > payloads.PAGE_BYTES:
                break
            page.append(data.decode())
        return {
            "status": state.status,
            "length": len(self._records),
            "resting": self._resting(),
            "records": page,
            "waits": [
                {"step": state.plan.steps[index].key, "direction": direction, "error": msgspec.to_builtins(why)}
                for (index, direction), why in self._waits.items()
            ],
        }

    @workflow.query(name="value", description="A large value of the saga, by its digest, packed.")
    def value(self, digest: str) -> str | None:
        """The value; None if it does not exist."""
        data = self._values.get(digest)
        return None if data is None else payloads.pack(data)

    @workflow.update(name="cancel", description="Have the saga undone.")
    def cancel(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compensate the saga."""
        return self._heard(message)

    @cancel.validator
    def _check_cancel(self, message: dict[str, Any]) -> None:
        if _message(message).id not in self._messages:
            with refused():
                check_cancel(self._here())

    @workflow.update(name="resolve", description="Answer an open question.")
    def resolve(self, message: dict[str, Any]) -> dict[str, Any]:
        """Resolve the open question about a step."""
        return self._heard(message)

    @resolve.validator
    def _check_decision(self, message: dict[str, Any]) -> None:
        said = _message(message)
        if said.id not in self._messages:
            with refused():
                check_decision(self._here(), said, self._now_ms())

    @workflow.update(name="amend", description="Add steps to the saga.")
    def amend(self, message: dict[str, Any], declared: dict[str, Any]) -> dict[str, Any]:
        """Add steps; ``declared`` are the declarations of their tools."""
        assert self._catalog is not None
        self._catalog.learn(declared)
        return self._heard(message)

    @amend.validator
    def _check_amendment(self, message: dict[str, Any], declared: dict[str, Any]) -> None:
        said = _message(message)
        if said.id in self._messages:
            return
        state, catalog = self._here(), self._catalog
        assert catalog is not None
        with refused(), growing(state, self._started(), catalog.with_(declared)):
            check_amendment(state, said.steps)

    def _heard(self, body: dict[str, Any]) -> dict[str, Any]:
        """Process a message; one that was processed before changes nothing."""
        message = _message(body)
        state = self._here()
        if message.id not in self._messages:
            self._record(answer(state, message, self._now_ms()))
            self._roused = True
        return {"status": state.status, "length": len(self._records)}

    def _resting(self) -> bool:
        """Whether nothing happens before an operator answers."""
        state = self._here()
        alerting = self._capabilities is not None and self._capabilities.alerting
        return state.status == t.ESCALATED and not (
            self._tasks or self._roused or state.alerts_pending(alerting=alerting)
        )

    def _started(self) -> r.SagaStarted:
        return started_of([inflate(decode(self._records[0]), self._values)])

    def _driven(self) -> Machine:
        assert self._machine is not None, "it was made with its input"
        return self._machine

    def _here(self) -> State:
        return self._driven().state

    def _now_ms(self) -> int:
        now = (workflow.now() - _EPOCH) // _MILLISECOND
        return now if self._machine is None else max(now, self._machine.state.at)


def _message(body: Mapping[str, Any]) -> Message:
    """A message in its sent form. Raises ``ApplicationError`` for an invalid one."""
    try:
        return msgspec.convert(body, Message)
    except msgspec.ValidationError as error:
        raise ApplicationError(f"this is no message: {error}", type="journal-unreadable", non_retryable=True) from error
