"""The records that a session's agent may request: a call, a rollback, the session's end, and that it is kept.

Each depends on the state at the moment of recording; None: the session is past it, and nothing is recorded.

A fork of a session opens with copies instead: the calls, their recorded outcomes, and that it waits for its agent.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.questions import OPTIONS
from saga_engine.core.state import State

#: How many calls a call names as those that it came after: waves of calls must not make the journal grow with their
#: square.
MAX_AFTER = 16
#: The id of the question of a fork, which is kept for its agent from the start: nothing failed.
FORKED = "session:fork"
#: The maximum length of an agent's error in a record, in characters.
_MAX_NOTE = 1000


def opening_of(records: Sequence[r.AnyRecord]) -> Sequence[r.AnyRecord]:
    """What a saga copied at its start: a fork of a session up to ``SessionKept``, an undo up to ``UndoRequested``.

    A fork of a plan: up to the last effect that it reuses. Empty if this is none of them, or copied nothing.
    """
    first = records[0] if records else None
    if isinstance(first, r.SagaStarted) and first.undo_of:
        ends = (at for at, record in enumerate(records) if isinstance(record, r.UndoRequested))
        return records[1 : next(ends, 0) + 1]
    if not (isinstance(first, r.SagaStarted) and first.fork_of):
        return ()
    if not first.session:
        reused = [at for at, record in enumerate(records) if isinstance(record, r.EffectReused)]
        return records[1 : reused[-1] + 1] if reused else ()
    for at, record in enumerate(records):
        if isinstance(record, r.SessionKept):
            return records[1 : at + 1]
        if at and not isinstance(record, r.CallAdded | r.EffectReused | r.StepFailed):
            break
    return ()


def takes_calls(state: State) -> bool:
    """Whether calls may be added: the session is open, and is neither being undone nor about to be."""
    open_ = state.open and not state.turns
    return open_ and not (state.questions and any(asked.of_session for asked in state.questions.values()))


def add_call(state: State, call: r.CallAdded, after: Sequence[str], now_ms: int) -> r.CallAdded | None:
    """The next call, which gets the next number; ``after`` are keys of the calls that had happened last by then."""
    if not takes_calls(state):
        return None
    return msgspec.structs.replace(call, at=now_ms, step=str(len(state.plan.steps) + 1), after=list(after))


def partial_compensation(
    state: State, chosen: Sequence[str], now_ms: int, calls: int = -1
) -> r.PartialCompensationRequested | None:
    """A rollback of those of the chosen calls that stand, after so many ``calls`` of the agent; one at a time."""
    if not takes_calls(state) or state.is_returning():
        return None
    standing = [key for key in chosen if state.steps[state.plan.by_key[key]].status == t.SUCCEEDED]
    return r.PartialCompensationRequested(at=now_ms, steps=standing, calls=calls) if standing else None


def close(state: State, reason: str, note: str, now_ms: int, message: str = "") -> r.SessionClosed | None:
    """The end of the session; with a ``reason``, all of it is undone. Else not while an operator is to decide that."""
    if not state.open or (not reason and any(asked.of_session for asked in state.questions.values())):
        return None
    return r.SessionClosed(at=now_ms, reason=reason, note=note[:_MAX_NOTE], message=message)


def keep(
    state: State, step: str, error: ErrorInfo, now_ms: int, *, ask: bool, idle_ms: int = 0, message: str = ""
) -> r.SessionKept | None:
    """The session stays open although its agent failed, because of ``error`` at ``step`` (empty: after its last call).

    ``ask``: an operator answers before the agent may continue. ``idle_ms``: for how long; 0: without a bound. None if
    there is nothing to keep: no call was recorded, or the session is about to be undone.
    """
    if not takes_calls(state) or not state.plan.steps:
        return None
    kind = "session-failed" if ask else "session-kept"
    return r.SessionKept(
        at=now_ms,
        step=step if step in state.plan.by_key else state.plan.steps[-1].key,
        # One owner keeps a session once: its agent is gone then, and the next one is another owner.
        question=f"session:{state.epoch}",
        kind=kind,
        options=list(OPTIONS[kind]),
        error=error,
        expires_ms=now_ms + idle_ms if idle_ms else None,
        message=message,
    )
