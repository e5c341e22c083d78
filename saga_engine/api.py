"""The embedded API and the composition root: the only place that wires stores, tools and the runtime together."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from saga_engine._version import __version__
from saga_engine.core import transitions as t
from saga_engine.core.codec import encode
from saga_engine.core.evolve import begin, evolve
from saga_engine.core.messages import Message, check_cancel, check_decision, encode_message
from saga_engine.core.records import AnyRecord, SagaResumed, SagaStarted
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.errors import Interrupted, LeaseLost, SagaError, SagaExists, SagaOwned, StoreRefused
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.values import digest, plain
from saga_engine.ports import Acquired, Creation, Entry, EscalationHook, Head, Held, Observer, Question, Store
from saga_engine.runtime.driver import SagaDriver
from saga_engine.runtime.ids import check_saga_id, new_saga_id
from saga_engine.runtime.journal import read_records, require_tools, state_of
from saga_engine.runtime.lease import Lease, StoreClock
from saga_engine.runtime.owner import provably_dead
from saga_engine.runtime.performer import Performer, secret_value
from saga_engine.runtime.writer import JournalWriter
from saga_engine.stores import open_store
from saga_engine.tools.registry import ToolRegistry

_log = logging.getLogger("saga_engine")
_T = TypeVar("_T")

PlanSource = Plan | Mapping[str, Any] | str | bytes | Path
Hook = EscalationHook | Callable[[Question], Awaitable[None] | None]
#: How many checked plans a coordinator remembers, so that a plan run again is not checked again.
_REMEMBERED_PLANS = 256
#: How often a saga is taken up again after the lease was lost under it.
_MAX_TAKE_UPS = 3
#: How many sagas ``resume_all`` drives at the same time.
_RESUME_AT_ONCE = 256


class Outcome:
    """Where a saga stands. The details are put together when they are first asked for: many want only ``status``."""

    __slots__ = ("_body", "_state", "saga_id", "status")

    def __init__(self, state: State) -> None:
        self.saga_id = state.saga_id
        self.status = state.status
        self._state: State | None = state
        self._body: dict[str, Any] = {}

    @property
    def body(self) -> Mapping[str, Any]:
        """The object that ``show --json`` prints."""
        if self._state is not None:
            self._body, self._state = view(self._state), None
        return self._body

    def __repr__(self) -> str:
        return f"Outcome({self.saga_id!r}, {self.status})"

    @property
    def completed(self) -> bool:
        """Whether every step happened."""
        return self.status == t.COMPLETED

    @property
    def ended(self) -> bool:
        """Whether the saga will never change again."""
        return self.status in t.SAGA_FINAL

    @property
    def report(self) -> Mapping[str, Any]:
        """The four lists and ``clean``."""
        report: Mapping[str, Any] = self.body["report"]
        return report

    def output(self, step_id: int | str) -> Any:
        """The output of a step, None if it has none; raises ``KeyError`` if there is no such step."""
        for step in self.body["steps"]:
            if str(step["step_id"]) == str(step_id):
                return step["output"]
        raise KeyError(step_id)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as one JSON object."""
        return dict(self.body)


class Handle:
    """A saga that has been journalled and is being driven in this process."""

    __slots__ = ("_future", "saga_id")

    def __init__(self, saga_id: str, future: asyncio.Future[Outcome]) -> None:
        self.saga_id = saga_id
        self._future = future

    async def wait(self) -> Outcome:
        """Until the saga ends or needs a person. Cancelling the wait leaves the saga running.

        Raises ``Interrupted`` if the coordinator was closed first, ``StoreUnavailable``, ``LeaseLost`` or
        ``SagaOwned``.
        """
        if self._future.done():
            return self._future.result()
        # A future of its own for each waiter: cancelling the wait must not touch the saga, nor the other waiters.
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._future.add_done_callback(partial(_pass_on, waiter))
        return await waiter

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._future.done()


class _Running:
    """A saga of this process: its driver of the moment, and those who wait for it."""

    __slots__ = ("digest", "driver", "future", "journalled", "lost", "task")

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.driver: SagaDriver | None = None
        self.task: asyncio.Task[None] | None = None
        self.lost = False
        #: Resolved when the saga is in the store, for a submission that waits for no more than that.
        self.journalled: asyncio.Future[None] | None = None


class Coordinator:
    """Submits, drives, resumes and shows sagas. Many run at once in one process and share one lease and one writer.

    Use ``Coordinator.open``; it says what the arguments mean.
    """

    def __init__(
        self,
        store: Store,
        tools: ToolRegistry,
        *,
        lease_s: float,
        keep_finished_s: float,
        hooks: Sequence[EscalationHook],
        observers: Sequence[Observer],
        on_wait: Callable[[str, str, float], None] | None,
    ) -> None:
        self.store = store
        self.tools = tools
        self._lease_s = lease_s
        self._keep_ms = round(keep_finished_s * 1000)
        self._hooks = hooks
        self._observers = tuple(observers)
        self._on_wait = on_wait
        self._clock = StoreClock()
        self._writer = JournalWriter(store, self._clock)
        self._performer: Performer | None = None
        self._opening = asyncio.Lock()
        self._running: dict[str, _Running] = {}
        self._compiled: dict[int, tuple[Plan, CompiledPlan]] = {}
        self._closing = False
        self._stopping = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: str | Store = "embedded://.saga",
        tools: Iterable[Any] | ToolRegistry = (),
        *,
        durability: str = "fsync",
        lease_s: float = 15.0,
        patience_s: float = 10.0,
        keep_finished_s: float = 30 * 24 * 3600.0,
        on_escalation: Hook | Sequence[Hook] = (),
        observers: Sequence[Observer] = (),
        on_wait: Callable[[str, str, float], None] | None = None,
    ) -> AsyncIterator[Coordinator]:
        """A coordinator, closed at the end of the block: it then awaits and journals the calls in flight, no more.

        ``tools``: decorated functions or a registry. ``durability``, ``lease_s``, ``patience_s`` and
        ``keep_finished_s`` are those of ``Settings``. ``on_escalation``: one hook or several, sync or async, told
        about each open question at least once. ``observers`` see every durable record. ``on_wait(saga_id, owner,
        seconds)`` is told when a resume has to wait for another owner's lease.

        Raises ``StoreUrlInvalid``, ``StoreUnavailable``, ``StoreTooWeak`` or ``ToolInvalid``.
        """
        backend = open_store(store, durability=durability, patience_s=patience_s) if isinstance(store, str) else store
        registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        hooks = on_escalation if isinstance(on_escalation, Sequence) else (on_escalation,)
        try:
            await backend.open()
        except BaseException:
            await backend.close()  # an embedded server that was started for this must not stay
            raise
        coordinator = cls(
            backend,
            registry,
            lease_s=lease_s,
            keep_finished_s=keep_finished_s,
            hooks=[_as_hook(hook) for hook in hooks],
            observers=observers,
            on_wait=on_wait,
        )
        try:
            yield coordinator
        finally:
            await coordinator.close()
            if isinstance(store, str):
                await backend.close()

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, give the sagas up, end the lease."""
        self._closing = True
        self._stopping.set()
        running = list(self._running.values())
        for saga in running:
            if saga.driver is not None:
                saga.driver.stop()
        await asyncio.gather(*(saga.task for saga in running if saga.task is not None), return_exceptions=True)
        await self._writer.close()
        if self._performer is not None:
            await self._performer.lease.close()

    # --- submitting ----------------------------------------------------------------------------------------------

    async def submit(
        self,
        plan: PlanSource,
        *,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        detach: bool = False,
    ) -> Handle:
        """Journal the plan and return; the saga is driven in the background (with ``detach``: by whoever resumes it).

        The id is ``saga_id``, else the plan's ``task_id``, else a new sortable one. An id that exists with the same
        plan and input is that saga, and it is driven on if nobody does. Raises ``PlanInvalid``, ``SagaExists``,
        ``SecretMissing`` or ``StoreUnavailable``.
        """
        journalled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = await self._begin(plan, saga_id, input, detach=detach, journalled=journalled)
        either: list[asyncio.Future[Any]] = [journalled, handle._future]  # noqa: SLF001
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not journalled.done():
            journalled.cancel()
            handle._future.result()  # noqa: SLF001 - raises what kept it from being journalled
        return handle

    async def run(
        self,
        plan: PlanSource,
        *,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> Outcome:
        """``submit``, then wait until the saga ends or needs a person. Cancelling the wait leaves the saga running."""
        handle = await self._begin(plan, saga_id, input, detach=False, journalled=None)
        return await handle.wait()

    async def _begin(
        self,
        source: PlanSource,
        saga_id: str | None,
        given: Mapping[str, Any] | None,
        *,
        detach: bool,
        journalled: asyncio.Future[None] | None,
    ) -> Handle:
        if self._closing:
            raise Interrupted("the coordinator is closing", hint="open another one")
        plan = load_plan(source)
        chosen = plain(dict(given)) if given else None
        compiled = self._compile(plan, chosen)
        name = check_saga_id(saga_id or plan.task_id or new_saga_id())
        identity = plan.digest if chosen is None else digest([plan.digest, chosen])
        present = self._running.get(name)
        if present is not None:
            if identity != (present.digest or (await self.store.head(name)).digest):
                raise _other_plan(name)
            if journalled is not None:
                journalled.set_result(None)
            return Handle(name, present.future)
        _require_secrets(compiled)
        # Before anything is awaited, so that two submissions of one id in this process meet here.
        saga = self._running[name] = _Running(identity)
        saga.journalled = journalled
        saga.future.add_done_callback(_retrieve)
        started = SagaStarted(
            at=self._clock.now_ms(),
            saga_id=name,
            plan=msgspec.Raw(plan.json_bytes),
            digest=identity,
            seed=secrets.token_hex(8),
            input=chosen,
            undos=compiled.undos,
            reads=sorted(compiled.reads),
            tools=compiled.tool_digests,
            engine=__version__,
        )
        work = self._create_detached(started, compiled) if detach else self._create(saga, started, compiled)
        saga.task = asyncio.create_task(self._see_through(name, saga, work), name=f"saga {name}")
        return Handle(name, saga.future)

    def _compile(self, plan: Plan, given: dict[str, Any] | None) -> CompiledPlan:
        if given is not None:
            return compile_plan(plan, self.tools, input=given)
        known = self._compiled.get(id(plan))
        if known is not None and known[0] is plan:
            return known[1]
        compiled = compile_plan(plan, self.tools)
        if len(self._compiled) >= _REMEMBERED_PLANS:
            self._compiled.pop(next(iter(self._compiled)))
        self._compiled[id(plan)] = (plan, compiled)
        return compiled

    async def _create(self, saga: _Running, started: SagaStarted, compiled: CompiledPlan) -> Outcome:
        performer = await self._open_lease()
        creation = Creation(digest=started.digest, owned=True)
        driver = self._driver(begin(started, compiled), 0, performer, creation, saga.journalled)
        return await self._drive(started.saga_id, saga, driver, started)

    async def _create_detached(self, started: SagaStarted, compiled: CompiledPlan) -> Outcome:
        values: dict[str, bytes] = {}
        entry = Entry(
            saga_id=started.saga_id,
            seq=0,
            epoch=0,
            records=[encode(started, values)],
            status=t.PENDING,
            summary=b"{}",
            values=values or None,
            creation=Creation(digest=started.digest, owned=False),
        )
        ack = await self._writer.append(entry)
        if ack.verdict == "exists":
            if ack.digest != started.digest:
                raise _other_plan(started.saga_id)
            return await self.show(started.saga_id)
        return Outcome(begin(started, compiled))

    # --- driving -------------------------------------------------------------------------------------------------

    async def _see_through(self, saga_id: str, saga: _Running, work: Coroutine[Any, Any, Outcome]) -> None:
        """Run ``work`` and hand its end to those who wait."""
        try:
            outcome = await work
        except asyncio.CancelledError:
            saga.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            if not saga.future.done():
                saga.future.set_exception(error)
        else:
            if not saga.future.done():
                saga.future.set_result(outcome)
        finally:
            if self._running.get(saga_id) is saga:
                del self._running[saga_id]

    async def _drive(self, saga_id: str, saga: _Running, driver: SagaDriver | None, first: AnyRecord | None) -> Outcome:
        """Drive a saga to its end or rest, taking it up again from its journal when the lease was lost under it."""
        take_ups = 0
        while True:
            if driver is None:
                saga.driver = None  # nothing of this saga is in flight: the loss of a lease has nothing to stop
                taken = await self._take(saga_id)
                if isinstance(taken, Outcome):
                    return taken
                driver, first = taken
            saga.driver = driver
            if self._closing:
                driver.stop()
            try:
                await driver.run(first)
            except SagaExists as error:
                if error.context.get("digest") != saga.digest:
                    raise _other_plan(saga_id) from error
                if saga.journalled is not None:
                    _resolve(saga.journalled)
                driver = None
            except (LeaseLost, asyncio.CancelledError) as error:
                take_ups += 1
                self._absorb(saga, error)
                if self._closing or take_ups > _MAX_TAKE_UPS:
                    raise _lost(saga_id) from error
                _log.warning("saga %s: the lease was lost; taking it up again from its journal", saga_id)
                driver = None
            except StoreRefused:
                raise
            except Exception:
                await self._give_up(driver)
                raise
            else:
                if driver.state.status in t.SAGA_FINAL or driver.state.status == t.ESCALATED:
                    return Outcome(driver.state)
                raise Interrupted(
                    f"saga {saga_id} was interrupted; it stands as its journal says",
                    hint=f"saga resume {saga_id}",
                    saga_id=saga_id,
                )

    def _absorb(self, saga: _Running, error: BaseException) -> None:
        """A cancellation that we sent because the lease was lost is ours to end; any other is not."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if not saga.lost or task is None:
                raise error
            task.uncancel()
        saga.lost = False

    async def _give_up(self, driver: SagaDriver) -> None:
        """After a defect or an outage: let others take the saga over at once, if the store can be told."""
        try:
            await asyncio.wait_for(self.store.release(driver.state.saga_id, driver.state.epoch), 1.0)
        except (SagaError, TimeoutError) as error:
            _log.info("saga %s could not be given up (%s); its lease runs out", driver.state.saga_id, error)

    def _driver(
        self,
        state: State,
        seq: int,
        performer: Performer,
        creation: Creation | None = None,
        journalled: asyncio.Future[None] | None = None,
    ) -> SagaDriver:
        return SagaDriver(
            state,
            seq=seq,
            creation=creation,
            store=self.store,
            writer=self._writer,
            performer=performer,
            clock=self._clock,
            observers=self._observers,
            keep_ms=self._keep_ms,
            journalled=None if journalled is None else partial(_resolve, journalled),
        )

    async def _take(self, saga_id: str) -> Outcome | tuple[SagaDriver, AnyRecord]:
        """Take a saga over from its journal; an outcome if there is nothing to drive."""
        records = await read_records(self.store, saga_id)
        require_tools(saga_id, records, self.tools)
        state = state_of(records, self.tools)
        if state.status in t.SAGA_FINAL:
            return Outcome(state)
        if state.status == t.ESCALATED and not await self.store.inbox(saga_id):
            return Outcome(state)
        _require_secrets(state.plan)
        performer = await self._open_lease()
        try:
            acquired = await self._acquire(saga_id)
        except LeaseLost:
            performer.lease.lose()  # the server knows that it has ended before this process does
            performer = await self._open_lease()
            acquired = await self._acquire(saga_id)
        if acquired.seq != len(records):
            records += await read_records(self.store, saga_id, len(records))
            state = state_of(records, self.tools)
        resumed = SagaResumed(at=max(self._clock.now_ms(), state.at), owner=self._writer.owner, epoch=acquired.epoch)
        if state.status in t.SAGA_FINAL:
            await self.store.release(saga_id, acquired.epoch)
            return Outcome(state)
        evolve(state, resumed)
        return self._driver(state, acquired.seq, performer), resumed

    async def _acquire(self, saga_id: str) -> Acquired:
        """Own the saga: at once if its owner is gone, else when its lease ends; an owner that renews it keeps it."""
        waited_for = ""
        while True:
            owner = self._writer.owner
            answer = await self.store.acquire(saga_id, owner)
            if isinstance(answer, Held) and provably_dead(answer.owner):
                answer = await self.store.acquire(saga_id, owner, dead_owner=answer.owner)
            if isinstance(answer, Acquired):
                return answer
            if waited_for == answer.owner:
                raise SagaOwned(
                    f"saga {saga_id} is owned by a live process ({_who(answer.owner)})",
                    hint="it goes on there; `saga show` follows it",
                    saga_id=saga_id,
                    owner=answer.owner,
                )
            waited_for = answer.owner
            seconds = answer.ttl_ms / 1000
            if self._on_wait is not None:
                self._on_wait(saga_id, answer.owner, seconds)
            if await self._closes_within(seconds + 0.01):
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
        if performer is not None and not performer.lease.lost:
            return performer
        async with self._opening:
            performer = self._performer
            if performer is not None and not performer.lease.lost:
                return performer
            lease = Lease(self.store, self._clock, self._lease_s, on_wake=self._woken)
            await lease.open()
            lease.on_lost(self._lost)
            self._writer.owner = lease.owner
            self._performer = Performer(self.tools, lease, self._hooks)
            return self._performer

    def _woken(self, saga_id: str) -> None:
        saga = self._running.get(saga_id)
        if saga is not None and saga.driver is not None:
            saga.driver.notify()

    def _lost(self) -> None:
        """Stop waiting for answers: whoever owns the sagas now settles what is in doubt."""
        for saga in self._running.values():
            if saga.task is not None and saga.driver is not None:
                saga.lost = True
                saga.task.cancel()

    # --- resuming ------------------------------------------------------------------------------------------------

    async def resume(self, saga_id: str) -> Outcome:
        """Drive a saga on from its journal until it ends or needs a person; one that has ended is just shown.

        Raises ``SagaNotFound``, ``ToolMissing`` (the saga is left as it is), ``SagaOwned``, ``StoreUnavailable``.
        """
        if self._closing:
            raise Interrupted("the coordinator is closing", hint="open another one")
        present = self._running.get(saga_id)
        if present is None:
            present = self._running[saga_id] = _Running("")
            present.future.add_done_callback(_retrieve)
            work = self._drive(saga_id, present, None, None)
            present.task = asyncio.create_task(self._see_through(saga_id, present, work), name=f"saga {saga_id}")
        return await Handle(saga_id, present.future).wait()

    async def resume_all(self) -> dict[str, Outcome | SagaError]:
        """Resume every saga that can go on: those not at their end, and escalated ones that have been answered.

        One saga's error does not keep the others from being resumed; it stands in its place.
        """
        heads: list[Head] = []
        for status in (t.PENDING, t.RUNNING, t.COMPENSATING, t.ESCALATED):
            heads += [
                head for head in await self.store.list(status, limit=1_000_000) if status != t.ESCALATED or head.inbox
            ]
        heads.sort(key=lambda head: (head.created_ms, head.saga_id))
        gate = asyncio.Semaphore(_RESUME_AT_ONCE)

        async def one(saga_id: str) -> Outcome | SagaError:
            async with gate:
                try:
                    return await self.resume(saga_id)
                except SagaError as error:
                    return error

        results = await asyncio.gather(*(one(head.saga_id) for head in heads))
        return {head.saga_id: result for head, result in zip(heads, results, strict=True)}

    # --- answering -----------------------------------------------------------------------------------------------

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "") -> Outcome:
        """Have a saga undone. If a process drives it, that process acts; else this one does, to the end.

        Raises ``SagaNotFound`` or ``CancelRefused`` (it has ended, is being undone, or is past its pivot).
        """
        check_cancel(state_of(await read_records(self.store, saga_id), self.tools))
        return await self._deliver(saga_id, Message(id=secrets.token_hex(8), kind="cancel", by=by, note=note))

    async def decide(
        self,
        saga_id: str,
        step_id: int | str,
        decision: str,
        *,
        output: Any = None,
        by: str = "",
        note: str = "",
    ) -> Outcome:
        """Answer the open question about a step; the saga then goes on, here unless another process drives it.

        ``decision``: one of the question's options. ``output`` goes with 'happened'. Raises ``SagaNotFound``,
        ``DecisionRefused``, ``ValueNotJson``.
        """
        state = state_of(await read_records(self.store, saga_id), self.tools)
        message = Message(
            id=secrets.token_hex(8),
            kind="decide",
            by=by,
            note=note,
            step=str(step_id),
            decision=decision,
            output=plain(output),
        )
        question = check_decision(state, message)
        return await self._deliver(saga_id, msgspec.structs.replace(message, question=question.id))

    async def _deliver(self, saga_id: str, message: Message) -> Outcome:
        head = await self.store.post(saga_id, encode_message(message))
        present = self._running.get(saga_id)
        if present is not None:
            if present.driver is not None:
                present.driver.notify()
            return await Handle(saga_id, present.future).wait()
        if head.owner_ttl_ms > 0 and not provably_dead(head.owner):
            return await self.show(saga_id)
        return await self.resume(saga_id)

    # --- looking -------------------------------------------------------------------------------------------------

    async def show(self, saga_id: str) -> Outcome:
        """Where a saga stands, read from its journal. No tools are needed. Raises ``SagaNotFound``."""
        return Outcome(state_of(await read_records(self.store, saga_id)))

    async def history(self, saga_id: str) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``; large values show as references."""
        records = await read_records(self.store, saga_id, whole=False)
        return [{"seq": seq, **msgspec.to_builtins(record)} for seq, record in enumerate(records)]

    async def list(self, status: str | None = None, *, limit: int = 1000) -> list[Head]:
        """Summaries of sagas, the one that changed last first; no journal is read."""
        return list(await self.store.list(status, limit=limit))


def run_sync(work: Coroutine[Any, Any, _T]) -> _T:
    """The one bridge from synchronous code: run ``work`` to its end and return its result.

    Where an event loop already runs in this thread (a notebook, an async agent), the work gets a loop in a thread of
    its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[_T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=body, name="saga-run-sync")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]


def _pass_on(waiter: asyncio.Future[Outcome], ended: asyncio.Future[Outcome]) -> None:
    if waiter.done():
        return
    if ended.cancelled():
        waiter.cancel()
    elif (error := ended.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(ended.result())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _as_hook(hook: Hook) -> EscalationHook:
    async def call(question: Question) -> None:
        result = hook(question)
        if isawaitable(result):
            await result

    return call


def _require_secrets(compiled: CompiledPlan) -> None:
    """Raises ``SecretMissing`` before anything is journalled or taken over."""
    for step in compiled.steps:
        for name in step.params.secrets:
            secret_value(name)
        if step.rollback is not None:
            for name in step.rollback.params.secrets:
                secret_value(name)


def _other_plan(saga_id: str) -> SagaExists:
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


def _retrieve(future: asyncio.Future[Outcome]) -> None:
    """A saga that nobody waits for may fail without a warning from asyncio: its journal says so."""
    if not future.cancelled():
        future.exception()
