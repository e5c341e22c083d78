"""A saga's plan as its journal holds it, and how it grows: accepted additions, and the check of further ones.

``Growth`` holds what a grown plan is compiled from. ``evolve`` needs the compiled plan as soon as steps are added, and
stays pure: compiling is a function of the plan, the tools' declarations and the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core.records import CallAdded, SagaStarted
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.amendments import Addition, Bounds, compile_grown
from saga_engine.plan.compiled import CompiledPlan, CompiledStep, Kind
from saga_engine.plan.compiler import Prepared, prepare_plan
from saga_engine.plan.model import Plan, load_json
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.session_steps import compile_builtin, compile_call
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.which_undo import UndoOf

#: A plan of fewer bytes has few steps: it is compiled as a whole, and kept for other sagas (``execution.plan_cache``).
_SMALL: Final = 4_000


def plan_of(started: SagaStarted) -> Any:
    """The journalled plan as plain JSON."""
    plan = started.plan
    return msgspec.json.decode(plan) if isinstance(plan, msgspec.Raw) else msgspec.to_builtins(plan)


def load_started(started: SagaStarted) -> Plan:
    """The journalled plan. Raises ``JournalUnreadable``, and ``PlanInvalid`` if this engine cannot read it."""
    body = plan_of(started)
    if not isinstance(body, dict):  # a text would be read as a file
        raise JournalUnreadable("the journal's plan is not an object", hint="the store was changed by hand")
    return load_json(body, session=started.session, recorded=True)


def compile_started(started: SagaStarted, catalog: ToolCatalog | None, plan: Plan | None = None) -> CompiledPlan:
    """The journalled plan (``plan``, if it is loaded already), compiled with the undos and reads of the submission."""
    return prepare_started(started, catalog, plan).compiled


def prepare_started(started: SagaStarted, catalog: ToolCatalog | None, plan: Plan | None = None) -> Prepared:
    """``compile_started`` for many sagas that differ in their input alone."""
    plan = plan or load_started(started)
    made = prepare_plan(plan, catalog, input=started.input, undos=started.undos, reads=frozenset(started.reads))
    return made if started.limits is None else made._replace(compiled=started.limits.applied(made.compiled))


def recorded_started(started: SagaStarted, body: bytes, catalog: ToolCatalog | None) -> CompiledPlan | None:
    """The journalled plan with steps that are compiled when they are first used; None: it is compiled as a whole.

    ``body``: the plan as JSON.
    """
    if len(body) < _SMALL:
        return None
    from saga_engine.plan.recorded import recorded_plan

    return recorded_plan(
        body,
        catalog,
        given=started.input,
        undos=started.undos,
        reads=frozenset(started.reads),
        limits=started.limits,
    )


class Added(NamedTuple):
    """An addition that was accepted, with what the tools' registrations said about it on that day."""

    addition: Addition
    undos: Mapping[str, str]
    reads: frozenset[str]


class Accepted(NamedTuple):
    """What is journalled with an addition: undos and reads by key, digests and sensitive params by tool."""

    undos: dict[str, str]
    reads: list[str]
    tools: dict[str, str]
    sensitive: dict[str, list[str]]


class Growth:
    """The plan of one saga and the available tools. Without a catalog it is enough for views, not for checks."""

    __slots__ = ("_catalog", "_plan", "_started")

    def __init__(self, started: SagaStarted, catalog: ToolCatalog | None, plan: Plan | None = None) -> None:
        self._started = started
        self._catalog = catalog
        self._plan = plan

    @property
    def limits(self) -> Limits | None:
        """The operator's limits when the saga started; None: none."""
        return self._started.limits

    def compile(self, added: Sequence[Added]) -> CompiledPlan:
        """The plan with all additions."""
        return self._compiled(added, fresh=False, bounds=None)

    def check(self, added: Sequence[Added], addition: Addition, bounds: Bounds | None = None) -> Accepted:
        """What is to be journalled with one more addition; raises ``PlanInvalid`` if it does not fit."""
        new = Added(addition, {}, frozenset())
        whole = self._compiled([*added, new], fresh=True, bounds=bounds)
        if self._started.limits is not None:
            self._started.limits.check_steps(len(whole.steps), len(whole.steps) - len(addition.steps))
        fresh = whole.steps[len(whole.steps) - len(addition.steps) :]
        keys = {step.key for step in fresh}
        return Accepted(
            undos={slot: undo for slot, undo in whole.undos.items() if slot.partition("#")[0] in keys},
            reads=sorted(whole.reads & keys),
            tools=whole.tool_digests,
            sensitive=whole.sensitive,
        )

    def call(self, record: CallAdded, index: int, by_key: Mapping[str, int]) -> CompiledStep:
        """The step of a session's call."""
        return self.call_of(record, index, by_key, self._catalog)

    def has_items(self, steps: Sequence[CompiledStep]) -> None:
        """The items of a list have got these steps."""

    @staticmethod
    def call_of(record: CallAdded, index: int, by_key: Mapping[str, int], catalog: ToolCatalog | None) -> CompiledStep:
        """The step of a session's call. Its params are values: they contain no bindings. Raises ``PlanInvalid``."""
        deps = tuple(sorted(by_key[key] for key in record.after))
        kind: Kind = "read" if record.read else "irreversible" if record.irreversible else "compensatable"
        undo = None
        if record.undo is not None:
            undo = UndoOf(record.undo, record.undo_params, record.undo_each, tuple(record.undo_then))
        if record.builtin:
            return compile_builtin(
                index,
                record.step,
                record.builtin,
                record.params,
                deps=deps,
                catalog=catalog,
                undo=undo,
                kind=kind,
            )
        return compile_call(
            index,
            record.step,
            record.tool,
            record.params,
            deps=deps,
            catalog=catalog,
            undo=undo,
            kind=kind,
            timeout_s=record.timeout_s,
            expect=record.expect or None,
        )

    def _compiled(self, added: Sequence[Added], *, fresh: bool, bounds: Bounds | None) -> CompiledPlan:
        undos = dict(self._started.undos)
        reads = set(self._started.reads)
        for each in added:
            undos |= each.undos
            reads |= each.reads
        compiled = compile_grown(
            self._source(),
            self._catalog,
            [each.addition for each in added],
            input=self._started.input,
            undos=undos,
            reads=frozenset(reads),
            fresh=fresh,
            bounds=bounds,
        )
        return compiled if self._started.limits is None else self._started.limits.applied(compiled)

    def _source(self) -> Plan:
        if self._plan is None:
            self._plan = load_started(self._started)
        return self._plan
