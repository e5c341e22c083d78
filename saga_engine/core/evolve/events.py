"""What the records of events change for a step that waits for several of them."""

from __future__ import annotations

from typing import Any

from saga_engine.core import records as r
from saga_engine.core.evolve.transition import index_of
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState
from saga_engine.core.waits import Came, Pending


def event_arrived(state: State, record: r.EventArrived) -> None:
    """One of the events came for which a step waits, and it waits for the others."""
    index = index_of(state, record)
    wait = state.pending[index]
    _came(state.steps[index], wait, record.entry, record.source, record.output)
    if wait.word != "all" or len(state.steps[index].came) == len(wait.events()):
        raise KeyError(f"step {record.step} does not wait for more than event {record.entry}")


def event_taken(step: StepState, wait: Pending | None, record: r.StepSucceeded) -> None:
    """An event ended the wait of a step. The payloads of those that came before it are in its output."""
    step.event = record.source
    if wait is None or record.entry is None:
        return
    _came(step, wait, record.entry, record.source, None)
    step.came = {entry: each._replace(payload=None) for entry, each in step.came.items()}
    if len(step.came) != (len(wait.events()) if wait.word == "all" else 1):
        raise KeyError(f"step {record.step} waits for other events, too")


def _came(step: StepState, wait: Pending, entry: int, source: str, payload: Any) -> None:
    events = wait.events()
    if not wait.word or not 0 <= entry < len(events) or entry in step.came:
        raise KeyError(f"a step does not wait for its event {entry} (any more)")
    step.came = {**step.came, entry: Came(*events[entry], source, payload)}
