"""The two machines, as tables: what may happen to a saga, and to a step of it.

The rules, in words:

* A saga runs forward until every step has happened (COMPLETED), or until a failure, a cancel, the deadline or the call
  limit turns it around (COMPENSATING). It never turns around again.
* It rests (ESCALATED) only when nothing can go on before an operator answers; an answer puts it back on the way it was.
* It ends COMPENSATED only if everything that happened was undone; if an operator accepted a remainder, or an
  irreversible step happened, it is WAIVED.
* A step that calls no tool may wait (WAITING); the wait ends once: by what it waits for, by its time, or by the turn of
  the saga, which skips the step.
* A step that the policy refused is BLOCKED, which is not FAILED: nothing was called.
* A step that happened can only be undone; a step that did not happen can only be left alone. A step of which neither is
  known (IN_DOUBT) can become either, but only by evidence: an answer, a probe, an operator.
* What an undo achieved is never guessed: COMPENSATED needs its answer, or those of its semantic compensation;
  RESOLVED needs an operator, or the end of the saga that undid a child.

The tables are in the form that ``transitions.Machine`` takes. One shared machine per table is built at import, with
no model and no callbacks; ``SAGA_MOVES`` and ``STEP_MOVES``, the look-ups of the hot path, are compiled from these
machines, and so are the diagrams in the docs. (Never ``AsyncMachine``: 0.9.3 swallows cancellation.)

A trigger may have a guard, which the diagrams show in brackets. ``decide`` and ``interpret`` make no record that a
guard forbids; ``evolve`` refuses one (``JournalUnreadable``), so no journal leads past a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from transitions import Machine

from saga_engine.core.effects import FORWARD
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState, Turning
from saga_engine.core.states import (
    BLOCKED,
    COMPENSATED,
    COMPENSATING,
    COMPENSATION_FAILED,
    COMPLETED,
    ESCALATED,
    FAILED,
    IN_DOUBT,
    PENDING,
    RESOLVED,
    RUNNING,
    SAGA_FINAL,
    SAGA_STATES,
    SKIPPED,
    STEP_REST,
    STEP_STATES,
    SUCCEEDED,
    WAITING,
    WAIVED,
)

_Of = TypeVar("_Of")


class Guard(NamedTuple, Generic[_Of]):
    """What must be true of a saga or a step for a transition, in words and as a check."""

    words: str
    holds: Callable[[_Of], bool]


def _at_end(saga: State, status: str) -> bool:
    """Whether the plan has no ``finally``, or it ran before this end, and none of its calls waits or is in flight."""
    if saga.ending is None:
        return not saga.plan.final
    return saga.ending.status == status and not (saga.in_flight or saga.waiting or saga.doubts or saga.to_escalate)


# --- the saga ----------------------------------------------------------------------------------------------------

SAGA_TRANSITIONS: Final = (
    # trigger, sources, destination
    ("go", [PENDING, RUNNING], RUNNING),
    ("compensate", [PENDING, RUNNING], COMPENSATING),
    ("refuse", [RUNNING], RUNNING),  # it cannot turn around
    ("escalate", [PENDING, RUNNING, COMPENSATING], ESCALATED),
    ("answer_forward", [PENDING, ESCALATED, RUNNING], RUNNING),
    ("answer_backward", [ESCALATED, COMPENSATING], COMPENSATING),
    ("complete", [PENDING, RUNNING], COMPLETED),
    ("compensated", [COMPENSATING], COMPENSATED),
    ("waive", [RUNNING, COMPENSATING, ESCALATED], WAIVED),
)
SAGA_GUARDS: Final[Mapping[str, Guard[State]]] = {
    "compensate": Guard(
        "turning, no forward call in flight, pivot not passed",
        lambda saga: isinstance(saga.phase, Turning) and not (saga.calls_forward() or saga.past_pivot),
    ),
    "refuse": Guard("turning, pivot passed", lambda saga: isinstance(saga.phase, Turning) and saga.past_pivot),
    "escalate": Guard("a question is open", lambda saga: bool(saga.questions)),
    "answer_forward": Guard("not turned around", lambda saga: not saga.backward),
    "answer_backward": Guard("turned around", lambda saga: saga.backward),
    "complete": Guard(
        "forward, every step happened, finally ended",
        lambda saga: saga.phase == FORWARD and saga.is_done() and _at_end(saga, COMPLETED),
    ),
    "compensated": Guard(
        "everything undone, finally ended",
        lambda saga: saga.is_undone() and not saga.left_any and _at_end(saga, COMPENSATED),
    ),
    "waive": Guard("a remainder is accepted, finally ended", lambda saga: saga.left_any and _at_end(saga, WAIVED)),
}

# --- a step ------------------------------------------------------------------------------------------------------

STEP_TRANSITIONS: Final = (
    # forward
    ("intend", [PENDING, RUNNING, IN_DOUBT, ESCALATED], RUNNING),
    # a built-in step waits for time, an event or another saga; from ESCALATED if an operator wants that once more
    ("wait", [PENDING, ESCALATED], WAITING),
    ("succeed", [RUNNING, WAITING, IN_DOUBT, ESCALATED], SUCCEEDED),
    # a computation has its result
    ("compute", [PENDING], SUCCEEDED),
    ("fail", [PENDING, RUNNING, WAITING, IN_DOUBT, ESCALATED], FAILED),
    # the policy, or the operator whom it asked, refused a call of which no earlier attempt is in doubt
    ("block", [RUNNING, ESCALATED], BLOCKED),
    ("doubt", [RUNNING, IN_DOUBT, ESCALATED], IN_DOUBT),
    ("skip", [PENDING, WAITING], SKIPPED),
    # the output of a read, or of a computation, means failure
    ("reject", [SUCCEEDED], FAILED),
    # a fork reuses what another saga's step did
    ("reuse", [PENDING], SUCCEEDED),
    # backward: a blind undo starts from IN_DOUBT, an undo after an answer from ESCALATED
    ("undo", [SUCCEEDED, IN_DOUBT, COMPENSATING, ESCALATED], COMPENSATING),
    ("undone", [COMPENSATING], COMPENSATED),
    ("undo_failed", [SUCCEEDED, COMPENSATING, ESCALATED], COMPENSATION_FAILED),
    # a later call of the agent or of the plan was its undo
    ("taken_back", [SUCCEEDED], COMPENSATED),
    # all steps of its semantic compensation have happened
    ("compensated_by_others", [COMPENSATION_FAILED], COMPENSATED),
    # a question; from RUNNING if the policy requires an approval before the call
    (
        "escalate",
        [PENDING, RUNNING, FAILED, BLOCKED, IN_DOUBT, SUCCEEDED, COMPENSATING, COMPENSATION_FAILED, ESCALATED],
        ESCALATED,
    ),
    # the undo was looked at, and the value is not as it was before the call
    ("reopen", [COMPENSATED, RESOLVED], ESCALATED),
    ("resolve", [ESCALATED], RESOLVED),
    # the undo of its child left something: that was accepted, or declared, there
    ("leave", [COMPENSATING], RESOLVED),
)


def _is_looked(step: StepState, how: str) -> bool:
    return step.look is not None and step.look.how == how


_SETTLED: Final = Guard[StepState]("no doubt", lambda step: step.forward.doubt is None)
STEP_GUARDS: Final[Mapping[str, Guard[StepState]]] = {
    "succeed": _SETTLED,
    "fail": _SETTLED,
    "block": _SETTLED,
    "doubt": Guard("doubt", lambda step: step.forward.doubt is not None),
    "undo": Guard("undo wanted", lambda step: step.undo_waits is not None or _is_looked(step, "asked")),
    "reopen": Guard("its undo is looked at", lambda step: _is_looked(step, "pending")),
    "undone": Guard("undo not in doubt", lambda step: step.undo is not None and step.undo.doubt is None),
    "taken_back": Guard("a call was its undo", lambda step: step.undone_by >= 0),
    "compensated_by_others": Guard("all its steps happened", lambda step: step.semantic == "happened"),
}

__all__ = [
    "BLOCKED",
    "COMPENSATED",
    "COMPENSATING",
    "COMPENSATION_FAILED",
    "COMPLETED",
    "ESCALATED",
    "FAILED",
    "IN_DOUBT",
    "PENDING",
    "RESOLVED",
    "RUNNING",
    "SAGA_FINAL",
    "SAGA_GUARDS",
    "SAGA_MACHINE",
    "SAGA_MOVES",
    "SAGA_STATES",
    "SAGA_TRANSITIONS",
    "SKIPPED",
    "STEP_GUARDS",
    "STEP_MACHINE",
    "STEP_MOVES",
    "STEP_REST",
    "STEP_STATES",
    "STEP_TRANSITIONS",
    "SUCCEEDED",
    "WAITING",
    "WAIVED",
    "compile_moves",
    "machine",
    "mermaid",
]

Table = Sequence[tuple[str, Sequence[str], str]]
Moves = Mapping[tuple[str, str], str]


def machine(states: Sequence[str], table: Table) -> Machine:
    """One shared, synchronous machine without a model: the table, checked by the library."""
    return Machine(
        model=None,
        states=list(states),
        transitions=[[trigger, list(sources), dest] for trigger, sources, dest in table],
        initial=PENDING,
        auto_transitions=False,
    )


def compile_moves(of: Machine) -> dict[tuple[str, str], str]:
    """The look-up ``(state, trigger) -> state`` of a machine. An absent pair is an error, never a default."""
    return {
        (source, trigger): str(transition.dest)
        for trigger, event in of.events.items()
        for source, transitions in event.transitions.items()
        for transition in transitions
    }


SAGA_MACHINE: Final = machine(SAGA_STATES, SAGA_TRANSITIONS)
STEP_MACHINE: Final = machine(STEP_STATES, STEP_TRANSITIONS)
SAGA_MOVES: Final[Moves] = compile_moves(SAGA_MACHINE)
STEP_MOVES: Final[Moves] = compile_moves(STEP_MACHINE)


def mermaid(of: Machine, final: Sequence[str] | frozenset[str], guards: Mapping[str, Guard[Any]]) -> str:
    """The machine with its guards as a Mermaid state diagram; edges between the same two states share a line.

    A trigger that leaves one state as it is and changes another is drawn for the change only.
    """
    edges: dict[tuple[str, str], list[str]] = {}
    moves = compile_moves(of)
    changing = {trigger for (source, trigger), dest in moves.items() if source != dest}
    for (source, trigger), dest in moves.items():
        if source != dest or trigger not in changing:
            guard = guards.get(trigger)
            edges.setdefault((source, dest), []).append(f"{trigger} [{guard.words}]" if guard else trigger)
    lines = ["stateDiagram-v2", f"    [*] --> {of.initial}"]
    lines += [f"    {source} --> {dest}: {', '.join(sorted(names))}" for (source, dest), names in sorted(edges.items())]
    lines += [f"    {state} --> [*]" for state in of.states if state in final]
    return "\n".join(lines)
