"""From a journal's records to the state of its saga: the only place where that is done.

A journal begins with ``SagaStarted``, which makes the first state; ``evolve`` applies every further record. Whoever
has all records calls ``fold`` or ``state_of``; whoever gets them one by one starts with ``state_at_start``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from saga_engine.core.evolve import evolve
from saga_engine.core.plan_growth import Growth, compile_started, load_started
from saga_engine.core.records import AnyRecord, SagaStarted
from saga_engine.core.state import State
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.tool_spec import ToolCatalog


def started_of(records: Sequence[AnyRecord]) -> SagaStarted:
    """The first record of a journal. Raises ``JournalUnreadable`` if the journal is empty or begins otherwise."""
    return _first(records[0] if records else None)


def begin(started: SagaStarted, plan: CompiledPlan, growth: Growth | None = None) -> State:
    """The state after the first record; without ``growth`` nothing can be added to the plan."""
    return State(started, plan, growth)


def state_at_start(started: SagaStarted, catalog: ToolCatalog | None) -> State:
    """The state after the first record, with the plan that the record holds.

    Raises ``PlanInvalid`` for a plan that this engine cannot read.
    """
    plan = load_started(started)
    return begin(started, compile_started(started, catalog, plan), Growth(started, catalog, plan))


def fold(
    records: Iterable[AnyRecord],
    plan: CompiledPlan,
    growth: Growth | None = None,
    *,
    note: Callable[[State, AnyRecord], None] | None = None,
) -> State:
    """The state after all records. ``note`` gets every record after the first, and the state after that record.

    Raises ``JournalUnreadable``.
    """
    iterator = iter(records)
    return _follow(begin(_first(next(iterator, None)), plan, growth), iterator, note)


def state_of(records: Sequence[AnyRecord], catalog: ToolCatalog | None = None) -> State:
    """The state after all records, with the plan that they hold; without a catalog it is enough for views.

    Raises ``JournalUnreadable``.
    """
    return _follow(state_at_start(started_of(records), catalog), records[1:])


def _first(record: AnyRecord | None) -> SagaStarted:
    if not isinstance(record, SagaStarted):
        raise JournalUnreadable(
            "a journal must begin with SagaStarted", hint="it was changed by hand, or it is none of this engine's"
        )
    return record


def _follow(
    state: State, records: Iterable[AnyRecord], note: Callable[[State, AnyRecord], None] | None = None
) -> State:
    for record in records:
        evolve(state, record)
        if note is not None:
            note(state, record)
    return state
