"""The embedded API and the composition root: the only place that wires stores, tools and the runtime together."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from saga_engine._version import __version__
from saga_engine.core import transitions as t
from saga_engine.core.messages import Message, check_cancel, check_decision, encode_message
from saga_engine.core.records import MessageRefused, SagaStarted
from saga_engine.errors import CancelRefused, DecisionRefused, SagaError
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.values import digest, plain
from saga_engine.ports import EscalationHook, Head, Observer, Question, Store
from saga_engine.runtime.fleet import Fleet, other_plan
from saga_engine.runtime.ids import check_saga_id, new_saga_id
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.runtime.lease import StoreClock
from saga_engine.runtime.outcome import Handle, Outcome
from saga_engine.runtime.owner import provably_dead
from saga_engine.stores import open_store
from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")

PlanSource = Plan | Mapping[str, Any] | str | bytes | Path
Hook = EscalationHook | Callable[[Question], Awaitable[None] | None]
#: How many checked plans a coordinator remembers, so that a plan run again is not checked again.
_REMEMBERED_PLANS = 256
#: How many sagas ``resume_all`` drives at the same time.
_RESUME_AT_ONCE = 256


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
        self._compiled: dict[int, tuple[Plan, CompiledPlan]] = {}
        self._fleet = Fleet(
            store,
            tools,
            StoreClock(),
            lease_s=lease_s,
            keep_ms=round(keep_finished_s * 1000),
            hooks=hooks,
            observers=observers,
            on_wait=on_wait,
        )

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
        await self._fleet.close()

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
        plan = load_plan(source)
        chosen = plain(dict(given)) if given else None
        compiled = self._compile(plan, chosen)
        name = check_saga_id(saga_id or plan.task_id or new_saga_id())
        identity = plan.digest if chosen is None else digest([plan.digest, chosen])
        present = self._fleet.find(name)
        if present is not None:
            if identity != (present.digest or (await self.store.head(name)).digest):
                raise other_plan(name)
            if journalled is not None:
                journalled.set_result(None)
            return Handle(name, present.future)
        started = SagaStarted(
            at=self._fleet.clock.now_ms(),
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
        return self._fleet.begin(started, compiled, journalled, detach=detach)

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

    # --- resuming ------------------------------------------------------------------------------------------------

    async def resume(self, saga_id: str) -> Outcome:
        """Drive a saga on from its journal until it ends or needs a person; one that has ended is just shown.

        Raises ``SagaNotFound``, ``ToolMissing`` (the saga is left as it is), ``SagaOwned``, ``StoreUnavailable``.
        """
        return await self._fleet.resume(saga_id).wait()

    async def resume_all(self) -> dict[str, Outcome | SagaError]:
        """Resume every saga that can go on: those not at their end, and escalated ones that have been answered.

        One saga's error does not keep the others from being resumed; it stands in its place.
        """
        heads: list[Head] = []
        for status in (t.PENDING, t.RUNNING, t.COMPENSATING, t.ESCALATED):
            found = await self.store.list(status, limit=1_000_000)
            heads += [head for head in found if status != t.ESCALATED or head.inbox or self._overdue(head)]
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

    def _overdue(self, head: Head) -> bool:
        """Whether a saga that rests has an approval that has expired."""
        due_ms = msgspec.json.decode(head.summary).get("due_ms") if head.summary else None
        return due_ms is not None and due_ms <= self._fleet.clock.now_ms()

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
        question = check_decision(state, message, self._fleet.clock.now_ms())
        return await self._deliver(saga_id, msgspec.structs.replace(message, question=question.id))

    async def _deliver(self, saga_id: str, message: Message) -> Outcome:
        head = await self.store.post(saga_id, encode_message(message))
        present = self._fleet.find(saga_id)
        if present is not None:
            self._fleet.notify(saga_id)
            outcome = await Handle(saga_id, present.future).wait()
        elif head.owner_ttl_ms > 0 and not provably_dead(head.owner):
            outcome = await self.show(saga_id)
        else:
            outcome = await self.resume(saga_id)
        await self._require_heard(message, outcome)
        return outcome

    async def _require_heard(self, message: Message, outcome: Outcome) -> None:
        """Whoever answers second must hear of it: the message was refused, or the saga ended without reading it."""
        refusal = CancelRefused if message.kind == "cancel" else DecisionRefused
        for record in await read_records(self.store, outcome.saga_id, whole=False):
            if getattr(record, "message", "") == message.id:
                if isinstance(record, MessageRefused):
                    raise refusal(record.reason, hint="somebody else was faster: see `saga history`")
                return
        if outcome.ended:
            raise refusal(
                f"saga {outcome.saga_id} ended ({outcome.status}) before this was read", hint="see `saga show`"
            )

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


def _as_hook(hook: Hook) -> EscalationHook:
    async def call(question: Question) -> None:
        result = hook(question)
        if isawaitable(result):
            await result

    return call
