"""The embedded API: ``Coordinator`` wires stores, tools, guards and the runtime of this process together.

What not every program uses is imported by the method that needs it: a saga whose steps call tools loads no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from saga_engine.api.coordinator_answers import Answers
from saga_engine.api.coordinator_plans import Plans
from saga_engine.api.coordinator_sessions import Sessions
from saga_engine.api.coordinator_views import Views
from saga_engine.api.engine import PlanSource
from saga_engine.api.escalation import Hooks, escalation_of
from saga_engine.api.events import EventMethods
from saga_engine.api.governing import SettingsChoice, governing
from saga_engine.api.holds import Kindred, Overdue, ended
from saga_engine.api.opening import opening
from saga_engine.api.plans import Registration, advising, close_sources, declared_tools, planning_of
from saga_engine.api.requests import (
    submission_of,
)
from saga_engine.api.sealing import is_sealed, open_sealed
from saga_engine.api.search import Searches
from saga_engine.core.records import Parent
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.errors import SagaError, SettingInvalid
from saga_engine.execution.aside import beside
from saga_engine.execution.clock import StoreClock
from saga_engine.execution.event_loops import of_one_loop
from saga_engine.execution.governed import Governed
from saga_engine.execution.ids import new_saga_id, other_plan
from saga_engine.execution.observers import Observers
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.execution.retention import Retention, retention_of
from saga_engine.guards.chain import GuardedTools
from saga_engine.loggers import withholding
from saga_engine.plan.operator_limits import NO_LIMITS, Limits
from saga_engine.plan.tool_spec import Semantic
from saga_engine.policy.rules import Policy
from saga_engine.policy.unlisted import with_unlisted
from saga_engine.ports import Advisor, Escalation, Head, Meter, Observer, Planner, Source, Store
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.stores import open_store
from saga_engine.tools.outcomes import MAX_OUTPUT_BYTES
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.threads import start_in_thread

if TYPE_CHECKING:
    from saga_engine.api.schedules import Schedules
    from saga_engine.core.submission import Submission
    from saga_engine.execution.schedules import ScheduleBody
    from saga_engine.planner.planning import Planning
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.policy.gate import Gate
    from saga_engine.ports import GuardStore
    from saga_engine.privacy.keyring import Keyring, KeySource
    from saga_engine.runtime.fork import Fork
    from saga_engine.runtime.retention import Purged
    from saga_engine.runtime.undo import Undo
    from saga_engine.runtime.worker import Report, Worker
    from saga_engine.telemetry.tracing import Spans


async def _sealed(backend: Store, privacy: Keyring | KeySource | None, registry: ToolRegistry) -> Store:
    """The store with its keyring; after an error nothing that was started for it goes on."""
    try:
        return await open_sealed(backend, privacy)
    except BaseException:
        await close_sources(registry)
        await backend.close()  # an embedded server that was started for this must stop
        raise


def _gate_of(policy: Policy, guards: GuardStore) -> Gate:
    """What authorizes each call; a program without a policy does not load it."""
    from saga_engine.policy.gate import Gate

    return Gate(policy, guards)


@of_one_loop
class Coordinator(Plans, Sessions, Views, Searches, EventMethods, Answers):
    """Submits, drives, resumes and shows sagas. Many run at once in one process and share one lease and one writer.

    Implements ``Engine``. ``Coordinator.open`` makes one.

    ``store``: a URL or an open ``Store``.
    ``tools``: decorated functions, modules, or a ``ToolRegistry``.
    ``sources``: MCP servers.
    ``durability``: or ``"replicated:N"``: also on the disks of N replicas; or ``"relaxed"``: accept a server that
    may lose the last writes.
    ``lease_s``: how long a silent process keeps its sagas.
    ``patience_s``: how long the store repeats calls during an outage.
    ``keep_finished_s``: how long finished sagas are kept; 0 is for ever.
    ``retention``: how long ended sagas are kept, by status, and their archive: a mapping like the table
    ``[retention]``; ``None``: they expire after ``keep_finished_s``.
    ``privacy``: keys that seal all payloads, by name, the current one first, or a function that returns them.
    ``limits``: the operator's limits on each saga and session: a mapping with ``deadline_s``, ``max_calls``,
    ``max_steps``, ``max_crashes``, ``max_parallel``, ``guard_wait_s`` and ``max_cost``.
    ``queue_limit``: how many sagas may wait for a worker before ``submit(detach=True)`` raises ``QueueFull``; 0 is
    unlimited.
    ``max_output_bytes``: the maximum size of a tool's result as JSON, from 1 KiB to 256 MiB; a larger one leaves
    its step in doubt (``output_too_large``).
    ``on_escalation``: one hook or several, called for each open question, or an ``Escalation``, which also defines
    reminders; by default a warning in the log.
    ``observers``: receive every durable record, in a thread.
    ``meters``: measure what this process makes durable, such as ``saga_engine.telemetry.Metrics()``.
    ``spans``: ``saga_engine.telemetry.Spans(...)``: OpenTelemetry traces.
    ``on_wait``: ``(saga_id, owner, seconds)``: called when a resume waits for another owner's lease.
    ``policy``: a ``Policy``, or a dict like the table ``[policy]``: authorizes each call.
    ``tool_options``: a dict like the tables ``[tools.NAME]``: the operator's options of tools.
    ``secrets``: which secrets plans may pass to which tools, like ``[secrets] allow``; ``None``: what ``saga.toml``
    allows, and without ``[secrets]`` there none. ``{"*": ["*"]}`` allows every secret to every tool: for plans that
    the program itself writes.
    ``settings``: which files of settings hold: ``"found"``: those that each command reads; ``None``: no
    ``saga.toml`` of a folder; or what ``saga_engine.settings.load`` returned. ``[policy]``, ``[secrets]``,
    ``[limits]``, ``[tools.NAME]`` and, of ``[saga]``, ``queue_limit`` and ``max_output_bytes`` hold, and the
    arguments here can only add to them; store, planner and all else come from the arguments. The operator's file
    always holds, whatever stands here. A file that was found is named once in the log, at level INFO.
    ``planner``: the model that writes plans, and steps when a saga is stuck: ``"provider:name"``,
    ``PlannerSettings``, or a ``Planner``.
    ``advisor``: what the engine asks for steps when a saga is stuck, if not the planner.
    ``semantic``: the role in semantic compensation of tools that do not declare it: ``auto``, ``approve`` or
    ``never``.
    """

    #: This process calls the tools.
    drives = True

    def __init__(
        self,
        store: Store,
        tools: ToolRegistry,
        *,
        lease_s: float,
        keep_finished_s: float,
        queue_limit: int,
        escalation: Escalation,
        observers: Sequence[Observer],
        meters: Sequence[Meter],
        spans: Spans | None = None,
        on_wait: Callable[[str, str, float], None] | None,
        policy: Policy | None = None,
        advisor: Advisor | None = None,
        semantic: Semantic = "approve",
        planning: Planning | None = None,
        declared: ToolRegistry | None = None,
        configured: Callable[[ToolRegistry], ToolRegistry] | None = None,
        limits: Limits = NO_LIMITS,
        retention: Retention | None = None,
        governed: Governed | None = None,
    ) -> None:
        self.store = store
        #: Until it is closed, the log leaves out what it must not say of a sealed store.
        self._withheld = ExitStack()
        self._withheld.enter_context(withholding(is_sealed(store) and not escalation.payloads))
        #: How long ended sagas are kept; None: they expire by themselves after ``keep_finished_s``.
        self.retention = retention
        #: The operator's limits on each saga that starts here.
        self.limits = limits
        self.tools = tools
        #: The rules that authorize its calls; ``policy.plan_time`` says what they mean for a plan.
        self.policy = policy
        self._registration = Registration(tools, declared, configured)
        self._planning = planning
        self._workers: set[Worker] = set()
        clock, shared = StoreClock(), store.guard_store()
        self._guards = GuardedTools(
            *(tools, shared),
            gate=None if policy is None else _gate_of(policy, shared),
            clock=clock,
            lease_s=lease_s,
            stops_seen=store.stops_seen,
            day_limit=lambda: self.supervisor.quota.day_cost(),  # noqa: PLW0108 - the supervisor comes later
            kin=Kindred(store, tools),
        )
        self._spans = None if spans is None else spans.of(shared, names=not is_sealed(store))
        #: The sagas that this process drives: the door of the runtime, for tests and for those who watch it.
        self.supervisor = Supervisor(
            store,
            self._guards,
            clock,
            lease_s=lease_s,
            keep_ms=round(keep_finished_s * 1000),
            expire=retention is None,
            room=-(-queue_limit // store.work().count),
            escalation=escalation,
            advisor=advisor,
            semantic=semantic,
            observers=Observers(observers, start_in_thread, meters=meters, spans=self._spans),
            spans=self._spans,
            on_wait=on_wait,
            begin_undo=self._begin_undo,
            bring_event=self._bring_event,
            limits=limits,
            governed=governed,
            on_end=partial(ended, self._guards),
        )
        self.supervisor.audit.on_round = Overdue(self._guards, escalation, clock).look

    @classmethod
    @opening
    async def open(
        cls,
        store: str | Store = "embedded://.saga",
        tools: Iterable[Any] | ToolRegistry = (),
        *,
        sources: Iterable[Source] = (),
        durability: str = "fsync",
        lease_s: float = 15.0,
        patience_s: float = 10.0,
        keep_finished_s: float = 30 * 24 * 3600.0,
        queue_limit: int = 1_000_000,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        on_escalation: Hooks | None = None,
        observers: Sequence[Observer] = (),
        meters: Sequence[Meter] = (),
        spans: Spans | None = None,
        on_wait: Callable[[str, str, float], None] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
        tool_options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Sequence[str]] | None = None,
        planner: str | Planner | PlannerSettings | Planning | None = None,
        advisor: Advisor | None = None,
        semantic: Semantic | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
        privacy: Keyring | KeySource | None = None,
        settings: SettingsChoice = "found",
    ) -> AsyncIterator[Coordinator]:
        """A coordinator, closed at the end of the block: it then waits for the calls in flight and journals them.

        It raises the error of the store, tool, setting or planner that cannot be had, or of a key (``KeyMissing``).
        """  # the docstring of the class has the arguments
        files = governing(settings)
        rules, limits = files.policy(policy), files.limits(limits)
        asked, role = advising(planning := planning_of(planner, rules), advisor, semantic)
        kept = retention_of(retention, keep_finished_s) if isinstance(retention, Mapping) else retention
        backend = open_store(store, durability=durability, patience_s=patience_s) if isinstance(store, str) else store
        declared = await declared_tools(tools, sources)
        registry = files.registered(declared, tool_options, secrets, max_output_bytes)
        used = await _sealed(backend, privacy, registry)
        coordinator = cls(
            used,
            registry,
            lease_s=lease_s,
            keep_finished_s=keep_finished_s,
            queue_limit=files.least("queue_limit", queue_limit),
            escalation=escalation_of(on_escalation, sealed=is_sealed(used)),
            observers=observers,
            meters=meters,
            spans=spans,
            on_wait=on_wait,
            policy=with_unlisted(rules, registry),
            advisor=asked,
            semantic=role,
            planning=planning,
            declared=declared,
            configured=lambda tools: files.configured(tools, tool_options),
            limits=limits,
            retention=kept,
            governed=files.governed(rules, limits, secrets),
        )
        async with AsyncExitStack() as ends:
            if isinstance(store, str):
                ends.push_async_callback(backend.close)
            ends.push_async_callback(coordinator.close)
            coordinator._read_agents(settings, files.files)
            yield coordinator

    async def close(self) -> None:
        """Start nothing more, await and journal the calls in flight, release the sagas, end the lease."""
        self.supervisor.stop()
        self._guards.stop_waiting()
        for worker in [*self._workers]:
            await worker.stop()
        await self.supervisor.close()
        await self._guards.close()
        if self._spans is not None:
            await self._spans.close()
        await close_sources(self.tools)
        self._withheld.close()

    # --- planning ------------------------------------------------------------------------------------------------

    async def plan_and_run(
        self,
        goal: str,
        *,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        intent: str | None = None,
        answers: Mapping[str, Any] | None = None,
        on_failure: str | None = None,
        may_use: Iterable[str] | None = None,
    ) -> SagaResult:
        """``plan``, then ``run``. Called again with the ``saga_id`` of a saga that exists, it asks no model.

        A model answers differently each time: that saga continues as it was planned. ``on_failure`` is that of the plan
        (``replan``, say): no model sets it. ``may_use`` is that of ``plan``. Raises what ``plan``, ``run`` and
        ``resume`` raise, and ``SagaExists`` if it was started for another goal or with other input.
        """
        if saga_id is not None and await self._begun(saga_id, goal, input, intent):
            return await self.resume(saga_id)
        planned = await self.plan(
            goal, input=input, intent=intent, answers=answers, may_use=may_use, on_failure=on_failure
        )
        return await self.run(planned.with_on_failure(on_failure).plan, saga_id=saga_id or new_saga_id())

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
        """Journal the plan and return; the saga runs in the background.

        With ``detach`` it is queued, and a worker drives it (``work``, ``saga worker``). The id is ``saga_id``, else
        the plan's ``task_id``, else a new sortable one. An id that exists with the same plan and input is that saga,
        which is driven on if no process drives it. ``search`` finds it by its ``tags`` and the plan's. Instead of a
        plan a ``template`` may be given: ``NAME`` (its latest version) or ``NAME@VERSION``. Raises ``PlanInvalid``,
        ``SagaExists``, ``SecretMissing``, ``SettingInvalid``, ``TemplateNotFound``, ``QueueFull`` or
        ``StoreUnavailable``.
        """
        source, reference = await self.templates.chosen(plan, template, input)
        handle = await self._begin(source, saga_id, input, tags, reference, detach=detach)
        await handle.journalled()
        return handle

    async def run(
        self,
        plan: PlanSource | None = None,
        *,
        template: str | None = None,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
        tags: Sequence[str] = (),
    ) -> SagaResult:
        """``submit``, then wait until the saga ends or needs an operator. Cancelling the wait leaves it running."""
        source, reference = await self.templates.chosen(plan, template, input)
        return await (await self._begin(source, saga_id, input, tags, reference, detach=False)).wait()

    async def _begin(
        self,
        source: PlanSource,
        saga_id: str | None,
        given: Mapping[str, Any] | None,
        tags: Sequence[str] = (),
        template: str = "",
        *,
        detach: bool,
    ) -> Handle:
        source = await self.templates.expanded(source)
        begin = partial(submission_of, source, saga_id, given, self.tools, tags, limits=self.limits, template=template)
        submission = await beside(begin, source, given)
        return await self._begin_submitted(submission, detach=detach)

    async def _begin_submitted(self, submission: Submission, *, detach: bool, counted: bool = True) -> Handle:
        name = submission.saga_id
        present = self.supervisor.find(name)
        if present is None or (present.detached and not detach):  # one that is being queued leaves the queue again
            return self.supervisor.begin(submission, detach=detach, counted=counted)
        if submission.digest != (present.digest or (await self.store.head(name)).digest):
            raise other_plan(name)
        if not detach:
            present.stay()
        return present.handle

    # --- forks ---------------------------------------------------------------------------------------------------

    async def fork(
        self,
        saga_id: str,
        *,
        plan: PlanSource | None = None,
        run_from: int | str | None = None,
        new_id: str | None = None,
        dry_run: bool = False,
        on_chosen: Callable[[Fork], None] | None = None,
        detach: bool = False,
    ) -> Fork | SagaResult:
        """A new saga that reuses the effects of ``saga_id``, as far as nothing that they depend on has changed.

        Steps whose fingerprint has a standing effect in the old saga are reused: no call is made, and the new saga owns
        their effects and undoes them if it fails. ``plan``: a corrected plan; by default the old one. ``run_from``: a
        step that runs anew with all that depends on it. The old saga must have ended, or rest; one that rests transfers
        what is reused and undoes the rest. A session's fork owns what came before the call ``run_from``, and waits for
        its agent. ``dry_run`` returns the ``Fork`` and changes nothing; ``on_chosen`` receives it before anything runs.
        With ``detach`` a worker drives the fork; an old saga that rests is driven here until it has transferred.
        Repeating the call continues it. Raises ``SagaNotFound``, ``ForkRefused``, ``PlanInvalid``, ``SagaExists``,
        and ``LeaseHeld`` (another process owns the fork, or has not transferred the effects yet).
        """
        from saga_engine.runtime.fork import Forking
        from saga_engine.runtime.messages import run_fork

        forking = await Forking.of(self.store, self.tools, saga_id, self.supervisor.clock.now_ms(), self.limits)
        step = None if run_from is None else str(run_from)
        fork = await forking.look(None if plan is None else await self.templates.expanded(plan), new_id, step)
        return (
            fork
            if dry_run
            else await run_fork(self.store, self.supervisor, forking, fork, step, on_chosen, detach=detach)
        )

    async def undo(
        self,
        saga_id: str,
        *,
        accept: bool = False,
        by: str = "",
        note: str = "",
        dry_run: bool = False,
        on_chosen: Callable[[Undo], None] | None = None,
        detach: bool = False,
    ) -> Undo | SagaResult:
        """Undo a saga that has completed, by a saga of its own that owns its effects from then on (docs/undo.md).

        Unless ``accept``, one with steps that have no undo is refused. Repeating the call continues the same undo. With
        ``detach`` a worker drives it. It raises ``SagaNotFound``, ``UndoRefused``, ``ToolMissing``, ``SagaExists`` and
        ``LeaseHeld``.
        """
        from saga_engine.runtime.undo import Undoing

        undoing = await Undoing.of(self.store, self.supervisor, self.tools, saga_id)
        undo = await undoing.look(accept=accept or dry_run)
        if dry_run:
            return undo
        return await undoing.run(undo, accept=accept, by=by, note=note, on_chosen=on_chosen, detach=detach)

    async def _begin_undo(self, saga_id: str, parent: Parent, queued: bool) -> Head | ChildEnd | None:
        """Undo a child that has completed, for the saga that waits for that."""
        from saga_engine.runtime.undo import Undoing

        undoing = await Undoing.of(self.store, self.supervisor, self.tools, saga_id)
        return await undoing.begin(parent, queued=queued)

    # --- resuming ------------------------------------------------------------------------------------------------

    async def resume(self, saga_id: str) -> SagaResult:
        """Drive a saga on from its journal until it ends or needs an operator; one that has ended is only shown.

        Raises ``SagaNotFound``, ``ToolMissing`` (the saga stays as it is), ``LeaseHeld``, ``StoreUnavailable``.
        """
        return await self.supervisor.resume(saga_id).wait()

    async def enqueue(self, saga_id: str) -> None:
        """Queue a saga for a worker now; no tools are needed. One that has ended stays as it is.

        Workers find sagas by themselves; this is for one whose cause has just been mended. Raises ``SagaNotFound``, and
        ``LeaseHeld`` if a live process owns it.
        """
        from saga_engine.runtime.messages import enqueue

        await enqueue(self.store, self.supervisor, saga_id)

    async def resume_all(self) -> dict[str, SagaResult | SagaError]:
        """Resume all sagas that can continue: escalated ones only if answered. An error stands in its saga's place."""
        from saga_engine.runtime.messages import resume_all

        return await resume_all(self.store, self.supervisor)

    # --- working -------------------------------------------------------------------------------------------------

    async def work(self, *, concurrency: int = 256, partitions: Iterable[int] | None = None) -> Report:
        """Be a worker until the coordinator is closed: take sagas from the queue, up to ``concurrency`` at a time.

        Any number of processes on any number of machines may work on one store. A worker also continues the sagas of
        dead processes. ``partitions``: the parts of the queue that it serves; by default all. The worker waits for as
        long as an outage of the store lasts. To stop it, leave the block of ``open``, or cancel it; either way it
        awaits and journals the calls in flight, and returns its sagas to the queue. Returns its report. Raises
        ``SettingInvalid``.
        """
        from saga_engine.runtime.retention import Purging
        from saga_engine.runtime.ticks import Ticks
        from saga_engine.runtime.worker import Worker, served

        chosen = served(self.store.work().count, concurrency, partitions)
        ticks = Ticks(self.store, self._begin_scheduled, self._cancel_scheduled)
        late = partial(self._begin_late, detach=True)
        rules = self.retention
        worker = Worker(
            self.store,
            self.supervisor,
            concurrency=concurrency,
            partitions=chosen,
            begin_late=late,
            ticks=ticks,
            purging=None if rules is None else Purging(self.store, rules, self.tools, chosen),
        )
        self._workers.add(worker)
        try:
            return await worker.run()
        finally:
            self._workers.discard(worker)

    @property
    def takes_sagas(self) -> bool:
        """Whether ``work`` takes sagas now: not before it has a lease, nor while the store is away or it drains."""
        return not self.supervisor.closing and any(worker.taking for worker in self._workers)

    @property
    def schedules(self) -> Schedules:
        """When templates start by themselves; workers fire their ticks (``work``, ``saga worker``)."""
        from saga_engine.api.schedules import Schedules

        return Schedules(self.store, self.tools, self._begin_scheduled)

    async def _begin_scheduled(self, name: str, body: ScheduleBody, saga_id: str) -> None:
        from saga_engine.execution.schedules import tags_of

        tags = tags_of(name, body)
        await self.submit(template=body.template, saga_id=saga_id, input=body.input, tags=tags, detach=True)

    async def _cancel_scheduled(self, saga_id: str) -> None:
        await self.cancel(saga_id, by="schedule", note="its schedule starts the next saga", wait=False)

    async def wait(self, saga_id: str) -> SagaResult:
        """Wait until a saga ends or rests, in whatever process it runs. Raises ``SagaNotFound``.

        Bound it with ``asyncio.timeout``: it waits as long as the saga does.
        """
        from saga_engine.runtime.messages import settled

        return await settled(self.store, saga_id)

    async def erase(self, saga_id: str, *, by: str = "", why: str = "", family: bool = False) -> Mapping[str, Any]:
        """Destroy the key of a sealed saga that has ended: nobody can read its payloads any more (docs/privacy.md).

        Its id, states and times remain, and who erased it, why and when, which is returned (``by``, ``why``, ``at_ms``)
        with the ``sagas`` that are erased and in words what is ``unreached``. Its children, parent, undos, forks and
        the sagas of its late events hold copies: it is refused unless ``family`` erases them as well, and while one of
        them runs. Repeating it changes nothing. Raises ``EraseRefused`` and ``SagaNotFound``; what reads an erased saga
        raises ``SagaErased``.
        """
        from saga_engine.api.erasing import erase

        archive = None if self.retention is None else self.retention.archive
        return (await erase(self.store, saga_id, by, why, family=family, archive=archive)).to_dict()

    async def purge(self, retention: Retention | Mapping[str, Any] | None = None, *, dry_run: bool = False) -> Purged:
        """Remove sagas that ended long ago, as workers do by the ``retention`` that ``open`` got; or by another one.

        A saga that another one may still need stays, with the reason in ``Purged.kept``. With ``archive`` each is
        written there first. ``dry_run`` removes and writes nothing. Raises ``SettingInvalid``.
        """
        from saga_engine.runtime.retention import Purging, purge_all

        given = retention_of(retention, 0) if isinstance(retention, Mapping) else retention or self.retention
        if given is None:
            raise SettingInvalid("there are no rules to purge by", hint='purge({"completed": "30d"})')
        return await purge_all(Purging(self.store, given, self.tools), dry_run=dry_run)

    def register(self, *tools: Any) -> None:
        """Add tools after opening; the operator's options apply to them, too.

        Plans that are submitted from now on may use them, and sagas that wait for them can be resumed. Raises
        ``ToolInvalid`` and ``SettingInvalid``; the tools are then as before.
        """
        self._registration.register(tools)
