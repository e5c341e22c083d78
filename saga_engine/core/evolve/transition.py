"""The small moves that all of ``evolve`` is made of: by the tables, or not at all."""

from __future__ import annotations

from typing import Any

from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, Direction
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState, Turning


def move(step: StepState, trigger: str) -> None:
    """Move a step by its table; a pair that is not in it, or that its guard forbids, raises ``KeyError``."""
    guard = t.STEP_GUARDS.get(trigger)
    if guard is not None and not guard.holds(step):
        raise KeyError(f"{step.status}, {trigger}: not [{guard.words}]")
    step.status = t.STEP_MOVES[step.status, trigger]


def turn_saga(state: State, trigger: str) -> None:
    """Move a saga by its table; a pair that is not in it, or that its guard forbids, raises ``KeyError``."""
    guard = t.SAGA_GUARDS.get(trigger)
    if guard is not None and not guard.holds(state):
        raise KeyError(f"{trigger}: not [{guard.words}]")
    state.status = t.SAGA_MOVES[state.status, trigger]


def wake(state: State) -> None:
    """A saga that rests has something to do: it resumes its direction."""
    if state.status == t.ESCALATED:
        turn_saga(state, "answer_backward" if state.backward else "answer_forward")


def stop(state: State, reason: str, said: str = "") -> None:
    """The saga is to turn around; the first reason counts, and no other way is wanted any more."""
    if not state.turns:
        state.phase = Turning(reason, said)
        state.pending = {index: each for index, each in state.pending.items() if each.on != "planner"}
        _drop_session_questions(state)


def _drop_session_questions(state: State) -> None:
    """Everything is undone, whoever wanted that: nobody is asked about the session any more."""
    for asked in [question.id for question in state.questions.values() if question.of_session]:
        for about in (state.questions, state.alerts, state.reminders):
            about.pop(asked, None)


def index_of(state: State, record: Any) -> int:
    """The index of the step that a record is about."""
    return state.plan.by_key[record.step]


def settle(state: State, step: StepState, index: int, direction: Direction, at: int) -> None:
    """A call is over and nothing about it is in doubt."""
    place = (index, direction)
    state.in_flight.pop(place, None)
    if state.waiting:
        state.waiting.pop(place, None)
    if state.doubts:
        state.doubts.pop(place, None)
    call = step.forward if direction == FORWARD else step.undo or step.call(direction)  # without a call of its own
    call.doubt = None
    if call.takeovers:
        call.answered()
    call.over(at)
    call.ended_at = at
