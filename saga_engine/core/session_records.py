"""The records that a session's agent may request: a call, a rollback to a savepoint, and the end of the session.

Each depends on the state at the moment of recording; None: the session is past it, and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.state import State

#: How many calls a call names as those that it came after: waves of calls must not make the journal grow with their
#: square.
MAX_AFTER = 16
#: The maximum length of an agent's error in a record, in characters.
_MAX_NOTE = 1000


def takes_calls(state: State) -> bool:
    """Whether calls may be added: the session is open, and is neither being undone nor about to be."""
    return state.open and not state.turns


def add_call(state: State, call: r.CallAdded, after: Sequence[str], now_ms: int) -> r.CallAdded | None:
    """The next call, which gets the next number; ``after`` are keys of the calls that had happened last by then."""
    if not takes_calls(state):
        return None
    return msgspec.structs.replace(call, at=now_ms, step=str(len(state.plan.steps) + 1), after=list(after))


def partial_compensation(state: State, chosen: Sequence[str], now_ms: int) -> r.PartialCompensationRequested | None:
    """A rollback of those of the chosen calls that stand; one at a time."""
    if not takes_calls(state) or state.undo_open:
        return None
    standing = [key for key in chosen if state.steps[state.plan.by_key[key]].status == t.SUCCEEDED]
    return r.PartialCompensationRequested(at=now_ms, steps=standing) if standing else None


def close(state: State, reason: str, note: str, now_ms: int, message: str = "") -> r.SessionClosed | None:
    """The end of the session; with a ``reason``, all of it is undone."""
    if not state.open:
        return None
    return r.SessionClosed(at=now_ms, reason=reason, note=note[:_MAX_NOTE], message=message)
