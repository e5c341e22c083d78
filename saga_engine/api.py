"""The embedded API and the composition root: the only place that wires stores, tools and the runtime together."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from saga_engine._version import __version__
from saga_engine.core import transitions as t
from saga_engine.core.messages import Message, check_amendment, check_cancel, check_decision, encode_message
from saga_engine.core.records import MessageRefused, SagaStarted
from saga_engine.errors import AmendRefused, CancelRefused, DecisionRefused, SagaError
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.tooling import Semantic
from saga_engine.plan.values import digest, plain
from saga_engine.ports import Advisor, Escalation, EscalationHook, Head, Observer, Question, Store
from saga_engine.runtime.fleet import Fleet, other_plan
from saga_engine.runtime.ids import check_saga_id, new_saga_id
from saga_engine.runtime.journal import look, read_records, state_of
from saga_engine.runtime.lease import StoreClock
from saga_engine.runtime.outcome import Handle, Outcome
from saga_engine.runtime.owner import provably_dead
from saga_engine.stores import open_store
from saga_engine.tools.guards.chain import GuardedTools
from saga_engine.tools.overrides import apply_overrides
from saga_engine.tools.policy.gate import Gate
from saga_engine.tools.policy.rules import Policy
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
        escalation: Escalation,
        observers: Sequence[Observer],
        on_wait: Callable[[str, str, float], None] | None,
        policy: Policy | None = None,
        advisor: Advisor | None = None,
        semantic: Semantic = "approve",
    ) -> None:
        self.store = store
        self.tools = tools
        self._compiled: dict[int, tuple[Plan, CompiledPlan]] = {}
        clock = StoreClock()
        shared = store.guard_store()
        gate = None if policy is None else Gate(policy, shared)
        self._guards = GuardedTools(tools, shared, gate=gate, clock=clock, lease_s=lease_s)
        self._fleet = Fleet(
            store,
            self._guards,
            clock,
            lease_s=lease_s,
            keep_ms=round(keep_finished_s * 1000),
            escalation=escalation,
            advisor=advisor,
            semantic=semantic,
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
        on_escalation: Hook | Sequence[Hook] | Escalation = (),
        observers: Sequence[Observer] = (),
        on_wait: Callable[[str, str, float], None] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
        tool_options: Mapping[str, Any] | None = None,
        advisor: Advisor | None = None,
        semantic: Semantic = "approve",
    ) -> AsyncIterator[Coordinator]:
        """A coordinator, closed at the end of the block: it then awaits and journals the calls in flight, no more.

        ``tools``: decorated functions or a registry. ``durability``, ``lease_s``, ``patience_s`` and
        ``keep_finished_s`` are those of ``Settings``. ``on_escalation``: one hook or several, sync or async, told
        about each open question at least once; an ``Escalation`` also says when again. ``observers`` see every durable
        record. ``on_wait(saga_id, owner, seconds)`` is told when a resume has to wait for another owner's lease.
        ``policy``: what is asked before each call (docs/policy.md). ``tool_options``: an operator's options by tool, as
        in the tables ``[tools.NAME]`` of ``saga.toml``. ``advisor``: who asks a model for steps when a saga is stuck
        (docs/planner.md); ``semantic``: what such steps may do with tools that do not say it themselves, ``auto``,
        ``approve`` or ``never``.

        Raises ``StoreUrlInvalid``, ``StoreUnavailable``, ``StoreTooWeak``, ``ToolInvalid`` or ``SettingInvalid``.
        """
        rules = Policy.parse(policy, base=Path.cwd(), source="policy") if isinstance(policy, Mapping) else policy
        backend = open_store(store, durability=durability, patience_s=patience_s) if isinstance(store, str) else store
        registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        if tool_options:
            registry = apply_overrides(registry, tool_options, "tool_options")
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
            escalation=_escalation(on_escalation),
            observers=observers,
            on_wait=on_wait,
            policy=rules,
            advisor=advisor,
            semantic=semantic,
        )
        try:
            yield coordinator
        finally:
            await coordinator.close()
            if isinstance(store, str):
                await backend.close()

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, give the sagas up, end the lease."""
        self._guards.stop_waiting()
        await self._fleet.close()
        await self._guards.close()

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

    async def amend(self, saga_id: str, steps: Sequence[Mapping[str, Any]], *, by: str = "", note: str = "") -> Outcome:
        """Add steps to a saga that is under way; they are checked against it as it stands, and undone with the rest.

        ``steps`` are written as in a plan; one without ``depends_on`` follows the one before it, the first of them the
        last step of the plan. If a process drives the saga, that process takes them in; else this one does. Raises
        ``SagaNotFound``, ``AmendRefused``, ``PlanInvalid`` (its paths count the added steps from 0), ``ValueNotJson``.
        """
        plain_steps = [plain(dict(step)) for step in steps]
        check_amendment(state_of(await read_records(self.store, saga_id), self.tools), plain_steps)
        message = Message(id=secrets.token_hex(8), kind="amend", by=by, note=note, steps=plain_steps)
        return await self._deliver(saga_id, message)

    async def tool_stats(self) -> dict[str, dict[str, Any]]:
        """What the guards have counted in all processes, by tool; tools without guards are not counted."""
        return await self._guards.stats()

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
        refusal = {"cancel": CancelRefused, "amend": AmendRefused}.get(message.kind, DecisionRefused)
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

    async def show(self, saga_id: str, *, full: bool = False) -> Outcome:
        """Where a saga stands, read from its journal. No tools are needed.

        Without ``full``, outputs over 31 KiB are in their cut form and are not fetched. Raises ``SagaNotFound``, and
        ``JournalUnreadable`` where a large value that is needed is missing.
        """
        return Outcome(await look(self.store, saga_id, full=full), full=full)

    async def history(self, saga_id: str, *, full: bool = False) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``.

        Without ``full``, large values show as references (``refs``), each with its digest, size and cut form.
        """
        records = await read_records(self.store, saga_id, whole=full)
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


def _escalation(given: Hook | Sequence[Hook] | Escalation) -> Escalation:
    if isinstance(given, Escalation):
        hooks, further = [_as_hook(hook) for hook in given.hooks], [_as_hook(hook) for hook in given.further]
        return replace(given, hooks=hooks, further=further)
    listed = given if isinstance(given, Sequence) else (given,)
    return Escalation(hooks=[_as_hook(hook) for hook in listed])


def _as_hook(hook: Hook) -> EscalationHook:
    async def call(question: Question) -> None:
        result = hook(question)
        if isawaitable(result):
            await result

    return call
