"""What a session's agent did in its earlier lives, as the journal has it: its calls by place, and its rollbacks.

A call's place is its number among the calls that the agent makes, which is mostly the key of its step. It is another
one where a call took the place of one that did not happen, or that was undone before the session was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD
from saga_engine.core.session_records import opening_of

_SETTLED = (r.StepSucceeded, r.StepFailed, r.StepBlocked, r.ChildEnded, r.QuestionResolved, r.ApprovalExpired)


@dataclass(slots=True)
class Recorded:
    """``keys``: the calls by place. ``rollbacks``: after how many calls which of them were rolled back.

    ``anew``: calls that are made anew when the agent comes to them, if it turns out that they did not happen or were
    undone. ``unheard``: the last calls, as far as their agent may not know their outcome: it was not there yet, or
    only after an operator was asked.
    """

    keys: list[str] = field(default_factory=list)
    rollbacks: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    anew: set[str] = field(default_factory=set)
    unheard: set[str] = field(default_factory=set)


def recorded_calls(records: Sequence[r.AnyRecord], *, keeps: bool) -> Recorded:
    """The earlier lives in these records. ``keeps``: this life's session is kept when its agent fails.

    What the agent did last before its session was kept is open: it makes a call that failed once more, and what it
    rolled back then. An agent that called something else after a failure, or after a rollback, has dealt with it, and
    does so again. So has the agent of the session that this one is a fork of, with what was copied from there.
    """
    found = Recorded()
    last: set[str] = set()  # calls that were settled since the last call
    unsettled: set[str] = set()
    asked: set[str] = set()
    back: list[frozenset[str]] = []  # rollbacks since the last call
    copied = len(opening_of(records))
    for at, record in enumerate(records):
        if isinstance(record, r.CallAdded):
            last, back = set(), []
            unsettled.add(record.step)
            if 0 < record.place <= len(found.keys):
                found.keys[record.place - 1] = record.step
            else:
                found.keys.append(record.step)
        elif isinstance(record, r.PartialCompensationRequested):
            made = len(found.keys) if record.calls < 0 else record.calls
            found.rollbacks.append((made, frozenset(record.steps)))
            back.append(found.rollbacks[-1][1])
        elif isinstance(record, r.StepEscalated):
            if record.direction == FORWARD:
                asked.add(record.step)
        elif isinstance(record, _SETTLED):
            if record.direction == FORWARD:
                last.add(record.step)
                unsettled.discard(record.step)
        elif at == copied > 0:
            last, unsettled = set(), set()
        elif isinstance(record, r.SessionKept):
            found.anew |= last.union(unsettled, *back)
            del found.rollbacks[len(found.rollbacks) - len(back) :]
            last, back = set(), []
    if keeps and not back:
        found.anew |= last | unsettled
    known = [at for at, key in enumerate(found.keys) if key not in asked | unsettled]
    found.unheard = unsettled.union(found.keys[max(known, default=-1) + 1 :])
    return found
