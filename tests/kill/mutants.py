"""Engines that are broken on purpose, to show that the kill matrix can fail. Applied in a child, after the fork."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from saga_engine.core import evolve, settling, state
from saga_engine.core import records as r
from saga_engine.ports import Ack, Entry
from saga_engine.runtime.writer import JournalWriter


def call_before_the_intent_is_durable() -> None:
    """The writer says 'ok' at once and writes later."""
    genuine = JournalWriter.append

    def append(self: JournalWriter, entry: Entry) -> Any:
        genuine(self, entry)
        early: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        early.set_result(Ack("ok", released=entry.release))
        return early

    JournalWriter.append = append  # type: ignore[method-assign]


def forget_the_calls_in_flight() -> None:
    """A resume starts them anew, as if they had never been sent."""

    def resumed(saga: Any, record: Any) -> None:
        saga.epoch = record.epoch
        for index, direction in list(saga.in_flight):
            saga.in_flight.pop((index, direction))
            saga.steps[index].call(direction).doubt = None
            saga.waiting[index, direction] = record.at

    evolve._HANDLERS[r.SagaResumed] = resumed


def take_calls_in_flight_for_done() -> None:
    """An intent is as good as a result."""
    genuine = evolve._HANDLERS[r.SagaResumed]

    def resumed(saga: Any, record: Any) -> None:
        for index, direction in list(saga.in_flight):
            step = saga.plan.steps[index].key
            done = r.StepSucceeded(at=record.at, step=step, direction=direction, output={"ref": f"i{step}"})
            evolve.evolve(saga, done)
        genuine(saga, record)

    evolve._HANDLERS[r.SagaResumed] = resumed


def repeat_what_is_in_doubt() -> None:
    """A write without a key is simply sent again."""
    settling._repeatable = lambda *_: True  # type: ignore[assignment]


def another_key_in_each_process() -> None:
    """The key does not survive the process."""
    genuine = state.idempotency_key
    state.idempotency_key = lambda *args: f"{genuine(*args)}:{os.getpid()}"  # type: ignore[assignment]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", " "): mutant
    for mutant in (
        call_before_the_intent_is_durable,
        forget_the_calls_in_flight,
        take_calls_in_flight_for_done,
        repeat_what_is_in_doubt,
        another_key_in_each_process,
    )
}
#: Each mutant, with the tools that show it.
CAUGHT_WITH = [
    ("call before the intent is durable", "keyed"),
    ("forget the calls in flight", "bare"),
    ("take calls in flight for done", "keyed"),
    ("repeat what is in doubt", "bare"),
    ("another key in each process", "keyed"),
]
