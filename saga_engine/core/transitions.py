"""The two machines, as tables: what may happen to a saga, and to a step of it.

The rules, in words:

* A saga runs forward until every step has happened (COMPLETED), or until a failure, a cancel, the deadline or the call
  limit turns it around (COMPENSATING). It never turns around again.
* It rests (ESCALATED) only when nothing can go on before a person answers; an answer puts it back on the way it was.
* It ends COMPENSATED only if everything that happened was undone; if a person accepted a remainder, it is WAIVED.
* A step that the policy refused is BLOCKED, which is not FAILED: nothing was called.
* A step that happened can only be undone; a step that did not happen can only be left alone. A step of which neither is
  known (IN_DOUBT) can become either, but only by evidence: an answer, a probe, a person.
* What an undo achieved is never guessed: COMPENSATED needs its answer, or those of all the steps that make up for it;
  RESOLVED needs a person.

The tables are in the form that ``transitions.Machine`` takes. One shared machine per table is built at import, with
no model and no callbacks; ``SAGA_MOVES`` and ``STEP_MOVES``, the look-ups of the hot path, are compiled from these
machines, and so are the diagrams in the docs. (Never ``AsyncMachine``: 0.9.3 swallows cancellation.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from transitions import Machine

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
    WAIVED,
)

# --- the saga ----------------------------------------------------------------------------------------------------

SAGA_TRANSITIONS: Final = (
    # trigger, sources, destination
    ("go", [PENDING, RUNNING], RUNNING),
    ("compensate", [PENDING, RUNNING], COMPENSATING),
    ("escalate", [PENDING, RUNNING, COMPENSATING], ESCALATED),
    ("answer_forward", [PENDING, ESCALATED, RUNNING], RUNNING),
    ("answer_backward", [ESCALATED, COMPENSATING], COMPENSATING),
    ("complete", [PENDING, RUNNING], COMPLETED),
    ("compensated", [COMPENSATING], COMPENSATED),
    ("waive", [RUNNING, COMPENSATING, ESCALATED], WAIVED),
)

# --- a step ------------------------------------------------------------------------------------------------------

STEP_TRANSITIONS: Final = (
    # forward
    ("intend", [PENDING, RUNNING, IN_DOUBT, ESCALATED], RUNNING),
    ("succeed", [RUNNING, IN_DOUBT, ESCALATED], SUCCEEDED),
    ("fail", [PENDING, RUNNING, IN_DOUBT, ESCALATED], FAILED),
    # the policy, or the operator whom it asked, refused a call of which no earlier attempt is in doubt
    ("block", [RUNNING, ESCALATED], BLOCKED),
    ("doubt", [RUNNING, IN_DOUBT, ESCALATED], IN_DOUBT),
    ("skip", [PENDING], SKIPPED),
    # a fork reuses what another saga's step did
    ("reuse", [PENDING], SUCCEEDED),
    # backward: a blind undo starts from IN_DOUBT, an undo after an answer from ESCALATED
    ("undo", [SUCCEEDED, IN_DOUBT, COMPENSATING, ESCALATED], COMPENSATING),
    ("undone", [COMPENSATING], COMPENSATED),
    ("undo_failed", [SUCCEEDED, COMPENSATING, ESCALATED], COMPENSATION_FAILED),
    # all steps of its semantic compensation have happened
    ("compensated_by_others", [COMPENSATION_FAILED], COMPENSATED),
    # people; from RUNNING when the policy wants their word before the call is made
    (
        "escalate",
        [PENDING, RUNNING, FAILED, BLOCKED, IN_DOUBT, SUCCEEDED, COMPENSATING, COMPENSATION_FAILED, ESCALATED],
        ESCALATED,
    ),
    ("resolve", [ESCALATED], RESOLVED),
)

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
    "SAGA_MACHINE",
    "SAGA_MOVES",
    "SAGA_STATES",
    "SAGA_TRANSITIONS",
    "SKIPPED",
    "STEP_MACHINE",
    "STEP_MOVES",
    "STEP_REST",
    "STEP_STATES",
    "STEP_TRANSITIONS",
    "SUCCEEDED",
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


def mermaid(of: Machine, final: Sequence[str] | frozenset[str]) -> str:
    """The machine as a Mermaid state diagram; edges between the same two states share a line."""
    edges: dict[tuple[str, str], list[str]] = {}
    for (source, trigger), dest in compile_moves(of).items():
        if source != dest:
            edges.setdefault((source, dest), []).append(trigger)
    lines = ["stateDiagram-v2", f"    [*] --> {of.initial}"]
    lines += [f"    {source} --> {dest}: {', '.join(sorted(names))}" for (source, dest), names in sorted(edges.items())]
    lines += [f"    {state} --> [*]" for state in of.states if state in final]
    return "\n".join(lines)
