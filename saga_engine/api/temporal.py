"""The other front door: sagas that run in Temporal, with the tools, guards and hooks of this process.

``TemporalCoordinator`` submits, reads and answers sagas; ``serve`` is a worker. Both need the extra ``temporal``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

try:
    from temporalio import workflow
except ImportError as error:
    from saga_engine.errors import SettingInvalid as _SettingInvalid

    raise _SettingInvalid(
        "Temporal needs an extra that is not installed", hint="pip install 'saga-engine[temporal]'"
    ) from error

from saga_engine.analysis.simulation import Rehearsal
from saga_engine.analysis.trace import declared
from saga_engine.api.engine import Ownership, PlanSource
from saga_engine.api.escalation import Hooks, escalation_of
from saga_engine.api.governing import SettingsChoice, governing
from saga_engine.api.opening import opening
from saga_engine.api.plans import advising, close_sources, declared_tools, planning_of
from saga_engine.api.requests import (
    amend_message,
    answer_message,
    cancel_message,
    export_of,
    problems_of,
    require_no_events,
    runnable_there,
    simulated,
    submission_of,
)
from saga_engine.api.search import only_plan
from saga_engine.api.shared_store import SharedStore
from saga_engine.api.unsupported import Unsupported
from saga_engine.core import transitions as t
from saga_engine.core.codec import abridge, decode
from saga_engine.core.fold import begin, state_of
from saga_engine.core.masking import Reader, masked_records
from saga_engine.core.messages import Message, check_amendment, to_post
from saga_engine.core.records import AnyRecord
from saga_engine.core.report import answers
from saga_engine.core.submission import Submission
from saga_engine.core.views import entry
from saga_engine.errors import Interrupted, PlanInvalid, Problem, RuntimeUnsupported, SagaError, SettingInvalid
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.ids import other_plan, went_back
from saga_engine.execution.observers import Observers
from saga_engine.execution.plan_cache import compile_submitted
from saga_engine.execution.planner_requests import advise, capabilities_of
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.guards.chain import GuardedTools
from saga_engine.plan.model import Plan
from saga_engine.plan.operator_limits import NO_LIMITS, Limits
from saga_engine.plan.tool_spec import Semantic
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import Policy
from saga_engine.policy.unlisted import with_unlisted
from saga_engine.ports import Advisor, Observer, Planner, Source, Store
from saga_engine.temporal import payloads
from saga_engine.temporal.activities import Activities, declarations_of
from saga_engine.temporal.claim_check import storage
from saga_engine.temporal.client import TemporalSagas, connect
from saga_engine.temporal.lookup import SagasOfBoth
from saga_engine.temporal.worker import work
from saga_engine.temporal.workflow import SagaFlow
from saga_engine.tools.outcomes import MAX_OUTPUT_BYTES
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.schema_check import SchemaCheck
from saga_engine.tools.threads import start_in_thread

if TYPE_CHECKING:
    from saga_engine.analysis.trace import Export
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.tool_spec import ToolCatalog
    from saga_engine.planner.settings import PlannerSettings

DEFAULT_RUNTIME: Final = "temporal://localhost:7233/default"
DEFAULT_TASK_QUEUE: Final = "saga"
#: The intervals, in seconds, at which an awaited saga is queried: soon at first, then longer.
_LOOK_FIRST_S: Final = 0.02
_LOOK_MOST_S: Final = 1.0
#: Temporal's SDK interprets a turn of a workflow of 2 s as a deadlock, and compiling a plan is one turn.
_MAX_STEPS: Final = 2000
#: A run of a workflow starts with some events; it must get further than that.
_LEAST_EVENTS: Final = 20


# (Unsandboxed: the sandbox would import the engine anew for each saga, and the pure core does nothing that it forbids;
# import-linter and the replays of recorded histories verify that. docs/decisions/0015.)
@workflow.defn(name=payloads.WORKFLOW, sandboxed=False)
class SagaWorkflow(SagaFlow):
    """One saga."""

    @workflow.init
    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(SchemaCheck, body)

    @workflow.run
    async def run(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - it was made with it
        """Drive the saga to its end."""
        return await self.drive()


#: What a saga's journal is read as. (The coordinator has a method ``list``.)
Records = list[AnyRecord]
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _ends_with_it(method: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Make a method of a coordinator raise ``Interrupted`` when the coordinator is closed meanwhile."""

    @functools.wraps(method)
    async def interruptible(*args: _P.args, **options: _P.kwargs) -> _T:
        coordinator: TemporalCoordinator = args[0]  # type: ignore[assignment]
        return await coordinator.until_closed(method(*args, **options))

    return interruptible


class TemporalCoordinator(Unsupported):
    """Submits, shows and answers sagas that run in Temporal. Use ``TemporalCoordinator.open``.

    Implements ``Engine``, and calls no tools: workers do (``serve``, ``saga worker --runtime``).
    """

    #: Workers call the tools.
    drives = False

    def __init__(
        self,
        sagas: TemporalSagas,
        tools: ToolRegistry,
        *,
        lease_s: float,
        patience_s: float,
        events: int,
        offloads: bool,
        observers: Sequence[Observer],
        on_silence: Callable[[str], None] | None,
    ) -> None:
        self.sagas = sagas
        self.tools = tools
        self._on_silence = on_silence
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watches: set[asyncio.Task[SagaResult]] = set()
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._events = events
        self._offloads = offloads
        self._observers = Observers(observers, start_in_thread)
        #: The operator's limits on each saga that starts here.
        self.limits: Limits = NO_LIMITS

    @classmethod
    @opening
    async def open(
        cls,
        runtime: str = DEFAULT_RUNTIME,
        tools: Iterable[Any] | ToolRegistry = (),
        *,
        task_queue: str = DEFAULT_TASK_QUEUE,
        store: str | Store | None = None,
        durability: str = "fsync",
        lease_s: float = 15.0,
        patience_s: float = 10.0,
        events: int = 0,
        observers: Sequence[Observer] = (),
        on_silence: Callable[[str], None] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        secrets: Mapping[str, Sequence[str]] | None = None,
        settings: SettingsChoice = "found",
    ) -> AsyncIterator[TemporalCoordinator]:
        """A coordinator of the sagas in ``runtime`` (``temporal://HOST:PORT/NAMESPACE``), for the time of the block.

        ``tools``: plans are checked against them; none is called here. ``store``: for values over 32 KiB, the same for
        workers and clients; without one they go through Temporal, up to its 2 MB. ``lease_s``: how long a worker may be
        silent before its calls are in doubt. ``patience_s``: how long to wait for a response. ``events``: after so many
        events a saga's workflow is continued in another run (0: when Temporal suggests it). ``observers`` receive each
        record of the sagas that are awaited here. ``on_silence(saga_id)`` is called when no worker responds for an
        awaited saga; the wait continues. ``limits``: the operator's, which no plan can exceed. ``secrets`` and
        ``settings``: those of ``Coordinator.open``.

        Raises ``SettingInvalid``, ``StoreUrlInvalid`` and ``RuntimeUnavailable``.
        """
        if 0 < events < _LEAST_EVENTS:
            raise SettingInvalid(f"events must be 0, or {_LEAST_EVENTS} or more, not {events}")
        files = governing(settings)
        async with AsyncExitStack() as stack:
            external = None
            if store is not None:
                shared = SharedStore.of(store, durability, patience_s)
                stack.push_async_callback(shared.close)
                external = storage(shared)
            client = await connect(runtime, external, patience_s=patience_s)
            coordinator = cls(
                TemporalSagas(client, task_queue),
                files.registered(tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools), None, secrets),
                lease_s=lease_s,
                patience_s=patience_s,
                events=events,
                offloads=external is not None,
                observers=observers,
                on_silence=on_silence,
            )
            coordinator.limits = files.limits(limits)
            stack.push_async_callback(coordinator.close)
            yield coordinator

    async def close(self) -> None:
        """End all waits with ``Interrupted``. The sagas continue, because workers drive them."""
        if not self._closed.done():
            self._closed.set_result(None)
        if self._watches:
            await asyncio.wait(self._watches)

    async def until_closed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work``. Raises ``Interrupted`` if the coordinator is closed first."""
        task = asyncio.ensure_future(work)
        either: list[asyncio.Future[Any]] = [task, self._closed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        # Whatever the SDK makes of the cancel: the waiter was interrupted.
        if self._closed.done() and (task.cancelled() or task.exception() is not None):
            raise Interrupted("the coordinator was closed; its sagas go on, because workers drive them", goes_on=True)
        return task.result()

    # --- submitting ----------------------------------------------------------------------------------------------

    async def submit(
        self,
        plan: PlanSource | None = None,
        *,
        template: str | None = None,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        tags: Sequence[str] = (),
        detach: bool = False,
    ) -> Handle:
        """Start a saga and return; it is then durable in Temporal, and workers drive it.

        The id is ``saga_id``, else the plan's ``task_id``, else a new sortable one; it is the workflow's id, too. An id
        that exists with the same plan and input is that saga. With ``detach`` the handle has the saga's initial state,
        and no worker is asked. Raises ``PlanInvalid``, ``SagaExists`` and ``RuntimeUnavailable``.
        """
        submission = await self._submitted(only_plan(plan, template), saga_id, input, tags)
        if detach:
            started = submission.started(0)  # only the workflow knows when
            return Handle.ended(SagaResult(begin(started, submission.compiled)))
        return Handle(submission.saga_id, lambda: self._watch(submission.saga_id))

    def _watch(self, saga_id: str) -> asyncio.Future[SagaResult]:
        watch = asyncio.ensure_future(self.wait(saga_id))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return watch

    def check(
        self,
        plan: PlanSource,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> list[Problem]:
        """The problems of a plan with the tools of this process; an empty list if it can be submitted."""
        return problems_of(plan, input, self.tools, _compile, limits=self.limits)

    async def simulate(
        self,
        plan: PlanSource,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> Rehearsal:
        """Simulate every single failure of a plan; see ``Coordinator.simulate``."""
        return await simulated(plan, input, self.tools, _compile, limits=self.limits)

    @_ends_with_it
    async def _submitted(
        self, plan: PlanSource, saga_id: str | None, given: Mapping[str, Any] | None, tags: Sequence[str] = ()
    ) -> Submission:
        submission = submission_of(plan, saga_id, given, self.tools, tags, _compile, limits=self.limits)
        name = submission.saga_id
        require_no_events(step.builtin for step in submission.compiled.steps)
        body = payloads.Begin(
            started=payloads.first_body(submission),
            declared=runnable_there(declared(submission.compiled.tool_digests, self.tools)),
            lease_s=self._lease_s,
            events=self._events,
            offloads=self._offloads,
        )
        if not await self.sagas.start(name, body) and (await self.sagas.standing(name)).digest != submission.digest:
            raise other_plan(name)
        return submission

    async def run(
        self,
        plan: PlanSource | None = None,
        *,
        template: str | None = None,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        tags: Sequence[str] = (),
    ) -> SagaResult:
        """``submit``, then ``wait``. Cancelling the wait leaves the saga running."""
        return await self.wait((await self._submitted(only_plan(plan, template), saga_id, input, tags)).saga_id)

    async def resume(self, saga_id: str) -> SagaResult:
        """``wait``: workers continue every saga by themselves."""
        return await self.wait(saga_id)

    async def resume_all(self) -> dict[str, SagaResult | SagaError]:
        """Raises ``RuntimeUnsupported``: workers continue every saga by themselves."""
        raise RuntimeUnsupported(
            "sagas in Temporal are not resumed all at once: workers go on with every saga by themselves",
            hint="start a worker: saga worker --runtime … --tools …",
        )

    @_ends_with_it
    async def wait(self, saga_id: str) -> SagaResult:
        """Wait until the saga ends or needs an operator, however long no worker is available.

        Raises ``SagaNotFound`` and ``RuntimeUnavailable`` (the server itself is unreachable).
        """
        known, pause_s, seen, reader = 0, _LOOK_FIRST_S, "", Reader()
        while True:
            standing = await self.sagas.standing(saga_id)
            page = None
            # The server itself knows of ends and questions; only the rest needs a query to a worker.
            if not standing.closed and (self._observers or standing.status == t.ESCALATED):
                page = await self.sagas.page(saga_id, known, wait_s=self._patience_s)
                if page is None and self._on_silence is not None:
                    self._on_silence(saga_id)
            if page is not None:
                known = await self._observe(saga_id, known, page.records, reader)
                if page.resting and known >= page.length:
                    return await self.show(saga_id, full=True)
            if standing.closed:
                records = await self.sagas.journal(saga_id, patience_s=self._patience_s)
                await self._observe(saga_id, known, records[known:], reader)
                return await self.show(saga_id, full=True)
            changed = bool(page and page.records) or standing.status != seen
            seen, pause_s = standing.status, _LOOK_FIRST_S if changed else min(2 * pause_s, _LOOK_MOST_S)
            await asyncio.sleep(pause_s)

    async def _observe(self, saga_id: str, known: int, records: Sequence[bytes], reader: Reader) -> int:
        if self._observers and records:
            new = [decode(data) for data in records]
            reader.feed(new)
            await self._observers.tell(saga_id, [reader.masked(each) for each in new] if reader.masks else new)
        return known + len(records)

    # --- answering -----------------------------------------------------------------------------------------------

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "", wait: bool = True) -> SagaResult:
        """Compensate a saga. Raises ``SagaNotFound``, ``CancelRefused`` and ``RuntimeUnavailable``."""
        return await self._said(saga_id, cancel_message(by, note), wait=wait)

    async def resolve(
        self,
        saga_id: str,
        step_id: int | str,
        decision: str,
        *,
        output: Any = None,
        by: str = "",
        note: str = "",
        expect: str = "",
        wait: bool = True,
    ) -> SagaResult:
        """Answer the open question about a step; the saga continues. ``output`` goes with 'happened'.

        ``expect``: the mark of the effects that the answer is to have, as in ``Coordinator.resolve``.

        Raises ``SagaNotFound``, ``DecisionRefused``, ``ValueNotJson`` and ``RuntimeUnavailable``.
        """
        return await self._said(saga_id, answer_message(step_id, decision, output, by, note, expect), wait=wait)

    async def amend(
        self, saga_id: str, steps: Sequence[Mapping[str, Any]], *, by: str = "", note: str = "", wait: bool = True
    ) -> SagaResult:
        """Add steps to a running saga, as ``Coordinator.amend`` does.

        Raises ``SagaNotFound``, ``AmendRefused``, ``PlanInvalid``, ``ValueNotJson`` and ``RuntimeUnavailable``.
        """
        message = amend_message(steps, by, note)
        require_no_events(word for step in message.steps for word in step)
        check_amendment(state_of(await self._records(saga_id), self.tools), message.steps)
        return await self._sent(saga_id, message, runnable_there(declarations_of(message.steps, self.tools)), wait=wait)

    async def _said(self, saga_id: str, message: Message, *, wait: bool) -> SagaResult:
        """Send a cancel or an answer, unless the saga has already received the same."""
        records = await self._records(saga_id)
        # The workflow checks on its own clock whether a question has expired.
        checked = to_post(state_of(records, self.tools), records, (), message, 0)
        if checked is None:
            return await (self.wait(saga_id) if wait else self.show(saga_id))
        return await self._sent(saga_id, checked, wait=wait)

    async def _sent(self, saga_id: str, message: Message, *more: Any, wait: bool) -> SagaResult:
        await self.until_closed(self.sagas.send(saga_id, message, *more, wait_s=self._patience_s))
        return await self.wait(saga_id) if wait else await self.show(saga_id)

    # --- looking -------------------------------------------------------------------------------------------------

    async def ownership(self, saga_id: str) -> Ownership:
        """Never elsewhere: workers of this task queue drive every saga, and read each message at once."""
        await self.sagas.standing(saga_id)
        return Ownership()

    async def show(self, saga_id: str, *, full: bool = False) -> SagaResult:
        """The state of a saga; while it runs a worker has to respond.

        Without ``full``, outputs over 31 KiB are in their cut form. A call that no worker can make yet (the tool or a
        secret is missing there) has that as its error. Raises ``SagaNotFound`` and ``RuntimeUnavailable``.
        """
        records = await self._records(saga_id, whole=full)
        state = state_of(records if full else [abridge(record) for record in records])
        if not full and any(question.kind == "approval" for question in state.questions.values()):
            # An operator is asked about the exact call, and its params may bind a large output.
            state = state_of(await self._records(saga_id))
        if state.in_flight:
            page = await self.until_closed(self.sagas.page(saga_id, len(records), wait_s=self._patience_s))
            for (key, direction), why in ({} if page is None else page.waits).items():
                if (state.plan.by_key.get(key), direction) in state.in_flight:
                    state.steps[state.plan.by_key[key]].call(direction).error = why
        return SagaResult(state, full=full, answers=answers(state, records))

    async def history(self, saga_id: str, *, full: bool = False) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``; see ``Coordinator.history``."""
        if full:
            records = await self._records(saga_id)
        else:
            records = [decode(data) for data in await self.sagas.journal(saga_id, patience_s=self._patience_s)]
        records = masked_records(records)
        return [entry(seq, record) for seq, record in enumerate(records)]

    async def follow(self, saga_id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The saga's records as they become durable, until it ends; see ``Coordinator.follow``."""
        # The first record lists what is sensitive, whatever part of the journal is requested.
        known, pause_s, reader = 0, _LOOK_FIRST_S, Reader()
        while True:
            closed = (await self.sagas.standing(saga_id)).closed
            records: Sequence[bytes] = []
            length = max(known, since)
            if closed:
                journal = await self.sagas.journal(saga_id, patience_s=self._patience_s)
                records, length = journal[known:], len(journal)
            elif (page := await self.sagas.page(saga_id, known, wait_s=self._patience_s)) is not None:
                records, length = page.records, page.length
            if length < max(known, since):  # its workflow was reset
                raise went_back(saga_id, max(known, since))
            new = [decode(data) for data in records]
            reader.feed(new)
            for at, record in enumerate(new, known):
                if at >= since:
                    yield entry(at, reader.mask(record) if reader.masks else record)
            known += len(new)
            if closed:
                return
            pause_s = _LOOK_FIRST_S if records else min(2 * pause_s, _LOOK_MOST_S)
            await asyncio.sleep(pause_s)

    async def trace(
        self,
        saga_id: str,
        *,
        redact: Sequence[str] = (),
        full: bool = False,
        sign_key: bytes | None = None,
        into: Export | None = None,
    ) -> list[str]:
        """The run of a saga as lines of JSON, the same as of any other saga; see ``Coordinator.trace``."""
        export = export_of(redact, sign_key, into, full=full)
        records = await self._records(saga_id, whole=export.needs_outputs)
        lines = await asyncio.to_thread(export.saga, records, self.tools)
        return [*lines, export.end()] if into is None else lines

    async def _records(self, saga_id: str, *, whole: bool = True) -> Records:
        return await self.until_closed(self.sagas.records(saga_id, whole=whole, patience_s=self._patience_s))


# --- the worker ------------------------------------------------------------------------------------------------------


async def serve(
    runtime: str,
    tools: Iterable[Any] | ToolRegistry,
    *,
    sources: Iterable[Source] = (),
    task_queue: str = DEFAULT_TASK_QUEUE,
    store: str | Store | None = None,
    durability: str = "fsync",
    lease_s: float = 15.0,
    patience_s: float = 10.0,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    concurrency: int = 100,
    cached: int = 1000,
    on_escalation: Hooks | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    secrets: Mapping[str, Sequence[str]] | None = None,
    planner: str | Planner | PlannerSettings | None = None,
    advisor: Advisor | None = None,
    semantic: Semantic | None = None,
    stopped: asyncio.Event | None = None,
    begun: Callable[[], None] | None = None,
    settings: SettingsChoice = "found",
) -> None:
    """Be a worker: execute the sagas of a task queue and make their calls, until ``stopped`` is set.

    Then it takes nothing more, ends the waits of the guards, waits for the calls in flight and reports their outcomes.
    ``store`` has what the guards of all workers share and stores large values (without one, the guards of this process
    share nothing with others, and large values go through Temporal). ``concurrency``: calls at a time. ``cached``: how
    many sagas stay in memory between their turns; the others are replayed from their histories. The other arguments are
    those of ``Coordinator.open``. Raises what that raises, and ``RuntimeUnavailable``.
    """
    files = governing(settings)
    rules = files.policy(policy)
    asked, may = advising(planning_of(planner, rules), advisor, semantic)
    registry = files.registered(await declared_tools(tools, sources), None, secrets, max_output_bytes)
    async with AsyncExitStack() as stack:
        shared = SharedStore.of(store, durability, patience_s)
        stack.push_async_callback(shared.close)
        client = await connect(runtime, None if store is None else storage(shared), patience_s=patience_s)
        guards = await shared.guards()
        sagas = SagasOfBoth(guards, TemporalSagas(client, task_queue))
        clock = StoreClock()
        rules = with_unlisted(rules, registry)
        gate = None if rules is None else Gate(rules, guards)
        chain = GuardedTools(registry, guards, gate=gate, clock=clock, sagas=sagas, lease_s=lease_s, stops_fresh_s=0.5)
        stack.push_async_callback(close_sources, registry)
        stack.push_async_callback(chain.close)
        people = escalation_of(on_escalation)
        capabilities = capabilities_of(people, asked, may)
        activities = Activities(
            chain,
            clock=clock,
            escalation=people,
            ask=None if asked is None else lambda state, effect: advise(state, effect, asked, chain, capabilities),
            capabilities=capabilities,
            most_bytes=payloads.MOST_INLINE_BYTES if store is None else None,
        )
        await work(
            client,
            task_queue,
            SagaWorkflow,
            activities,
            concurrency=concurrency,
            cached=cached,
            lease_s=lease_s,
            stopped=stopped or asyncio.Event(),
            begun=begun or (lambda: None),
            stopping=chain.stop_waiting,
        )


def _compile(plan: Plan, given: dict[str, Any] | None, catalog: ToolCatalog) -> CompiledPlan:
    if len(plan.steps) > _MAX_STEPS:
        message = f"{len(plan.steps)} steps; at most {_MAX_STEPS} are possible in Temporal"
        raise PlanInvalid([Problem("limit-steps", "$.steps", message, "divide it, or run it without --runtime")])
    return compile_submitted(plan, given, catalog)
