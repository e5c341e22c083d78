"""Undos of completed sagas: what such a saga would undo, and how the effects become its own.

Each effect has one owner, whatever dies in between. The saga that undoes another one reserves its id and claims the
effects, as a fork does; then the completed saga transfers them, by a record of its own; only then does the undo start.
Repeating the request continues the same undo.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from saga_engine.analysis.undo import UndoPlan, choose_undo, first_record, step_of
from saga_engine.core import states as t
from saga_engine.core.fold import started_of
from saga_engine.core.records import AnyRecord, EffectTransferred, Parent, UndoRequested
from saga_engine.core.state import State
from saga_engine.core.steps.child import undo_id
from saga_engine.core.submission import Submission
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.errors import SagaExists, SagaNotFound, ToolMissing, UndoRefused
from saga_engine.execution.ids import check_saga_id
from saga_engine.execution.plan_cache import compile_journalled
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import digest
from saga_engine.ports import Head, Store
from saga_engine.runtime.claims import CLAIM_MS, Claims
from saga_engine.runtime.journal import beside_state, look, read_records, state_of
from saga_engine.runtime.supervisor import Supervisor

_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Undo:
    """A preview of the undo of the completed saga ``of``: its id, what it undoes, and what remains.

    ``begun``: it exists, and what it undoes is final.
    """

    saga_id: str
    of: str
    plan: UndoPlan
    old: State
    begun: bool = False

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do: no step has an effect that stands, here or elsewhere."""
        return not (self.begun or self.plan.undoes or self.plan.remains or self.plan.elsewhere)

    def to_dict(self) -> dict[str, Any]:
        """The preview as one JSON object; ``undoes`` are in the order of the undos."""

        def steps(keys: list[str]) -> list[dict[str, Any]]:
            return [step_of(self.old, key) for key in keys]

        return {
            "saga_id": self.saga_id,
            "undo_of": self.of,
            "begun": self.begun,
            "undoes": steps(self.plan.undoes),
            "remains": steps(self.plan.remains),
            "elsewhere": [
                {**step_of(self.old, key), "owner": owner} for key, owner in sorted(self.plan.elsewhere.items())
            ],
        }


class Undoing:
    """Undoes one completed saga: ``look`` previews, ``run`` makes the effects the undo's own and drives it."""

    def __init__(self, store: Store, supervisor: Supervisor, catalog: ToolCatalog, records: list[AnyRecord]) -> None:
        started = started_of(records)
        self._store = store
        self._supervisor = supervisor
        self._catalog = catalog
        self._records = records
        self._of = started.saga_id
        self._claims = Claims(store.guard_store(), self._of)
        self._old = state_of(records, catalog)
        self._identity = digest(["saga-undo/1", self._of])
        #: The undo of a saga has always the same id, so a command that is repeated continues it.
        self.saga_id = check_saga_id(undo_id(self._of))

    @classmethod
    async def of(cls, store: Store, supervisor: Supervisor, catalog: ToolCatalog, saga_id: str) -> Undoing:
        """Read a saga's journal. Raises ``SagaNotFound``."""
        records = await read_records(store, saga_id)
        return await beside_state(records, partial(cls, store, supervisor, catalog, records))

    async def look(self, *, accept: bool) -> Undo:
        """Preview the undo; changes nothing. Raises ``UndoRefused``, and ``SagaExists`` if its id is another saga's."""
        begun = await self._begun()
        self._require_completed()
        plan = choose_undo(self._old, self._records, self.saga_id, await self._claims.owners())
        if not begun:
            self._require_undoable(plan, accept=accept)
        return Undo(self.saga_id, self._of, plan, self._old, begun=begun)

    async def run(
        self,
        undo: Undo,
        *,
        accept: bool,
        by: str = "",
        note: str = "",
        on_chosen: Callable[[Undo], None] | None = None,
        detach: bool = False,
    ) -> SagaResult:
        """Undo it, or continue the undo that was started before. With ``detach`` it is queued for a worker.

        A saga without an effect is undone as it is: there is nothing to do, and it is returned itself.

        Raises ``UndoRefused``, ``ToolMissing`` (nothing has changed), ``SagaExists``, and ``LeaseHeld`` while another
        process drives the undo.
        """
        if undo.nothing:
            return SagaResult(self._old, full=False)
        if not undo.begun:
            self._require_tools(undo.plan)
            undo = await self._claimed(undo, accept=accept)
        if on_chosen is not None:
            on_chosen(undo)
        if detach and undo.begun:
            return SagaResult(await look(self._store, undo.saga_id), full=False)
        present = self._supervisor.find(undo.saga_id)
        if present is not None:
            return await present.handle.wait()
        if undo.begun:
            return await self._supervisor.resume(undo.saga_id).wait()
        asked = UndoRequested(at=0, accepted=undo.plan.remains, by=by, note=note)
        return await (await self._handle(undo, asked, detach=detach)).wait()

    async def begin(self, parent: Parent, *, queued: bool) -> Head | ChildEnd | None:
        """Start the undo for the saga that waits for it, or find the one that was started. It accepts what remains.

        Returns the head of an undo that exists, or the end of one that has nothing to do; None: it has just started.
        Raises what ``run`` raises.
        """
        if await self._begun():
            return await self._store.head(self.saga_id)
        self._require_completed()
        plan = choose_undo(self._old, self._records, self.saga_id, await self._claims.owners())
        if not (plan.undoes or plan.elsewhere):
            return ChildEnd(self.saga_id, t.WAIVED if plan.remains else t.COMPENSATED, left=plan.remains)
        self._require_undoable(plan, accept=True)
        undo = Undo(self.saga_id, self._of, plan, self._old)
        self._require_tools(plan)
        if self._supervisor.find(self.saga_id) is not None:
            return None
        undo = await self._claimed(undo, accept=True)
        asked = UndoRequested(at=0, accepted=undo.plan.remains, by=f"saga {parent.saga}")
        await (await self._handle(undo, asked, parent, queued=queued)).journalled()
        return None

    async def _handle(
        self,
        undo: Undo,
        asked: UndoRequested,
        parent: Parent | None = None,
        *,
        queued: bool = False,
        detach: bool = False,
    ) -> Handle:
        """Have the effects transferred, and start the undo."""
        await self._supervisor.transfer_ended(self._of, lambda state: self._transfer(state, undo))
        submission = self._submission(parent)
        present = self._supervisor.find(undo.saga_id)  # the same request of another task
        if present is not None:
            return present.handle
        opening = [*undo.plan.opening, asked]
        return self._supervisor.begin(submission, detach=detach, reused=opening, queued=queued)

    async def _begun(self) -> bool:
        try:
            head = await self._store.head(self.saga_id)
        except SagaNotFound:
            return False
        if head.digest != self._identity:
            raise self._taken()
        return True

    async def _claimed(self, undo: Undo, *, accept: bool) -> Undo:
        """Make the effects the undo's own; those that a fork claimed first stay the fork's."""
        if await self._store.reserve(undo.saga_id, self._identity, self._of, CLAIM_MS) != self._identity:
            raise self._taken()
        while await self._claims.take(undo.plan.owned, undo.saga_id, self._identity) is not None:
            undo = await self.look(accept=accept)
        return undo

    def _transfer(self, state: State, undo: Undo) -> AnyRecord | None:
        """The record with which the completed saga transfers its effects, unless it has done so before."""
        steps = undo.plan.owned
        effects = [state.steps[state.plan.by_key[key]].effect for key in steps]
        if all(effect is not None and getattr(effect, "to", "") == undo.saga_id for effect in effects):
            return None
        now_ms = max(self._supervisor.clock.now_ms(), state.at)
        return EffectTransferred(at=now_ms, steps=steps, to=undo.saga_id)

    def _submission(self, parent: Parent | None) -> Submission:
        first = first_record(started_of(self._records))
        return Submission(
            saga_id=self.saga_id,
            plan=b"",
            compiled=compile_journalled(first, self._catalog),
            digest=self._identity,
            seed=secrets.token_hex(8),
            undoes=first,
            parent=parent,
        )

    # --- what is refused -----------------------------------------------------------------------------------------

    def _require_completed(self) -> None:
        old = self._old
        if old.status == t.COMPLETED:
            return
        if old.status == t.COMPENSATED:
            raise UndoRefused(f"saga {self._of} has been undone already", hint=f"saga show {self._of}")
        if old.status == t.WAIVED:
            raise UndoRefused(
                f"saga {self._of} was undone: what remains of it was accepted by an operator, or cannot be undone",
                hint=f"undo by hand what is not wanted: `saga show {self._of}` lists it (left_in_place)",
            )
        raise UndoRefused(
            f"saga {self._of} has not completed ({old.status})",
            hint=f"`saga cancel {self._of}` undoes a saga that is under way",
        )

    def _require_undoable(self, plan: UndoPlan, *, accept: bool) -> None:
        if plan.remains and not accept:
            steps = [step_of(self._old, key) for key in plan.remains]
            listed = ", ".join(f"{each['step_id']} ({each['tool']}, {each['kind']})" for each in steps[:_LISTED])
            more = f" and {len(steps) - _LISTED} more" if len(steps) > _LISTED else ""
            raise UndoRefused(
                f"saga {self._of} cannot be undone in full: no undo exists for step {listed}{more}",
                hint="--accept (accept=True) undoes the rest; the report then lists these steps as left in place",
                saga_id=self._of,
                remains=[each["step_id"] for each in steps],
            )
        if plan.undoes:
            return
        if plan.elsewhere:
            owners = sorted(set(plan.elsewhere.values()))
            raise UndoRefused(
                f"nothing of saga {self._of} can be undone: its effects belong to saga {', '.join(owners[:_LISTED])}",
                hint="undo the saga that owns the effects",
                saga_id=self._of,
            )
        if plan.remains:
            raise UndoRefused(
                f"nothing of saga {self._of} can be undone",
                hint=f"`saga show {self._of}` lists its steps",
                saga_id=self._of,
            )

    def _require_tools(self, plan: UndoPlan) -> None:
        """Raises ``ToolMissing`` for an undo that is not registered here."""
        wholes = [self._old.whole_rollback(self._old.plan.by_key[key]) for key in plan.undoes]
        undos = [undo for whole in wholes if whole is not None for undo in (whole, *whole.then)]
        needed = {undo.tool for undo in undos if undo.tool}  # that of a child has none
        missing = sorted(tool for tool in needed if self._catalog.spec(tool) is None)
        if missing:
            raise ToolMissing(
                f"the undo of saga {self._of} needs tools that are not registered here: {', '.join(missing)}",
                hint="give them with --tools or to Coordinator.open; nothing has changed",
                saga_id=self._of,
                tools=missing,
            )

    def _taken(self) -> SagaExists:
        return SagaExists(
            f"saga {self.saga_id} is another saga, but the undo of saga {self._of} has this id",
            hint=f"saga show {self.saga_id}",
            saga_id=self.saga_id,
        )
