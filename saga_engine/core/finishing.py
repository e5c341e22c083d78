"""The steps of a plan's ``finally``: they run between the last undo, or the last step, and the end of the saga.

Their outcome never changes the end. A step that fails, is refused, or stays in doubt has ended like any other: those
that wait for it start, and operators are notified. Nobody is asked, and neither a cancel nor the deadline stops these
steps; but from ``until`` on no further call starts, so the end always comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.questions import unsettled
from saga_engine.core.report import failure, report
from saga_engine.core.state import State
from saga_engine.core.state_values import Ending
from saga_engine.language.errors import said
from saga_engine.plan.limits import FINALLY_S

_NONE: Sequence[r.AnyRecord] = ()
_OVER: Final = ErrorInfo("finally_over", said("finally_over", s=f"{FINALLY_S:g}"))


def end(state: State, record: r.AnyRecord, now: int) -> Sequence[r.AnyRecord]:
    """The end of a saga, ``record``; if its plan has a ``finally``, the start of that."""
    if not state.plan.final:
        return [record]
    status = next(status for status, kind in _RECORDS.items() if isinstance(record, kind))
    told, why = report(state, status), failure(state)
    facts = {
        "reason": state.reason or "",
        "error": None if why is None else why.plain(),
        "clean": told.clean,
        "compensated": told.compensated,
        "left": [*told.left_in_place, *told.unresolved, *told.failed],
    }
    return [r.FinallyStarted(at=now, end=status, until_ms=now + round(FINALLY_S * 1000), facts=facts)]


def decide(
    state: State,
    ending: Ending,
    now: int,
    calls: Callable[[State, int], Sequence[r.AnyRecord]],
    *,
    alerting: bool,
) -> Sequence[r.AnyRecord]:
    """What follows for a saga whose end is certain; ``calls`` are those that can start or be settled."""
    if now >= ending.until:
        if state.in_flight:
            return _NONE
        return _closed(state, now) or [_end(ending, now)]
    if state.to_escalate:
        return [unsettled(state, index, now) for index, _ in state.to_escalate]
    if out := calls(state, now):
        return out
    if state.in_flight or state.waiting or (alerting and state.alerts):
        return _NONE
    return [_end(ending, now)]


def _closed(state: State, now: int) -> Sequence[r.AnyRecord]:
    """The time of the steps is over: what still waits is not made any more."""
    places = dict.fromkeys(index for index, _ in (*state.waiting, *state.doubts, *state.to_escalate))
    return [
        unsettled(state, index, now)
        if state.steps[index].forward.doubt
        else r.StepFailed(at=now, step=state.plan.steps[index].key, error=state.steps[index].forward.error or _OVER)
        for index in places
    ]


def _end(ending: Ending, now: int) -> r.AnyRecord:
    return _RECORDS[ending.status](at=now)


_End = type[r.SagaCompleted | r.SagaCompensated | r.SagaWaived]
_RECORDS: Final[Mapping[str, _End]] = {
    t.COMPLETED: r.SagaCompleted,
    t.COMPENSATED: r.SagaCompensated,
    t.WAIVED: r.SagaWaived,
}
