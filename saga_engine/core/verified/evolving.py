"""What a look after an undo changes in the state."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from saga_engine.core import records as r
from saga_engine.core.look_records import Look
from saga_engine.core.state import State
from saga_engine.core.state_values import CallState


def begins(state: State, index: int, by: str, via: str = "", seen: Any = None) -> None:
    """An undo has ended, and is looked at ``by`` that; or it is known, or believed, without a look."""
    step = state.steps[index]
    state.looks.pop(index, None)
    if by:
        step.look = Look(by, since=state.at, seen=seen)
        state.looks[index] = state.at
    elif step.look is not None or via in ("unchanged", "probe"):
        step.look = Look(how="verified" if via in ("unchanged", "probe") else "said")


def looked(state: State, record: r.UndoLooked) -> None:
    """A look has told something."""
    index = state.plan.by_key[record.step]
    step = state.steps[index]
    if step.look is None or step.look.how != "pending":
        raise KeyError(f"nobody looks at the undo of step {record.step}")
    if record.how == "later":
        step.look = replace(step.look, times=step.look.times + 1)
        state.looks[index] = record.at + record.delay_ms
        return
    step.look = replace(step.look, how=record.how, error=record.error)
    del state.looks[index]


def is_pending(state: State, index: int) -> bool:
    """Whether the undo of a step is looked at."""
    look = state.steps[index].look if state.looks else None
    return look is not None and look.how == "pending"


def asks(state: State, index: int) -> None:
    """What the look has shown becomes a question."""
    step = state.steps[index]
    assert step.look is not None
    step.look = replace(step.look, how="asked")
    state.looks[index] = -1


def is_asked(state: State, index: int) -> bool:
    """Whether an operator is asked, or an undo is made again, because of what a look has shown."""
    look = state.steps[index].look
    return look is not None and look.how == "asked"


def again(state: State, index: int) -> None:
    """An operator wants the undo made again, with all its calls."""
    step = state.steps[index]
    if is_asked(state, index) and step.undo_call is not None:
        step.undo = CallState(asked=0 if step.undo is None else step.undo.asked)
        step.undo_call, step.undo_calls = None, ()


def ends(state: State, index: int) -> None:
    """What was asked about the undo is settled without another look."""
    step = state.steps[index]
    if is_asked(state, index):
        assert step.look is not None
        step.look = replace(step.look, how="said")
        state.looks.pop(index, None)
