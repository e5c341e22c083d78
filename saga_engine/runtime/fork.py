"""Forks: which effects of a saga a new one reuses, and how they are transferred.

An effect has one owner, whatever dies in between. The fork reserves its id and claims the effect first; then a saga
that might still undo it transfers it, by a record of its own; only then does the fork start. Repeating the request
continues the same fork; no other saga can start with its id meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from saga_engine.analysis.fingerprint import folded
from saga_engine.analysis.fork import ForkPlan, choose
from saga_engine.analysis.session_fork import Calls, SessionForkPlan, choose_calls
from saga_engine.core.fold import started_of
from saga_engine.core.messages import check_fork
from saga_engine.core.plan_growth import Growth, load_started, plan_of
from saga_engine.core.records import AnyRecord, CallAdded, EffectReused, EffectTransferred
from saga_engine.core.session_records import opening_of
from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.submission import Submission
from saga_engine.errors import ForkRefused, SagaExists, SagaNotFound, ToolMissing
from saga_engine.execution.ids import check_saga_id
from saga_engine.execution.plan_cache import compile_journalled
from saga_engine.plan.compiled import CompiledPlan, CompiledStep
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.salvage import load_checked
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import digest
from saga_engine.ports import Store
from saga_engine.runtime.claims import CLAIM_MS, Claims
from saga_engine.runtime.journal import beside_state, read_records, state_of
from saga_engine.runtime.session_history import recorded_calls

Transfer = Literal["none", "due", "done"]


@dataclass(frozen=True, slots=True)
class Fork:
    """A preview of a fork: its id, the saga ``of`` which it is one, what it reuses and what it runs.

    ``begun``: it exists; what it reuses and what it runs are final, and nothing is claimed any more. ``transfer``: the
    forked saga rests and must still transfer the effects (``due``), has transferred them and has not been undone to its
    end (``done``), or has ended (``none``).
    """

    saga_id: str
    of: str
    plan: ForkPlan
    submission: Submission
    transfer: Transfer
    begun: bool = False

    @property
    def session(self) -> bool:
        """Whether it is a session: it waits for its agent, and runs nothing by itself."""
        return self.submission.session

    @property
    def compiled(self) -> CompiledPlan:
        """Its plan, with the items of lists that are known; of a session, the calls that are reused."""
        return self.submission.compiled if self.plan.plan is None else self.plan.plan

    @property
    def first(self) -> Sequence[AnyRecord]:
        """The records with which it starts."""
        return self.plan.opening

    @property
    def steps(self) -> list[str]:
        """The keys of the other saga's steps that are reused."""
        return [each.source.partition("/")[2] for each in self.plan.taken]

    def to_dict(self) -> dict[str, Any]:
        """The fork as one JSON object."""
        return {"saga_id": self.saga_id, "fork_of": self.of, "begun": self.begun, **self.plan.to_dict(self.compiled)}


class Forking:
    """Prepares forks of one saga: ``look`` previews one, ``claim`` makes the preview final."""

    def __init__(
        self, store: Store, catalog: ToolCatalog, records: list[AnyRecord], now_ms: int, limits: Limits
    ) -> None:
        started = started_of(records)
        self._store = store
        self._claims = Claims(store.guard_store(), started.saga_id)
        self._catalog = catalog
        self._now_ms = now_ms
        self._limits = limits
        self._first = started
        self._records = records
        self._old, self._prints = folded(records, compile_journalled(started, catalog), Growth(started, catalog))
        self._handed_to = next((record.to for record in records if isinstance(record, EffectTransferred)), None)

    @classmethod
    async def of(cls, store: Store, catalog: ToolCatalog, saga_id: str, now_ms: int, limits: Limits) -> Forking:
        """Read a saga's journal. Raises ``SagaNotFound``."""
        records = await read_records(store, saga_id)
        return await beside_state(records, partial(cls, store, catalog, records, now_ms, limits))

    async def look(
        self, plan: Plan | Mapping[str, Any] | str | bytes | Path | None, saga_id: str | None, run_from: str | None
    ) -> Fork:
        """Preview a fork; changes nothing.

        Raises ``PlanInvalid``, ``ForkRefused``, and ``SagaExists`` if the id is another saga's.
        """
        if self._handed_to is None:
            check_fork(self._old)
        told = self._first.input

        def compiling() -> tuple[Plan, CompiledPlan]:
            if self._old.session:
                given = self._session_plan(plan)
            else:
                given = self._whole_plan() if plan is None else load_checked(plan, self._catalog, input=told)
            self._limits.check_steps(len(given.steps))
            return given, self._limits.applied(compile_plan(given, self._catalog, input=told))

        given, compiled = await beside_state(self._records, compiling, plan)
        self._require_step(run_from, compiled)
        identity = digest(["saga-fork/1", self._old.saga_id, given.digest, self._first.input, run_from])
        # The same fork has the same id, so a command that is repeated after a crash continues what it started.
        name = check_saga_id(saga_id or f"{self._old.saga_id[:96]}-fork-{identity[:8]}")
        submission = Submission(
            saga_id=name,
            plan=given.json_bytes,
            compiled=compiled,
            digest=identity,
            seed=secrets.token_hex(8),
            input=self._first.input,
            session=self._old.session,
            fork_of=self._old.saga_id,
            limits=self._limits,
            tags=tuple(self._first.tags),
        )
        if await self._begun(name, identity):
            return await self._as_begun(submission)
        if self._handed_to != name:
            check_fork(self._old)
        return await self._chosen(submission, run_from)

    async def claim(self, fork: Fork, run_from: str | None) -> Fork:
        """Make the fork the owner of what it reuses; it runs itself what another fork claimed first.

        Its id is reserved before anything is its own: a saga that somebody starts with it meanwhile is refused. Raises
        ``SagaExists`` if the id is another saga's or another fork's.
        """
        identity = fork.submission.digest
        if await self._store.reserve(fork.saga_id, identity, fork.of, CLAIM_MS) != identity:
            raise _other_fork(fork.saga_id)
        while True:
            lost = await self._claims.take(fork.steps, fork.saga_id, identity)
            if lost is None:
                return fork
            if lost[1] == fork.saga_id:
                raise _other_fork(fork.saga_id)
            fork = await self._chosen(fork.submission, run_from)

    async def transferred(self, fork: Fork) -> bool:
        """Whether the other saga has transferred what is reused, as its journal says now."""
        records = await read_records(self._store, fork.of, whole=False)
        given = [record for record in records if isinstance(record, EffectTransferred) and record.to == fork.saga_id]
        return any(set(fork.steps) <= set(record.steps) for record in given)

    async def _begun(self, name: str, identity: str) -> bool:
        """Whether this fork exists. Raises ``SagaExists`` if the id is another saga's."""
        try:
            head = await self._store.head(name)
        except SagaNotFound:
            return False
        if head.digest != identity:
            raise _other_fork(name)
        return True

    async def _as_begun(self, submission: Submission) -> Fork:
        records = await read_records(self._store, submission.saga_id)
        opening = list(opening_of(records))
        taken = [each for each in opening if isinstance(each, EffectReused)]
        grown = state_of([records[0], *opening], self._catalog).plan
        plan: ForkPlan
        if submission.session:
            plan = SessionForkPlan(taken, opening=opening, plan=grown)
        else:
            keys = {record.step for record in taken}
            runs = [step.key for step in grown.steps if step.key not in keys]
            plan = ForkPlan(taken, runs, opening=opening, plan=grown)
        return Fork(submission.saga_id, self._old.saga_id, plan, submission, "none", begun=True)

    async def _chosen(self, submission: Submission, run_from: str | None) -> Fork:
        name = submission.saga_id
        started = submission.started(self._now_ms)  # for the choice only: a fork starts when it is driven
        owners = await self._claims.owners()
        elsewhere = {step for step, owner in owners.items() if owner != name}
        plan: ForkPlan
        if self._old.session:
            compiled = compile_journalled(started, self._catalog)
            plan = choose_calls(self._calls(), started, compiled, self._catalog, run_from=run_from, elsewhere=elsewhere)
            self._require_tools(compiled)
        else:
            growth = Growth(started, self._catalog)
            plan = choose(
                self._old,
                self._prints,
                started,
                submission.compiled,
                growth,
                run_from=run_from,
                elsewhere=elsewhere,
            )
            self._require_once(plan)
        transfer: Transfer = "done" if self._handed_to == name else "due"
        if self._old.status in SAGA_FINAL:
            transfer = "none"
        return Fork(name, self._old.saga_id, plan, submission, transfer)

    def _require_once(self, plan: ForkPlan) -> None:
        """Raises ``ForkRefused`` if effects that stay would be made a second time, and nobody asked for that."""
        if not plan.again or plan.plan is None:
            return
        ids = {step.key: step.step_id for step in plan.plan.steps}
        again, passed = ([str(ids[key]) for key in keys] for keys in (plan.again, plan.passed))
        raise ForkRefused(
            f"saga {self._old.saga_id} went on without {_named(passed)}, and a fork runs that again. {_named(again)} "
            f"would run again after it, and the effect in that saga stays: it would exist twice",
            hint=f"'--from {again[0]}' runs this step and all that depends on it again, and what exists stays; or "
            f"change the plan so that it binds no output of what runs again",
            saga_id=self._old.saga_id,
            steps=[ids[key] for key in plan.again],
            passed=[ids[key] for key in plan.passed],
        )

    def _require_step(self, run_from: str | None, compiled: CompiledPlan) -> None:
        """Raises ``ForkRefused`` if what is to run anew is no step of the plan, or no call that an agent would make."""
        session = self._old.session
        known = self._calls().places if session else [*compiled.by_key, *self._items(compiled)]
        if run_from is not None and run_from not in known:
            what = f"the agent of session {self._old.saga_id} makes no call" if session else "the plan has no step"
            listed = f"{'calls' if session else 'steps'}: {', '.join(known[:50]) or 'none'}"
            raise ForkRefused(f"{what} {run_from}", hint=listed)

    def _items(self, compiled: CompiledPlan) -> Iterator[str]:
        """The keys of the items that this saga had, of steps that the fork's plan has, too."""
        for step in self._old.plan.steps:
            at = None if step.item is None else compiled.by_key.get(step.item.parent_key)
            if at is not None and compiled.steps[at].each is not None:
                yield step.key

    # --- of a session --------------------------------------------------------------------------------------------

    def _session_plan(self, plan: Any) -> Plan:
        """The goal and the limits of the session, without its calls."""
        if plan is not None:
            raise ForkRefused(
                f"saga {self._old.saga_id} is a session: it has no plan that could be corrected",
                hint="leave the plan out, and run the corrected agent with the fork's id",
            )
        return load_started(self._first)

    def _calls(self) -> Calls:
        recorded = recorded_calls(self._records, keeps=True)
        added = {record.step: record for record in self._records if isinstance(record, CallAdded)}
        return Calls(state=self._old, places=recorded.keys, anew=recorded.anew, added=added, fingerprints=self._prints)

    def _require_tools(self, plan: CompiledPlan) -> None:
        """Raises ``ToolMissing`` for a tool that the fork needs to undo what it reuses, or whose call it reuses."""
        missing = sorted({call.tool for call in plan.calls() if self._catalog.spec(call.tool) is None})
        if missing:
            raise ToolMissing(
                f"the fork of session {self._old.saga_id} needs tools that are not registered here: "
                f"{', '.join(missing)}",
                hint="give them with --tools or to Coordinator.open; no call of them is repeated",
                saga_id=self._old.saga_id,
                tools=missing,
            )

    # --- of a plan -----------------------------------------------------------------------------------------------

    def _whole_plan(self) -> Plan:
        """The old saga's plan with everything that was added in the forward direction, without what was dropped."""
        body = plan_of(self._first)
        added = [each.addition for each in self._old.added if not each.addition.compensation]
        dropped = {key for addition in added for key in addition.dropped}
        steps = [*body["steps"], *(dict(step) for addition in added for step in addition.steps)]
        written = {str(step["step_id"]): step for step in steps if str(step["step_id"]) not in dropped}
        compiled = self._old.plan
        listed = [step for index in compiled.order if (step := compiled.steps[index]).key in written]
        kept = [self._in_its_place(step, written[step.key], listed[at - 1]) for at, step in enumerate(listed)]
        return load_plan({**{name: value for name, value in body.items() if name != "task_id"}, "steps": kept})

    def _in_its_place(self, step: CompiledStep, written: dict[str, Any], before: CompiledStep) -> dict[str, Any]:
        """A step that says itself what it waits for, where neither its bindings nor the list do."""
        steps = self._old.plan.steps
        deps = [index for index in step.deps if steps[index].item is None]  # a list waits for its items, too
        usual = step.data_deps if written.get("depends_on") is not None else {*step.data_deps, before.index}
        if usual.issuperset(deps):
            return written
        return {**written, "depends_on": [steps[index].step_id for index in deps]}


def _named(steps: Sequence[str]) -> str:
    most = ", ".join(steps[:20])
    return f"step{'' if len(steps) == 1 else 's'} {most}{' and others' if len(steps) > 20 else ''}"


def _other_fork(saga_id: str) -> SagaExists:
    return SagaExists(
        f"saga {saga_id} is another saga, or another fork",
        hint="choose another id, or leave the id out: the same fork gets the same one",
        saga_id=saga_id,
    )
