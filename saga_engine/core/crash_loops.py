"""Calls that may end their process, and the calls that such an end would leave in doubt for good. Pure.

What was in flight when an owner ended is a *suspect* until it has an outcome: it may have ended the owner, and would
then end the next one (``max_crashes`` of the operator's limits). A *bare* call, a write with neither key nor probe,
becomes a question to an operator if its process ends while it is in flight. The runtime keeps the two apart
(``runtime/trials.py``).
"""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction
from saga_engine.core.state import State
from saga_engine.plan.compiled import CompiledPlan, CompiledRollback
from saga_engine.plan.tool_spec import ToolSpec


def suspicion(state: State, record: r.AnyRecord) -> int:
    """How many owners in a row ended during what a record orders anew; 0: none, or it orders nothing."""
    kind = type(record)
    if kind is r.StepIntended or kind is r.ProbeIntended:
        return state.steps[state.plan.by_key[record.step]].call(record.direction).crashes  # type: ignore[union-attr]
    if kind is r.AlertIntended:
        alert = state.alerts.get(record.question)  # type: ignore[union-attr]
        return 0 if alert is None else alert.crashes
    if kind is r.PlannerAsked:
        return state.ask_crashes.get(state.plan.by_key[record.step], 0)  # type: ignore[union-attr]
    return 0


def orders_bare(state: State, record: r.AnyRecord) -> bool:
    """Whether a record orders a bare call."""
    return type(record) is r.StepIntended and is_bare(state, state.plan.by_key[record.step], record.direction)


def is_bare(state: State, index: int, direction: Direction) -> bool:
    """Whether only an operator can settle this call if its process ends during it."""
    return _bare(state.serving(index, direction).spec, direction)


def has_bare_calls(plan: CompiledPlan) -> bool:
    """Whether any call or undo that the plan may make is bare."""
    return any(_bare(call.spec, COMPENSATE if isinstance(call, CompiledRollback) else FORWARD) for call in plan.calls())


def bare_in_flight(state: State) -> bool:
    """Whether a bare call is in flight. One that waits for a guard is not: it would not be in doubt."""
    return any(flight == "call" and is_bare(state, *place) for place, flight in state.in_flight.items())


def suspect_in_flight(state: State) -> bool:
    """Whether something is in flight (a call, a probe, an alert, a request to a model) during which owners ended."""
    return (
        any(alert.crashes and alert.in_flight for alert in state.alerts.values())
        or any(each.here and state.ask_crashes.get(index) for index, each in state.pending.items())
        or any(
            flight != "queued" and state.steps[index].call(direction).crashes
            for (index, direction), flight in state.in_flight.items()
        )
    )


def has_suspects(state: State) -> bool:
    """Whether anything during which owners ended has no outcome yet. It looks at every step."""
    return (
        bool(state.ask_crashes)
        or any(alert.crashes for alert in state.alerts.values())
        or any(step.forward.crashes or (step.undo is not None and step.undo.crashes) for step in state.steps)
    )


def is_tried(state: State) -> bool:
    """As ``has_suspects``, but for calls that wait for a guard: as long as they do, they end no process."""
    if state.ask_crashes or any(alert.crashes for alert in state.alerts.values()):
        return True
    queued = {place for place, flight in state.in_flight.items() if flight == "queued"}
    return any(
        (step.forward.crashes and (index, FORWARD) not in queued)
        or (step.undo is not None and step.undo.crashes and (index, COMPENSATE) not in queued)
        for index, step in enumerate(state.steps)
    )


def _bare(spec: ToolSpec | None, direction: Direction) -> bool:
    if spec is None or spec.effect != "write" or spec.keyed or spec.probe is not None:
        return False
    return not (direction == COMPENSATE and spec.tolerates_absence)
