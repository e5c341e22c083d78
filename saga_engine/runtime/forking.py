"""Forks: which effects of a saga a new one takes over, and how they change hands.

An effect has one owner, whatever dies in between: it is claimed for the fork first; then a saga that might still undo
it hands it over; only then does the fork begin. Asked again with the same id, a fork goes on where it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from saga_engine._version import __version__
from saga_engine.core.fingerprint import folded
from saga_engine.core.forking import ForkPlan, choose
from saga_engine.core.growth import Growth
from saga_engine.core.messages import check_fork
from saga_engine.core.records import AnyRecord, SagaStarted
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import ForkRefused, JournalUnreadable
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.tooling import ToolCatalog
from saga_engine.plan.values import digest
from saga_engine.ports import Store
from saga_engine.runtime.ids import check_saga_id
from saga_engine.runtime.journal import compile_journalled, read_records

_CLAIMS: Final = "saga.fork"
#: As long as a finished saga can be looked at, and longer.
_CLAIM_MS: Final = 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as it would be: its id, the saga ``of`` which it is one, what it takes over and what it runs."""

    saga_id: str
    of: str
    plan: ForkPlan
    started: SagaStarted
    compiled: CompiledPlan
    hands_over: bool

    def to_dict(self) -> dict[str, Any]:
        """The fork as one JSON object."""
        return {"saga_id": self.saga_id, "fork_of": self.of, **self.plan.to_dict()}


class Forking:
    """Prepares forks of one saga: ``look`` says what one would do, ``claim`` makes that final."""

    def __init__(self, store: Store, catalog: ToolCatalog, records: list[AnyRecord], now_ms: int) -> None:
        started = records[0] if records else None
        if not isinstance(started, SagaStarted):
            raise JournalUnreadable("a journal must begin with SagaStarted", hint="the store was changed by hand")
        self._guards = store.guard_store()
        self._catalog = catalog
        self._now_ms = now_ms
        self._first = started
        self._old, self._prints = folded(records, compile_journalled(records, catalog), Growth(started, catalog))
        check_fork(self._old)

    @classmethod
    async def of(cls, store: Store, catalog: ToolCatalog, saga_id: str, now_ms: int) -> Forking:
        """From a saga's journal. Raises ``SagaNotFound`` and ``ForkRefused``."""
        return cls(store, catalog, await read_records(store, saga_id), now_ms)

    async def look(self, plan: Plan | None, saga_id: str | None, run_from: str | None) -> Fork:
        """What a fork would do now. Raises ``PlanInvalid`` and ``ForkRefused``; nothing is changed."""
        given = plan if plan is not None else self._whole_plan()
        compiled = compile_plan(given, self._catalog, input=self._first.input)
        if run_from is not None and run_from not in compiled.by_key:
            raise ForkRefused(
                f"the plan has no step {run_from}", hint=f"steps: {', '.join(list(compiled.by_key)[:50])}"
            )
        identity = digest(["saga-fork/1", self._old.saga_id, given.digest, self._first.input, run_from])
        # The same fork has the same id, so a command that is repeated after a crash goes on with what it began.
        name = check_saga_id(saga_id or f"{self._old.saga_id[:96]}-fork-{identity[:8]}")
        started = SagaStarted(
            at=self._now_ms,
            saga_id=name,
            plan=msgspec.Raw(given.json_bytes),
            digest=identity,
            seed=secrets.token_hex(8),
            input=self._first.input,
            undos=compiled.undos,
            reads=sorted(compiled.reads),
            tools=compiled.tool_digests,
            engine=__version__,
            fork_of=self._old.saga_id,
        )
        return await self._chosen(name, started, compiled, run_from)

    async def claim(self, fork: Fork, run_from: str | None) -> Fork:
        """Make the fork the owner of what it takes over; what another fork was faster to take, it runs itself."""
        while True:
            lost = False
            for each in fork.plan.taken:
                step = each.source.partition("/")[2]
                claim = await self._guards.claim(
                    _CLAIMS, digest([fork.of, step]), f"{fork.saga_id}:{step}:f:fork", _CLAIM_MS
                )
                mine = claim.verdict in ("new", "ours")
                owner = fork.saga_id if mine else claim.owner.partition(":")[0]
                await self._guards.tally_set(self._tally(), step, owner, _CLAIM_MS)
                lost = lost or not mine
            if not lost:
                return fork
            fork = await self._chosen(fork.saga_id, fork.started, fork.compiled, run_from)

    async def _chosen(self, name: str, started: SagaStarted, compiled: CompiledPlan, run_from: str | None) -> Fork:
        owners: Mapping[str, str] = await self._guards.tally(self._tally())
        plan = choose(
            self._old,
            self._prints,
            started,
            compiled,
            Growth(started, self._catalog),
            run_from=run_from,
            elsewhere={step for step, owner in owners.items() if owner != name},
        )
        return Fork(name, self._old.saga_id, plan, started, compiled, self._old.status not in SAGA_FINAL)

    def _tally(self) -> str:
        return f"fork\n{self._old.saga_id}"

    def _whole_plan(self) -> Plan:
        """The plan of the old saga, with all that was added to it on its way forward, and nothing that was dropped."""
        body = msgspec.to_builtins(self._first.plan)
        added = [each.addition for each in self._old.added if not each.addition.remedy]
        dropped = {key for addition in added for key in addition.dropped}
        steps = [*body["steps"], *(dict(step) for addition in added for step in addition.steps)]
        kept = [step for step in steps if str(step["step_id"]) not in dropped]
        return load_plan({**{name: value for name, value in body.items() if name != "task_id"}, "steps": kept})
